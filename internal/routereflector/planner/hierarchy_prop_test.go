// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// anyHierarchy draws a cluster that is, or will be, a hierarchy.
func anyHierarchy(t *rapid.T) rr.World {
	w := limited(rapid.IntRange(8, 16).Draw(t, "nodes"), rapid.IntRange(1, 3).Draw(t, "zones"), rapid.IntRange(3, 7).Draw(t, "limit"))
	w.Topology.Spec.Mode = rapid.SampledFrom([]v1alpha1.Mode{v1alpha1.ModeAuto, v1alpha1.ModeAuto, v1alpha1.ModeHierarchical}).Draw(t, "mode")
	if rapid.Bool().Draw(t, "redundancy set") {
		w = redundant(w, 2)
	}
	for i := range w.Nodes {
		w.Nodes[i].Workloads = rapid.SampledFrom([]int{0, 0, 3}).Draw(t, "workloads")
		if rapid.IntRange(0, 3).Draw(t, "well") == 0 {
			trouble(t, &w.Nodes[i])
		}
	}
	return w
}

// reshape changes what the topology asks for.
func reshape(t *rapid.T, w rr.World) rr.World {
	spec := &w.Topology.Spec
	switch rapid.IntRange(0, 3).Draw(t, "reshape") {
	case 0:
		spec.Mode = rapid.SampledFrom([]v1alpha1.Mode{v1alpha1.ModeAuto, v1alpha1.ModeFlat, v1alpha1.ModeHierarchical}).Draw(t, "mode")
	case 1:
		spec.Sizing.MaxClientsPerReflector = int32(rapid.IntRange(3, 30).Draw(t, "limit"))
	default:
	}
	return w
}

// Whatever happens to a cluster and its topology, flat or hierarchical, every write is safe, the plan comes to its end, and has nothing to do there. A process
// may die after any write, and something else may happen then: each plan is made from the cluster alone.
func TestAnyHierarchy(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		w := anyHierarchy(t)
		for range rapid.IntRange(1, 3).Draw(t, "rounds") {
			for range rapid.IntRange(0, 12).Draw(t, "steps before something happens") {
				var p rr.Plan
				w, p = planned(w)
				if len(p.Steps) == 0 || p.Waiting != "" {
					break
				}
				after := After(w, p.Steps[0])
				guarded(t, 1)(w, after, p)
				w = after
			}
			w = reshape(t, churn(t, w))
		}
		w, _ = arrive(t, w, guarded(t, 1))
		if again := settledPlan(w); len(again.Steps) != 0 {
			t.Fatalf("not idempotent: %v", again.Steps)
		}
		now := metav1.NewTime(w.Now)
		w.Topology.DeletionTimestamp = &now
		w, _ = arrive(t, w, guarded(t, 0))
		for i := range w.Nodes {
			if n := &w.Nodes[i]; n.Marked(&w.Topology) || len(n.Without(v1alpha1.GroupLabel, v1alpha1.ClientLabel, v1alpha1.JoinsLabel)) > 0 {
				t.Fatalf("after the end %s has %v", n.Name, n.Labels)
			}
		}
		if len(w.Peers) > 0 {
			t.Fatalf("after the end there are %v", peerNames(w))
		}
	})
}

// Clients that come or go change no label of anybody else, ever, as long as the number of groups stays and each has
// a client, since one without any is new and gets its share: neither those who come where the open group has no room for all of them, nor those who go and leave groups of
// different sizes behind. One that comes has paths before any write, and costs one at most.
func TestNobodyElseIsReshuffled(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		w, _ := arrive(t, inTheEnd(limited(rapid.IntRange(16, 24).Draw(t, "nodes"), 3, 9)), nil)
		for i := range rapid.IntRange(1, 4).Draw(t, "changes") {
			before, fresh, populated := map[string]map[string]string{}, []string{}, map[int]bool{}
			for _, n := range w.Nodes {
				before[n.Name] = maps.Clone(n.Labels)
				if in, _ := n.Membership(); n.IsClient(&w.Topology) {
					populated[in] = true
				}
			}
			groups, count := len(w.PresentGroups()), rapid.SampledFrom([]int{1, 1, 2, 6}).Draw(t, "how many")
			if rapid.Bool().Draw(t, "go") {
				group := rapid.IntRange(1, groups).Draw(t, "of group")
				members := slices.DeleteFunc(others(w), func(name string) bool {
					n, _ := w.Node(name)
					in, _ := n.Membership()
					return in != group
				})
				w = withoutNodes(w, members[:min(count, max(0, len(members)-1))]...)
			} else {
				for k := range count {
					node := machine(1000+10*i+k, 3)
					w.Nodes, fresh = append(slices.Clone(w.Nodes), node), append(fresh, node.Name)
				}
				if c := settledPlan(w).Checks; c.UnreachablePairs != 0 || c.MinSessionsPerClient < 2 {
					t.Fatalf("before any write the new nodes have no paths: %+v", c)
				}
			}
			var done []rr.Step
			w, done = arrive(t, w, guarded(t, 1))
			if len(w.PresentGroups()) != groups || len(populated) != groups {
				continue
			}
			peers := slices.DeleteFunc(slices.Clone(done), func(s rr.Step) bool { return s.Node() != "" })
			if len(peers) > max(1, len(fresh)) || len(fresh) == 1 && len(done)-len(peers) > 1 {
				t.Fatalf("for %d new nodes: %v", len(fresh), kinds(done))
			}
			for _, s := range done {
				if s.Node() != "" && !slices.Contains(fresh, s.Node()) {
					t.Fatalf("%s is written for %v", s, fresh)
				}
			}
			for _, n := range w.Nodes {
				if diff := cmp.Diff(before[n.Name], n.Labels); diff != "" && !slices.Contains(fresh, n.Name) {
					t.Fatalf("%s: %s", n.Name, diff)
				}
			}
		}
	})
}
