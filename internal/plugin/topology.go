// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/topology"
)

const topologyLong = `Show route reflectors with their groups, zones and clients, from the RouteReflectorTopologies and the labels of Nodes. Nothing is written.
With a name only that topology is shown.

Drawings show the names of clients up to 200 nodes, and above that their number per zone.

  tree     for a terminal (default)
  svg      one drawing for a browser, in light and dark mode
  dot      for Graphviz
  mermaid  for Markdown
  json, yaml, name`

const topologyExample = `  kubectl mooring topology
  kubectl mooring topology main -o svg > topology.svg
  kubectl mooring topology -o dot | dot -Tpng > topology.png`

// The formats of topology alongside those of every command.
const (
	formatTree    Format = "tree"
	formatSVG     Format = "svg"
	formatDOT     Format = "dot"
	formatMermaid Format = "mermaid"
)

// topologyKind is how kubectl names one object of the kind.
func topologyKind() string { return "routereflectortopology." + v1alpha1.GroupVersion.Group }

func newTopology(env *Env) *cobra.Command {
	output := Output{known: []string{
		string(formatTree), string(formatSVG), string(formatDOT), string(formatMermaid), string(FormatJSON), string(FormatYAML), string(FormatName),
	}}
	var watch bool
	cmd := &cobra.Command{
		Use:     "topology [NAME]",
		Aliases: []string{"rrt"},
		Short:   "Show route reflectors, their groups, zones and clients",
		Long:    topologyLong,
		Example: topologyExample,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("%q is an extra argument: name one topology, or none for all", args[1])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return repeat(cmd, watch, func(ctx context.Context, out io.Writer) error {
				return runTopology(ctx, env, args, &output, out, cmd.ErrOrStderr())
			})
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return topologyNames(cmd.Context(), env), cobra.ShellCompDirectiveNoFileComp
		},
	}
	output.AddTo(cmd)
	addWatch(cmd, &watch)
	return cmd
}

// topologyNames completes names; whatever goes wrong completes to nothing.
func topologyNames(ctx context.Context, env *Env) []string {
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	c, err := env.cluster()
	if err != nil {
		return nil
	}
	list, _, err := c.topologies(ctx)
	if err != nil {
		return nil
	}
	var names []string
	for _, t := range list {
		names = append(names, t.Name)
	}
	return names
}

func runTopology(ctx context.Context, env *Env, args []string, output *Output, out, notes io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, clusterTime)
	defer cancel()
	maps, err := readTopologies(ctx, env, args)
	if err != nil {
		return err
	}
	if len(maps) == 0 {
		fmt.Fprintln(notes, "note: there is no RouteReflectorTopology; for reflectors that others made see\nkubectl mooring doctor routereflectors")
	}
	return printTopologies(maps, output, out)
}

func readTopologies(ctx context.Context, env *Env, args []string) ([]topology.Map, error) {
	c, err := env.cluster()
	if err != nil {
		return nil, err
	}
	list, served, err := c.topologies(ctx)
	switch {
	case err != nil:
		return nil, err
	case !served:
		return nil, errors.New("the cluster has no kind RouteReflectorTopology: install calico-route-reflector-operator first")
	}
	if len(args) > 0 {
		list = slices.DeleteFunc(list, func(t v1alpha1.RouteReflectorTopology) bool { return t.Name != args[0] })
		if len(list) == 0 {
			return nil, fmt.Errorf("there is no RouteReflectorTopology %q", args[0])
		}
	}
	nodes, err := c.nodes(ctx)
	if err != nil {
		return nil, err
	}
	return topology.Maps(list, drawnNodes(nodes))
}

// drawnNodes are the Nodes as far as drawings are concerned.
func drawnNodes(nodes []corev1.Node) []topology.Node {
	drawn := make([]topology.Node, len(nodes))
	anyone := false
	for i := range nodes {
		calico := routereflector.NodeFrom(&nodes[i], 0, 0)
		drawn[i] = topology.Node{Name: nodes[i].Name, Labels: nodes[i].Labels, Speaks: calico.IPv4.IsValid() || calico.IPv6.IsValid(), NotReady: calico.Ready != corev1.ConditionTrue}
		anyone = anyone || drawn[i].Speaks
	}
	for i := range drawn {
		// With Calico's etcdv3 datastore no Node says its address here, so that each counts.
		drawn[i].Speaks = drawn[i].Speaks || !anyone
	}
	return drawn
}

// topologyList is what JSON and YAML have.
type topologyList struct {
	Topologies []topology.Map `json:"topologies"`
}

// Table implements Tabler; the tree stands for it.
func (topologyList) Table() Table { return Table{} }

func printTopologies(maps []topology.Map, output *Output, out io.Writer) error {
	text := ""
	switch output.format {
	case formatTree:
		columns, colors := terminal(out)
		brush := topology.Plain
		if colors {
			brush = paint
		}
		text = topology.Tree(maps, columns, brush)
	case formatSVG:
		text = topology.SVG(maps)
	case formatDOT:
		text = topology.DOT(maps)
	case formatMermaid:
		text = topology.Mermaid(maps)
	case FormatName:
		for _, m := range maps {
			text += topologyKind() + "/" + m.Name + "\n"
		}
	default:
		return output.Print(out, topologyList{maps})
	}
	if _, err := io.WriteString(out, text); err != nil {
		return fmt.Errorf("printing the result: %w", err)
	}
	return nil
}
