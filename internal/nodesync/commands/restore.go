// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// restoreLong is what the command does in both programs.
const restoreLong = `Put back what calico-node-sync has removed of machines, from its journal: the Calico Node, workload endpoints and other resources, as they were. NAME is a machine, or
an entry of the journal in ConfigMaps, which --list shows. A machine with several different entries is refused: name one, or all those of one clean-up that was
interrupted.

Objects that exist again are not changed. Addresses that are still free are restored under their handles, in their block or in a new block for the machine; with
the kubernetes datastore only those of leftovers of pods. Objects with an address that was assigned again since are refused, and so is a machine that joined again.

While Kubernetes has no such Node, a running calico-node-sync removes it again after the grace period, unless the Calico Node has the annotation
` + nodesync.KeepAnnotation + `.

`

// restoreExitCodes is the sentence about them.
const restoreExitCodes = "\n\nExit codes: 0 everything is restored; 2 something was not, for the reason that is printed; 1 an error, or it is not finished."

// Restorer is what restores: with the credentials of Calico's datastore, or by a request to the controller that has them.
type Restorer interface {
	// Journal is the journal in ConfigMaps.
	Journal(ctx context.Context) (*controller.ConfigMapJournal, error)
	// Restore puts back what the names mean and prints what was done, or with dryRun what would be. The error carries the exit code.
	Restore(ctx context.Context, names []string, dryRun bool, out io.Writer) error
}

// NewRestore returns the command that puts back what the journal holds. how says in words what is the restorer's own.
func NewRestore(r Restorer, how string) *cobra.Command {
	var list, dryRun bool
	cmd := &cobra.Command{
		Use: "restore NAME...", Short: "Put back what calico-node-sync has removed", Long: restoreLong + how + restoreExitCodes,
		Args: func(cmd *cobra.Command, names []string) error {
			if len(names) == 0 && !list || slices.Contains(names, "") {
				return fmt.Errorf("name a machine or an entry of the journal; '%s --list' shows which entries there are", cmd.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, names []string) error {
			if list {
				return printJournal(cmd.Context(), r, names, cmd.OutOrStdout())
			}
			return r.Restore(cmd.Context(), names, dryRun, cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&list, "list", list, "List the journal's entries in ConfigMaps, all or those that are named, and do nothing else.")
	cmd.Flags().BoolVar(&dryRun, "dry-run", dryRun, "Show what would be put back or refused, and write nothing.")
	return cmd
}

// printJournal prints the entries, the newest first.
func printJournal(ctx context.Context, r Restorer, names []string, out io.Writer) error {
	journal, err := r.Journal(ctx)
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
	if _, err := io.WriteString(out, prose.Printable(printed)); err != nil {
		return fmt.Errorf("printing the journal: %w", err)
	}
	return nil
}
