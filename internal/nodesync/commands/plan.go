// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/platform/screen"
)

// planLong is what the command does in both programs. Where it reads is the caller's to add.
const planLong = `Show what calico-node-sync would remove from Calico's datastore now, and which gate holds back each machine that is left alone. Nothing is written.
With MACHINE, a name in Kubernetes or Calico, only what is about that machine is shown.
With --repair, only repairs of IPAM's data are shown.

Absences start at the times that a running controller has recorded, if its state is found, otherwise now; --grace-period=0s shows what would be removed
after the grace period.

`

// planExitCodes is the sentence about them.
const planExitCodes = "\n\nExit codes: 0 nothing would change; 2 something would, or is held back; 1 it could not be determined."

// NewPlan returns the command that shows what the controller would do now. source says where it reads, and where is that in words.
func NewPlan(source Source, where string) *cobra.Command {
	settings, output := NewSettings(), screen.NewFormat(screen.Text, screen.FormatJSON, screen.FormatYAML)
	repair := false
	cmd := &cobra.Command{
		Use: "plan [MACHINE...]", Short: "Show what calico-node-sync would remove, and which gates hold it back", Long: planLong + where + planExitCodes,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, machines []string) error {
			if err := settings.Validate(); err != nil {
				return err
			}
			if repair {
				return showRepairs(cmd, source, settings, machines, &output)
			}
			plan, remembered, err := plan(cmd.Context(), source, &settings, machines)
			if err != nil {
				return err
			}
			if !remembered && output.String() == screen.Text {
				fmt.Fprintln(cmd.ErrOrStderr(), "note: no state of a running controller (none, or an old one): absences start now")
			}
			return Show(cmd, &output, plan)
		},
	}
	settings.AddFlags(cmd.Flags())
	cmd.Flags().BoolVar(&repair, "repair", repair,
		"Show instead what calico-node-sync apply --repair would repair in the data of Calico's IPAM, and what only a person can; see doctor ipam.")
	output.AddTo(cmd)
	return cmd
}

// Show prints a plan. Whether something would change or is held back is in the exit code that the error carries.
func Show(cmd *cobra.Command, output *screen.Format, plan nodesync.Plan) error {
	if err := output.Print(cmd.OutOrStdout(), prose.Printable(plan.String()), plan); err != nil {
		return err
	}
	return command.Attention(len(plan.Steps) > 0 || nodesync.Held(plan.Refusals))
}

func plan(ctx context.Context, source Source, settings *Settings, machines []string) (plan nodesync.Plan, remembered bool, err error) {
	sides, err := Open(ctx, source, settings.Datastore)
	if err != nil {
		return plan, false, err
	}
	defer func() { _ = sides.Store.Close() }()
	if plan, remembered, err = sides.Preview(ctx, settings.Config); err == nil && len(machines) > 0 {
		plan, err = sides.about(ctx, plan, machines)
	}
	return plan, remembered, err
}

// about leaves of a plan what is about the machines, by their names in Kubernetes or Calico. A name that neither has is an error.
func (s Sides) about(ctx context.Context, plan nodesync.Plan, machines []string) (nodesync.Plan, error) {
	snapshot, err := s.Store.Snapshot(ctx)
	if err != nil {
		return plan, err
	}
	nodes, err := s.Cluster.ListNodes(ctx)
	if err != nil {
		return plan, err
	}
	known, hosts := map[string]bool{}, map[string][]string{} // by each name of a machine, its Calico Nodes
	for _, n := range nodes {
		known[n.Name] = true
	}
	for _, n := range snapshot.Nodes {
		known[n.Name] = true
		for _, ref := range n.OrchRefs {
			if ref.Orchestrator == nodesync.OrchestratorKubernetes && ref.NodeName != "" {
				known[ref.NodeName], hosts[ref.NodeName] = true, append(hosts[ref.NodeName], n.Name)
			}
		}
	}
	for _, machine := range machines {
		is := func(of nodesync.Subject) bool { return of.Is(machine, hosts[machine]...) }
		if machine == "" || !known[machine] && !slices.ContainsFunc(plan.Steps, func(step nodesync.Step) bool { return is(step.Subject()) }) &&
			!slices.ContainsFunc(plan.Refusals, func(r nodesync.Refusal) bool { return is(r.Of) }) {
			return plan, fmt.Errorf("neither Kubernetes nor Calico knows a machine %q", machine)
		}
	}
	return plan.About(func(of nodesync.Subject) bool {
		return slices.ContainsFunc(machines, func(machine string) bool { return of.Is(machine, hosts[machine]...) })
	}), nil
}
