// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/sirupsen/logrus" //nolint:depguard // libcalico-go logs through it, to the person at the terminal
	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/routereflector/plancmd"
)

const planRouteReflectorsLong = `Show what calico-route-reflector-operator would write next for each RouteReflectorTopology, in order and with reasons, what the first step
waits for, and the verdict of the reachability model on the cluster now and at the end. Nothing is written.

It reads the cluster of the kubeconfig; where Calico keeps its data in etcd, the environment names that as for calicoctl
(ETCD_ENDPOINTS and what goes with it). A topology in another rollout mode than Auto shows what has to be done before its
plan is carried out.

With --filename and --nodes it reads files instead, and no cluster is queried: it is the command "calico-route-reflector-operator plan".`

const planRouteReflectorsExample = `  kubectl mooring plan routereflectors
  kubectl mooring plan rr main --simulate
  kubectl get nodes -o json | kubectl mooring plan rr -f topology.yaml --nodes - -o json`

// planRouteReflectors reads a cluster for the plan command of the route reflectors' operator.
type planRouteReflectors struct {
	env   *Env
	clock clock.PassiveClock
}

func newPlanRouteReflectors(env *Env) *cobra.Command {
	p := planRouteReflectors{env: env, clock: clock.RealClock{}}
	cmd := plancmd.New(p.clock, p.fromCluster)
	cmd.Use, cmd.Aliases, cmd.Short = "routereflectors [TOPOLOGY...]", []string{"routereflector", "rr"}, "Show what the route reflectors' operator would write, in order"
	cmd.Long, cmd.Example = planRouteReflectorsLong+"\n\n"+plancmd.ExitCodes, planRouteReflectorsExample
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		names := slices.DeleteFunc(topologyNames(cmd.Context(), env), func(s string) bool { return slices.Contains(args, s) })
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	return cmd
}

// fromCluster plans for the topologies of the cluster that have the names, for all if there are no names.
func (p planRouteReflectors) fromCluster(ctx context.Context, names []string, notes io.Writer) ([]plancmd.Scene, error) {
	ctx, cancel := context.WithTimeout(ctx, clusterTime)
	defer cancel()
	var out []plancmd.Scene
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
		out = append(out, plancmd.Scene{World: w, Unread: unread, Reported: true})
	}
	return out, nil
}
