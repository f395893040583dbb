// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package routereflector

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector/reachability"
)

// limited is a cluster of which no reflector shall have more than so many clients.
func limited(nodes, zones, limit int) World {
	w := cluster(nodes, zones)
	w.Topology.Spec.Sizing.MaxClientsPerReflector = int32(limit)
	return w
}

// ids are the cluster IDs of the reflectors, by group.
func (w World) ids() map[string]string {
	out := map[string]string{}
	for i := range w.Nodes {
		if n := &w.Nodes[i]; n.marked(&w.Topology) {
			out[groupName(n.group())] = n.ClusterID
		}
	}
	return out
}

// clientsOf counts the clients by group.
func (w World) clientsOf() map[string]int {
	out := map[string]int{}
	for g, count := range factsOf(&w).roster().loads(w) {
		out[groupName(g)] = count
	}
	return out
}

// travel carries out all that is to be done, with the checks of every write, and returns the world at its end.
func travel(t interface {
	Helper()
	Fatalf(string, ...any)
}, w World, look func(before, after World, p Plan),
) (World, []Step) {
	t.Helper()
	var done []Step
	for range 2000 {
		var p Plan
		w, p = w.planned()
		if len(p.Refusals) > 0 {
			t.Fatalf("after %d steps: %+v\n%v", len(done), p.Refusals, kinds(done))
		}
		if len(p.Steps) == 0 {
			if p.Waiting != "" {
				t.Fatalf("in the end it waits for %s", p.Waiting)
			}
			return w, done
		}
		if w.outlasts() {
			continue
		}
		if p.Waiting != "" {
			t.Fatalf("after %d steps %s waits for %s", len(done), p.Steps[0], p.Waiting)
		}
		after := w.After(p.Steps[0])
		if look != nil {
			look(w, after, p)
		}
		done = append(done, p.Steps[0])
		w = after
	}
	t.Fatalf("no end after %d steps: %v", len(done), kinds(done[len(done)-20:]))
	return w, done
}

// guarded checks a write: nobody but a node that changes its role loses a path, clients keep their sessions, reflectors of different groups have none, and
// no ID changes while its node is a reflector.
func guarded(t interface {
	Helper()
	Fatalf(string, ...any)
}, least int,
) func(before, after World, p Plan) {
	return func(before, after World, p Plan) {
		t.Helper()
		step := p.Steps[0]
		b := checksOf(&before).judge(before.state())
		a := checksOf(&after).judge(after.state(), b)
		others := checksOf(&before).verdict(b.state, b.networks, step.exempt(), b)
		for when, is := range map[string]Checks{"for a moment": checksOf(&before).transit(b, a, step), "for good": checksOf(&after).verdict(a.state, a.networks, step.exempt(), a)} {
			if is.UnreachablePairs > others.UnreachablePairs {
				t.Fatalf("%s: %d pairs lose their path %s: %v", step, is.UnreachablePairs-others.UnreachablePairs, when, is.Examples)
			}
			if !after.Mesh.On && checksOf(&after).liveClients(a.state, step.exempt()) && is.MinSessionsPerClient < min(least, others.MinSessionsPerClient) {
				t.Fatalf("%s: a client has %d sessions %s", step, is.MinSessionsPerClient, when)
			}
		}
		after.tree(t, a.networks, step)
		for i := range before.Nodes {
			n := &before.Nodes[i]
			if m, _ := factsOf(&after).node(n.Name); n.ClusterID != "" && m.ClusterID != "" && n.ClusterID != m.ClusterID {
				t.Fatalf("%s: %s changes its cluster ID from %s to %s", step, n.Name, n.ClusterID, m.ClusterID)
			}
		}
	}
}

// tree checks that reflectors of different groups have no session, and that those of a group have one ID, which no other group has.
func (w World) tree(t interface {
	Helper()
	Fatalf(string, ...any)
}, networks []*reachability.Network, step Step,
) {
	t.Helper()
	of := map[string]int{}
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if !n.marked(&w.Topology) {
			continue
		}
		if g, has := of[n.ClusterID]; has && g != n.group() {
			t.Fatalf("%s: groups %d and %d have the ID %s", step, g, n.group(), n.ClusterID)
		}
		of[n.ClusterID] = n.group()
		for j := range w.Nodes {
			m := &w.Nodes[j]
			for _, network := range networks {
				if m.marked(&w.Topology) && n.group() > spines && m.group() > spines && n.group() != m.group() && network.HasSession(int32(i), int32(j)) {
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
	if ids := flat.ids(); len(ids) != 1 || ids["1"] != "244.0.0.1" {
		t.Fatalf("%v", ids)
	}
	deep := flat
	deep.Topology.Spec.Sizing.MaxClientsPerReflector = 15
	deep, done := travel(t, deep, guarded(t, 1))
	if diff := cmp.Diff(map[string]string{"1": "244.0.0.1", "2": "244.0.0.3", "spine": "244.0.0.2"}, deep.ids()); diff != "" {
		t.Error(diff)
	}
	p := Make(deep)
	if p.Mode != v1alpha1.ModeHierarchical || len(p.Peers) != 7 || len(deep.Peers) != 7 || p.Checks.MaxPathsPerPrefix != 8 || p.Checks.UnreachablePairs != 0 {
		t.Errorf("%s, %d BGPPeers, %+v", p.Mode, len(deep.Peers), p.Checks)
	}
	for g, count := range deep.clientsOf() {
		if count > 15 {
			t.Errorf("group %s has %d clients: %v", g, count, deep.clientsOf())
		}
	}
	t.Logf("flat to hierarchical: %d writes, clients %v", len(done), deep.clientsOf())
	deep.Topology.Spec.Mode = v1alpha1.ModeFlat
	again, done := travel(t, deep, guarded(t, 1))
	t.Logf("and back: %d writes", len(done))
	if ids := again.ids(); len(ids) != 1 || ids["1"] != "244.0.0.1" {
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

func peerNames(w World) map[string]PeerSpec {
	out := map[string]PeerSpec{}
	for _, p := range w.Peers {
		out[p.Name] = p.PeerSpec
	}
	return out
}

// A hierarchy is made on a running mesh as well, and ends in one.
func TestHierarchyOnARunningMesh(t *testing.T) {
	t.Parallel()
	w := limited(40, 3, 12)
	w, done := travel(t, w, guarded(t, 1))
	if last := done[len(done)-1]; last.Kind != MeshOff {
		t.Errorf("the last step is %s", last)
	}
	if of := w.clientsOf(); len(of) != 3 || max(of["1"], of["2"], of["3"]) > 12 || of["1"]+of["2"]+of["3"] != 32 {
		t.Errorf("%v", of)
	}
	now := metav1.NewTime(w.Now)
	w.Topology.DeletionTimestamp = &now
	w, _ = travel(t, w, guarded(t, 1))
	if len(w.Peers) != 0 || len(factsOf(&w).marked()) != 0 || !w.Mesh.On {
		t.Errorf("something is left: %v %v", peerNames(w), factsOf(&w).marked())
	}
	for i := range w.Nodes {
		if len(w.Nodes[i].Labels) != 3 || w.Nodes[i].ClusterID != "" {
			t.Errorf("%s: %v %s", w.Nodes[i].Name, w.Nodes[i].Labels, w.Nodes[i].ClusterID)
		}
	}
}

// A node that is added costs one write, to its own labels; nobody else's change. Where a group has its share by then, one BGPPeer lets the next nodes
// into another.
func TestANewNodeInAHierarchy(t *testing.T) {
	t.Parallel()
	w, _ := travel(t, limited(40, 3, 40), nil)
	w.Topology.Spec.Sizing.MaxClientsPerReflector = 20
	w, _ = travel(t, w, nil)
	reopened, added := 0, 5
	for i := range added {
		fresh := machine(1000+i, 3)
		w.Nodes = append(slices.Clone(w.Nodes), fresh)
		if c := Make(w.settled()).Checks; c.UnreachablePairs != 0 || c.MinSessionsPerClient < 2 {
			t.Fatalf("before any write the new node has no path: %+v", c)
		}
		var done []Step
		w, done = travel(t, w, guarded(t, 1))
		for _, s := range done {
			switch {
			case s.Kind == Assign && s.Node == fresh.Name:
			case s.Kind == EnsurePeer && s.Peer.Name == "main-clients":
				reopened++
			default:
				t.Errorf("%s for a new node", s)
			}
		}
	}
	if reopened > 1 {
		t.Errorf("%d BGPPeers were written for %d nodes", reopened, added)
	}
}
