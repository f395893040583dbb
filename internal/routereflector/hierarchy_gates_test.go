// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package routereflector

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

// moving is a hierarchy in which one client has joined the second group and has not left the first.
func moving(t *testing.T) (World, Node) {
	t.Helper()
	w, _ := travel(t, inTheEnd(limited(20, 2, 20)), nil)
	w.Topology.Spec.Mode = v1alpha1.ModeHierarchical
	w = w.settled()
	for range 40 {
		p := Make(w)
		after := w.After(p.Steps[0]).settled()
		if p.Steps[0].Kind == Join {
			n, _ := factsOf(&after).node(p.Steps[0].Node)
			return after, n
		}
		w = after
	}
	t.Fatal("nobody moves")
	return w, Node{}
}

// A client leaves the group that it moves from only when each reflector of the other has said that it has a session with it, with its mates
// and with the spines.
func TestLeaveWaits(t *testing.T) {
	t.Parallel()
	w, client := moving(t)
	step := stagesOf(&w).nodeStep(Leave, client.Name, "")
	if got := gatesOf(&w).wait(step, nil); got != "" {
		t.Fatalf("with all sessions it waits: %s", got)
	}
	reflectors := gatesOf(&w).joined(client)
	if len(reflectors) != 2 {
		t.Fatalf("%d reflectors of the other group", len(reflectors))
	}
	silent := w
	silent.Sightings = slices.DeleteFunc(slices.Clone(w.Sightings), func(s Sighting) bool { return s.Node == reflectors[1].Name })
	if got, want := gatesOf(&silent).wait(step, nil), "reflector "+reflectors[1].Name+" has not reported its sessions"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for _, lacking := range []string{client.Name, reflectors[1].Name, groupOf(factsOf(&w).working(nil), spines)[0].Name} {
		n, _ := factsOf(&w).node(lacking)
		without := w.said(reflectors[0].Name, func(s *Sighting) { s.Established = without(s.Established, n.IPv4) })
		if got, want := gatesOf(&without).wait(step, nil), "reflector "+reflectors[0].Name+" has no Established session with "+lacking; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	// What other clients lack is not this one's trouble.
	other := w.Nodes[slices.IndexFunc(w.Nodes, func(n Node) bool { return n.isClient(&w.Topology) && n.Name != client.Name })]
	without := w.said(reflectors[0].Name, func(s *Sighting) { s.Established = without(s.Established, other.IPv4) })
	if got := gatesOf(&without).wait(step, nil); got != "" {
		t.Errorf("it waits: %s", got)
	}
	dead := w
	dead.Nodes = slices.Clone(w.Nodes)
	for i := range dead.Nodes {
		if dead.Nodes[i].group() == 2 && dead.Nodes[i].marked(&w.Topology) {
			dead.Nodes[i].Ready = corev1.ConditionUnknown
		}
	}
	if got, want := gatesOf(&dead).wait(step, nil), "no reflector of the group that "+client.Name+" moves to is working"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// What was said before a client joined a group is not evidence of its sessions; what was said after it still is when another client has left.
func TestMomentOfAMove(t *testing.T) {
	t.Parallel()
	w, client := moving(t)
	during := w.Present()
	read, ok := ParseMoment(during.String())
	if !ok || !read.Equal(during) {
		t.Fatalf("%q is read as %+v, %t", during, read, ok)
	}
	reflector := gatesOf(&w).joined(client)[0]
	step := stagesOf(&w).nodeStep(Leave, client.Name, "")
	step.NodeLabels = map[string]*string{v1alpha1.ClientLabel: new("2"), v1alpha1.JoinsLabel: nil}
	after := w.After(step).Present()
	if after.Equal(during) || !after.Holds(during, &reflector) {
		t.Error("what was said during the move must hold after it")
	}
	if during.Holds(after, &reflector) {
		t.Error("what was said before the move must not hold during it")
	}
	// A label that changes no session leaves what was said as it is.
	fresh := w
	fresh.Nodes = append(slices.Clone(w.Nodes), machine(5000, 1))
	before := fresh.Present()
	assign := stagesOf(&fresh).nodeStep(Assign, "node-05000", "")
	assign.NodeLabels = map[string]*string{v1alpha1.ClientLabel: new("1")}
	if !fresh.After(assign).Present().Equal(before) {
		t.Error("a label for a new node makes another moment")
	}
}

// A reflector of a group is given up on the word of those that have sessions with it, its mate and the spines, and replaced in its group,
// which changes no label of any client.
func TestADeadReflectorOfAGroup(t *testing.T) {
	t.Parallel()
	w, _ := travel(t, inTheEnd(limited(24, 2, 12)), nil)
	ids := w.ids()
	for _, group := range []int{firstGroup, 2, spines} {
		dead := groupOf(factsOf(&w).working(nil), group)[0]
		at := slices.IndexFunc(w.Nodes, func(n Node) bool { return n.Name == dead.Name })
		ill := w
		ill.Nodes = slices.Clone(w.Nodes)
		ill.Nodes[at].Ready, ill.Nodes[at].ReadySince = corev1.ConditionUnknown, w.Now
		ill.Now = w.Now.Add(time.Minute)
		seen := ill.settled()
		for i := range seen.Sightings {
			if n, _ := factsOf(&seen).node(seen.Sightings[i].Node); n.linked(&dead) {
				seen.Sightings[i].Established[dead.IPv4] = true
			}
		}
		if p := Make(seen); len(p.Steps) != 0 {
			t.Errorf("group %s: those that have sessions with it see it, and still %v", groupName(group), kinds(p.Steps))
		}
		strangers := ill.settled()
		strangers.Sightings = slices.DeleteFunc(strangers.Sightings, func(s Sighting) bool {
			n, _ := factsOf(&strangers).node(s.Node)
			return n.linked(&dead)
		})
		if p := Make(strangers); len(p.Steps) != 0 {
			t.Errorf("group %s: nobody who has sessions with it was asked, and still %v", groupName(group), kinds(p.Steps))
		}
		well, done := travel(t, ill, guarded(t, 1))
		var got []Kind
		for _, s := range done {
			if s.Kind == Promote || s.Kind == Demote {
				got = append(got, s.Kind)
			}
			if s.Kind == Join || s.Kind == Leave {
				t.Errorf("group %s: %s", groupName(group), s)
			}
		}
		if diff := cmp.Diff([]Kind{Promote, Demote}, got); diff != "" {
			t.Errorf("group %s: %s", groupName(group), diff)
		}
		if diff := cmp.Diff(ids, well.ids()); diff != "" {
			t.Errorf("group %s: %s", groupName(group), diff)
		}
	}
}

// At the end of a hierarchy the mesh comes first, and the reflectors that link others go last.
func TestTheEndOfAHierarchy(t *testing.T) {
	t.Parallel()
	w, _ := travel(t, inTheEnd(limited(24, 2, 12)), nil)
	now := metav1.NewTime(w.Now)
	w.Topology.DeletionTimestamp = &now
	role := map[string]int{}
	for i := range w.Nodes {
		if n := &w.Nodes[i]; n.marked(&w.Topology) {
			role[n.Name] = n.group()
		}
	}
	_, done := travel(t, w, guarded(t, 0))
	var order []string
	for _, s := range done {
		switch word := string(s.Kind); {
		case s.Kind == Demote:
			order = append(order, "Demote "+groupName(role[s.Node]))
		case len(order) == 0 || order[len(order)-1] != word:
			if s.Kind != Join && s.Kind != Leave && s.Kind != EnsurePeer {
				order = append(order, word)
			}
		}
	}
	want := []string{"MeshOn", "Demote 2", "Demote 2", "Demote spine", "Demote spine", "Demote 1", "Demote 1", "Release", "RemovePeer"}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Error(diff)
	}
}

// Where groups beyond the first work and all spines are lost, spines are made before all else: a client that is moving would lose the second group's
// reflectors if it became one of the first's.
func TestSpinesFirstWhereNoneIsLeft(t *testing.T) {
	t.Parallel()
	w, client := moving(t)
	w.Mesh.On, w.Topology.Spec.Mode = true, v1alpha1.ModeHierarchical
	first := groupOf(factsOf(&w).working(nil), firstGroup)[0].Name
	w.Nodes = slices.DeleteFunc(slices.Clone(w.Nodes), func(n Node) bool {
		role := n.marked(&w.Topology) && n.group() != 2 && n.Name != first
		return role || n.ClusterID == "" && n.Name != client.Name
	})
	p := Make(w.settled())
	if len(p.Refusals) > 0 || len(p.Steps) == 0 {
		t.Fatalf("refused: %v, steps %v", p.Refusals, p.Steps)
	}
	if label := p.Steps[0].NodeLabels[v1alpha1.GroupLabel]; p.Steps[0].Kind != Promote || label == nil || *label != groupName(spines) {
		t.Errorf("the first step is %s with label %v", p.Steps[0], label)
	}
}
