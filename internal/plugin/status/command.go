// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package status is the command of that name: the health of all parts, worst first.
package status

import (
	"context"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/agreement"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/screen"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
	"github.com/mooring-dev/mooring/internal/plugin/observe/overview"
	"github.com/mooring-dev/mooring/internal/ui"
)

const long = `Show the health of the cluster's parts, worst first: the machines, what waits for a person (kubectl mooring confirm), findings of the doctor
(kubectl mooring doctor), Mooring's components with their versions and leaders, route reflectors, load balancers, volumes and tenants of etcd, and below
each part what needs attention. It is what the page of kubectl mooring ui shows, in a few lines. Nothing is written. The environment is that of kubectl
mooring agreement.

The states of a part:
  bad       something needs attention
  unread    it could not be read, or nothing was compared
  changing  something joins, leaves or is replaced, and ends by itself
  good      it was read, and nothing needs attention
  absent    the cluster has nothing of the kind, or not all of it could be looked at and nothing needs attention

Exit codes: 0 nothing needs attention; 2 a part is bad or could not be read; 1 the cluster cannot be read.`

const example = `  kubectl mooring status
  kubectl mooring status -w
  kubectl mooring status -o json | jq -r '.health[] | .key + " " + .state'`

// result is what JSON and YAML have. Its form is a contract with programs.
type result struct {
	Health     []ui.Tile           `json:"health"`
	Machines   []agreement.Row     `json:"machines"`
	Components []finding.Component `json:"components"`
	// Waits is what waits for a person; Findings are the doctor's.
	Waits    []finding.Verdict `json:"waits"`
	Findings []finding.Finding `json:"findings"`
	Notes    []string          `json:"notes,omitempty"`
}

// New is kubectl mooring status.
func New(env *observe.Env) *cobra.Command {
	output := screen.NewFormat(screen.Text, screen.FormatJSON, screen.FormatYAML)
	cmd := &cobra.Command{Use: "status", Short: "Show the health of machines and components, worst first", Long: long, Example: example}
	var reader *overview.Reader
	output.AddTo(cmd)
	screen.Watched(cmd, func(ctx context.Context, _ []string, out, _ io.Writer) error {
		if reader == nil {
			c, err := env.Cluster()
			if err != nil {
				return err
			}
			reader = overview.NewReader(c, clock.RealClock{}, false)
		}
		w, err := reader.Read(ctx)
		if err != nil {
			return err
		}
		return Print(w, &output, out)
	})
	return cmd
}

// Print prints what was read; what needs attention is in the exit code.
func Print(w ui.World, output *screen.Format, out io.Writer) error {
	p := ui.View(w, ui.Filter{}, "")
	result := result{Health: p.Health, Machines: w.Machines, Components: w.Components, Waits: w.Waits, Findings: w.Findings, Notes: p.Notes}
	return output.Show(out, result, ui.NeedsAttention(p.Health), func(columns int, paint finding.Paint) string {
		return ui.Text(w, columns, paint)
	})
}
