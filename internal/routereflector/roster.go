// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package routereflector

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

// Roster returns which clients are with which groups, by the BGPPeers and labels that there are.
type Roster struct {
	// Flat reports that all clients are with the first group, whatever their labels.
	Flat bool
	// Open is the group that takes clients without a label, [nowhere] if no group does.
	Open int
	// Gathers reports that the open group has all clients, while a hierarchy comes into being.
	Gathers bool
	// topology is the one whose clients these are.
	topology *v1alpha1.RouteReflectorTopology
}

// Roster reads the BGPPeer for clients.
func (w *World) Roster() Roster {
	r := Roster{Open: Nowhere, topology: &w.Topology}
	p, exists := w.Peer(w.PeerName(ClientsPeer))
	if !exists || p.PeerSelector == (ReflectorsMatcher{w.Topology.Name}).String() {
		r.Flat, r.Open = true, FirstGroup
		return r
	}
	number, _ := strings.CutPrefix(strings.TrimRight(p.PeerSelector, "'"),
		fmt.Sprintf("%s && %s == '", ReflectorsMatcher{w.Topology.Name}, v1alpha1.GroupLabel))
	for _, g := range []int{FirstGroup, parseGroup(number)} {
		if g != Nowhere && p.PeerSelector == (GroupMatcher{w.Topology.Name, g}).String() {
			r.Open = g
			r.Gathers = p.NodeSelector == otherGroupsMatcher{ClientsMatcher{w.Topology.Spec.ClientSelector}, g}.String()
		}
	}
	return r
}

// Membership is what the labels of a client say: the group that it is in, and the one that it joins; [nowhere] where
// there is no such label.
func (n *Node) Membership() (in, joins int) {
	return parseGroup(n.Labels[v1alpha1.ClientLabel]), parseGroup(n.Labels[v1alpha1.JoinsLabel])
}

// Unlabeled reports that the client has no label, so that the BGPPeer for all others takes it.
func (n *Node) Unlabeled() bool {
	_, has := n.Labels[v1alpha1.ClientLabel]
	return !has
}

// Has reports whether a client is with a group.
func (r Roster) Has(n *Node, g int) bool {
	if r.Flat {
		return g == FirstGroup
	}
	in, joins := n.Membership()
	return in == g || joins == g || r.Open == g && (r.Gathers || n.Unlabeled())
}

// Expects reports whether a reflector should have a session with another node: with its clients, and with the
// reflectors it is linked with.
func (r Roster) Expects(reflector, n *Node) bool {
	return n.IsSelected(r.topology) && r.Has(n, reflector.Group()) || n.IsReflectorOf(r.topology) && reflector.Linked(n)
}

// Intended is the group in which a client is to be once what has begun is done.
func (r Roster) Intended(n *Node) int {
	in, joins := n.Membership()
	switch {
	case r.Flat:
		return FirstGroup
	case joins != Nowhere:
		return joins
	case n.Unlabeled():
		return r.Open
	}
	return in
}

// Loads counts the clients of each group.
func (r Roster) Loads(w *World) map[int]int {
	out := map[int]int{}
	for i := range w.Nodes {
		if n := &w.Nodes[i]; n.IsClient(&w.Topology) {
			out[r.Intended(n)]++
		}
	}
	return out
}

// GroupOf keeps the nodes of some groups.
func GroupOf(nodes []Node, groups ...int) []Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool { return !slices.Contains(groups, n.Group()) })
}

// ClientOf reports whether a node takes its routes from the topology's reflectors, and of which group by what is
// written now: that of a flat topology is called as the topology, and a client that no group has taken yet has "". A
// client that moves is in the group that it leaves until the move is over.
func (w World) ClientOf(n Node) (group string, client bool) {
	if !n.IsClient(&w.Topology) {
		return "", false
	}
	r := w.Roster()
	in, _ := n.Membership()
	switch {
	case r.Flat:
		return w.Topology.Name, true
	case n.Unlabeled():
		in = r.Open
	}
	if in == Nowhere {
		return "", true
	}
	return GroupName(in), true
}
