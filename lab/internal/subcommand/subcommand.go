// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package subcommand makes the hidden commands of the lab's binary that its supervisor runs.
package subcommand

import (
	"context"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Hidden returns a command without arguments that help does not list. run gets a context that ends with SIGTERM or SIGINT.
func Hidden(use, short string, run func(context.Context) error) *cobra.Command {
	return &cobra.Command{
		Use:    use,
		Short:  short + " (used by the supervisor)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
			defer cancel()
			return run(ctx)
		},
	}
}
