// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/platform/screen"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
)

const nodesLong = `Show what calico-node-sync would remove from Calico's datastore now, and which gate holds back each machine that is left alone: what
"calico-node-sync plan" prints, for machines by their name in Kubernetes or Calico. Nothing is written.

It reads the cluster of the kubeconfig; where Calico keeps its data in etcd, the environment names that as for calicoctl
(ETCD_ENDPOINTS and what goes with it). Limits are the defaults of the controller, except for --grace-period. Absences start
at the times that a running controller has recorded, if one is found, otherwise now.

Exit codes: 0 nothing would change; 2 something would, or is held back; 1 it could not be determined.`

const nodesExample = `  kubectl mooring plan nodes
  kubectl mooring plan nodes worker-1 --grace-period=0s
  ETCD_ENDPOINTS=https://10.0.0.1:2379 kubectl mooring plan nodes -o json`

type nodes struct {
	env    *observe.Env
	clock  clock.PassiveClock
	limits nodesync.Config
	output screen.Format
}

func newNodes(env *observe.Env) *cobra.Command {
	p := &nodes{env: env, clock: clock.RealClock{}, limits: nodesync.DefaultConfig(), output: screen.NewFormat(screen.Text, screen.FormatJSON, screen.FormatYAML)}
	cmd := &cobra.Command{
		Use:     "nodes [MACHINE...]",
		Aliases: []string{"node", "no"},
		Short:   "Show what calico-node-sync would remove, and which gates hold it back",
		Long:    nodesLong,
		Example: nodesExample,
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.run(cmd.Context(), args, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
		ValidArgsFunction: observe.Unnamed(env, observe.NodeNames),
	}
	cmd.Flags().DurationVar(&p.limits.Grace, "grace-period", p.limits.Grace, "How long a Node must have been absent, as in calico-node-sync; 0s shows what is removed after the grace period.")
	p.output.AddTo(cmd)
	return cmd
}

func (p *nodes) run(ctx context.Context, args []string, out, notes io.Writer) error {
	if err := p.limits.Validate(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, observe.ReadTime)
	defer cancel()
	c, err := p.env.Cluster()
	if err != nil {
		return err
	}
	config, err := observe.Datastore()
	if err != nil {
		return err
	}
	if config.Kind == calico.Kubernetes {
		if _, err := c.Typed.Discovery().ServerResourcesForGroupVersion(observe.CalicoKinds); apierrors.IsNotFound(err) {
			return errors.New("there are no kinds of Calico in this cluster; if Calico keeps its data in etcd, set ETCD_ENDPOINTS")
		}
	}
	made := observe.PreviewNodeSync(ctx, c, config, p.limits, p.clock)
	if made.Problem != "" {
		return errors.New(made.Problem)
	}
	plan := made.Plan
	if len(args) > 0 {
		if plan, err = planAbout(ctx, c, plan, args); err != nil {
			return err
		}
	}
	if made.Memory == "" {
		fmt.Fprintln(notes, "note: no state of a controller was found, so that absences start now")
	}
	if err := p.output.Print(out, command.Printable(plan.String()), plan); err != nil {
		return err
	}
	return command.Attention(len(plan.Steps) > 0 || nodesync.Held(plan.Refusals))
}

// planAbout is what the plan says of machines, by the names that Kubernetes or Calico has for them.
func planAbout(ctx context.Context, c *observe.Cluster, plan nodesync.Plan, machines []string) (nodesync.Plan, error) {
	side, err := observe.ReadCalico(ctx, c)
	if err != nil {
		return plan, err
	}
	if side.Problem != "" {
		return plan, errors.New(side.Problem)
	}
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return plan, err
	}
	hosts := map[string][]string{}
	for _, machine := range machines {
		for _, n := range side.Nodes {
			if n.Kubernetes == machine || n.Name == machine {
				hosts[machine] = append(hosts[machine], n.Name)
			}
		}
		is := func(of nodesync.Subject) bool { return of.Is(machine, hosts[machine]...) }
		known := hosts[machine] != nil || slices.ContainsFunc(nodes, func(n corev1.Node) bool { return n.Name == machine }) ||
			slices.ContainsFunc(plan.Steps, func(s nodesync.Step) bool { return is(s.Subject()) }) ||
			slices.ContainsFunc(plan.Refusals, func(r nodesync.Refusal) bool { return is(r.Of) })
		if !known {
			return plan, fmt.Errorf("neither Kubernetes nor Calico knows a machine %q", machine)
		}
	}
	return plan.About(func(of nodesync.Subject) bool {
		return slices.ContainsFunc(machines, func(machine string) bool { return of.Is(machine, hosts[machine]...) })
	}), nil
}
