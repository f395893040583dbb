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

// A client that BGPPeers part from all reflectors gets its first session from one more reflector: it has fewer than the
// others then, and has lost none.
func TestAFirstSessionIsNoLoss(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, redundant(cluster(9, 1), 2), nil)
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
	w, done := carryOut(t, redundant(w, 3), nil)
	if !slices.ContainsFunc(done, rr.Is[rr.Promote]) {
		t.Errorf("%v, %v", kinds(done), MakePlan(w).Refusals)
	}
}

// A node of an AS of its own is a member of the mesh, and reaches all by the reflectors that it is a peer of. Two of
// one such AS do not reach each other without the mesh, so that it stays; nor does one that the BGPPeers do not select.
// A BGPPeer with a wrong AS number holds nothing up and is named, and one that parts a client from all reflectors keeps
// the mesh on. So do nodes that are no clients.
func TestWhatKeepsTheMeshOn(t *testing.T) {
	t.Parallel()
	const own = "Node node-00008 has AS number 65001, which is not the cluster's"
	one, two, aside := with(cluster(9, 3), otherAS, "node-00008"), with(cluster(9, 3), otherAS, "node-00007", "node-00008"), with(cluster(9, 3), otherAS, "node-00008")
	for i := range aside.Nodes {
		aside.Nodes[i].Labels["bgp"] = map[bool]string{true: "no", false: "yes"}[aside.Nodes[i].ForeignAS]
	}
	aside.Topology.Spec.ClientSelector.MatchLabels = map[string]string{"bgp": "yes"}
	some := cluster(6, 1)
	some.Topology.Spec.ClientSelector.MatchLabels = map[string]string{"pool": "a"}
	some.Topology.Spec.Reflectors.Required = some.Topology.Spec.ClientSelector
	for i := range 4 {
		some.Nodes[i].Labels["pool"] = "a"
	}
	wrong, hurts := cluster(9, 3), cluster(9, 1)
	wrong.Peers = wrongAS(t, &wrong.Nodes[0], &wrong.Nodes[1])
	for i := range hurts.Nodes {
		hurts.Nodes[i].Workloads = rr.Count(i > 2)
	}
	hurts.Peers = peersOf(t, calicov3.BGPPeerSpec{
		NodeSelector: "kubernetes.io/hostname in { 'node-00000', 'node-00001', 'node-00002' }",
		PeerIP:       hurts.Nodes[4].IPv4.String(), ASNumber: 65001,
	})
	for name, c := range map[string]struct {
		w       rr.World
		refused []string
		parted  int
		note    string
	}{
		"one":                 {w: one},
		"two of one AS":       {w: two, refused: []string{"MeshOff", own}},
		"not selected":        {w: aside, refused: []string{"Promote", own}},
		"some are no clients": {w: some, refused: []string{"Promote Node/"}},
		"a wrong number": {w: wrong, note: "BGPPeer p has spec.asNumber 65001 for Node node-00001, whose AS number is 64512: " +
			"no session comes up between node-00000 and node-00001"},
		"a wrong number that hurts": {w: hurts, parted: 6, refused: []string{"BGPPeer p has spec.asNumber 65001 for Node node-00004"}},
	} {
		w, _ := carryOut(t, c.w, func(before, _ rr.World, p rr.Plan) {
			if n, _ := before.Node(p.Steps[0].Node()); n.ForeignAS {
				t.Fatalf("%s: %s", name, p.Steps[0])
			}
		})
		p := settledPlan(w)
		if w.Mesh.On != (c.refused != nil) || p.Checks.UnreachablePairs != c.parted || c.refused == nil && p.Checks.MinSessionsPerClient < 2 {
			t.Errorf("%s: the mesh is on: %v, %+v, %+v", name, w.Mesh.On, p.Checks, p.Refusals)
		}
		for _, words := range c.refused {
			if len(p.Refusals) != 1 || p.Refusals[0].Reason != rr.ReasonUnsafe || !strings.Contains(p.Refusals[0].Message, words) {
				t.Errorf("%s: %+v", name, p.Refusals)
			}
		}
		if got := strings.Join(rr.Messages(p.Notes), "; "); c.note != "" && got != c.note {
			t.Errorf("%s: the notes are %q", name, got)
		}
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

// The least sessions of a client: one that BGPPeers part from all of its reflectors does not count, whatever reflectors
// other groups have, and does not switch off the check of others; one that has none from a reflector which could have
// one does.
func TestTheLeastSessionsOfAClient(t *testing.T) {
	t.Parallel()
	flat, _ := carryOut(t, cluster(9, 3), nil)
	deep := settled(inTheEnd(limited(24, 2, 12)))
	client, _ := flat.Node(others(flat)[0])
	member := deep.Nodes[slices.IndexFunc(deep.Nodes, func(n rr.Node) bool { return n.Labels[v1alpha1.ClientLabel] == "2" })]
	parted := func(w rr.World, client rr.Node, from ...rr.Node) rr.World {
		w.Peers = slices.Clone(w.Peers)
		for _, r := range from {
			w.Peers = append(w.Peers, wrongAS(t, &client, &r)...)
		}
		return w
	}
	unselected := func(w rr.World, name string) rr.World {
		for i := range w.Peers {
			if w.Peers[i].NodeMatcher != nil && w.Peers[i].Topology != "" {
				w.Peers[i].NodeMatcher = both{w.Peers[i].NodeMatcher, allBut(name)}
			}
		}
		return w
	}
	jammed := flat
	jammed.Peers = append(slices.Clone(flat.Peers), rr.Peer{Name: "wrong", PeerIP: client.IPv4, ASNumber: 65001})
	group := func(g int) []rr.Node { return rr.GroupOf(deep.Working(nil), g) }
	for name, c := range map[string]struct {
		w    rr.World
		want int
	}{
		"parted from all":                                 {jammed, 3},
		"parted from one, and without the others":         {unselected(parted(flat, client, flat.Working(nil)[0]), client.Name), 0},
		"parted from its group":                           {parted(deep, member, group(2)...), 2},
		"parted from another group":                       {parted(deep, member, group(rr.FirstGroup)...), 2},
		"parted from the spines":                          {parted(deep, member, group(rr.Spines)...), 2},
		"without sessions, and parted from another group": {unselected(parted(deep, member, group(rr.FirstGroup)...), member.Name), 0},
	} {
		if got := model.Judge(&c.w, model.StateOf(c.w)).Checks.MinSessionsPerClient; got != c.want {
			t.Errorf("%s: the least is %d, want %d", name, got, c.want)
		}
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
		w, _ := carryOut(t, redundant(with(cluster(16, 3), otherAS, "node-00015"), redundancy), nil)
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
	if got := model.Breaks(is, before, after, rr.EnsurePeer{}, 3); !strings.Contains(got, "paths to one prefix, where 12 are the most") {
		t.Errorf("%q", got)
	}
}

// A client that a BGPPeer parts from the only reflector that is left does not keep another from being made.
func TestAReflectorIsMadeBesideAClientThatIsPartedFromTheLast(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, redundant(cluster(9, 3), 2), nil)
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

// both matches what two matchers do.
type both [2]rr.Matcher

func (m both) Evaluate(labels map[string]string) bool {
	return m[0].Evaluate(labels) && m[1].Evaluate(labels)
}
