// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"net/netip"
	"testing"

	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/selector"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rr "github.com/mooring-dev/mooring/internal/routereflector"
)

// peersOf reads BGPPeers with these specs.
func peersOf(t *testing.T, specs ...calicov3.BGPPeerSpec) []rr.Peer {
	t.Helper()
	var out []rr.Peer
	for _, spec := range specs {
		p, err := rr.PeerFrom(&calicov3.BGPPeer{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: spec}, func(text string) (rr.Matcher, error) { return selector.Parse(text) })
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, p)
	}
	return out
}

// Of two reflectors of one cluster the one that has the other by its address takes it for a client, as BIRD was seen to do, and refuses what their
// cluster has reflected. By a selector each knows what the other is.
func TestPeersByAddressAreNotKnown(t *testing.T) {
	t.Parallel()
	w := cluster(4, 1)
	w.Nodes[0].ClusterID, w.Nodes[1].ClusterID = "244.0.0.1", "244.0.0.1"
	name := func(i int) string { return "kubernetes.io/hostname == '" + w.Nodes[i].Name + "'" }
	clients := []calicov3.BGPPeerSpec{{NodeSelector: name(2), PeerSelector: name(0)}, {NodeSelector: name(3), PeerSelector: name(1)}}
	for what, c := range map[string]struct {
		twins calicov3.BGPPeerSpec
		// here and there are the paths of the first reflector to the second's client, and of the second to the first's.
		here, there int
	}{
		"by selector":                {calicov3.BGPPeerSpec{NodeSelector: name(0), PeerSelector: name(1)}, 1, 1},
		"by address":                 {calicov3.BGPPeerSpec{Node: w.Nodes[0].Name, PeerIP: w.Nodes[1].IPv4.String()}, 0, 1},
		"by address and port":        {calicov3.BGPPeerSpec{Node: w.Nodes[0].Name, PeerIP: w.Nodes[1].IPv4.String() + ":179"}, 0, 1},
		"all by the second's":        {calicov3.BGPPeerSpec{PeerIP: w.Nodes[1].IPv4.String()}, 0, 2},
		"by an address of another's": {calicov3.BGPPeerSpec{Node: w.Nodes[0].Name, PeerIP: netip.MustParseAddr("192.0.2.1").String()}, 0, 0},
	} {
		n := rr.Families(w.Nodes, peersOf(t, append(clients, c.twins)...), false)[0].Network
		toSecond, _ := n.Paths(3)
		toFirst, _ := n.Paths(2)
		if toSecond[0] != c.here || toFirst[1] != c.there {
			t.Errorf("%s: %d and %d paths, want %d and %d", what, toSecond[0], toFirst[1], c.here, c.there)
		}
	}
}

// A session that a BGPPeer with reversePeering Manual gives to one end comes up only if the other end is given it as well.
func TestOneWayPeersNeedBothEnds(t *testing.T) {
	t.Parallel()
	manual, automatic := calicov3.ReversePeeringManual, calicov3.ReversePeeringAuto
	w := cluster(2, 1)
	name := func(i int) string { return "kubernetes.io/hostname == '" + w.Nodes[i].Name + "'" }
	there := calicov3.BGPPeerSpec{NodeSelector: name(0), PeerSelector: name(1), ReversePeering: &manual}
	back := calicov3.BGPPeerSpec{NodeSelector: name(1), PeerSelector: name(0), ReversePeering: &manual}
	both := calicov3.BGPPeerSpec{NodeSelector: name(1), PeerSelector: name(0), ReversePeering: &automatic}
	for _, c := range []struct {
		peers []calicov3.BGPPeerSpec
		want  bool
	}{
		{[]calicov3.BGPPeerSpec{there}, false}, {[]calicov3.BGPPeerSpec{there, there}, false}, {[]calicov3.BGPPeerSpec{there, back}, true},
		{[]calicov3.BGPPeerSpec{back, there}, true}, {[]calicov3.BGPPeerSpec{both}, true}, {[]calicov3.BGPPeerSpec{there, both}, true},
	} {
		if got := rr.Families(w.Nodes, peersOf(t, c.peers...), false)[0].Network.HasSession(0, 1); got != c.want {
			t.Errorf("%+v: session %v, want %v", c.peers, got, c.want)
		}
	}
}
