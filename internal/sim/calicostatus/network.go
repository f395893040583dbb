// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calicostatus

import (
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/selector"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// network is what confd on every node makes of the datastore, with the times at which sessions began again.
type network struct {
	nodes map[string]*node
	peers map[string]*peer
	mesh  bool
	// meshAt is when the mesh was last turned on or off.
	meshAt time.Time
	cut    map[pair]bool
	// withheld are nodes to which reflectors pass no routes on.
	withheld map[string]bool
}

// node is one node's share.
type node struct {
	name   string
	v4, v6 netip.Addr
	id     string
	labels map[string]string
	// from says since when BGPPeers are for the node, and to since when they select it as a peer, by what they select and the options of their sessions:
	// confd makes one session of several BGPPeers that say the same, so that one may take over from another.
	from, to map[string]time.Time
	// idAt is when its cluster ID changed.
	idAt time.Time
}

type peer struct {
	from, to *selector.Selector
	// sessions names what the BGPPeer selects as peers, and the options of the sessions.
	sessions string
}

type pair struct{ a, b string }

func pairOf(a, b string) pair { return pair{min(a, b), max(a, b)} }

func newNetwork() network {
	return network{nodes: map[string]*node{}, peers: map[string]*peer{}, mesh: true, cut: map[pair]bool{}, withheld: map[string]bool{}}
}

// clusterID is the node's by Calico's annotation; text that is not an address is ignored, as Calico does.
func clusterID(annotations map[string]string) string {
	if a, err := netip.ParseAddr(annotations["projectcalico.org/RouteReflectorClusterID"]); err == nil && a.Is4() {
		return a.String()
	}
	return ""
}

func addressOf(text string) netip.Addr {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.Addr()
	}
	a, _ := netip.ParseAddr(text) // the zero address means none
	return a
}

func (n *network) setNode(u *unstructured.Unstructured, gone bool, now time.Time) {
	name := u.GetName()
	if gone {
		delete(n.nodes, name)
		return
	}
	have := n.nodes[name]
	if have == nil {
		have = &node{name: name, idAt: now}
		n.nodes[name] = have
	}
	annotations := u.GetAnnotations()
	have.v4, have.v6 = addressOf(annotations["projectcalico.org/IPv4Address"]), addressOf(annotations["projectcalico.org/IPv6Address"])
	have.labels = u.GetLabels()
	if id := clusterID(annotations); id != have.id {
		have.id, have.idAt = id, now
	}
	n.match(have, now)
}

func (n *network) setPeer(p *apiv3.BGPPeer, gone bool, now time.Time) error {
	delete(n.peers, p.Name)
	if !gone && p.Spec.PeerSelector != "" {
		from, err := selector.Parse(p.Spec.NodeSelector)
		if err != nil {
			return err
		}
		to, err := selector.Parse(p.Spec.PeerSelector)
		if err != nil {
			return err
		}
		options := p.Spec
		options.NodeSelector = ""
		text, err := json.Marshal(options)
		if err != nil {
			return err
		}
		n.peers[p.Name] = &peer{from: from, to: to, sessions: string(text)}
	}
	for _, have := range n.nodes {
		n.match(have, now)
	}
	return nil
}

// match finds out which BGPPeers concern a node.
func (n *network) match(have *node, now time.Time) {
	from, to := map[string]time.Time{}, map[string]time.Time{}
	for _, p := range n.peers {
		for _, end := range []struct {
			selects  *selector.Selector
			was, now map[string]time.Time
		}{{p.from, have.from, from}, {p.to, have.to, to}} {
			if !end.selects.Evaluate(have.labels) {
				continue
			}
			if end.now[p.sessions] = now; !end.was[p.sessions].IsZero() {
				end.now[p.sessions] = end.was[p.sessions]
			}
		}
	}
	have.from, have.to = from, to
}

// explicit reports that a BGPPeer gives the pair a session.
func (n *network) explicit(a, b *node) bool {
	_, there := n.explicitAt(a, b)
	return there
}

// explicitAt is since when BGPPeers give the pair a session.
func (n *network) explicitAt(a, b *node) (since time.Time, there bool) {
	for _, ends := range [][2]*node{{a, b}, {b, a}} {
		for sessions, from := range ends[0].from {
			to, has := ends[1].to[sessions]
			if at := latest(from, to); has && (!there || at.Before(since)) {
				since, there = at, true
			}
		}
	}
	return since, there
}

// inMesh reports that the pair has a session of the mesh.
func (n *network) inMesh(a, b *node) bool { return n.mesh && a.id == "" && b.id == "" }

// up reports whether a session that there is has come up by now.
func (n *network) up(a, b *node, mesh bool, now time.Time, takes time.Duration) bool {
	since := latest(a.idAt, b.idAt)
	if mesh {
		since = latest(since, n.meshAt)
	} else {
		at, _ := n.explicitAt(a, b)
		since = latest(since, at)
	}
	return !n.cut[pairOf(a.name, b.name)] && !now.Before(since.Add(takes))
}

func latest(times ...time.Time) time.Time {
	return slices.MaxFunc(times, time.Time.Compare)
}

// unsettled counts the sessions by BGPPeers of reflectors, but for one node, that are not Established.
func (n *network) unsettled(but string, now time.Time, takes time.Duration) int {
	count := 0
	for _, r := range n.nodes {
		if r.id == "" || r.name == but {
			continue
		}
		for _, other := range n.nodes {
			if other != r && other.name != but && n.explicit(r, other) && !n.up(r, other, false, now, takes) {
				count++
			}
		}
	}
	return count
}

// status is what calico-node on a node says of its sessions.
func (n *network) status(of *node, now time.Time, takes time.Duration) apiv3.CalicoNodeBGPStatus {
	var out apiv3.CalicoNodeBGPStatus
	for _, name := range slices.Sorted(maps.Keys(n.nodes)) {
		other := n.nodes[name]
		if other == of {
			continue
		}
		mesh, explicit := n.inMesh(of, other), n.explicit(of, other)
		for _, f := range []struct {
			own, peer netip.Addr
			peers     *[]apiv3.CalicoNodePeer
			yes, not  *int
		}{
			{of.v4, other.v4, &out.PeersV4, &out.NumberEstablishedV4, &out.NumberNotEstablishedV4},
			{of.v6, other.v6, &out.PeersV6, &out.NumberEstablishedV6, &out.NumberNotEstablishedV6},
		} {
			if !f.own.IsValid() || !f.peer.IsValid() {
				continue
			}
			add := func(kind apiv3.BGPPeerType, up bool) {
				state := apiv3.BGPSessionStateIdle
				if up {
					state = apiv3.BGPSessionStateEstablished
					*f.yes++
				} else {
					*f.not++
				}
				*f.peers = append(*f.peers, apiv3.CalicoNodePeer{PeerIP: f.peer.String(), Type: kind, State: state})
			}
			if mesh {
				add(apiv3.BGPPeerTypeNodeMesh, n.up(of, other, true, now, takes))
			}
			if explicit {
				add(apiv3.BGPPeerTypeNodePeer, !mesh && n.up(of, other, false, now, takes))
			}
		}
	}
	return out
}
