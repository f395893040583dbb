// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
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
		two := int32(2)
		w.Topology.Spec.Redundancy = &two
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
		if again := MakePlan(settled(w)); len(again.Steps) != 0 {
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

// arrive carries out what can be done. What is refused, for want of nodes, is its end as well; but no step may be refused as unsafe, and none wait.
func arrive(t *rapid.T, w rr.World, look func(before, after rr.World, p rr.Plan)) (rr.World, []rr.Step) {
	t.Helper()
	var done []rr.Step
	for range 600 {
		var p rr.Plan
		w, p = planned(w)
		for _, r := range p.Refusals {
			if r.Reason == rr.ReasonUnsafe {
				t.Fatalf("%s\nafter %v", r.Message, kinds(done))
			}
		}
		if len(p.Steps) == 0 {
			return w, done
		}
		if outlasts(&w) {
			continue
		}
		if p.Waiting != "" {
			t.Fatalf("%s waits for %s\nafter %v", p.Steps[0], p.Waiting, kinds(done))
		}
		after := After(w, p.Steps[0])
		look(w, after, p)
		w, done = after, append(done, p.Steps[0])
	}
	t.Fatalf("no end: %v", kinds(done[len(done)-40:]))
	return w, done
}

// The order in which a hierarchy is listed decides nothing.
func TestHierarchyIsOrderBlind(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		w := anyHierarchy(t)
		for left := rapid.IntRange(0, 25).Draw(t, "steps done"); left > 0; {
			var p rr.Plan
			w, p = planned(w)
			if len(p.Steps) == 0 {
				break
			}
			for _, step := range p.Steps[:min(left, len(p.Steps))] {
				w, left = After(w, step), left-1
			}
		}
		w = settled(w)
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		other := w
		other.Nodes, other.Peers, other.Sightings = slices.Clone(w.Nodes), slices.Clone(w.Peers), slices.Clone(w.Sightings)
		random.Shuffle(len(other.Nodes), func(i, j int) { other.Nodes[i], other.Nodes[j] = other.Nodes[j], other.Nodes[i] })
		random.Shuffle(len(other.Peers), func(i, j int) { other.Peers[i], other.Peers[j] = other.Peers[j], other.Peers[i] })
		random.Shuffle(len(other.Sightings), func(i, j int) { other.Sightings[i], other.Sightings[j] = other.Sightings[j], other.Sightings[i] })
		if diff := cmp.Diff(MakePlan(w), MakePlan(other), compared(), cmpopts.IgnoreFields(rr.Checks{}, "Examples")); diff != "" {
			t.Fatal(diff)
		}
	})
}

// A client that comes, goes or falls ill changes no label of anybody else, ever, as long as the number of groups stays.
func TestNobodyElseIsReshuffled(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		w, _ := arrive(t, inTheEnd(limited(rapid.IntRange(16, 24).Draw(t, "nodes"), 3, 9)), func(rr.World, rr.World, rr.Plan) {})
		for i := range rapid.IntRange(1, 4).Draw(t, "changes") {
			before := map[string]map[string]string{}
			for _, n := range w.Nodes {
				before[n.Name] = maps.Clone(n.Labels)
			}
			groups := len(w.PresentGroups())
			fresh := ""
			if at := slices.IndexFunc(w.Nodes, func(n rr.Node) bool { return n.ClusterID == "" }); rapid.Bool().Draw(t, "goes") {
				w.Nodes = slices.Delete(slices.Clone(w.Nodes), at, at+1)
			} else {
				node := machine(1000+i, 3)
				fresh = node.Name
				w.Nodes = append(slices.Clone(w.Nodes), node)
			}
			var done []rr.Step
			w, done = arrive(t, w, guarded(t, 1))
			if len(w.PresentGroups()) != groups {
				continue
			}
			writes := 0
			for _, s := range done {
				if s.Node != "" {
					writes++
				}
			}
			if writes > 1 || fresh == "" && writes > 0 {
				t.Fatalf("%d writes to nodes: %v", writes, done)
			}
			for _, n := range w.Nodes {
				if diff := cmp.Diff(before[n.Name], n.Labels); diff != "" && n.Name != fresh {
					t.Fatalf("%s: %s", n.Name, diff)
				}
			}
		}
	})
}
