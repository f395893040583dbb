// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/gate"
	"github.com/mooring-dev/mooring/internal/routereflector/model"
	"github.com/mooring-dev/mooring/internal/routereflector/reachability"
)

// limited is a cluster of which no reflector shall have more than so many clients.
func limited(nodes, zones, limit int) rr.World {
	w := cluster(nodes, zones)
	w.Topology.Spec.Sizing.MaxClientsPerReflector = int32(limit)
	return w
}

// ids are the cluster IDs of the reflectors, by group.
func idsOf(w rr.World) map[string]string {
	out := map[string]string{}
	for i := range w.Nodes {
		if n := &w.Nodes[i]; n.Marked(&w.Topology) {
			out[rr.GroupName(n.Group())] = n.ClusterID
		}
	}
	return out
}

// clientsOf counts the clients by group.
func clientsOf(w rr.World) map[string]int {
	out := map[string]int{}
	for g, count := range w.Roster().Loads(&w) {
		out[rr.GroupName(g)] = count
	}
	return out
}

// guarded checks a write: nobody but a node that changes its role loses a path, clients keep their sessions, reflectors of different groups have none, and
// no ID changes while its node is a reflector.
func guarded(t tester, least int) func(before, after rr.World, p rr.Plan) {
	return func(before, after rr.World, p rr.Plan) {
		t.Helper()
		step := p.Steps[0]
		b := model.Judge(&before, model.StateOf(before))
		a := model.Judge(&after, model.StateOf(after), b)
		others := verdict(&before, b.State, b.Networks, rr.Exempt(step), b)
		for when, networks := range map[string][]*reachability.Network{"for a moment": model.Surviving(&before, b, a, step), "for good": a.Networks} {
			is := verdict(&after, a.State, networks, rr.Exempt(step), a)
			if is.UnreachablePairs > others.UnreachablePairs {
				t.Fatalf("%s: %d pairs lose their path %s: %v", step, is.UnreachablePairs-others.UnreachablePairs, when, is.Examples)
			}
			if !after.Mesh.On && model.LiveClients(&after, a.State, rr.Exempt(step)) && is.MinSessionsPerClient < min(least, others.MinSessionsPerClient) &&
				!model.KeepsSessions(&before, b, a, networks, rr.Exempt(step), min(least, others.MinSessionsPerClient)) {
				t.Fatalf("%s: a client has %d sessions %s", step, is.MinSessionsPerClient, when)
			}
		}
		tree(after, t, a.Networks, step)
		for i := range before.Nodes {
			n := &before.Nodes[i]
			if m, _ := after.Node(n.Name); n.ClusterID != "" && m.ClusterID != "" && n.ClusterID != m.ClusterID {
				t.Fatalf("%s: %s changes its cluster ID from %s to %s", step, n.Name, n.ClusterID, m.ClusterID)
			}
		}
	}
}

// tree checks that reflectors of different groups have no session, and that those of a group have one ID, which no other group has.
func tree(w rr.World, t tester, networks []*reachability.Network, step rr.Step) {
	t.Helper()
	of := map[string]int{}
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if !n.Marked(&w.Topology) {
			continue
		}
		if g, has := of[n.ClusterID]; has && g != n.Group() {
			t.Fatalf("%s: groups %d and %d have the ID %s", step, g, n.Group(), n.ClusterID)
		}
		of[n.ClusterID] = n.Group()
		for j := range w.Nodes {
			m := &w.Nodes[j]
			for _, network := range networks {
				if m.Marked(&w.Topology) && n.Group() > rr.Spines && m.Group() > rr.Spines && n.Group() != m.Group() && network.HasSession(int32(i), int32(j)) {
					t.Fatalf("%s: %s and %s of different groups have a session", step, n.Name, m.Name)
				}
			}
		}
	}
}

// From flat to a hierarchy and back: the IDs that there are stay, and in the end everything is as it was, labels included.
func TestFlatToHierarchicalAndBack(t *testing.T) {
	t.Parallel()
	flat, _ := travel(t, limited(30, 3, 40), guarded(t, 1))
	if ids := idsOf(flat); len(ids) != 1 || ids["1"] != "244.0.0.1" {
		t.Fatalf("%v", ids)
	}
	deep := flat
	deep.Topology.Spec.Sizing.MaxClientsPerReflector = 15
	deep, done := travel(t, deep, guarded(t, 1))
	if diff := cmp.Diff(map[string]string{"1": "244.0.0.1", "2": "244.0.0.3", "spine": "244.0.0.2"}, idsOf(deep)); diff != "" {
		t.Error(diff)
	}
	p := MakePlan(deep)
	if p.Mode != v1alpha1.ModeHierarchical || len(p.Peers) != 7 || len(deep.Peers) != 7 || p.Checks.MaxPathsPerPrefix != 8 || p.Checks.UnreachablePairs != 0 {
		t.Errorf("%s, %d BGPPeers, %+v", p.Mode, len(deep.Peers), p.Checks)
	}
	for g, count := range clientsOf(deep) {
		if count > 15 {
			t.Errorf("group %s has %d clients: %v", g, count, clientsOf(deep))
		}
	}
	t.Logf("flat to hierarchical: %d writes, clients %v", len(done), clientsOf(deep))
	deep.Topology.Spec.Mode = v1alpha1.ModeFlat
	again, done := travel(t, deep, guarded(t, 1))
	t.Logf("and back: %d writes", len(done))
	if ids := idsOf(again); len(ids) != 1 || ids["1"] != "244.0.0.1" {
		t.Errorf("%v", ids)
	}
	if diff := cmp.Diff(peerNames(flat), peerNames(again)); diff != "" {
		t.Error(diff)
	}
	for i := range again.Nodes {
		for _, key := range []string{v1alpha1.GroupLabel, v1alpha1.ClientLabel, v1alpha1.JoinsLabel} {
			if value, has := again.Nodes[i].Labels[key]; has {
				t.Errorf("%s still has %s=%s", again.Nodes[i].Name, key, value)
			}
		}
	}
}

func peerNames(w rr.World) map[string]rr.PeerSpec {
	out := map[string]rr.PeerSpec{}
	for _, p := range w.Peers {
		out[p.Name] = p.PeerSpec
	}
	return out
}

// From the mesh to a hierarchy each client is written to once: the first group gathers all clients until each has a label
// and its sessions with its own group, so that nobody moves. The end of the topology is safe at any point of that.
func TestAHierarchyIsMadeWithOneWriteAClient(t *testing.T) {
	t.Parallel()
	for _, size := range []struct{ nodes, limit, groups int }{{24, 12, 2}, {42, 6, 5}, {36, 20, 2}} {
		start, look := limited(size.nodes, 3, size.limit), guarded(t, 1)
		var gathering []rr.World
		most := 0
		end, done := travel(t, start, func(before, after rr.World, p rr.Plan) {
			look(before, after, p)
			most = max(most, atOnce(t, before, p))
			if after.Roster().Gathers {
				gathering = append(gathering, after)
			}
		})
		writes := 0
		for _, s := range done {
			writes += rr.Count(rr.OfClient(s))
		}
		if clients := end.Clients(); writes != clients || len(end.PresentGroups()) != size.groups || end.Roster().Gathers {
			t.Errorf("%d writes to %d clients of %d groups", writes, clients, len(end.PresentGroups()))
		}
		for g, count := range clientsOf(end) {
			if count > size.limit {
				t.Errorf("group %s has %d clients: %v", g, count, clientsOf(end))
			}
		}
		if most != maxClientSteps {
			t.Errorf("%d at once are the most", most)
		}
		if last := done[len(done)-1]; !rr.Is[rr.MeshOff](last) {
			t.Errorf("the last step is %s", last)
		}
		if len(gathering) == 0 {
			t.Errorf("of %d nodes the first group gathered none", size.nodes)
		}
		now := metav1.NewTime(start.Now)
		for i := 0; i < len(gathering); i += 9 {
			gathering[i].Topology.DeletionTimestamp = &now
			left, ended := carryOut(t, gathering[i], guarded(t, 0))
			if len(left.Marked()) > 0 || len(left.Peers) > 0 {
				t.Errorf("after %d steps: %v are left", i, left.Marked())
			}
			if slices.ContainsFunc(ended, rr.Is[rr.Assign]) {
				t.Errorf("after %d steps the end gives clients a group: %v", i, kinds(ended))
			}
		}
	}
}

// atOnce is how many writes are done in one round: those to several clients, each of which may be done now; a role is
// changed alone.
func atOnce(t *testing.T, w rr.World, p rr.Plan) int {
	t.Helper()
	at := slices.IndexFunc(p.Steps, func(s rr.Step) bool { return !rr.OfClient(s) })
	if at < 0 {
		at = len(p.Steps)
	}
	if p.AtOnce > max(at, 1) || p.AtOnce < 1 {
		t.Errorf("%d at once of %v", p.AtOnce, kinds(p.Steps))
	}
	for _, s := range p.Steps[:p.AtOnce] {
		if why := gate.Wait(&w, s, p.Reflectors); why != "" {
			t.Errorf("%s at once, and it waits for %s", s, why)
		}
	}
	return p.AtOnce
}

// The first group goes on gathering until each client has its sessions with its own group.
func TestItGathersUntilAllHaveTheirSessions(t *testing.T) {
	t.Parallel()
	w, found := limited(24, 3, 12), false
	travel(t, w, func(before, _ rr.World, p rr.Plan) {
		if !rr.Is[rr.EnsurePeer](p.Steps[0]) || !before.Roster().Gathers || len(before.Marked()) == 0 {
			return
		}
		found = true
		member := before.FirstNode(func(n *rr.Node) bool { in, _ := n.Membership(); return in > rr.FirstGroup })
		lost, _ := before.Node(member)
		before.Sightings = slices.Clone(before.Sightings)
		for i := range before.Sightings {
			if r, _ := before.Node(before.Sightings[i].Node); r.Group() > rr.FirstGroup {
				s := maps.Clone(before.Sightings[i].Established)
				delete(s, lost.IPv4)
				before.Sightings[i].Established = s
			}
		}
		if why := MakePlan(before).Waiting; !strings.Contains(why, member) {
			t.Errorf("%s has no session, and the step waits for %q", member, why)
		}
	})
	if !found {
		t.Error("it gathered nobody")
	}
}

// A reflector whose group has lost its spines is reached by its clients alone: once they have sessions with
// another group, it goes before they leave it.
func TestAReflectorWithoutSpinesGoesBeforeItsClients(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, redundant(limited(12, 2, 4), 2), nil)
	kept := map[bool]string{} // of group 2 a reflector and a client
	for _, n := range w.Nodes {
		if in, _ := n.Membership(); n.Marked(&w.Topology) && n.Group() == 2 || !n.Marked(&w.Topology) && in == 2 {
			kept[n.Marked(&w.Topology)] = n.Name
		}
	}
	w.Nodes = slices.DeleteFunc(slices.Clone(w.Nodes), func(n rr.Node) bool {
		in, _ := n.Membership()
		outside := n.Marked(&w.Topology) && n.Group() != rr.FirstGroup || !n.Marked(&w.Topology) && in != rr.FirstGroup
		return outside && kept[n.Marked(&w.Topology)] != n.Name
	})
	w.Topology.Spec.Mode = v1alpha1.ModeFlat
	w, done := carryOut(t, w, safe(t))
	if p := settledPlan(w); len(kept) != 2 || len(p.Steps)+len(p.Refusals) > 0 {
		t.Fatalf("of %v, after %v: %v, %v", kept, kinds(done), p.Steps, p.Refusals)
	}
	joined := slices.Index(kinds(done), "Join Node/"+kept[false])
	if demoted := slices.Index(kinds(done), "Demote Node/"+kept[true]); joined < 0 || demoted < joined {
		t.Errorf("%v", kinds(done))
	}
}
