// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
)

// journey is one walk through the code.
type journey struct {
	name string
	// about is what happens on it.
	about string
	// entrance is where it begins, and exits are where it leaves the components: what reads, what decides, and what writes.
	entrance string
	exits    []string
}

// journeys are the walks that are counted.
func journeys() []journey {
	const (
		nodeSync   = "(*internal/nodesync/controller.Reconciler)."
		etcd       = "(*internal/calico.Etcd)."
		reflectors = "(*internal/routereflector/controller.Reconciler)."
		api        = "(*internal/docloud/doapi.Client)."
	)
	return []journey{
		{
			"node-deleted", "a Node is deleted, and Calico's datastore is cleaned", nodeSync + "Round",
			[]string{
				etcd + "Snapshot", etcd + "Hosts", "(*internal/nodesync/controller.KubernetesCluster).LookUp",
				"internal/nodesync.judge", "internal/nodesync.removal", etcd + "DeleteNode",
			},
		},
		{
			"service", "a Service gets a load balancer", "(*internal/docloud/balancers.Controller).rounds",
			[]string{api + "LoadBalancers", api + "LoadBalancer", "(*internal/docloud/loadbalancer.planning).create", api + "CreateLoadBalancer"},
		},
		{
			"droplet-off", "a droplet is off, and its Node gets the taint", "(*internal/docloud/shutdowns.Controller).reconcile",
			[]string{api + "Droplet", "internal/docloud/outofservice.judge", "(*internal/docloud/shutdowns.Controller).patch"},
		},
		{
			"reflector-reconcile", "one reconcile of a RouteReflectorTopology, without its plan", reflectors + "runner",
			[]string{reflectors + "observeCalico", reflectors + "observeNodes", "internal/routereflector/planner.MakePlan", reflectors + "changeNode", reflectors + "report"},
		},
		{
			"reflector-plan", "the plan of that reconcile", "internal/routereflector/planner.MakePlan",
			[]string{"(*internal/routereflector/reachability.Network).Judge", "internal/routereflector/next.NodeStep"},
		},
		{
			"explain-node", "kubectl mooring explain node", "(*internal/plugin/explain.explainer).run",
			[]string{"(*internal/plugin/observe.Cluster).List", "internal/explain.Node", "internal/explain.Text"},
		},
	}
}

// figures are what is counted on a walk.
type figures struct{ stops, rooms, turns, all, methods int }

// outside are the folders whose functions are not entered. What all components share is known to a reader, as the standard
// library is. No program of the product links simulators and test kits: only types of interfaces seem to lead there.
func outside(folder string) bool {
	return slices.ContainsFunc([]string{"internal/platform", "api/", "internal/sim/", "internal/testkit"}, func(prefix string) bool {
		return strings.HasPrefix(folder, prefix)
	})
}

// reached returns the functions that a walk enters from its entrance, each when it is first called, in the order of the source. It does not enter what its
// exits call.
func (g *graph) reached(j journey) ([]*function, error) {
	for _, name := range append([]string{j.entrance}, j.exits...) {
		if g.functions[name] == nil {
			return nil, fmt.Errorf("journey %s names %s, which there is not: name what took its place in hack/walks/walk.go", j.name, name)
		}
	}
	var out []*function
	seen := map[*function]bool{}
	var enter func(f *function)
	enter = func(f *function) {
		if seen[f] || outside(f.folder) {
			return
		}
		seen[f] = true
		out = append(out, f)
		if slices.Contains(j.exits, f.name) {
			return
		}
		for _, next := range f.calls {
			enter(next)
		}
	}
	enter(g.functions[j.entrance])
	return out, nil
}

// stops returns those of the functions that a walk reaches that lead to an exit or are one.
func stops(j journey, reached []*function) []*function {
	leads := map[*function]bool{}
	for again := true; again; {
		again = false
		for _, f := range reached {
			if !leads[f] && (slices.Contains(j.exits, f.name) || slices.ContainsFunc(f.calls, func(next *function) bool { return leads[next] })) {
				leads[f], again = true, true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(reached), func(f *function) bool { return !leads[f] })
}

// count counts a walk. It also returns the name of the struct with the largest method set.
func (g *graph) count(j journey, reached []*function) (out figures, widest string) {
	entered := map[string]bool{}
	walk := stops(j, reached)
	for i, s := range walk {
		if i > 0 && walk[i-1].file != s.file && entered[s.file] {
			out.turns++
		}
		entered[s.file] = true
	}
	out.stops, out.rooms = len(walk), len(entered)
	folders := map[string]bool{}
	for _, f := range reached {
		if len(f.calls) > 0 {
			out.all++
		}
		folders[f.folder] = true
	}
	for folder := range folders {
		for name, n := range g.methods[folder] {
			if full := folder + "." + name; n > out.methods || n == out.methods && full < widest {
				out.methods, widest = n, full
			}
		}
	}
	return out, widest
}
