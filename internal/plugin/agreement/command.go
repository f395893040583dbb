// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package agreement is the command of that name: what each side knows of each machine, and whether they agree.
package agreement

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/agreement"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/screen"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
)

const long = `Show each machine with what each side reports: its droplet, its Node, its Calico Node and its role as route reflector. Nothing is written.

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

const example = `  kubectl mooring agreement
  DO_ACCESS_TOKEN=... kubectl mooring agreement -o wide
  kubectl mooring agreement worker-1 -o json`

// New is kubectl mooring agreement.
func New(env *observe.Env) *cobra.Command {
	output := screen.NewFormat(screen.FormatTable, screen.FormatWide, screen.FormatJSON, screen.FormatYAML, screen.FormatName)
	cmd := &cobra.Command{
		Use:               "agreement [MACHINE...]",
		Short:             "Compare what the cloud, Kubernetes, Calico and reflectors report of each machine",
		Long:              long,
		Example:           example,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: observe.Unnamed(env, observe.NodeNames),
	}
	output.AddTo(cmd)
	screen.Watched(cmd, func(ctx context.Context, args []string, out, notes io.Writer) error {
		return run(ctx, env, &output, args, out, notes)
	})
	return cmd
}

func run(ctx context.Context, env *observe.Env, output *screen.Format, args []string, out, notes io.Writer) error {
	w, err := observe.Read(ctx, env, func(ctx context.Context, c *observe.Cluster) (agreement.World, error) {
		return observe.Machines(ctx, c, clock.RealClock{}, nil)
	})
	if err != nil {
		return err
	}
	names := make([]string, len(args)) // as -o name prints them, too
	for i, arg := range args {
		names[i] = strings.TrimPrefix(arg, "node/")
	}
	rows, err := agreement.Only(agreement.Rows(w), names)
	if err != nil {
		return err
	}
	for _, s := range w.Sides() {
		if s.NotAsked != "" {
			fmt.Fprintf(notes, "note: %s not queried: %s\n", s.Name, s.NotAsked)
		}
	}
	return Print(rows, w.Now, output, out)
}

// list is what JSON and YAML have.
type list struct {
	Machines []agreement.Row `json:"machines"`
}

// names are kind/name, a line each.
func names(rows []agreement.Row) string {
	var b strings.Builder
	for _, r := range rows {
		kind := "machine/" // which no API knows
		if r.HasNode {
			kind = "node/"
		}
		b.WriteString(kind + r.Machine + "\n")
	}
	return b.String()
}

// Print prints the rows; whether one needs attention is in the exit code.
func Print(rows []agreement.Row, now time.Time, output *screen.Format, out io.Writer) error {
	attention := slices.ContainsFunc(rows, func(r agreement.Row) bool { return r.Verdict.NeedsAttention() })
	return output.Show(out, list{rows}, attention, func(columns int, paint finding.Paint) string {
		switch output.String() {
		case screen.FormatWide:
			t := screen.Table{Columns: agreement.Columns()}
			for _, r := range rows {
				t.Rows = append(t.Rows, r.Wide(now))
			}
			return t.Text(columns)
		case screen.FormatName:
			return names(rows)
		}
		return agreement.Text(rows, now, columns, paint)
	})
}
