// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package routereflector

import (
	"net/netip"
	"slices"

	"github.com/mooring-dev/mooring/internal/routereflector/reachability"
)

// AddressFamily is one of the two address families. Calico runs a BIRD for each, and they know nothing of each other.
type AddressFamily func(*Node) netip.Addr

// AddressFamilies are IPv4 and IPv6, in this order.
func AddressFamilies() []AddressFamily {
	return []AddressFamily{func(n *Node) netip.Addr { return n.IPv4 }, func(n *Node) netip.Addr { return n.IPv6 }}
}

// SpokenFamilies leaves out the families of which no node has an address.
func SpokenFamilies(nodes []Node) []AddressFamily {
	return slices.DeleteFunc(AddressFamilies(), func(f AddressFamily) bool { return !f.Speaks(nodes) })
}

// Speaks reports whether a node has an address of the family.
func (f AddressFamily) Speaks(nodes []Node) bool {
	for i := range nodes {
		if f(&nodes[i]).IsValid() {
			return true
		}
	}
	return false
}

// Up reports whether the model counts on the node in this family. Nodes whose Kubernetes Node is not Ready, and
// reflectors that their witnesses have lost, count as silent: a plan must hold without them.
func (f AddressFamily) Up(n *Node) bool {
	return f(n).IsValid() && n.RunsBGP() && n.Lives()
}

// AllUp says of each node by its index whether it is [AddressFamily.Up]; nil if none has an address of the family.
func (f AddressFamily) AllUp(nodes []Node) []bool {
	if !f.Speaks(nodes) {
		return nil
	}
	up := make([]bool, len(nodes))
	for i := range nodes {
		up[i] = f.Up(&nodes[i])
	}
	return up
}

// Network builds, by confd's rules, the sessions that there are once everything has settled.
func (f AddressFamily) Network(nodes []Node, peers []Peer, mesh bool) *reachability.Network {
	all := make([]PeerEnds, len(peers))
	for i := range peers {
		all[i].From, all[i].To = peers[i].EndsIn(f, nodes)
	}
	up := f.AllUp(nodes)
	if up == nil {
		up = make([]bool, len(nodes))
	}
	return NetworkOf(nodes, peers, mesh, up, all)
}

// NetworkOf is [AddressFamily.Network] for callers that know which nodes are up in the family, and the ends of the BGPPeers.
func NetworkOf(nodes []Node, peers []Peer, mesh bool, up []bool, all []PeerEnds) *reachability.Network {
	speakers := make([]reachability.Speaker, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		speakers[i] = reachability.Speaker{
			Name: n.Name, ClusterID: n.ClusterID, Mesh: mesh && n.ClusterID == "" && up[i], AS: n.speakerAS(),
		}
	}
	out := sessions{Network: reachability.New(speakers)}
	for _, wrong := range []bool{true, false} { // those that part nodes come first
		for i := range peers {
			p := &peers[i]
			if wrong && !p.numbers() {
				continue
			}
			for _, b := range all[i].To {
				for _, a := range all[i].From {
					switch {
					case !up[a] || !up[b]:
					case !wrong:
						out.ask(p, a, b)
					case p.disagrees(&nodes[a], &nodes[b]):
						out.Part(a, b)
					}
				}
			}
		}
	}
	return out.Network
}

// numbers reports whether a BGPPeer gives AS numbers of its own, which may be wrong.
func (p *Peer) numbers() bool { return p.PeerIP.IsValid() && (p.ASNumber != 0 || p.LocalASNumber != 0) }

// disagrees reports whether a BGPPeer makes one of its nodes take a peer for one of another AS than it is, or show
// itself as one. The session does not come up, nor does any other of the two.
func (p *Peer) disagrees(node, peer *Node) bool {
	return p.ASNumber != 0 && p.ASNumber != peer.Number() || p.LocalASNumber != 0 && p.LocalASNumber != node.Number()
}

// sessions is a network in the making.
type sessions struct {
	*reachability.Network
	// halves are the sessions that a BGPPeer gives to the first of two nodes alone.
	halves map[[2]int32]bool
}

// ask enters the session that a BGPPeer gives to node a, and to its peer b as well if it is not one way.
func (s *sessions) ask(p *Peer, a, b int32) {
	if a == b {
		return
	}
	if p.PeerIP.IsValid() {
		s.Blind(a, b)
	}
	if p.OneWay {
		if s.halves == nil {
			s.halves = map[[2]int32]bool{}
		}
		if s.halves[[2]int32{a, b}] = true; !s.halves[[2]int32{b, a}] {
			return // which comes up once the other end is given it
		}
	}
	s.Connect(a, b)
}

// EndsIn are the nodes that a BGPPeer is for, and those that it names as their peers. A BGPPeer without a node is for
// all, one whose address is not a node's names none (it is somebody outside).
func (p *Peer) EndsIn(f AddressFamily, nodes []Node) (from, to []int32) {
	for i := range nodes {
		if p.Names(f, &nodes[i]) {
			to = append(to, int32(i))
		}
	}
	if len(to) == 0 {
		return nil, nil
	}
	for i := range nodes {
		if p.IsFor(&nodes[i]) {
			from = append(from, int32(i))
		}
	}
	return from, to
}

// IsFor reports whether a BGPPeer is for a node.
func (p *Peer) IsFor(n *Node) bool {
	if p.Node != "" {
		return n.Name == p.Node
	}
	return p.NodeMatcher == nil || p.NodeMatcher.Evaluate(n.Labels)
}

// Names reports whether a BGPPeer names a node as a peer.
func (p *Peer) Names(f AddressFamily, n *Node) bool {
	if p.PeerIP.IsValid() {
		return f(n) == p.PeerIP
	}
	return p.PeerMatcher != nil && p.PeerMatcher.Evaluate(n.Labels)
}

// Family is one address family of a cluster: who speaks in it, and the sessions that there are once everything has
// settled.
type Family struct {
	// Name is IPv4 or IPv6.
	Name    string
	Network *reachability.Network
	// Up says of each node, by its index, whether it speaks BGP in the family and counts: its Kubernetes Node is Ready.
	Up []bool
}

// Families builds, by the rules of Calico's confd, the network of each address family that a node has an address of.
// Nodes keep their index.
func Families(nodes []Node, peers []Peer, mesh bool) []Family {
	var out []Family
	for i, f := range AddressFamilies() {
		if !slices.ContainsFunc(nodes, func(n Node) bool { return f(&n).IsValid() }) {
			continue
		}
		out = append(out, Family{
			Name: []string{"IPv4", "IPv6"}[i], Network: f.Network(nodes, peers, mesh), Up: f.AllUp(nodes),
		})
	}
	return out
}

// Ends are the nodes, by their index, that a BGPPeer is for and those that it names as their peers, in one family of
// [Families] ("IPv4" or "IPv6").
func (p *Peer) Ends(name string, nodes []Node) (from, to []int32) {
	f := AddressFamilies()[0]
	if name == "IPv6" {
		f = AddressFamilies()[1]
	}
	return p.EndsIn(f, nodes)
}

// PeerEnds are the two ends of a BGPPeer in one family, see [Peer.EndsIn].
type PeerEnds struct{ From, To []int32 }
