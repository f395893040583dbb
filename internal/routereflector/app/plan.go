// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/routereflector/files"
	"github.com/mooring-dev/mooring/internal/routereflector/preview"
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
func formats() map[string]func(preview.Preview) (string, error) {
	sure := func(show func(preview.Preview) string) func(preview.Preview) (string, error) {
		return func(p preview.Preview) (string, error) { return show(p), nil }
	}
	return map[string]func(preview.Preview) (string, error){
		"text": sure(preview.Preview.Text), "json": asJSON, "dot": sure(preview.Preview.DOT), "mermaid": sure(preview.Preview.Mermaid),
	}
}

func asJSON(p preview.Preview) (string, error) {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(p.Document())
	return b.String(), err
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
	f.AddTo(flags)
	flags.StringVarP(&f.output, "output", "o", f.output, "One of text, json, dot and mermaid.")
	flags.BoolVar(&f.simulate, "simulate", false, "Print the model's verdict on the state after each step.")
	return plan
}

func runPlan(f planFlags, c clock.PassiveClock, in io.Reader, out, notes io.Writer) error {
	show, known := formats()[f.output]
	if !known {
		return fmt.Errorf("--output %q: must be one of text, json, dot and mermaid", f.output)
	}
	if f.Topology == "" || f.Nodes == "" {
		return fmt.Errorf("--filename and --nodes: both are needed; see %s plan --help", Component)
	}
	world, told, err := (files.Reader{Stdin: in, Now: c.Now()}).World(f.Names)
	if err != nil {
		return err
	}
	for _, note := range told {
		fmt.Fprintln(notes, "note: "+note)
	}
	p := preview.Of(world)
	p.Simulate = f.simulate
	text, err := show(p)
	if err == nil {
		_, err = io.WriteString(out, text)
	}
	if err != nil {
		return err
	}
	switch {
	case len(p.Plan.Refusals) > 0:
		return command.Exit(exitRefused, nil)
	case len(p.Plan.Steps) > 0:
		return command.Exit(exitChanges, nil)
	}
	return nil
}
