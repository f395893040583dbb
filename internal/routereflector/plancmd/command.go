// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plancmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/platform/screen"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/files"
	"github.com/mooring-dev/mooring/internal/routereflector/preview"
)

// ExitCodes is the sentence about them, for help texts.
const ExitCodes = "Exit codes: 0 nothing would change; 2 something would, is refused, or could not be read; 1 it could not be determined."

// The formats that draw.
const (
	formatDOT     = "dot"
	formatMermaid = "mermaid"
)

// Scene is what is planned for: one topology in its World.
type Scene struct {
	World routereflector.World
	// Unread are sentences about objects that could not be read.
	Unread []string
	// Reported makes the plan say what an operator at work reports: what the first step waits for.
	Reported bool
}

// Cluster reads the scenes of the topologies with these names, of all without any. Notes for people go to notes.
type Cluster func(ctx context.Context, names []string, notes io.Writer) ([]Scene, error)

// New returns the command, without a name and texts. Without a Cluster it reads files alone.
func New(c clock.PassiveClock, cluster Cluster) *cobra.Command {
	p := planner{clock: c, cluster: cluster, output: screen.NewFormat(screen.Text, screen.FormatJSON, screen.FormatYAML, formatDOT, formatMermaid)}
	cmd := &cobra.Command{Args: cobra.NoArgs, RunE: p.run}
	if cluster != nil {
		cmd.Args = cobra.ArbitraryArgs
	}
	p.names.AddTo(cmd.Flags())
	cmd.Flags().BoolVar(&p.simulate, "simulate", false, "Print the model's verdict on the state after each step.")
	p.output.AddTo(cmd)
	return cmd
}

type planner struct {
	clock    clock.PassiveClock
	cluster  Cluster
	names    files.Names
	simulate bool
	output   screen.Format
}

// Plan is the plan of one topology. Its JSON form is a contract with programs.
type Plan struct {
	preview.Document
	// Held says what has to be done before the steps are carried out, "" if nothing.
	Held string `json:"held,omitempty"`
	// NotRead are sentences about objects of Calico's that could not be read.
	NotRead []string `json:"notRead,omitempty"`

	preview preview.Preview
}

// Plans is what JSON and YAML have.
type Plans struct {
	Topologies []Plan `json:"topologies"`
}

func (p *planner) run(cmd *cobra.Command, args []string) error {
	scenes, err := p.scenes(cmd, args)
	if err != nil {
		return err
	}
	plans := Of(scenes, p.simulate)
	if err := p.output.Print(cmd.OutOrStdout(), p.text(plans), plans); err != nil {
		return err
	}
	return command.Attention(slices.ContainsFunc(plans.Topologies, Plan.attention))
}

func (p *planner) scenes(cmd *cobra.Command, args []string) ([]Scene, error) {
	switch {
	case p.names == (files.Names{}) && p.cluster != nil:
		return p.cluster(cmd.Context(), args, cmd.ErrOrStderr())
	case len(args) > 0:
		return nil, fmt.Errorf("%q is too much: files are planned for the first topology of --filename", args[0])
	case (p.names.Topology == "" || p.names.Nodes == "") && p.cluster != nil:
		return nil, errors.New("--filename and --nodes: both are needed to plan from files; without any file the cluster is read")
	case p.names.Topology == "" || p.names.Nodes == "":
		return nil, fmt.Errorf("--filename and --nodes: both are needed; see '%s --help'", cmd.CommandPath())
	}
	world, assumed, err := (files.Reader{Stdin: cmd.InOrStdin(), Now: p.clock.Now()}).World(p.names)
	for _, note := range assumed {
		fmt.Fprintln(cmd.ErrOrStderr(), "note: "+note)
	}
	return []Scene{{World: world}}, err
}

// Of plans each scene. With simulate the text has the model's verdict after each step.
func Of(scenes []Scene, simulate bool) Plans {
	out := Plans{Topologies: []Plan{}}
	for _, s := range scenes {
		p := preview.Of(s.World)
		if s.Reported {
			p = p.Reported()
		}
		p.Simulate = simulate
		out.Topologies = append(out.Topologies, Plan{Document: p.Document(), Held: p.World.Approval(p.Plan), NotRead: s.Unread, preview: p})
	}
	return out
}

// text is the plans in a format for people.
func (p *planner) text(plans Plans) string {
	texts := make([]string, len(plans.Topologies))
	for i, one := range plans.Topologies {
		switch p.output.String() {
		case formatDOT:
			texts[i] = one.preview.DOT()
		case formatMermaid:
			texts[i] = one.preview.Mermaid()
		default:
			texts[i] = one.Text()
		}
	}
	return strings.Join(texts, "\n")
}

// Text is the plan for people.
func (p Plan) Text() string {
	var b strings.Builder
	b.WriteString(p.preview.Text())
	if p.Held != "" {
		fmt.Fprintf(&b, "\nHeld back: %s.\n", p.Held)
	}
	for _, u := range p.NotRead {
		fmt.Fprintf(&b, "\nNot read: %s.\n", u)
	}
	return b.String()
}

// attention reports that something would change, is refused, or could not be read. That a topology is paused is as somebody wants it.
func (p Plan) attention() bool {
	refused := slices.ContainsFunc(p.Refusals, func(r routereflector.Refusal) bool { return r.Reason != routereflector.ReasonPaused })
	return refused || len(p.Steps) > 0 || len(p.NotRead) > 0
}
