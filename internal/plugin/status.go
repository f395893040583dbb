// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/agreement"
	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/ui"
)

const statusLong = `Show the health of the cluster's parts, worst first: the machines, what waits for a person (kubectl mooring confirm), what the doctor finds
(kubectl mooring doctor), Mooring's components with their versions and leaders, route reflectors, load balancers, volumes and tenants of etcd, and below
each part what needs attention. It is what the page of kubectl mooring ui shows, in a few lines. Nothing is written. The environment is that of kubectl
mooring agreement.

The states of a part:
  bad       something needs attention
  unread    it could not be read, or nothing was compared
  changing  something joins, leaves or is replaced, and ends by itself
  good      it was read, and nothing needs attention
  absent    the cluster has nothing of the kind

Exit codes: 0 nothing needs attention; 2 a part is bad or could not be read; 1 the cluster cannot be read.`

const statusExample = `  kubectl mooring status
  kubectl mooring status -w
  kubectl mooring status -o json | jq -r '.health[] | .key + " " + .state'`

// statusResult is what JSON and YAML have. Its form is a contract with programs.
type statusResult struct {
	Health     []ui.Tile       `json:"health"`
	Machines   []agreement.Row `json:"machines"`
	Components []ui.Component  `json:"components"`
	// Waits is what waits for a person; Findings are the doctor's.
	Waits    []ui.Wait         `json:"waits"`
	Findings []finding.Finding `json:"findings"`
	Notes    []string          `json:"notes,omitempty"`
}

// Table implements Tabler; the text is used instead.
func (statusResult) Table() Table { return Table{} }

func newStatus(env *Env) *cobra.Command {
	output := Output{known: []string{formatText, string(FormatJSON), string(FormatYAML)}}
	var watch bool
	cmd := &cobra.Command{
		Use: "status", Short: "Show the health of machines and components, worst first", Long: statusLong, Example: statusExample,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := env.cluster()
			if err != nil {
				return err
			}
			now := clock.RealClock{}
			reader := &uiReader{cluster: c, agreement: agreementCommand{env: env, clock: now}, name: env.Kube.describe(c.config.Host), clock: now}
			return repeat(cmd, watch, func(ctx context.Context, out io.Writer) error { return status(ctx, reader, &output, out) })
		},
	}
	output.AddTo(cmd)
	addWatch(cmd, &watch)
	return cmd
}

// status prints one reading.
func status(ctx context.Context, reader *uiReader, output *Output, out io.Writer) error {
	w, err := reader.read(ctx)
	if err != nil {
		return err
	}
	return printStatus(w, output, out)
}

// printStatus prints what was read; what needs attention is in the exit code.
func printStatus(w ui.World, output *Output, out io.Writer) error {
	var err error
	p := ui.View(w, ui.Filter{}, "")
	if output.format == formatText {
		columns, colors := terminal(out)
		brush := agreement.Plain
		if colors {
			brush = paint
		}
		_, err = io.WriteString(out, ui.Text(w, columns, brush))
	} else {
		err = output.Print(out, statusResult{Health: p.Health, Machines: w.Machines, Components: w.Components, Waits: w.Waits, Findings: w.Findings, Notes: p.Notes})
	}
	if err != nil {
		return fmt.Errorf("printing the result: %w", err)
	}
	if ui.NeedsAttention(p.Health) {
		return command.Exit(exitAttention, nil)
	}
	return nil
}
