// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package topology is the command of that name: route reflectors with their groups, zones and clients.
package topology

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/screen"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
	"github.com/mooring-dev/mooring/internal/topology"
)

const long = `Show route reflectors with their groups, zones and clients, from the RouteReflectorTopologies and the labels of Nodes. Nothing is written.
With a name only that topology is shown.

Drawings show the names of clients up to 200 nodes, and above that their number per zone.

  tree     for a terminal (default)
  svg      one drawing for a browser, in light and dark mode
  dot      for Graphviz
  mermaid  for Markdown
  json, yaml, name`

const example = `  kubectl mooring topology
  kubectl mooring topology main -o svg > topology.svg
  kubectl mooring topology -o dot | dot -Tpng > topology.png`

// The formats of topology alongside those of every command.
const (
	formatTree    = "tree"
	formatSVG     = "svg"
	formatDOT     = "dot"
	formatMermaid = "mermaid"
)

// New is kubectl mooring topology.
func New(env *observe.Env) *cobra.Command {
	output := screen.NewFormat(formatTree, formatSVG, formatDOT, formatMermaid, screen.FormatJSON, screen.FormatYAML, screen.FormatName)
	cmd := &cobra.Command{
		Use:     "topology [NAME]",
		Aliases: []string{"rrt"},
		Short:   "Show route reflectors, their groups, zones and clients",
		Long:    long,
		Example: example,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("%q is an extra argument: name one topology, or none for all", args[1])
			}
			return nil
		},
		ValidArgsFunction: observe.Only(env, observe.TopologyNames),
	}
	output.AddTo(cmd)
	screen.Watched(cmd, func(ctx context.Context, args []string, out, notes io.Writer) error {
		return run(ctx, env, args, &output, out, notes)
	})
	return cmd
}

func run(ctx context.Context, env *observe.Env, args []string, output *screen.Format, out, notes io.Writer) error {
	maps, err := observe.Read(ctx, env, func(ctx context.Context, c *observe.Cluster) ([]topology.Map, error) { return read(ctx, c, args) })
	if err != nil {
		return err
	}
	if len(maps) == 0 {
		fmt.Fprintln(notes, "note: there is no RouteReflectorTopology; for reflectors that others made see\nkubectl mooring doctor routereflectors")
	}
	return Print(maps, output, out)
}

func read(ctx context.Context, c *observe.Cluster, args []string) ([]topology.Map, error) {
	list, served, err := c.Topologies(ctx)
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
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	return topology.Maps(list, observe.DrawnNodes(nodes))
}

// list is what JSON and YAML have.
type list struct {
	Topologies []topology.Map `json:"topologies"`
}

// Print draws topologies in a format.
func Print(maps []topology.Map, output *screen.Format, out io.Writer) error {
	return output.Show(out, list{maps}, false, func(columns int, paint finding.Paint) (text string) {
		switch output.String() {
		case formatSVG:
			return topology.SVG(maps)
		case formatDOT:
			return topology.DOT(maps)
		case formatMermaid:
			return topology.Mermaid(maps)
		case screen.FormatName:
			for _, m := range maps {
				text += "routereflectortopology." + v1alpha1.GroupVersion.Group + "/" + m.Name + "\n"
			}
			return text
		}
		return topology.Tree(maps, columns, paint)
	})
}
