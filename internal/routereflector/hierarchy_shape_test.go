// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package routereflector

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

// Reflectors are taken over by a flat topology: Auto becomes a hierarchy when that is done, Hierarchical waits for a person, and so does a hierarchy.
func TestShapeWhileTakingOver(t *testing.T) {
	t.Parallel()
	w := handMade(limited(24, 2, 12), 3)
	p := Make(w.settled())
	note := "24 nodes ask for 2 groups, and the topology stays flat as long as there is something left that spec.adopt names"
	if p.Mode != v1alpha1.ModeFlat || len(p.Refusals) != 0 || !slices.Contains(Messages(p.Notes), note) {
		t.Errorf("%s, %+v, %q", p.Mode, p.Refusals, p.Notes)
	}
	w, done := travel(t, w, guarded(t, 1))
	retired := slices.IndexFunc(done, func(s Step) bool { return s.Kind == RetirePeer })
	begun := slices.IndexFunc(done, func(s Step) bool { return s.Object == "BGPPeer/main-uplinks" })
	if retired < 0 || begun < retired || len(w.ids()) != 3 || !factsOf(&w).adopted() {
		t.Errorf("the IDs are %v after %v", w.ids(), kinds(done))
	}

	asked := handMade(limited(24, 2, 12), 3)
	asked.Topology.Spec.Mode = v1alpha1.ModeHierarchical
	deep := w
	deep.Peers = append(slices.Clone(w.Peers), foreignPeer("peer-with-route-reflectors", matching(func(map[string]string) bool { return true }), valued(handLabel, "true")))
	for name, c := range map[string]struct {
		w    World
		want string
	}{
		"Hierarchical": {
			asked, "spec.adopt: spec.mode is Hierarchical, and reflectors are taken over by a flat topology; set spec.mode to Auto until nothing is left that it names",
		},
		"a hierarchy": {
			deep, "spec.adopt: this topology is a hierarchy, and reflectors are taken over by a flat one; take it out, or adopt them with another topology",
		},
	} {
		p := Make(c.w.settled())
		if len(p.Refusals) != 1 || p.Refusals[0] != (Refusal{ReasonCannotAdopt, c.want}) || len(p.Steps) != 0 {
			t.Errorf("%s: %+v, %v", name, p.Refusals, kinds(p.Steps))
		}
	}
}

// Spines and the reflectors of all groups count as reflectors.
func TestCensusOfAHierarchy(t *testing.T) {
	t.Parallel()
	w := inTheEnd(limited(24, 2, 12))
	if c := candidatesOf(&w).census(); c.marked != 6 || c.now.Reflectors != 6 {
		t.Errorf("%+v", c)
	}
	// What only the label of a group tells apart is not a loss.
	w = w.remembering()
	if doubt := candidatesOf(new(w.with(func(n *Node) { delete(n.Labels, v1alpha1.GroupLabel) }, factsOf(&w).marked()...))).doubt(); doubt != nil {
		t.Errorf("%+v", doubt)
	}
}

// While the observed state is not trusted the shape stays, and nothing else is refused for it.
func TestShapeWhileFrozen(t *testing.T) {
	t.Parallel()
	flat, _ := carryOut(t, limited(40, 2, 100), nil)
	flat = flat.remembering()
	half := flat.without(flat.others()[:20]...)
	for _, mode := range []v1alpha1.Mode{v1alpha1.ModeAuto, v1alpha1.ModeHierarchical} {
		half.Topology.Spec.Mode, half.Topology.Spec.Sizing.MaxClientsPerReflector = mode, 5
		p := Make(half.settled())
		if p.Mode != v1alpha1.ModeFlat || len(p.Steps) != 0 || len(p.Refusals) != 1 || p.Refusals[0].Reason != ReasonNodesVanished {
			t.Errorf("%s: %s, %v, %+v", mode, p.Mode, kinds(p.Steps), p.Refusals)
		}
	}
	deep := inTheEnd(limited(40, 2, 10)).remembering()
	groups := len(Make(deep.settled()).Groups)
	p := Make(deep.without(deep.others()...).settled())
	if p.Mode != v1alpha1.ModeHierarchical || len(p.Groups) != groups || groups != 5 || len(p.Steps) != 0 || len(p.Refusals) != 1 {
		t.Errorf("%s with %d groups, then %d; %v, %+v", p.Mode, groups, len(p.Groups), kinds(p.Steps), p.Refusals)
	}
}

// When no reflector of any group lives it is an emergency, whether spines live or not; with one that lives it is none. Either way all pairs
// find each other again, and an emergency makes no hierarchy.
func TestEmergencyOfAHierarchy(t *testing.T) {
	t.Parallel()
	steady := inTheEnd(limited(24, 2, 12)).settled()
	names := func(groups ...int) []string {
		var out []string
		for _, n := range groupOf(factsOf(&steady).working(nil), groups...) {
			out = append(out, n.Name)
		}
		return out
	}
	for name, c := range map[string]struct {
		lost      []string
		emergency bool
		atOnce    int
	}{
		"all":           {factsOf(&steady).marked(), true, 6},
		"all but spine": {names(1, 2), true, 4},
		"the first":     {names(1), false, 1},
		"the second":    {names(2), false, 1},
		"the spines":    {names(spines), false, 1},
	} {
		w := steady.with(silentSince(steady.Now), c.lost...)
		w.Now = steady.Now.Add(2 * time.Minute)
		var p Plan
		w, p = w.planned()
		if candidatesOf(&w).emergency() != c.emergency || p.AtOnce != c.atOnce || p.Waiting != "" || len(p.Refusals) > 0 {
			t.Errorf("%s: emergency %t, %d at once of %v, waiting for %q, %+v", name, candidatesOf(&w).emergency(), p.AtOnce, kinds(p.Steps), p.Waiting, p.Refusals)
			continue
		}
		for _, s := range p.Steps[:p.AtOnce] {
			if s.Kind != Promote {
				t.Errorf("%s: %s at once", name, s)
			}
			w = w.After(s)
		}
		w, _ = travel(t, w, nil)
		if got := Make(w.settled()); got.Checks.UnreachablePairs != 0 || got.Checks.MinSessionsPerClient != 2 || len(factsOf(&w).marked()) != 6 {
			t.Errorf("%s: afterwards %+v with %v", name, got.Checks, w.ids())
		}
	}

	flat, _ := carryOut(t, limited(24, 2, 100), nil)
	lost := flat.with(silentSince(flat.Now), factsOf(&flat).marked()...)
	lost.Now, lost.Topology.Spec.Sizing.MaxClientsPerReflector = flat.Now.Add(2*time.Minute), 12
	for _, mode := range []v1alpha1.Mode{v1alpha1.ModeAuto, v1alpha1.ModeHierarchical} {
		lost.Topology.Spec.Mode = mode
		p := Make(lost.settled())
		if p.Mode != v1alpha1.ModeFlat || p.AtOnce != 1 || p.Steps[0].Kind != MeshOn || len(p.Refusals) > 0 {
			t.Errorf("%s: %s, %d at once of %v, %+v", mode, p.Mode, p.AtOnce, kinds(p.Steps), p.Refusals)
		}
	}
	if w, _ := travel(t, lost, nil); len(w.ids()) != 3 {
		t.Errorf("afterwards the IDs are %v", w.ids())
	}
}

// The mesh that cannot take over is refused before a client moves; by force the mesh comes first, or nobody moves at all.
func TestExitOfAHierarchyRefused(t *testing.T) {
	t.Parallel()
	w := inTheEnd(limited(24, 2, 12))
	now := metav1.NewTime(w.Now)
	w.Topology.DeletionTimestamp, w.Topology.Spec.Sizing.MaxMeshNodes = &now, 10
	if p := Make(w.settled()); len(p.Steps) != 0 || len(p.Refusals) != 1 || p.Refusals[0].Reason != ReasonMeshTooLarge {
		t.Errorf("%v, %+v", kinds(p.Steps), p.Refusals)
	}
	w.Topology.Annotations = map[string]string{v1alpha1.ForceExitAnnotation: string(ReasonMeshTooLarge)}
	if p := Make(w.settled()); len(p.Steps) == 0 || p.Steps[0].Kind != MeshOn || p.AtOnce != 1 {
		t.Errorf("by force: %v, %+v", kinds(p.Steps), p.Refusals)
	}
	w.Topology.Spec.Mesh = v1alpha1.MeshIgnore
	w.Topology.Annotations = map[string]string{v1alpha1.ForceExitAnnotation: string(ReasonMeshNotManaged)}
	end, done := carryOut(t, w, nil)
	if got := order(done); strings.Contains(got, "Join") || !strings.HasPrefix(got, "Demote Demote Demote Demote Demote Demote Release") ||
		len(factsOf(&end).marked()) != 0 || len(end.Peers) != 0 {
		t.Errorf("without a mesh: %s", got)
	}
}

// Writes to several clients are done in one round, each as it can be; a role is changed alone.
func TestClientsAtOnce(t *testing.T) {
	t.Parallel()
	most := 0
	travel(t, limited(40, 2, 10), func(before, _ World, p Plan) {
		at := slices.IndexFunc(p.Steps, func(s Step) bool { return !s.ofClient() })
		if at < 0 {
			at = len(p.Steps)
		}
		if p.AtOnce > max(at, 1) || p.AtOnce < 1 {
			t.Errorf("%d at once of %v", p.AtOnce, kinds(p.Steps))
		}
		for _, s := range p.Steps[:p.AtOnce] {
			if why := gatesOf(&before).wait(s, p.Reflectors); why != "" {
				t.Errorf("%s at once, and it waits for %s", s, why)
			}
		}
		most = max(most, p.AtOnce)
	})
	if most != maxClientSteps {
		t.Errorf("%d at once are the most", most)
	}
}

// A hierarchy whose reflectors' Nodes are all gone is made again in one round, although nothing says any more how many groups there were but
// the clients' number; and anyone who is about to leave is replaced in its own group first.
func TestReflectorsOfAllGroupsGo(t *testing.T) {
	t.Parallel()
	steady := inTheEnd(limited(80, 2, 16)).settled()
	gone := steady.without(factsOf(&steady).marked()...)
	for _, name := range factsOf(&steady).marked() {
		gone.Topology.Status.Reflectors = append(gone.Topology.Status.Reflectors, v1alpha1.ReflectorStatus{Node: name, Role: string(RoleReflector)})
	}
	p := Make(gone.settled())
	promoted := 0
	for _, s := range p.Steps[:p.AtOnce] {
		promoted += boolInt(s.Kind == Promote)
	}
	if want := 2*4 + spineCount; !candidatesOf(&gone).emergency() || len(p.Groups) != 5 || promoted != want {
		t.Errorf("%d groups, %d of %d at once: %v, %+v", len(p.Groups), promoted, want, kinds(p.Steps[:p.AtOnce]), p.Refusals)
	}
	w, _ := travel(t, gone, nil)
	if got := Make(w.settled()); got.Checks.UnreachablePairs != 0 || got.Checks.MinSessionsPerClient != 2 {
		t.Errorf("afterwards %+v", got.Checks)
	}

	for _, group := range []int{firstGroup, 2, spines} {
		leaving := groupOf(factsOf(&steady).working(nil), group)[0].Name
		w, done := travel(t, steady.with(cordon, leaving), guarded(t, 2))
		if n, _ := factsOf(&w).node(leaving); n.marked(&w.Topology) || len(groupOf(factsOf(&w).working(nil), group)) != 2 || done[0].Kind != Promote {
			t.Errorf("group %s: %v", groupName(group), kinds(done))
		}
		if w.ids()[groupName(group)] != steady.ids()[groupName(group)] {
			t.Errorf("group %s: the IDs are %v", groupName(group), w.ids())
		}
		// Where nobody can take its place it stays.
		alone := steady.with(cordon, leaving).with(cordon, steady.others()...)
		if p := Make(alone.settled()); len(p.Steps) != 0 {
			t.Errorf("group %s, with nobody else: %v", groupName(group), kinds(p.Steps))
		}
	}
}

// A group needs nodes that have been Ready for long: those that have not are for when there is need.
func TestFreshNodesMakeNoGroup(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, limited(24, 2, 100), nil)
	w = w.with(young(w.Now), w.others()...)
	w.Topology.Spec.Sizing.MaxClientsPerReflector = 12
	note := "24 nodes ask for 2 groups of 2 reflectors each and 2 spines, and only 3 nodes may be reflectors"
	if p := Make(w.settled()); p.Mode != v1alpha1.ModeFlat || len(p.Steps) != 0 || !slices.Contains(Messages(p.Notes), note) {
		t.Errorf("%s, %v, %q", p.Mode, kinds(p.Steps), p.Notes)
	}
}

// A client whose sessions are not there yet is not taken along with those whose sessions are.
func TestClientsAtOnceWait(t *testing.T) {
	t.Parallel()
	w, _ := moving(t)
	for _, s := range Make(w).Steps {
		if s.Kind == Join {
			w = w.After(s)
		}
	}
	w = w.settled()
	if open := Make(w).Steps[0]; open.Kind == EnsurePeer {
		w = w.After(open).settled()
	}
	p := Make(w)
	if p.AtOnce < 3 || p.Steps[0].Kind != Leave || p.Steps[1].Kind != Leave {
		t.Fatalf("%d at once of %v", p.AtOnce, kinds(p.Steps))
	}
	late, _ := factsOf(&w).node(p.Steps[1].Node)
	w = w.said(gatesOf(&w).joined(late)[0].Name, func(s *Sighting) { s.Established = without(s.Established, late.IPv4) })
	p = Make(w)
	at := slices.IndexFunc(p.Steps, func(s Step) bool { return s.Kind == Leave && s.Node == late.Name })
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
	adopted := slices.IndexFunc(done, func(s Step) bool { return s.Kind == Adopt && s.Node == w.Nodes[0].Name })
	if adopted < 0 || len(w.Nodes[0].without(v1alpha1.GroupLabel, v1alpha1.ClientLabel, v1alpha1.JoinsLabel)) != 0 || len(factsOf(&w).marked()) != 3 {
		t.Errorf("%v; %v", w.Nodes[0].Labels, kinds(done))
	}
}
