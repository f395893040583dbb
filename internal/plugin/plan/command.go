// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package plan is the group of commands that show what components would write next.
package plan

import (
	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/internal/plugin/observe"
)

// New is the group of commands that say, without touching anything, what a component would do.
func New(env *observe.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show what a component would do, without doing it",
	}
	cmd.AddCommand(newNodes(env), newRouteReflectors(env), newLoadBalancer(), newFirewall())
	return cmd
}
