// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package routereflector

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/api/pkg/lib/numorstring"
	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector/reachability"
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

// A reflector with which one node can have no session still has to bring what everybody else announces. What that node announces another one may bring, and one
// has to.
func TestRoutesOfAReflectorThatOneNodeIsPartedFrom(t *testing.T) {
	t.Parallel()
	w := beforeMeshOff(t, 12, 3)
	p := Make(w)
	reflectors := factsOf(&w).working(nil)
	client, _ := factsOf(&w).node(p.Samples[0])
	apart, _ := factsOf(&w).node(w.others()[slices.IndexFunc(w.others(), func(name string) bool { return !slices.Contains(p.Samples, name) })])
	free, _ := factsOf(&w).node(p.Samples[1])
	w.Peers = append(slices.Clone(w.Peers), wrongAS(t, &apart, &reflectors[0])...)
	first := reflectors[0].IPv4
	lost := w.said(client.Name, func(s *Sighting) { s.Routes = s.Routes.but(first, block(apart.IPv4)) })
	for name, c := range map[string]struct {
		w    World
		want string
	}{
		"the others bring it":      {lost, ""},
		"nobody brings it":         {lost.said(client.Name, func(s *Sighting) { s.Routes = s.Routes.only(block(apart.IPv4)) }), "no route to 1 of 8 destinations"},
		"another one's is lacking": {lost.said(client.Name, func(s *Sighting) { s.Routes = s.Routes.but(first, block(free.IPv4)) }), "no route to 1 of 8 destinations"},
	} {
		if got := gatesOf(&c.w).unrouted(); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: it waits for %q, want %q", name, got, c.want)
		}
	}
}

// only is the routes without one destination, whoever brings it but the mesh.
func (r Routes) only(but netip.Prefix) *Routes {
	out := &r
	for peer := range r.By {
		out = out.but(peer, but)
	}
	return out
}

// A client that cannot have a session with one of the reflectors, and has none with the others, has too few.
func TestAClientThatIsPartedFromOneReflector(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, cluster(9, 3), nil)
	client, _ := factsOf(&w).node(w.others()[0])
	reflector, _ := factsOf(&w).node(factsOf(&w).marked()[0])
	w.Peers = append(slices.Clone(w.Peers), wrongAS(t, &client, &reflector)...)
	for i := range w.Peers {
		if w.Peers[i].Name == "main-clients" {
			w.Peers[i].NodeMatcher = allBut(client.Name)
		}
	}
	if got := checksOf(&w).judge(w.state()).checks.MinSessionsPerClient; got != 0 {
		t.Errorf("the least is %d", got)
	}
}

// allBut matches every node but one.
type allBut string

func (m allBut) Evaluate(labels map[string]string) bool {
	return labels[corev1.LabelHostname] != string(m)
}

// A reflector that works is replaced although a client of another AS is there, to which reflectors pass on what each of them has from the others.
func TestReplacedBesideANodeOfAnotherAS(t *testing.T) {
	t.Parallel()
	for _, redundancy := range []int32{1, 2, 3, 5} {
		w := cluster(16, 3).with(otherAS, "node-00015")
		w.Topology.Spec.Redundancy = &redundancy
		w, _ = carryOut(t, w, nil)
		if w.Mesh.On {
			t.Fatalf("%d reflectors: the mesh is on", redundancy)
		}
		old := factsOf(&w).marked()
		w, done := carryOut(t, w.with(cordon, old...), nil)
		p := Make(w)
		if now := factsOf(&w).marked(); len(now) != int(redundancy) || slices.ContainsFunc(now, func(n string) bool { return slices.Contains(old, n) }) || len(p.Refusals) > 0 {
			t.Errorf("%d reflectors: %v after %v, %+v", redundancy, now, kinds(done), p.Refusals)
		}
	}
}

// What another AS's node has more does not make more of the others' paths pass.
func TestPathsOfNodesOfTheClustersASAreBounded(t *testing.T) {
	t.Parallel()
	w := cluster(16, 3).with(otherAS, "node-00015")
	w, _ = carryOut(t, w, nil)
	many := w.state()
	many.nodes = slices.Clone(many.nodes)
	for i := range many.nodes[:7] { // reflectors of cluster IDs of their own multiply paths
		n := &many.nodes[i]
		n.Labels = maps.Clone(n.Labels)
		n.Labels[v1alpha1.ReflectorLabel], n.ClusterID = "main", fmt.Sprintf("1.1.1.%d", i)
	}
	is := checksOf(&w)
	before, after := is.judge(many), is.judge(many)
	before.verdicts = []reachability.Verdict{{MaxPaths: 3}}
	if got := is.breaks(before, after, Step{Kind: EnsurePeer}, 3); !strings.Contains(got, "paths to one prefix, where 12 are the most") {
		t.Errorf("%q", got)
	}
}

// A client that a BGPPeer parts from the only reflector that is left does not keep another from being made.
func TestAReflectorIsMadeBesideAClientThatIsPartedFromTheLast(t *testing.T) {
	t.Parallel()
	w := cluster(9, 3)
	two := int32(2)
	w.Topology.Spec.Redundancy = &two
	w, _ = carryOut(t, w, nil)
	reflectors := factsOf(&w).working(nil)
	client, _ := factsOf(&w).node(w.others()[0])
	w.Peers = append(slices.Clone(w.Peers), wrongAS(t, &client, &reflectors[0])...)
	w = w.with(silentSince(w.Now), reflectors[1].Name).with(func(n *Node) { n.Workloads = 1 }, client.Name)
	w.Now = w.Now.Add(2 * time.Minute)
	w, done := carryOut(t, w, nil)
	p := Make(w)
	if order(done) != "Promote Demote" || len(p.Refusals) > 0 || p.Checks.UnreachablePairs != 0 || p.Checks.MinSessionsPerClient != 1 {
		t.Errorf("%v, %+v, %+v", kinds(done), p.Refusals, p.Checks)
	}
}

// In a hierarchy a client that is parted from both reflectors of its group has too few sessions by no step, whatever reflectors other groups have; one that
// is parted from those of another group has as many as it should.
func TestAClientThatIsPartedFromItsGroup(t *testing.T) {
	t.Parallel()
	w := inTheEnd(limited(24, 2, 12))
	w = w.settled()
	client := w.Nodes[slices.IndexFunc(w.Nodes, func(n Node) bool { return n.Labels[v1alpha1.ClientLabel] == "2" })]
	part := func(group int) World {
		w := w
		w.Peers = slices.Clone(w.Peers)
		for _, r := range groupOf(factsOf(&w).working(nil), group) {
			w.Peers = append(w.Peers, wrongAS(t, &client, &r)...)
		}
		return w
	}
	for group, want := range map[int]int{2: 2, firstGroup: 2, spines: 2} {
		at := part(group)
		if got := checksOf(&at).judge(at.state()).checks.MinSessionsPerClient; got != want {
			t.Errorf("parted from group %s: the least is %d, want %d", groupName(group), got, want)
		}
	}
	// With both in no BGPPeer for clients it has none from a reflector that could have one.
	at := part(firstGroup)
	for i := range at.Peers {
		if at.Peers[i].NodeMatcher != nil && at.Peers[i].Topology != "" {
			at.Peers[i].NodeMatcher = both{at.Peers[i].NodeMatcher, allBut(client.Name)}
		}
	}
	if got := checksOf(&at).judge(at.state()).checks.MinSessionsPerClient; got != 0 {
		t.Errorf("without sessions, parted from another group: the least is %d", got)
	}
}

// both matches what two matchers do.
type both [2]Matcher

func (m both) Evaluate(labels map[string]string) bool {
	return m[0].Evaluate(labels) && m[1].Evaluate(labels)
}
