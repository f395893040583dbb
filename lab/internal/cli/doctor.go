// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/lab/internal/doctor"
)

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Say what this machine offers a lab, and what each missing thing costs",
		Args:  noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			layout, err := a.layout()
			if err != nil {
				return err
			}
			ctx, cancel := untilSignal(command)
			defer cancel()
			executable, err := a.Executable()
			if err != nil {
				return fmt.Errorf("finding the lab's own binary: %w", err)
			}
			facts := doctor.Examine(ctx, layout.Dir,
				func(ctx context.Context) error { return a.TryNetwork(ctx, executable) },
				func() error { return a.TryRealNodes(filepath.Dir(executable)) })
			findings := doctor.Judge(facts)
			table := tabwriter.NewWriter(command.OutOrStdout(), 0, 0, 2, ' ', 0)
			for _, finding := range findings {
				fmt.Fprintf(table, "%s\t%s\t%s\n", finding.Verdict, finding.Subject, finding.Seen)
				if finding.Cost != "" {
					fmt.Fprintf(table, "\t\t  %s\n", finding.Cost)
				}
			}
			if err := table.Flush(); err != nil {
				return fmt.Errorf("printing: %w", err)
			}
			if !doctor.Healthy(findings) {
				return errors.New("a lab cannot run here; see what is needed above")
			}
			return nil
		},
	}
}
