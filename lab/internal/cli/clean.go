// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/lab/internal/realnode"
)

func (a *app) cleanCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "clean",
		Short: "Remove what killed labs have left on this machine, in whatever folder they were",
		Long: `Remove what killed labs with real machines have left on this machine: their control groups, which the kernel keeps. Labs that run are left
alone. "lab up" and "lab down" do the same for the lab of their folder; this command does it also where the folder is gone.`,
		Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			ctx, cancel := untilSignal(command)
			defer cancel()
			removed, err := realnode.Clean(ctx)
			for _, group := range removed {
				fmt.Fprintf(command.OutOrStdout(), "removed: control group %s\n", group)
			}
			if err == nil && len(removed) == 0 {
				fmt.Fprintln(command.OutOrStdout(), "nothing is left of any lab")
			}
			return err
		},
	}
}
