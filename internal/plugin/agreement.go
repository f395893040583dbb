// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/agreement"
	"github.com/mooring-dev/mooring/internal/platform/command"
)

const agreementLong = `Show each machine with what each side reports: its droplet, its Node, its Calico Node and its role as route reflector. Nothing is written.

The verdict is the worst finding, with what happens next:
  down      its Node is NotReady, or its droplet is off
  disagree  two sides contradict each other, and no component resolves it
  unknown   a side could not be read, so that it cannot be compared
  settling  the machine joins or leaves, and a component completes that
  one side  only Kubernetes was queried, so that nothing was compared
  agree     at least two sides were compared and nothing was found

Nodes and RouteReflectorTopologies are read from the cluster of the kubeconfig. Other sides are read by environment variables:
  DO_ACCESS_TOKEN, or DO_ACCESS_TOKEN_FILE   DigitalOcean; DO_OVERRIDE_URL for another address. Without a token it is not queried.
  ETCD_ENDPOINTS and related variables       Calico's etcdv3 datastore, as for calicoctl. Otherwise it is the kubernetes datastore.

Above 50 machines those that agree are counted; -o wide shows all.

Exit codes: 0 all agree or settle; 2 a machine is down, disagrees, is unknown, or was not compared; 1 the cluster cannot be read.`

const agreementExample = `  kubectl mooring agreement
  DO_ACCESS_TOKEN=... kubectl mooring agreement -o wide
  kubectl mooring agreement worker-1 -o json`

type agreementCommand struct {
	env    *Env
	clock  clock.PassiveClock
	output Output
	watch  bool
}

func newAgreement(env *Env) *cobra.Command {
	a := &agreementCommand{env: env, clock: clock.RealClock{}}
	a.output.known = []string{string(FormatTable), string(FormatWide), string(FormatJSON), string(FormatYAML), string(FormatName)}
	cmd := &cobra.Command{
		Use:     "agreement [MACHINE...]",
		Short:   "Compare what the cloud, Kubernetes, Calico and reflectors report of each machine",
		Long:    agreementLong,
		Example: agreementExample,
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return repeat(cmd, a.watch, func(ctx context.Context, out io.Writer) error { return a.run(ctx, args, out, cmd.ErrOrStderr()) })
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			names := slices.DeleteFunc(nodeNames(cmd.Context(), env), func(s string) bool { return slices.Contains(args, s) })
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
	a.output.AddTo(cmd)
	addWatch(cmd, &a.watch)
	return cmd
}

// nodeNames completes names; whatever goes wrong completes to nothing.
func nodeNames(ctx context.Context, env *Env) []string {
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	c, err := env.cluster()
	if err != nil {
		return nil
	}
	nodes, err := c.nodes(ctx)
	if err != nil {
		return nil
	}
	names := make([]string, len(nodes))
	for i := range nodes {
		names[i] = nodes[i].Name
	}
	return names
}

func (a *agreementCommand) run(ctx context.Context, args []string, out, notes io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, clusterTime)
	defer cancel()
	w, err := a.world(ctx)
	if err != nil {
		return err
	}
	rows, err := only(agreement.Rows(w), args)
	if err != nil {
		return err
	}
	for _, s := range sidesOf(w) {
		if s.side.NotAsked != "" {
			fmt.Fprintf(notes, "note: %s not queried: %s\n", s.name, s.side.NotAsked)
		}
	}
	if err := a.print(agreementList{Machines: rows, world: w}, out); err != nil {
		return err
	}
	if slices.ContainsFunc(rows, func(r agreement.Row) bool { return r.Verdict.NeedsAttention() }) {
		return command.Exit(exitAttention, nil)
	}
	return nil
}

// namedSide is a side by what people call it.
type namedSide struct {
	name string
	side agreement.Side
}

// sidesOf are the sides that may not have been read.
func sidesOf(w agreement.World) []namedSide {
	return []namedSide{{"DigitalOcean", w.Cloud.Side}, {"Calico", w.Calico.Side}, {"reflectors", w.Reflectors.Side}}
}

// only are the rows of the machines that were asked for; none were means all.
func only(rows []agreement.Row, names []string) ([]agreement.Row, error) {
	for _, name := range names {
		if !slices.ContainsFunc(rows, func(r agreement.Row) bool { return r.Machine == name }) {
			return nil, fmt.Errorf("no side knows a machine %q", name)
		}
	}
	if len(names) == 0 {
		return rows, nil
	}
	return slices.DeleteFunc(rows, func(r agreement.Row) bool { return !slices.Contains(names, r.Machine) }), nil
}

// agreementList is what JSON and YAML have.
type agreementList struct {
	Machines []agreement.Row `json:"machines"`

	world agreement.World
}

// Table implements Tabler: the wide form.
func (l agreementList) Table() Table {
	t := Table{Columns: agreement.Columns()}
	for _, r := range l.Machines {
		t.Rows = append(t.Rows, r.Wide(l.world.Now))
	}
	return t
}

func (a *agreementCommand) print(l agreementList, out io.Writer) error {
	var text string
	switch a.output.format {
	case FormatTable:
		columns, colors := terminal(out)
		brush := agreement.Plain
		if colors {
			brush = paint
		}
		text = agreement.Text(l.Machines, l.world.Now, columns, brush)
	case FormatWide:
		if err := l.Table().write(out); err != nil {
			return fmt.Errorf("printing the result: %w", err)
		}
		return nil
	case FormatName:
		var names []string
		for _, r := range l.Machines {
			kind := "machine/" // which no API knows
			if r.HasNode {
				kind = "node/"
			}
			names = append(names, kind+r.Machine+"\n")
		}
		text = strings.Join(names, "")
	default:
		return a.output.Print(out, l)
	}
	if _, err := io.WriteString(out, text); err != nil {
		return fmt.Errorf("printing the result: %w", err)
	}
	return nil
}
