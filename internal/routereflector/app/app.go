// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"github.com/spf13/cobra"
	"k8s.io/utils/clock"
)

// Component is the name of the program.
const Component = "calico-route-reflector-operator"

// NewCommand returns the command of the program. Run without a subcommand it is the operator.
func NewCommand() *cobra.Command {
	o := newOptions()
	root := &cobra.Command{
		Use:   Component,
		Short: "Keep Calico's BGP route reflectors: which nodes, in which order, without losing a packet",
		Long: Component + " watches RouteReflectorTopologies and Nodes, chooses which nodes reflect Calico's BGP routes, and changes them one at a time, " +
			"each only when the sessions of the one before are seen to be Established. Calico's datastore may be kubernetes or etcdv3.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return operate(cmd.Context(), o) },
	}
	o.addFlags(root.Flags())
	root.AddCommand(newPlanCommand(clock.RealClock{}))
	return root
}
