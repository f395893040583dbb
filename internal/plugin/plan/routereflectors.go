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
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
	"github.com/mooring-dev/mooring/internal/routereflector/plancmd"
)

const routeReflectorsLong = `Show what calico-route-reflector-operator would write next for each RouteReflectorTopology, in order and with reasons, what the first step
waits for, and the verdict of the reachability model on the cluster now and at the end. Nothing is written.

It reads the cluster of the kubeconfig; where Calico keeps its data in etcd, the environment names that as for calicoctl
(ETCD_ENDPOINTS and what goes with it). A topology in another rollout mode than Auto shows what has to be done before its
plan is carried out.

With --filename and --nodes it reads files instead, and no cluster is queried: it is the command "calico-route-reflector-operator plan".`

const routeReflectorsExample = `  kubectl mooring plan routereflectors
  kubectl mooring plan rr main --simulate
  kubectl get nodes -o json | kubectl mooring plan rr -f topology.yaml --nodes - -o json`

// routeReflectors reads a cluster for the plan command of the route reflectors' operator.
type routeReflectors struct {
	env   *observe.Env
	clock clock.PassiveClock
}

func newRouteReflectors(env *observe.Env) *cobra.Command {
	p := routeReflectors{env: env, clock: clock.RealClock{}}
	cmd := plancmd.New(p.clock, p.fromCluster)
	cmd.Use, cmd.Aliases, cmd.Short = "routereflectors [TOPOLOGY...]", []string{"routereflector", "rr"}, "Show what the route reflectors' operator would write, in order"
	cmd.Long, cmd.Example = routeReflectorsLong+"\n\n"+plancmd.ExitCodes, routeReflectorsExample
	cmd.ValidArgsFunction = observe.Unnamed(env, observe.TopologyNames)
	return cmd
}

// fromCluster plans for the topologies of the cluster that have the names, for all if there are no names.
func (p routeReflectors) fromCluster(ctx context.Context, names []string, notes io.Writer) ([]plancmd.Scene, error) {
	config, err := observe.Datastore("")
	if err != nil {
		return nil, err
	}
	served := false
	s, err := observe.Read(ctx, p.env, func(ctx context.Context, c *observe.Cluster) (s observe.BGP, err error) {
		s, served, err = observe.ReadBGP(ctx, c, config, p.clock)
		return s, err
	})
	var out []plancmd.Scene
	switch {
	case err != nil:
		return out, err
	case !served:
		return out, errors.New("the cluster has no kind RouteReflectorTopology: install calico-route-reflector-operator first")
	case len(s.Topologies) == 0 && len(names) == 0:
		fmt.Fprintln(notes, "note: there is no RouteReflectorTopology; --filename and --nodes plan for files")
	case s.Uncounted != "":
		fmt.Fprintln(notes, "note: pods were not counted, so that all nodes count as free of workloads: "+s.Uncounted)
	}
	tellRoutes(s, notes)
	for _, name := range names {
		if !slices.ContainsFunc(s.Topologies, func(t v1alpha1.RouteReflectorTopology) bool { return t.Name == name }) {
			return out, fmt.Errorf("there is no RouteReflectorTopology %q", name)
		}
	}
	for i := range s.Topologies {
		if len(names) > 0 && !slices.Contains(names, s.Topologies[i].Name) {
			continue
		}
		w, unread := s.World(i)
		out = append(out, plancmd.Scene{World: w, Unread: unread, Reported: true})
	}
	return out, nil
}

// tellRoutes says before the plans whether reflectors are of any use.
func tellRoutes(s observe.BGP, notes io.Writer) {
	what := ""
	switch useless := s.Routes.Judge().NotNeeded(); {
	case len(s.Topologies) == 0:
	case s.NoRoutes != "":
		what = "whether BGP carries routes between nodes is unknown: " + s.NoRoutes
	case useless != "":
		what = useless + "; keep them only for routes of Services or to routers outside the cluster"
	}
	if what != "" {
		fmt.Fprint(notes, prose.Wrap("note: ", "      ", what, 80))
	}
}
