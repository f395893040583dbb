// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/health"
	"github.com/mooring-dev/mooring/internal/routereflector/next"
)

// Reflectors are taken over by a flat topology: Auto becomes a hierarchy when that is done, Hierarchical waits for a person, and so does a hierarchy.
func TestShapeWhileTakingOver(t *testing.T) {
	t.Parallel()
	w := handMade(limited(24, 2, 12), 3)
	p := settledPlan(w)
	note := "24 nodes ask for 2 groups, and the topology stays flat as long as there is something left that spec.adopt names"
	if p.Mode != v1alpha1.ModeFlat || len(p.Refusals) != 0 || !slices.Contains(rr.Messages(p.Notes), note) {
		t.Errorf("%s, %+v, %q", p.Mode, p.Refusals, p.Notes)
	}
	w, done := travel(t, w, guarded(t, 1))
	retired := slices.IndexFunc(done, rr.Is[rr.RetirePeer])
	begun := slices.IndexFunc(done, func(s rr.Step) bool { return s.What().Object == "BGPPeer/main-uplinks" })
	if retired < 0 || begun < retired || len(idsOf(w)) != 3 || !w.Adopted() {
		t.Errorf("the IDs are %v after %v", idsOf(w), kinds(done))
	}

	asked := handMade(limited(24, 2, 12), 3)
	asked.Topology.Spec.Mode = v1alpha1.ModeHierarchical
	deep := w
	deep.Peers = append(slices.Clone(w.Peers), foreignPeer("peer-with-route-reflectors", matching(func(map[string]string) bool { return true }), valued(handLabel, "true")))
	refuses(t, settled(asked), "CannotAdopt: spec.adopt: spec.mode is Hierarchical, and reflectors are taken over by "+
		"a flat topology; set spec.mode to Auto until nothing is left that it names")
	refuses(t, settled(deep), "CannotAdopt: spec.adopt: this topology is a hierarchy, and reflectors are taken over by "+
		"a flat one; take it out, or adopt them with another topology")
}

// Spines and the reflectors of all groups count as reflectors.
func TestCensusOfAHierarchy(t *testing.T) {
	t.Parallel()
	w := inTheEnd(limited(24, 2, 12))
	w.Topology.Status.Baseline = nil
	if b, _ := health.Believe(&w); b.Reflectors != 6 {
		t.Errorf("%+v", b)
	}
	// What only the label of a group tells apart is not a loss.
	w = remembering(w)
	if doubt := health.Doubt(new(with(w, func(n *rr.Node) { delete(n.Labels, v1alpha1.GroupLabel) }, w.Marked()...))); doubt != nil {
		t.Errorf("%+v", doubt)
	}
}

// While the observed state is not trusted the shape stays, and nothing else is refused for it.
func TestShapeWhileFrozen(t *testing.T) {
	t.Parallel()
	flat, _ := carryOut(t, limited(40, 2, 100), nil)
	flat = remembering(flat)
	half := withoutNodes(flat, others(flat)[:20]...)
	for _, mode := range []v1alpha1.Mode{v1alpha1.ModeAuto, v1alpha1.ModeHierarchical} {
		half.Topology.Spec.Mode, half.Topology.Spec.Sizing.MaxClientsPerReflector = mode, 5
		p := settledPlan(half)
		if p.Mode != v1alpha1.ModeFlat || len(p.Steps) != 0 || len(p.Refusals) != 1 || p.Refusals[0].Reason != rr.ReasonNodesVanished {
			t.Errorf("%s: %s, %v, %+v", mode, p.Mode, kinds(p.Steps), p.Refusals)
		}
	}
	deep := remembering(inTheEnd(limited(40, 2, 10)))
	groups := len(settledPlan(deep).Groups)
	p := settledPlan(withoutNodes(deep, others(deep)...))
	if p.Mode != v1alpha1.ModeHierarchical || len(p.Groups) != groups || groups != 5 || len(p.Steps) != 0 || len(p.Refusals) != 1 {
		t.Errorf("%s with %d groups, then %d; %v, %+v", p.Mode, groups, len(p.Groups), kinds(p.Steps), p.Refusals)
	}
}

// When no reflector of any group lives it is an emergency, whether spines live or not; with one that lives it is none. Either way all pairs
// find each other again, and an emergency makes no hierarchy.
func TestEmergencyOfAHierarchy(t *testing.T) {
	t.Parallel()
	steady := settled(inTheEnd(limited(24, 2, 12)))
	names := func(groups ...int) []string {
		var out []string
		for _, n := range rr.GroupOf(steady.Working(nil), groups...) {
			out = append(out, n.Name)
		}
		return out
	}
	for name, c := range map[string]struct {
		lost      []string
		emergency bool
		atOnce    int
	}{
		"all":           {steady.Marked(), true, 6},
		"all but spine": {names(1, 2), true, 4},
		"the first":     {names(1), false, 1},
		"the second":    {names(2), false, 1},
		"the spines":    {names(rr.Spines), false, 1},
	} {
		w := with(steady, silentSince(steady.Now), c.lost...)
		w.Now = steady.Now.Add(2 * time.Minute)
		var p rr.Plan
		w, p = planned(w)
		if health.Emergency(&w) != c.emergency || p.AtOnce != c.atOnce || p.Waiting != "" || len(p.Refusals) > 0 {
			t.Errorf("%s: emergency %t, %d at once of %v, waiting for %q, %+v", name, health.Emergency(&w), p.AtOnce, kinds(p.Steps), p.Waiting, p.Refusals)
			continue
		}
		for _, s := range p.Steps[:p.AtOnce] {
			if !rr.Is[rr.Promote](s) {
				t.Errorf("%s: %s at once", name, s)
			}
			w = After(w, s)
		}
		w, _ = travel(t, w, nil)
		if got := settledPlan(w); got.Checks.UnreachablePairs != 0 || got.Checks.MinSessionsPerClient != 2 || len(w.Marked()) != 6 {
			t.Errorf("%s: afterwards %+v with %v", name, got.Checks, idsOf(w))
		}
	}

	flat, _ := carryOut(t, limited(24, 2, 100), nil)
	lost := with(flat, silentSince(flat.Now), flat.Marked()...)
	lost.Now, lost.Topology.Spec.Sizing.MaxClientsPerReflector = flat.Now.Add(2*time.Minute), 12
	for _, mode := range []v1alpha1.Mode{v1alpha1.ModeAuto, v1alpha1.ModeHierarchical} {
		lost.Topology.Spec.Mode = mode
		p := settledPlan(lost)
		if p.Mode != v1alpha1.ModeFlat || p.AtOnce != 1 || !rr.Is[rr.MeshOn](p.Steps[0]) || len(p.Refusals) > 0 {
			t.Errorf("%s: %s, %d at once of %v, %+v", mode, p.Mode, p.AtOnce, kinds(p.Steps), p.Refusals)
		}
	}
	if w, _ := travel(t, lost, nil); len(idsOf(w)) != 3 {
		t.Errorf("afterwards the IDs are %v", idsOf(w))
	}
}

// The mesh that cannot take over is refused before a client moves; by force the mesh comes first, or nobody moves at all.
func TestExitOfAHierarchyRefused(t *testing.T) {
	t.Parallel()
	w := inTheEnd(limited(24, 2, 12))
	now := metav1.NewTime(w.Now)
	w.Topology.DeletionTimestamp, w.Topology.Spec.Sizing.MaxMeshNodes = &now, 10
	if p := settledPlan(w); len(p.Steps) != 0 || len(p.Refusals) != 1 || p.Refusals[0].Reason != rr.ReasonMeshTooLarge {
		t.Errorf("%v, %+v", kinds(p.Steps), p.Refusals)
	}
	w.Topology.Annotations = map[string]string{v1alpha1.ForceExitAnnotation: string(rr.ReasonMeshTooLarge)}
	if p := settledPlan(w); len(p.Steps) == 0 || !rr.Is[rr.MeshOn](p.Steps[0]) || p.AtOnce != 1 {
		t.Errorf("by force: %v, %+v", kinds(p.Steps), p.Refusals)
	}
	w.Topology.Spec.Mesh = v1alpha1.MeshIgnore
	w.Topology.Annotations = map[string]string{v1alpha1.ForceExitAnnotation: string(rr.ReasonMeshNotManaged)}
	end, done := carryOut(t, w, nil)
	if got := order(done); strings.Contains(got, "Join") || !strings.HasPrefix(got, "Demote Demote Demote Demote Demote Demote Release") ||
		len(end.Marked()) != 0 || len(end.Peers) != 0 {
		t.Errorf("without a mesh: %s", got)
	}
}

// A hierarchy whose reflectors' Nodes are all gone is made again in one round, although nothing says any more how many groups there were but
// the clients' number; and anyone who is about to leave is replaced in its own group first.
func TestReflectorsOfAllGroupsGo(t *testing.T) {
	t.Parallel()
	steady := settled(inTheEnd(limited(80, 2, 16)))
	gone := withoutNodes(steady, steady.Marked()...)
	for _, name := range steady.Marked() {
		gone.Topology.Status.Reflectors = append(gone.Topology.Status.Reflectors, v1alpha1.ReflectorStatus{Node: name, Role: string(rr.RoleReflector)})
	}
	p := settledPlan(gone)
	promoted := 0
	for _, s := range p.Steps[:p.AtOnce] {
		promoted += rr.Count(rr.Is[rr.Promote](s))
	}
	if want := 2*4 + rr.SpineCount; !health.Emergency(&gone) || len(p.Groups) != 5 || promoted != want {
		t.Errorf("%d groups, %d of %d at once: %v, %+v", len(p.Groups), promoted, want, kinds(p.Steps[:p.AtOnce]), p.Refusals)
	}
	w, _ := travel(t, gone, nil)
	if got := settledPlan(w); got.Checks.UnreachablePairs != 0 || got.Checks.MinSessionsPerClient != 2 {
		t.Errorf("afterwards %+v", got.Checks)
	}

	for _, group := range []int{rr.FirstGroup, 2, rr.Spines} {
		leaving := rr.GroupOf(steady.Working(nil), group)[0].Name
		w, done := travel(t, with(steady, cordon, leaving), guarded(t, 2))
		if n, _ := w.Node(leaving); n.Marked(&w.Topology) || len(rr.GroupOf(w.Working(nil), group)) != 2 || !rr.Is[rr.Promote](done[0]) {
			t.Errorf("group %s: %v", rr.GroupName(group), kinds(done))
		}
		if idsOf(w)[rr.GroupName(group)] != idsOf(steady)[rr.GroupName(group)] {
			t.Errorf("group %s: the IDs are %v", rr.GroupName(group), idsOf(w))
		}
		// Where nobody can take its place it stays.
		alone := with(with(steady, cordon, leaving), cordon, others(steady)...)
		if p := settledPlan(alone); len(p.Steps) != 0 {
			t.Errorf("group %s, with nobody else: %v", rr.GroupName(group), kinds(p.Steps))
		}
	}
}

// A group needs nodes that have been Ready for long: those that have not are for when there is need.
func TestFreshNodesMakeNoGroup(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, limited(24, 2, 100), nil)
	w = with(w, young(w.Now), others(w)...)
	w.Topology.Spec.Sizing.MaxClientsPerReflector = 12
	note := "24 nodes ask for 2 groups of 2 reflectors each and 2 spines, and only 3 nodes may be reflectors"
	if p := settledPlan(w); p.Mode != v1alpha1.ModeFlat || len(p.Steps) != 0 || !slices.Contains(rr.Messages(p.Notes), note) {
		t.Errorf("%s, %v, %q", p.Mode, kinds(p.Steps), p.Notes)
	}
}

// A client whose sessions are not there yet is not taken along with those whose sessions are.
func TestClientsAtOnceWait(t *testing.T) {
	t.Parallel()
	w, _ := moving(t)
	for _, s := range MakePlan(w).Steps {
		if rr.Is[rr.Join](s) {
			w = After(w, s)
		}
	}
	w = settled(w)
	if open := MakePlan(w).Steps[0]; rr.Is[rr.EnsurePeer](open) {
		w = settled(After(w, open))
	}
	p := MakePlan(w)
	if p.AtOnce < 3 || !rr.Is[rr.Leave](p.Steps[0]) || !rr.Is[rr.Leave](p.Steps[1]) {
		t.Fatalf("%d at once of %v", p.AtOnce, kinds(p.Steps))
	}
	late, _ := w.Node(p.Steps[1].Node())
	w = said(w, next.Joined(&w, late)[0].Name, func(s *rr.Sighting) { s.Established = without(s.Established, late.IPv4) })
	p = MakePlan(w)
	at := slices.IndexFunc(p.Steps, func(s rr.Step) bool { return rr.Is[rr.Leave](s) && s.Node() == late.Name })
	if p.AtOnce < 2 || p.Waiting != "" || at >= 0 && at < p.AtOnce {
		t.Errorf("%d at once of %v, waiting for %q", p.AtOnce, kinds(p.Steps), p.Waiting)
	}
	if at < 0 {
		t.Errorf("%s is not among %v", late.Name, kinds(p.Steps))
	}
}

// Labels of groups that somebody has left on a reflector go with its adoption: with them it would be no reflector of the flat topology.
func TestAdoptionTakesLabelsOfGroupsAway(t *testing.T) {
	t.Parallel()
	w := handMade(cluster(8, 2), 2)
	for _, key := range []string{v1alpha1.GroupLabel, v1alpha1.ClientLabel, v1alpha1.JoinsLabel} {
		w.Nodes[0].Labels[key] = "2"
	}
	w, done := carryOut(t, w, nil)
	adopted := slices.IndexFunc(done, func(s rr.Step) bool { return rr.Is[rr.Adopt](s) && s.Node() == w.Nodes[0].Name })
	if adopted < 0 || len(w.Nodes[0].Without(v1alpha1.GroupLabel, v1alpha1.ClientLabel, v1alpha1.JoinsLabel)) != 0 || len(w.Marked()) != 3 {
		t.Errorf("%v; %v", w.Nodes[0].Labels, kinds(done))
	}
}
