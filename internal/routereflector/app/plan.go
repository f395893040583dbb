// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/routereflector/plancmd"
)

// newPlanCommand returns the plan command that kubectl mooring has too, here for files alone.
func newPlanCommand(c clock.PassiveClock) *cobra.Command {
	plan := plancmd.New(c, nil)
	plan.Use, plan.Short = "plan -f TOPOLOGY --nodes NODES", "Show from files what the operator would write, in order; no cluster is needed"
	plan.Long = "plan reads a RouteReflectorTopology and the cluster's objects as kubectl prints them, and shows the desired topology, the writes that lead " +
		"to it in order, and with --simulate the verdict of the reachability model after each of them. \"-\" is standard input.\n\n" +
		"Nodes without Calico's annotations are used with their InternalIP, and nodes without a Ready condition as Ready; a note reports it.\n\n" +
		plancmd.ExitCodes + " \"kubectl mooring plan routereflectors\" is the same command, and reads a cluster as well."
	plan.Example = "  kubectl get nodes -o json | " + Component + " plan -f topology.yaml --nodes - --simulate"
	return plan
}
