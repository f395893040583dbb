// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/files"
)

// Exit codes of plan, beside 0 for nothing to do and 1 for an error. They MUST NOT change: scripts depend on them.
const (
	exitChanges = 2
	exitRefused = 3
)

// planFlags are the flags of the plan command.
type planFlags struct {
	files.Names

	output   string
	simulate bool
}

// formats are the values of --output.
func formats() map[string]func(io.Writer, preview) error {
	return map[string]func(io.Writer, preview) error{"text": writeText, "json": writeJSON, "dot": writeDOT, "mermaid": writeMermaid}
}

// preview is a plan for printing.
type preview struct {
	topology string
	world    routereflector.World
	plan     routereflector.Plan
	simulate bool
}

func newPlanCommand(c clock.PassiveClock) *cobra.Command {
	f := planFlags{output: "text"}
	plan := &cobra.Command{
		Use:   "plan -f TOPOLOGY --nodes NODES",
		Short: "Show, from files, what the operator would write, in order; no cluster is needed",
		Long: "plan reads a RouteReflectorTopology and the cluster's objects as kubectl prints them, and shows the topology that shall be, the writes " +
			"that lead there in order, and with --simulate what the reachability model says of the cluster after each of them. \"-\" is standard input.\n\n" +
			"Nodes on which no annotation of Calico's is found count with their InternalIP, nodes without a Ready condition as Ready; a note says so.\n\n" +
			"Exit codes: 0 nothing to do, 1 an error, 2 changes, 3 something is refused.",
		Example: "  kubectl get nodes -o json | " + Component + " plan -f topology.yaml --nodes - --simulate",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runPlan(f, c, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := plan.Flags()
	flags.StringVarP(&f.Topology, "filename", "f", "", "File with the RouteReflectorTopology, YAML or JSON. Further ones in it are the cluster's other topologies.")
	flags.StringVar(&f.Nodes, "nodes", "", "File with the Nodes, a List as `kubectl get nodes -o json` prints it, or YAML.")
	flags.StringVar(&f.Peers, "bgppeers", "", "File with the BGPPeers there are. Without it: none.")
	flags.StringVar(&f.Configuration, "bgpconfiguration", "", "File with BGPConfiguration default. Without it: none, so that the mesh is on.")
	flags.StringVar(&f.Status, "status", "", "File with CalicoNodeStatuses, by which the first step waits or not. Without it nothing is known of sessions.")
	flags.StringVarP(&f.output, "output", "o", f.output, "One of text, json, dot and mermaid.")
	flags.BoolVar(&f.simulate, "simulate", false, "Print the model's verdict on the state after each step.")
	return plan
}

func runPlan(f planFlags, c clock.PassiveClock, in io.Reader, out, notes io.Writer) error {
	write, known := formats()[f.output]
	if !known {
		return fmt.Errorf("--output %q: must be one of text, json, dot and mermaid", f.output)
	}
	if f.Topology == "" || f.Nodes == "" {
		return fmt.Errorf("--filename and --nodes: both are needed; see %s plan --help", Component)
	}
	if names := []string{f.Topology, f.Nodes, f.Peers, f.Configuration, f.Status}; count(names, "-") > 1 {
		return fmt.Errorf("standard input (\"-\") can be read for one of the flags alone")
	}
	world, told, err := (files.Reader{Stdin: in, Now: c.Now()}).World(f.Names)
	if err != nil {
		return err
	}
	for _, note := range told {
		fmt.Fprintln(notes, "note: "+note)
	}
	plan := routereflector.Make(world)
	if err := write(out, preview{topology: world.Topology.Name, world: world, plan: plan, simulate: f.simulate}); err != nil {
		return err
	}
	switch {
	case len(plan.Refusals) > 0:
		return command.Exit(exitRefused, nil)
	case len(plan.Steps) > 0:
		return command.Exit(exitChanges, nil)
	}
	return nil
}

func count(list []string, of string) int {
	return len(slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s != of }))
}

// plural is "1 thing" or "n things".
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	if strings.HasSuffix(thing, "x") {
		return fmt.Sprintf("%d %ses", n, thing)
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
