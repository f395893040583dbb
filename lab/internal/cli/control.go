// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/lab/internal/folder"
	"github.com/mooring-dev/mooring/lab/internal/runner"
)

func (a *app) downCommand() *cobra.Command {
	var remove bool
	command := &cobra.Command{
		Use:   "down",
		Short: "Stop the lab",
		Long: `Stop the lab, also after a crash of its supervisor. Data and logs stay in the folder, so that "lab up" goes on with them; --delete
removes the folder. Stopping what does not run is not an error.`,
		Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			layout, err := a.layout()
			if err != nil {
				return err
			}
			ctx, cancel := untilSignal(command)
			defer cancel()
			stopped, err := runner.Down(ctx, layout)
			if err != nil {
				return err
			}
			if len(stopped) == 0 {
				fmt.Fprintf(command.OutOrStdout(), "nothing runs in %s\n", layout.Dir)
			} else {
				fmt.Fprintf(command.OutOrStdout(), "stopped: %s\n", strings.Join(stopped, ", "))
			}
			if !remove {
				return nil
			}
			if err := folder.Delete(layout.Dir); err != nil {
				return fmt.Errorf("deleting %s: %w", layout.Dir, err)
			}
			fmt.Fprintf(command.OutOrStdout(), "deleted: %s\n", layout.Dir)
			return nil
		},
	}
	command.Flags().BoolVar(&remove, "delete", false, "also delete the folder with all data and logs")
	return command
}

func (a *app) killCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "kill PROCESS",
		Short: "Kill a process of the lab with SIGKILL; the supervisor starts it again on the same port with the same data",
		Args:  oneArgument("name of a process"),
		RunE: func(command *cobra.Command, args []string) error {
			layout, err := a.layout()
			if err != nil {
				return err
			}
			pid, err := runner.Kill(layout, args[0])
			if err != nil {
				return err
			}
			fmt.Fprintf(command.OutOrStdout(), "killed %s (process %d)\n", args[0], pid)
			return nil
		},
	}
}
