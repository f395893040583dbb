// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/gate"
	"github.com/mooring-dev/mooring/internal/routereflector/next"
)

// moving is a hierarchy in which one client has joined the second group and has not left the first.
func moving(t *testing.T) (rr.World, rr.Node) {
	t.Helper()
	w, _ := travel(t, inTheEnd(limited(20, 2, 20)), nil)
	w.Topology.Spec.Mode = v1alpha1.ModeHierarchical
	w = settled(w)
	for range 40 {
		p := MakePlan(w)
		after := settled(After(w, p.Steps[0]))
		if rr.Is[rr.Join](p.Steps[0]) {
			n, _ := after.Node(p.Steps[0].Node())
			return after, n
		}
		w = after
	}
	t.Fatal("nobody moves")
	return w, rr.Node{}
}

// A client leaves the group that it moves from only when each reflector of the other has said that it has a session with it, with its mates
// and with the spines.
func TestLeaveWaits(t *testing.T) {
	t.Parallel()
	w, client := moving(t)
	step := rr.Leave{NodeChange: next.NodeStep(&client, "", nil)}
	if got := gate.Wait(&w, step, nil); got != "" {
		t.Fatalf("with all sessions it waits: %s", got)
	}
	reflectors := next.Joined(&w, client)
	if len(reflectors) != 2 {
		t.Fatalf("%d reflectors of the other group", len(reflectors))
	}
	silent := w
	silent.Sightings = slices.DeleteFunc(slices.Clone(w.Sightings), func(s rr.Sighting) bool { return s.Node == reflectors[1].Name })
	if got, want := gate.Wait(&silent, step, nil), "reflector "+reflectors[1].Name+" has not reported its sessions"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for _, lacking := range []string{client.Name, reflectors[1].Name, rr.GroupOf(w.Working(nil), rr.Spines)[0].Name} {
		n, _ := w.Node(lacking)
		without := said(w, reflectors[0].Name, func(s *rr.Sighting) { s.Established = without(s.Established, n.IPv4) })
		if got, want := gate.Wait(&without, step, nil), "reflector "+reflectors[0].Name+" has no Established session with "+lacking; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	// What other clients lack is not this one's trouble.
	other := w.Nodes[slices.IndexFunc(w.Nodes, func(n rr.Node) bool { return n.IsClient(&w.Topology) && n.Name != client.Name })]
	without := said(w, reflectors[0].Name, func(s *rr.Sighting) { s.Established = without(s.Established, other.IPv4) })
	if got := gate.Wait(&without, step, nil); got != "" {
		t.Errorf("it waits: %s", got)
	}
	dead := w
	dead.Nodes = slices.Clone(w.Nodes)
	for i := range dead.Nodes {
		if dead.Nodes[i].Group() == 2 && dead.Nodes[i].Marked(&w.Topology) {
			dead.Nodes[i].Ready = corev1.ConditionUnknown
		}
	}
	if got, want := gate.Wait(&dead, step, nil), "no reflector of the group that "+client.Name+" moves to is working"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A reflector of a group is given up on the word of those that have sessions with it, its mate and the spines, and replaced in its group,
// which changes no label of any client.
func TestADeadReflectorOfAGroup(t *testing.T) {
	t.Parallel()
	w, _ := travel(t, inTheEnd(limited(24, 2, 12)), nil)
	ids := idsOf(w)
	for _, group := range []int{rr.FirstGroup, 2, rr.Spines} {
		dead := rr.GroupOf(w.Working(nil), group)[0]
		at := slices.IndexFunc(w.Nodes, func(n rr.Node) bool { return n.Name == dead.Name })
		ill := w
		ill.Nodes = slices.Clone(w.Nodes)
		ill.Nodes[at].Ready, ill.Nodes[at].ReadySince = corev1.ConditionUnknown, w.Now
		ill.Now = w.Now.Add(time.Minute)
		seen := settled(ill)
		for i := range seen.Sightings {
			if n, _ := seen.Node(seen.Sightings[i].Node); n.Linked(&dead) {
				seen.Sightings[i].Established[dead.IPv4] = true
			}
		}
		if p := MakePlan(seen); len(p.Steps) != 0 {
			t.Errorf("group %s: those that have sessions with it see it, and still %v", rr.GroupName(group), kinds(p.Steps))
		}
		strangers := settled(ill)
		strangers.Sightings = slices.DeleteFunc(strangers.Sightings, func(s rr.Sighting) bool {
			n, _ := strangers.Node(s.Node)
			return n.Linked(&dead)
		})
		if p := MakePlan(strangers); len(p.Steps) != 0 {
			t.Errorf("group %s: nobody who has sessions with it was asked, and still %v", rr.GroupName(group), kinds(p.Steps))
		}
		well, done := travel(t, ill, guarded(t, 1))
		var got []string
		for _, s := range done {
			if rr.Is[rr.Promote](s) || rr.Is[rr.Demote](s) {
				got = append(got, rr.Kind(s))
			}
			if rr.Is[rr.Join](s) || rr.Is[rr.Leave](s) {
				t.Errorf("group %s: %s", rr.GroupName(group), s)
			}
		}
		if diff := cmp.Diff([]string{"Promote", "Demote"}, got); diff != "" {
			t.Errorf("group %s: %s", rr.GroupName(group), diff)
		}
		if diff := cmp.Diff(ids, idsOf(well)); diff != "" {
			t.Errorf("group %s: %s", rr.GroupName(group), diff)
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
		if n := &w.Nodes[i]; n.Marked(&w.Topology) {
			role[n.Name] = n.Group()
		}
	}
	_, done := travel(t, w, guarded(t, 0))
	var order []string
	for _, s := range done {
		switch word := rr.Kind(s); {
		case rr.Is[rr.Demote](s):
			order = append(order, "Demote "+rr.GroupName(role[s.Node()]))
		case len(order) == 0 || order[len(order)-1] != word:
			if !rr.Is[rr.Join](s) && !rr.Is[rr.Leave](s) && !rr.Is[rr.EnsurePeer](s) {
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
	first := rr.GroupOf(w.Working(nil), rr.FirstGroup)[0].Name
	w.Nodes = slices.DeleteFunc(slices.Clone(w.Nodes), func(n rr.Node) bool {
		role := n.Marked(&w.Topology) && n.Group() != 2 && n.Name != first
		return role || n.ClusterID == "" && n.Name != client.Name
	})
	p := settledPlan(w)
	if len(p.Refusals) > 0 || len(p.Steps) == 0 {
		t.Fatalf("refused: %v, steps %v", p.Refusals, p.Steps)
	}
	change, _ := p.Steps[0].Change()
	if label := change.Labels[v1alpha1.GroupLabel]; !rr.Is[rr.Promote](p.Steps[0]) || label == nil || *label != rr.GroupName(rr.Spines) {
		t.Errorf("the first step is %s with label %v", p.Steps[0], label)
	}
}
