// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package oldplanner

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

// roster returns which clients are with which groups, by the BGPPeers and labels that there are.
type roster struct {
	// flat reports that all clients are with the first group, whatever their labels.
	flat bool
	// open is the group that takes clients without a label, [nowhere] if no group does.
	open int
	// topology is the one whose clients these are.
	topology *v1alpha1.RouteReflectorTopology
}

// roster reads the BGPPeer for clients.
func (w facts) roster() roster {
	r := roster{open: nowhere, topology: &w.Topology}
	p, exists := w.peer(w.peerName(clientsPeer))
	if !exists || p.PeerSelector == (reflectorsMatcher{w.Topology.Name}).String() {
		r.flat, r.open = true, firstGroup
		return r
	}
	number, _ := strings.CutPrefix(strings.TrimRight(p.PeerSelector, "'"), fmt.Sprintf("%s && %s == '", reflectorsMatcher{w.Topology.Name}, v1alpha1.GroupLabel))
	for _, g := range []int{firstGroup, parseGroup(number)} {
		if g != nowhere && p.PeerSelector == (groupMatcher{w.Topology.Name, g}).String() {
			r.open = g
		}
	}
	return r
}

// membership is what the labels of a client say: the group that it is in, and the one that it joins; [nowhere] where there is no such label.
func (n *Node) membership() (in, joins int) {
	return parseGroup(n.Labels[v1alpha1.ClientLabel]), parseGroup(n.Labels[v1alpha1.JoinsLabel])
}

// unlabeled reports that the client has no label, so that the BGPPeer for all others takes it.
func (n *Node) unlabeled() bool {
	_, has := n.Labels[v1alpha1.ClientLabel]
	return !has
}

// has reports whether a client is with a group.
func (r roster) has(n *Node, g int) bool {
	if r.flat {
		return g == firstGroup
	}
	in, joins := n.membership()
	return in == g || joins == g || r.open == g && n.unlabeled()
}

// expects reports whether a reflector should have a session with another node: with its clients, and with the reflectors it is linked with.
func (r roster) expects(reflector, n *Node) bool {
	return n.isSelected(r.topology) && r.has(n, reflector.group()) || n.isReflectorOf(r.topology) && reflector.linked(n)
}

// intended is the group in which a client is to be once what has begun is done.
func (r roster) intended(n *Node) int {
	in, joins := n.membership()
	switch {
	case r.flat:
		return firstGroup
	case joins != nowhere:
		return joins
	case n.unlabeled():
		return r.open
	}
	return in
}

// loads counts the clients of each group.
func (r roster) loads(w World) map[int]int {
	out := map[int]int{}
	for i := range w.Nodes {
		if n := &w.Nodes[i]; n.isClient(&w.Topology) {
			out[r.intended(n)]++
		}
	}
	return out
}

// groupOf keeps the nodes of some groups.
func groupOf(nodes []Node, groups ...int) []Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool { return !slices.Contains(groups, n.group()) })
}

// ClientOf reports whether a node takes its routes from the topology's reflectors, and of which group by what is written now: that of a flat topology is
// called as the topology, and a client that no group has taken yet has "". A client that moves is in the group that it leaves until the move is over.
func (w World) ClientOf(n Node) (group string, client bool) {
	if !n.isClient(&w.Topology) {
		return "", false
	}
	r := factsOf(&w).roster()
	in, _ := n.membership()
	switch {
	case r.flat:
		return w.Topology.Name, true
	case n.unlabeled():
		in = r.open
	}
	if in == nowhere {
		return "", true
	}
	return groupName(in), true
}
