// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package routereflector

import (
	"strings"
	"testing"

	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/api/pkg/lib/numorstring"
)

// wrongAS is a BGPPeer that gives a node a peer with an AS number that is not the peer's.
func wrongAS(t *testing.T, node, peer *Node) []Peer {
	t.Helper()
	return peersOf(t, calicov3.BGPPeerSpec{Node: node.Name, PeerIP: peer.IPv4.String(), ASNumber: numorstring.ASNumber(65001)})
}

func otherAS(n *Node) { n.ForeignAS, n.AS = true, 65001 }

// A BGPPeer with a wrong AS number keeps every session between its two nodes down, the mesh's as well; the right number does not.
func TestAWrongASNumberPartsNodes(t *testing.T) {
	t.Parallel()
	w := cluster(4, 1)
	for name, c := range map[string]struct {
		spec calicov3.BGPPeerSpec
		want int
	}{
		"wrong":         {calicov3.BGPPeerSpec{ASNumber: 65001}, 2},
		"right":         {calicov3.BGPPeerSpec{ASNumber: DefaultASNumber}, 0},
		"not given":     {calicov3.BGPPeerSpec{}, 0},
		"its own wrong": {calicov3.BGPPeerSpec{ASNumber: DefaultASNumber, LocalASNumber: new(numorstring.ASNumber(65001))}, 2},
	} {
		c.spec.Node, c.spec.PeerIP = w.Nodes[0].Name, w.Nodes[1].IPv4.String()
		w.Peers = peersOf(t, c.spec)
		if got := checksOf(&w).judge(w.state()).checks.UnreachablePairs; got != c.want {
			t.Errorf("%s: %d pairs without a path, want %d", name, got, c.want)
		}
		if got := len(Discords(w.Nodes, w.Peers)); got != c.want/2 {
			t.Errorf("%s: %d discords", name, got)
		}
	}
}

// Enabling with such a BGPPeer ends with every pair connected, waits for no session that cannot come up, and names the BGPPeer.
func TestEnableWithAWrongASNumber(t *testing.T) {
	t.Parallel()
	w := cluster(9, 3)
	w.Peers = wrongAS(t, &w.Nodes[0], &w.Nodes[1])
	w, done := carryOut(t, w, nil)
	p := Make(w)
	if last := done[len(done)-1]; last.Kind != MeshOff || p.Checks.UnreachablePairs != 0 || p.Checks.MinSessionsPerClient < 2 {
		t.Errorf("%v, %+v", kinds(done), p.Checks)
	}
	want := "BGPPeer p has spec.asNumber 65001 for Node node-00001, whose AS number is 64512: no session comes up between node-00000 and node-00001"
	if got := strings.Join(Messages(p.Notes), "; "); got != want {
		t.Errorf("the notes are %q", got)
	}
}

// A client that BGPPeers part from all reflectors keeps the mesh on, and they are named.
func TestAWrongASNumberThatHurts(t *testing.T) {
	t.Parallel()
	w := cluster(7, 1)
	for i := range w.Nodes {
		w.Nodes[i].Workloads = boolInt(i > 2)
	}
	w.Peers = peersOf(t, calicov3.BGPPeerSpec{
		NodeSelector: "kubernetes.io/hostname in { 'node-00000', 'node-00001', 'node-00002' }", PeerIP: w.Nodes[4].IPv4.String(), ASNumber: 65001,
	})
	_, p := w.planned()
	for i := 0; len(p.Steps) > 0 && i < 20; i++ {
		w = w.After(p.Steps[0])
		w, p = w.planned()
	}
	if !w.Mesh.On || len(p.Refusals) != 1 || p.Refusals[0].Reason != ReasonUnsafe || !strings.Contains(p.Refusals[0].Message, "BGPPeer p has spec.asNumber 65001 for Node node-00004") {
		t.Errorf("the mesh is on: %v, %+v", w.Mesh.On, p.Refusals)
	}
}

// A node of an AS of its own is a member of the mesh, and reaches all by the reflectors that it is a peer of. Two of one such AS do not reach each other without
// the mesh, so that it stays; nor does one that the BGPPeers do not select.
func TestNodesOfAnotherAS(t *testing.T) {
	t.Parallel()
	one, two, aside := cluster(9, 3).with(otherAS, "node-00008"), cluster(9, 3).with(otherAS, "node-00007", "node-00008"), cluster(9, 3).with(otherAS, "node-00008")
	for i := range aside.Nodes {
		aside.Nodes[i].Labels["bgp"] = map[bool]string{true: "no", false: "yes"}[aside.Nodes[i].ForeignAS]
	}
	aside.Topology.Spec.ClientSelector.MatchLabels = map[string]string{"bgp": "yes"}
	for name, c := range map[string]struct {
		w    World
		off  bool
		last Kind
	}{"one": {one, true, ""}, "two of one AS": {two, false, MeshOff}, "not selected": {aside, false, Promote}} {
		w, p := c.w.planned()
		for i := 0; len(p.Steps) > 0 && i < 20; i++ {
			if w.Nodes[8].Name != "node-00008" || p.Steps[0].Node == "node-00008" {
				t.Fatalf("%s: %s", name, p.Steps[0])
			}
			w = w.After(p.Steps[0])
			w, p = w.planned()
		}
		if w.Mesh.On == c.off || p.Checks.UnreachablePairs != 0 {
			t.Errorf("%s: the mesh is on: %v, %+v, %+v", name, w.Mesh.On, p.Checks, p.Refusals)
		}
		if c.last != "" && (len(p.Refusals) != 1 || !strings.Contains(p.Refusals[0].Message, string(c.last)) ||
			!strings.Contains(p.Refusals[0].Message, "Node node-00008 has AS number 65001, which is not the cluster's")) {
			t.Errorf("%s: %+v", name, p.Refusals)
		}
	}
}

// The mesh goes only when the session of a node of another AS is up as well.
func TestTheMeshWaitsForAnotherAS(t *testing.T) {
	t.Parallel()
	w, p := cluster(9, 3).with(otherAS, "node-00008").planned()
	for p.Steps[0].Kind != MeshOff {
		w = w.After(p.Steps[0])
		w, p = w.planned()
	}
	n, _ := factsOf(&w).node("node-00008")
	for _, s := range w.Sightings {
		delete(s.Established, n.IPv4)
	}
	if got := Make(w).Waiting; !strings.HasSuffix(got, "has no Established session with node-00008") {
		t.Errorf("it waits for %q", got)
	}
}
