// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

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
	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/gate"
	"github.com/mooring-dev/mooring/internal/routereflector/model"
	"github.com/mooring-dev/mooring/internal/routereflector/reachability"
)

// wrongAS is a BGPPeer that gives a node a peer with an AS number that is not the peer's.
func wrongAS(t *testing.T, node, peer *rr.Node) []rr.Peer {
	t.Helper()
	return peersOf(t, calicov3.BGPPeerSpec{Node: node.Name, PeerIP: peer.IPv4.String(), ASNumber: numorstring.ASNumber(65001)})
}

func otherAS(n *rr.Node) { n.ForeignAS, n.AS = true, 65001 }

// A BGPPeer with a wrong AS number keeps every session between its two nodes down, the mesh's as well; the right number does not.
func TestAWrongASNumberPartsNodes(t *testing.T) {
	t.Parallel()
	w := cluster(4, 1)
	for name, c := range map[string]struct {
		spec calicov3.BGPPeerSpec
		want int
	}{
		"wrong":         {calicov3.BGPPeerSpec{ASNumber: 65001}, 2},
		"right":         {calicov3.BGPPeerSpec{ASNumber: rr.DefaultASNumber}, 0},
		"not given":     {calicov3.BGPPeerSpec{}, 0},
		"its own wrong": {calicov3.BGPPeerSpec{ASNumber: rr.DefaultASNumber, LocalASNumber: new(numorstring.ASNumber(65001))}, 2},
	} {
		c.spec.Node, c.spec.PeerIP = w.Nodes[0].Name, w.Nodes[1].IPv4.String()
		w.Peers = peersOf(t, c.spec)
		if got := model.Judge(&w, model.StateOf(w)).Checks.UnreachablePairs; got != c.want {
			t.Errorf("%s: %d pairs without a path, want %d", name, got, c.want)
		}
		if got := len(rr.Discords(w.Nodes, w.Peers)); got != c.want/2 {
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
	p := MakePlan(w)
	if last := done[len(done)-1]; last.Kind != rr.MeshOff || p.Checks.UnreachablePairs != 0 || p.Checks.MinSessionsPerClient < 2 {
		t.Errorf("%v, %+v", kinds(done), p.Checks)
	}
	want := "BGPPeer p has spec.asNumber 65001 for Node node-00001, whose AS number is 64512: no session comes up between node-00000 and node-00001"
	if got := strings.Join(rr.Messages(p.Notes), "; "); got != want {
		t.Errorf("the notes are %q", got)
	}
}

// A client that BGPPeers part from all reflectors gets its first session from one more reflector: it has fewer than the
// others then, and has lost none.
func TestAFirstSessionIsNoLoss(t *testing.T) {
	t.Parallel()
	w := cluster(9, 1)
	two := int32(2)
	w.Topology.Spec.Redundancy = &two
	w, _ = carryOut(t, w, nil)
	parted, ours := &w.Nodes[0], []rr.Reflector{}
	for i := range w.Nodes {
		switch n := &w.Nodes[i]; {
		case n.ClusterID != "":
			ours = append(ours, rr.Reflector{Node: n.Name})
		case parted.ClusterID != "":
			parted = n
		}
	}
	for i, r := range ours {
		reflector, _ := w.Node(r.Node)
		peers := wrongAS(t, parted, &reflector)
		peers[0].Name = fmt.Sprintf("wrong-%d", i)
		w.Peers = append(w.Peers, peers...)
	}
	three := int32(3)
	w.Topology.Spec.Redundancy = &three
	w, done := carryOut(t, w, nil)
	if !slices.ContainsFunc(done, func(s rr.Step) bool { return s.Kind == rr.Promote }) {
		t.Errorf("%v, %v", kinds(done), MakePlan(w).Refusals)
	}
}

// A client that BGPPeers part from all reflectors keeps the mesh on, and they are named.
func TestAWrongASNumberThatHurts(t *testing.T) {
	t.Parallel()
	w := cluster(7, 1)
	for i := range w.Nodes {
		w.Nodes[i].Workloads = rr.Count(i > 2)
	}
	w.Peers = peersOf(t, calicov3.BGPPeerSpec{
		NodeSelector: "kubernetes.io/hostname in { 'node-00000', 'node-00001', 'node-00002' }", PeerIP: w.Nodes[4].IPv4.String(), ASNumber: 65001,
	})
	_, p := planned(w)
	for i := 0; len(p.Steps) > 0 && i < 20; i++ {
		w = After(w, p.Steps[0])
		w, p = planned(w)
	}
	if !w.Mesh.On || len(p.Refusals) != 1 || p.Refusals[0].Reason != rr.ReasonUnsafe || !strings.Contains(p.Refusals[0].Message, "BGPPeer p has spec.asNumber 65001 for Node node-00004") {
		t.Errorf("the mesh is on: %v, %+v", w.Mesh.On, p.Refusals)
	}
}

// A node of an AS of its own is a member of the mesh, and reaches all by the reflectors that it is a peer of. Two of one such AS do not reach each other without
// the mesh, so that it stays; nor does one that the BGPPeers do not select.
func TestNodesOfAnotherAS(t *testing.T) {
	t.Parallel()
	one, two, aside := with(cluster(9, 3), otherAS, "node-00008"), with(cluster(9, 3), otherAS, "node-00007", "node-00008"), with(cluster(9, 3), otherAS, "node-00008")
	for i := range aside.Nodes {
		aside.Nodes[i].Labels["bgp"] = map[bool]string{true: "no", false: "yes"}[aside.Nodes[i].ForeignAS]
	}
	aside.Topology.Spec.ClientSelector.MatchLabels = map[string]string{"bgp": "yes"}
	for name, c := range map[string]struct {
		w    rr.World
		off  bool
		last rr.Kind
	}{"one": {one, true, ""}, "two of one AS": {two, false, rr.MeshOff}, "not selected": {aside, false, rr.Promote}} {
		w, p := planned(c.w)
		for i := 0; len(p.Steps) > 0 && i < 20; i++ {
			if w.Nodes[8].Name != "node-00008" || p.Steps[0].Node == "node-00008" {
				t.Fatalf("%s: %s", name, p.Steps[0])
			}
			w = After(w, p.Steps[0])
			w, p = planned(w)
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
	w, p := planned(with(cluster(9, 3), otherAS, "node-00008"))
	for p.Steps[0].Kind != rr.MeshOff {
		w = After(w, p.Steps[0])
		w, p = planned(w)
	}
	n, _ := w.Node("node-00008")
	for _, s := range w.Sightings {
		delete(s.Established, n.IPv4)
	}
	if got := MakePlan(w).Waiting; !strings.HasSuffix(got, "has no Established session with node-00008") {
		t.Errorf("it waits for %q", got)
	}
}

// A reflector with which one node can have no session still has to bring what everybody else announces. What that node announces another one may bring, and one
// has to.
func TestRoutesOfAReflectorThatOneNodeIsPartedFrom(t *testing.T) {
	t.Parallel()
	w := beforeMeshOff(t, 12, 3)
	p := MakePlan(w)
	reflectors := w.Working(nil)
	client, _ := w.Node(p.Samples[0])
	apart, _ := w.Node(others(w)[slices.IndexFunc(others(w), func(name string) bool { return !slices.Contains(p.Samples, name) })])
	free, _ := w.Node(p.Samples[1])
	w.Peers = append(slices.Clone(w.Peers), wrongAS(t, &apart, &reflectors[0])...)
	first := reflectors[0].IPv4
	lost := said(w, client.Name, func(s *rr.Sighting) { s.Routes = but(*s.Routes, first, block(apart.IPv4)) })
	for name, c := range map[string]struct {
		w    rr.World
		want string
	}{
		"the others bring it":      {lost, ""},
		"nobody brings it":         {said(lost, client.Name, func(s *rr.Sighting) { s.Routes = only(*s.Routes, block(apart.IPv4)) }), "no route to 1 of 8 destinations"},
		"another one's is lacking": {said(lost, client.Name, func(s *rr.Sighting) { s.Routes = but(*s.Routes, first, block(free.IPv4)) }), "no route to 1 of 8 destinations"},
	} {
		if got := gate.Unrouted(&c.w); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: it waits for %q, want %q", name, got, c.want)
		}
	}
}

// only is the routes without one destination, whoever brings it but the mesh.
func only(r rr.Routes, prefix netip.Prefix) *rr.Routes {
	out := &r
	for peer := range r.By {
		out = but(*out, peer, prefix)
	}
	return out
}

// A client that cannot have a session with one of the reflectors, and has none with the others, has too few.
func TestAClientThatIsPartedFromOneReflector(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, cluster(9, 3), nil)
	client, _ := w.Node(others(w)[0])
	reflector, _ := w.Node(w.Marked()[0])
	w.Peers = append(slices.Clone(w.Peers), wrongAS(t, &client, &reflector)...)
	for i := range w.Peers {
		if w.Peers[i].Name == "main-clients" {
			w.Peers[i].NodeMatcher = allBut(client.Name)
		}
	}
	if got := model.Judge(&w, model.StateOf(w)).Checks.MinSessionsPerClient; got != 0 {
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
		w := with(cluster(16, 3), otherAS, "node-00015")
		w.Topology.Spec.Redundancy = &redundancy
		w, _ = carryOut(t, w, nil)
		if w.Mesh.On {
			t.Fatalf("%d reflectors: the mesh is on", redundancy)
		}
		old := w.Marked()
		w, done := carryOut(t, with(w, cordon, old...), nil)
		p := MakePlan(w)
		if now := w.Marked(); len(now) != int(redundancy) || slices.ContainsFunc(now, func(n string) bool { return slices.Contains(old, n) }) || len(p.Refusals) > 0 {
			t.Errorf("%d reflectors: %v after %v, %+v", redundancy, now, kinds(done), p.Refusals)
		}
	}
}

// What another AS's node has more does not make more of the others' paths pass.
func TestPathsOfNodesOfTheClustersASAreBounded(t *testing.T) {
	t.Parallel()
	w := with(cluster(16, 3), otherAS, "node-00015")
	w, _ = carryOut(t, w, nil)
	many := model.StateOf(w)
	many.Nodes = slices.Clone(many.Nodes)
	for i := range many.Nodes[:7] { // reflectors of cluster IDs of their own multiply paths
		n := &many.Nodes[i]
		n.Labels = maps.Clone(n.Labels)
		n.Labels[v1alpha1.ReflectorLabel], n.ClusterID = "main", fmt.Sprintf("1.1.1.%d", i)
	}
	is := &w
	before, after := model.Judge(is, many), model.Judge(is, many)
	before.Verdicts = []reachability.Verdict{{MaxPaths: 3}}
	if got := model.Breaks(is, before, after, rr.Step{Kind: rr.EnsurePeer}, 3); !strings.Contains(got, "paths to one prefix, where 12 are the most") {
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
	reflectors := w.Working(nil)
	client, _ := w.Node(others(w)[0])
	w.Peers = append(slices.Clone(w.Peers), wrongAS(t, &client, &reflectors[0])...)
	w = with(with(w, silentSince(w.Now), reflectors[1].Name), func(n *rr.Node) { n.Workloads = 1 }, client.Name)
	w.Now = w.Now.Add(2 * time.Minute)
	w, done := carryOut(t, w, nil)
	p := MakePlan(w)
	if order(done) != "Promote Demote" || len(p.Refusals) > 0 || p.Checks.UnreachablePairs != 0 || p.Checks.MinSessionsPerClient != 1 {
		t.Errorf("%v, %+v, %+v", kinds(done), p.Refusals, p.Checks)
	}
}

// In a hierarchy a client that is parted from both reflectors of its group has too few sessions by no step, whatever reflectors other groups have; one that
// is parted from those of another group has as many as it should.
func TestAClientThatIsPartedFromItsGroup(t *testing.T) {
	t.Parallel()
	w := inTheEnd(limited(24, 2, 12))
	w = settled(w)
	client := w.Nodes[slices.IndexFunc(w.Nodes, func(n rr.Node) bool { return n.Labels[v1alpha1.ClientLabel] == "2" })]
	part := func(group int) rr.World {
		w := w
		w.Peers = slices.Clone(w.Peers)
		for _, r := range rr.GroupOf(w.Working(nil), group) {
			w.Peers = append(w.Peers, wrongAS(t, &client, &r)...)
		}
		return w
	}
	for group, want := range map[int]int{2: 2, rr.FirstGroup: 2, rr.Spines: 2} {
		at := part(group)
		if got := model.Judge(&at, model.StateOf(at)).Checks.MinSessionsPerClient; got != want {
			t.Errorf("parted from group %s: the least is %d, want %d", rr.GroupName(group), got, want)
		}
	}
	// With both in no BGPPeer for clients it has none from a reflector that could have one.
	at := part(rr.FirstGroup)
	for i := range at.Peers {
		if at.Peers[i].NodeMatcher != nil && at.Peers[i].Topology != "" {
			at.Peers[i].NodeMatcher = both{at.Peers[i].NodeMatcher, allBut(client.Name)}
		}
	}
	if got := model.Judge(&at, model.StateOf(at)).Checks.MinSessionsPerClient; got != 0 {
		t.Errorf("without sessions, parted from another group: the least is %d", got)
	}
}

// both matches what two matchers do.
type both [2]rr.Matcher

func (m both) Evaluate(labels map[string]string) bool {
	return m[0].Evaluate(labels) && m[1].Evaluate(labels)
}
