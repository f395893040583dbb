// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// shownNames is how many names an error lists; --list shows them all.
const shownNames = 10

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
	kept, err := o.readConfigMaps(ctx, wanted)
	if err != nil {
		return nil, err
	}
	out = append(out, kept...)
	slices.SortStableFunc(out, func(a, b controller.Entry) int { return a.Time.Compare(b.Time) })
	return out, oneLifeEach(out)
}

func (o *restoreOptions) readConfigMaps(ctx context.Context, names []string) ([]controller.Entry, error) {
	if len(names) == 0 {
		return nil, nil
	}
	journal, err := o.journal()
	if err != nil {
		return nil, err
	}
	all, err := journal.List(ctx)
	if err != nil {
		return nil, err
	}
	var chosen []controller.KeptEntry
	for _, name := range names {
		kept, err := choose(all, name, journal.Namespace)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(chosen, func(k controller.KeptEntry) bool { return k.Name == kept.Name }) {
			chosen = append(chosen, kept)
		}
	}
	entries := make([]controller.Entry, 0, len(chosen))
	for _, kept := range chosen {
		entry, err := journal.Read(ctx, kept)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry)
	}
	return entries, nil
}

// named returns the entries that a name may mean: the entry of that name, or of that ConfigMap, or else those of the machine. They are oldest first.
func named(all []controller.KeptEntry, name string) []controller.KeptEntry {
	var ofHost []controller.KeptEntry
	for _, kept := range all {
		if kept.Name == name || kept.Holds(name) {
			return []controller.KeptEntry{kept}
		}
		if kept.Host == name {
			ofHost = append(ofHost, kept)
		}
	}
	return ofHost
}

// choose returns the one entry that a name means. Of several entries of a machine none is newest enough: the machine may have come and gone in between,
// or its clean-up was interrupted, and the newest entry holds just what had been left. Only if they hold the same it does not matter.
func choose(all []controller.KeptEntry, name, namespace string) (controller.KeptEntry, error) {
	found := named(all, name)
	if len(found) == 0 {
		return controller.KeptEntry{}, unknownName(all, name, namespace)
	}
	complete := slices.DeleteFunc(slices.Clone(found), func(k controller.KeptEntry) bool { return !k.Complete() })
	if len(complete) == 0 {
		last := found[len(found)-1]
		return controller.KeptEntry{}, fmt.Errorf("entry %s is incomplete, %d of its %d parts are there: the clean-up that it was for did not begin with it, "+
			"and it holds nothing to put back", last.Name, last.Found(), last.Parts)
	}
	newest := complete[len(complete)-1]
	if slices.ContainsFunc(complete, func(k controller.KeptEntry) bool { return k.Content != newest.Content }) {
		return controller.KeptEntry{}, fmt.Errorf("machine %s has %d different entries: name the one to put back, or all those of one clean-up that was interrupted: %s",
			name, len(complete), listed(complete, describe))
	}
	return newest, nil
}

// describe is an entry in an error.
func describe(kept controller.KeptEntry) string {
	return fmt.Sprintf("%s (%s)", kept.Name, prose.Plural(kept.Objects, "object"))
}

// unknownName says which names there are.
func unknownName(all []controller.KeptEntry, name, namespace string) error {
	if len(all) == 0 {
		return fmt.Errorf("there is no %q to restore: the journal in namespace %s is empty", name, namespace)
	}
	told := map[string]bool{}
	hosts := slices.DeleteFunc(slices.Clone(all), func(k controller.KeptEntry) bool {
		again := told[k.Host]
		told[k.Host] = true
		return again
	})
	return fmt.Errorf("there is no %q to restore: the journal in namespace %s has entries of %s; restore --list shows them", name, namespace,
		listed(hosts, func(k controller.KeptEntry) string { return k.Host }))
}

// listed names up to shownNames entries, the newest first.
func listed(kept []controller.KeptEntry, describe func(controller.KeptEntry) string) string {
	var names []string
	for _, k := range slices.Backward(kept) {
		names = append(names, describe(k))
	}
	more := ""
	if len(names) > shownNames {
		more = fmt.Sprintf(" and %d more", len(names)-shownNames)
		names = names[:shownNames]
	}
	return strings.Join(names, ", ") + more
}

// oneLifeEach refuses entries of a machine that was removed, joined again and was removed again, which would be put one onto the other.
func oneLifeEach(entries []controller.Entry) error {
	lives := map[string]string{}
	for _, entry := range entries {
		life := lifeOf(entry)
		if other := lives[entry.Host]; other != "" && life != "" && other != life {
			return fmt.Errorf("the entries of machine %s are of two Calico Nodes of that name (UID %s and %s), since it joined again in between: name those of one",
				entry.Host, other, life)
		}
		if life != "" {
			lives[entry.Host] = life
		}
	}
	return nil
}

// lifeOf is the UID of the Calico Node in an entry, "" if there is none.
func lifeOf(entry controller.Entry) string {
	for _, object := range entry.Objects {
		if !strings.HasSuffix(object.Key, "/nodes/"+entry.Host) {
			continue
		}
		var node struct {
			Metadata struct {
				UID string `json:"uid"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal([]byte(object.Value), &node); err == nil {
			return node.Metadata.UID
		}
	}
	return ""
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
		found := named(all, name)
		if len(found) == 0 {
			return unknownName(all, name, journal.Namespace)
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
			fmt.Fprintf(&incomplete, "ignored %s: %d of its %d parts are there, so nothing was removed on its account; the controller drops it in time\n",
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
