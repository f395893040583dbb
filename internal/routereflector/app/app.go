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
		Short: "Manage Calico's BGP route reflectors without losing packets",
		Long: Component + " watches RouteReflectorTopologies and Nodes, chooses the nodes that reflect Calico's BGP routes, and changes them one at a " +
			"time, each only after the sessions of the previous one are Established. Calico's datastore may be kubernetes or etcdv3.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return operate(cmd.Context(), o) },
	}
	o.addFlags(root.Flags())
	root.AddCommand(newPlanCommand(clock.RealClock{}))
	return root
}
