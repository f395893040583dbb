// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sirupsen/logrus" //nolint:depguard // libcalico-go logs through it, to the person at the terminal
	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/files"
	"github.com/mooring-dev/mooring/internal/routereflector/preview"
)

const planRouteReflectorsLong = `Say what calico-route-reflector-operator would write next for each RouteReflectorTopology, in order, with its reasons, what the first step
waits for, and what the reachability model says of the cluster now and in the end. Nothing is written.

It reads the cluster of the kubeconfig; where Calico keeps its data in etcd, the environment names that as for calicoctl
(ETCD_ENDPOINTS and what goes with it). A topology in another rollout mode than Auto shows what has to be done before its
plan is carried out.

With --filename and --nodes it reads files instead, as "calico-route-reflector-operator plan" does, and no cluster is queried.

Exit codes: 0 nothing would change; 2 something would, is refused, or could not be read; 1 it could not be determined.`

const planRouteReflectorsExample = `  kubectl mooring plan routereflectors
  kubectl mooring plan rr main --simulate
  kubectl get nodes -o json | kubectl mooring plan rr -f topology.yaml --nodes - -o json`

type planRouteReflectors struct {
	env      *Env
	clock    clock.PassiveClock
	names    files.Names
	simulate bool
	output   Output
}

func newPlanRouteReflectors(env *Env) *cobra.Command {
	p := &planRouteReflectors{env: env, clock: clock.RealClock{}}
	cmd := &cobra.Command{
		Use:     "routereflectors [TOPOLOGY...]",
		Aliases: []string{"routereflector", "rr"},
		Short:   "Say what the route reflectors' operator would write, in order",
		Long:    planRouteReflectorsLong,
		Example: planRouteReflectorsExample,
		Args:    cobra.ArbitraryArgs,
		RunE:    p.run,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			names := slices.DeleteFunc(topologyNames(cmd.Context(), env), func(s string) bool { return slices.Contains(args, s) })
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
	flags := cmd.Flags()
	p.names.AddTo(flags)
	flags.BoolVar(&p.simulate, "simulate", false, "Print the model's verdict on the state after each step.")
	p.output.AddTo(cmd)
	return cmd
}

// reflectorPlan is the plan of one topology. Its JSON form is that of the operator's own plan command and what a cluster has to say besides.
type reflectorPlan struct {
	preview.Document
	// Held says what has to be done before the steps are carried out, "" if nothing.
	Held string `json:"held,omitempty"`
	// NotRead are sentences about objects of Calico's that could not be read.
	NotRead []string `json:"notRead,omitempty"`

	text string
}

// reflectorPlans is what JSON and YAML have.
type reflectorPlans struct {
	Topologies []reflectorPlan `json:"topologies"`
}

// Table implements Tabler; the text stands for it.
func (reflectorPlans) Table() Table { return Table{} }

func (p *planRouteReflectors) run(cmd *cobra.Command, args []string) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), clusterTime)
	defer cancel()
	read := p.fromCluster
	if p.names != (files.Names{}) {
		read = p.fromFiles
	}
	plans, err := read(ctx, args, cmd.InOrStdin(), cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	var texts []string
	for _, one := range plans.Topologies {
		texts = append(texts, one.text)
	}
	if err := p.output.printPlan(cmd.OutOrStdout(), strings.Join(texts, "\n"), plans); err != nil {
		return err
	}
	if slices.ContainsFunc(plans.Topologies, reflectorPlan.attention) {
		return command.Exit(exitAttention, nil)
	}
	return nil
}

// attention says that something would change, is refused, or could not be read. That a topology is paused is as somebody wants it.
func (p reflectorPlan) attention() bool {
	refused := slices.ContainsFunc(p.Refusals, func(r routereflector.Refusal) bool { return r.Reason != routereflector.ReasonPaused })
	return refused || len(p.Steps) > 0 || len(p.NotRead) > 0
}

// shown is a plan as it is printed.
func (p *planRouteReflectors) shown(one preview.Preview, unread []string) reflectorPlan {
	one.Simulate = p.simulate
	out := reflectorPlan{Document: one.Document(), Held: one.World.Approval(one.Plan), NotRead: unread, text: one.Text()}
	if out.Held != "" {
		out.text += "\nHeld back: " + out.Held + ".\n"
	}
	for _, u := range unread {
		out.text += "\nNot read: " + u + ".\n"
	}
	return out
}

// fromFiles plans without a cluster, as the operator's own command does.
func (p *planRouteReflectors) fromFiles(_ context.Context, args []string, in io.Reader, notes io.Writer) (reflectorPlans, error) {
	switch {
	case len(args) > 0:
		return reflectorPlans{}, fmt.Errorf("%q is too much: files are planned for the first topology of --filename", args[0])
	case p.names.Topology == "" || p.names.Nodes == "":
		return reflectorPlans{}, errors.New("--filename and --nodes: both are needed to plan from files; without any file the cluster is read")
	}
	world, told, err := (files.Reader{Stdin: in, Now: p.clock.Now()}).World(p.names)
	if err != nil {
		return reflectorPlans{}, err
	}
	for _, note := range told {
		fmt.Fprintln(notes, "note: "+note)
	}
	return reflectorPlans{[]reflectorPlan{p.shown(preview.Of(world), nil)}}, nil
}

// fromCluster plans for the topologies of the cluster that have the names, for all if there are no names.
func (p *planRouteReflectors) fromCluster(ctx context.Context, names []string, _ io.Reader, notes io.Writer) (reflectorPlans, error) {
	out := reflectorPlans{[]reflectorPlan{}}
	c, err := p.env.cluster()
	if err != nil {
		return out, err
	}
	config, err := calicoConfig()
	if err != nil {
		return out, err
	}
	if config.Kind == calico.EtcdV3 {
		logrus.SetOutput(io.Discard) // libcalico-go's; what cannot be read is said
	}
	s, served, err := readBGPScene(ctx, c, config, p.clock)
	switch {
	case err != nil:
		return out, err
	case !served:
		return out, errors.New("the cluster has no kind RouteReflectorTopology: install calico-route-reflector-operator first")
	case len(s.topologies) == 0 && len(names) == 0:
		fmt.Fprintln(notes, "note: there is no RouteReflectorTopology; --filename and --nodes plan for files")
	case s.uncounted != "":
		fmt.Fprintln(notes, "note: pods were not counted, so that all nodes count as free of workloads: "+s.uncounted)
	}
	for _, name := range names {
		if !slices.ContainsFunc(s.topologies, func(t v1alpha1.RouteReflectorTopology) bool { return t.Name == name }) {
			return out, fmt.Errorf("there is no RouteReflectorTopology %q", name)
		}
	}
	for i := range s.topologies {
		if len(names) > 0 && !slices.Contains(names, s.topologies[i].Name) {
			continue
		}
		w, unread := s.world(i)
		out.Topologies = append(out.Topologies, p.shown(preview.Of(w).Reported(), unread))
	}
	return out, nil
}
