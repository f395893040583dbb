// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import "github.com/spf13/cobra"

// newPlan is the group of commands that say, without touching anything, what a component would do.
func newPlan(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show what a component would do, without doing it",
	}
	for _, build := range []Builder{newPlanNodes, newPlanRouteReflectors, newPlanLoadBalancer, newPlanFirewall} {
		cmd.AddCommand(build(env))
	}
	return cmd
}
