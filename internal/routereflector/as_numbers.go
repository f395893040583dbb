// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package routereflector

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/internal/routereflector/reachability"
)

// Discord is a BGPPeer by which the ends of sessions do not agree about their AS numbers, so that no session of them
// comes up, be it by that BGPPeer, another one, or the mesh.
type Discord struct {
	// BGPPeer is its name. Node is one of those that it is for, and Peer the one whose address it gives it; Pairs
	// counts all.
	BGPPeer, Node, Peer string
	Pairs               int
	// Why is what does not agree.
	Why string
}

// String is the discord in words.
func (d Discord) String() string {
	more := ""
	if d.Pairs > 1 {
		more = fmt.Sprintf(", nor in %d other cases", d.Pairs-1)
	}
	return fmt.Sprintf("BGPPeer %s %s: no session comes up between %s and %s%s", d.BGPPeer, d.Why, d.Node, d.Peer, more)
}

// names reports whether the discord is about one of some pairs of nodes.
func (d Discord) names(pairs []reachability.Pair) bool {
	return slices.ContainsFunc(pairs, func(p reachability.Pair) bool {
		return p.From == d.Peer || p.To == d.Peer || p.From == d.Node || p.To == d.Node
	})
}

// Discords lists, by the names of the BGPPeers, those by which the ends of sessions do not agree about their AS
// numbers. Each is listed once for each peer.
func Discords(nodes []Node, peers []Peer) []Discord {
	var out []Discord
	for i := range peers {
		p := &peers[i]
		if !p.numbers() {
			continue
		}
		for _, f := range AddressFamilies() {
			from, to := p.EndsIn(f, nodes)
			for _, b := range to {
				d := Discord{BGPPeer: p.Name, Peer: nodes[b].Name}
				for _, a := range from {
					if a == b || !f(&nodes[a]).IsValid() || !nodes[a].RunsBGP() || !p.disagrees(&nodes[a], &nodes[b]) {
						continue
					}
					if d.Pairs++; d.Node == "" || nodes[a].Name < d.Node {
						d.Node, d.Why = nodes[a].Name, p.disagreement(&nodes[a], &nodes[b])
					}
				}
				if d.Pairs > 0 {
					out = append(out, d)
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b Discord) int { return strings.Compare(a.BGPPeer+" "+a.Peer, b.BGPPeer+" "+b.Peer) })
	return out
}

// PartedPairs counts, by the names of nodes, with how many others no session of theirs comes up. It is nil where that
// is so of none.
func PartedPairs(nodes []Node, peers []Peer) map[string]int {
	var out map[string]int
	for i := range peers {
		p := &peers[i]
		if !p.numbers() {
			continue
		}
		for _, f := range AddressFamilies() {
			from, to := p.EndsIn(f, nodes)
			for _, b := range to {
				for _, a := range from {
					if a != b && f(&nodes[a]).IsValid() && nodes[a].RunsBGP() && p.disagrees(&nodes[a], &nodes[b]) {
						if out == nil {
							out = map[string]int{}
						}
						out[nodes[a].Name]++
						out[nodes[b].Name]++
					}
				}
			}
		}
	}
	return out
}

// disagreement returns which number is wrong.
func (p *Peer) disagreement(node, peer *Node) string {
	if p.ASNumber != 0 && p.ASNumber != peer.Number() {
		return fmt.Sprintf("has spec.asNumber %d for Node %s, whose AS number is %d", p.ASNumber, peer.Name,
			peer.Number())
	}
	return fmt.Sprintf("has spec.localASNumber %d, and Node %s takes Node %s for one of AS %d", p.LocalASNumber,
		peer.Name, node.Name, node.Number())
}

// Parted reports whether no session of a family comes up between two nodes, no matter who gives it to them: a BGPPeer
// has a wrong AS number.
func (w *World) Parted(f AddressFamily, a, b *Node) bool {
	gives := func(p *Peer, node, peer *Node) bool {
		return p.PeerIP == f(peer) && (p.Node == "" || p.Node == node.Name) &&
			(p.NodeMatcher == nil || p.Node != "" || p.NodeMatcher.Evaluate(node.Labels)) &&
			p.disagrees(node, peer)
	}
	for i := range w.Peers {
		if p := &w.Peers[i]; p.numbers() && (gives(p, a, b) || gives(p, b, a)) {
			return true
		}
	}
	return false
}

// Apart are the addresses of the nodes with which no session of a node comes up; see [World.Parted].
func (w *World) Apart(f AddressFamily, n *Node) map[netip.Addr]bool {
	var out map[netip.Addr]bool
	if !slices.ContainsFunc(w.Peers, func(p Peer) bool { return p.numbers() }) {
		return out
	}
	for i := range w.Nodes {
		if other := &w.Nodes[i]; f(other).IsValid() && w.Parted(f, n, other) {
			if out == nil {
				out = map[netip.Addr]bool{}
			}
			out[f(other)] = true
		}
	}
	return out
}

// BecauseOfASNumbers says which objects with AS numbers of their own have to do with pairs of nodes without a path, or
// with clients that lack sessions: "" for none.
func (w *World) BecauseOfASNumbers(pairs []reachability.Pair) string {
	var out []string
	for _, d := range Discords(w.Nodes, w.Peers) {
		if len(pairs) == 0 || d.names(pairs) {
			out = append(out, d.String())
		}
	}
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if n.ForeignAS &&
			slices.ContainsFunc(pairs, func(p reachability.Pair) bool { return p.From == n.Name || p.To == n.Name }) {
			out = append(out, fmt.Sprintf("Node %s has AS number %d, which is not the cluster's", n.Name, n.Number()))
		}
	}
	if len(out) == 0 {
		return ""
	}
	slices.Sort(out)
	return "; " + strings.Join(out[:min(len(out), namesInWait)], "; ")
}
