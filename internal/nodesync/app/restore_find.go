// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/platform/command"
)

// isFile tells a file of --journal-dir from a name: no machine and no entry has a slash in its name, and no entry ends so.
func isFile(name string) bool { return strings.Contains(name, "/") || strings.HasSuffix(name, ".json") }

// read returns the entries that are named, oldest first, or an error before anything has been written.
func (o *restoreOptions) read(ctx context.Context, names []string) ([]controller.Entry, error) {
	var out []controller.Entry
	var wanted []string
	for _, name := range names {
		if !isFile(name) {
			wanted = append(wanted, name)
			continue
		}
		entry, err := controller.ReadEntry(name)
		if err != nil {
			return nil, err
		}
		out = append(out, entry)
	}
	if len(wanted) > 0 {
		journal, err := o.journal()
		if err != nil {
			return nil, err
		}
		kept, err := journal.ReadNamed(ctx, wanted)
		if err != nil {
			return nil, err
		}
		out = append(out, kept...)
	}
	slices.SortStableFunc(out, func(a, b controller.Entry) int { return a.Time.Compare(b.Time) })
	return out, controller.OneLifeEach(out)
}

// runList prints the entries, the newest first.
func (o *restoreOptions) runList(ctx context.Context, names []string, out io.Writer) error {
	journal, err := o.journal()
	if err != nil {
		return err
	}
	all, err := journal.List(ctx)
	if err != nil {
		return err
	}
	shown := all
	if len(names) > 0 {
		shown = nil
	}
	for _, name := range names {
		found := controller.NamedEntries(all, name)
		if len(found) == 0 {
			return controller.UnknownEntry(all, name, journal.Namespace)
		}
		shown = append(shown, found...)
	}
	return printEntries(out, shown, journal.Namespace)
}

func printEntries(out io.Writer, kept []controller.KeptEntry, namespace string) error {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(table, "ENTRY\tHOST\tWHEN\tOBJECTS\tBECAUSE")
	var incomplete strings.Builder
	rows := 0
	for _, k := range slices.Backward(kept) {
		if !k.Complete() {
			fmt.Fprintf(&incomplete, "ignored %s: %d of its %d parts exist, so nothing was removed because of it; the controller deletes it later\n",
				k.Name, k.Found(), k.Parts)
			continue
		}
		rows++
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\n", k.Name, k.Host, k.Time.UTC().Format(time.RFC3339), k.Objects, k.Because)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("printing the journal: %w", err)
	}
	printed := text.String() + incomplete.String()
	if rows == 0 {
		printed = "the journal in namespace " + namespace + " has no entry\n" + incomplete.String()
	}
	if _, err := io.WriteString(out, command.Printable(printed)); err != nil {
		return fmt.Errorf("printing the journal: %w", err)
	}
	return nil
}
