// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package routereflector

import (
	"cmp"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

// Adoption takes over reflectors that somebody else made, as spec.adopt names them:
//
//	own BGPPeers ── label on reflectors with the right ID ── label and ID on the others, one by one ── their BGPPeers go ── reflectors too many go
//	 no session      no session changes                       each resets its own                       no session changes
//
// Calico's confd makes one session of all BGPPeers that give two nodes one, so that for a while each session has two
// reasons to be there, and loses nothing with the first of them. That holds only where both give it the same options,
// and where the topology gives all sessions that the others do; package refuse refuses everything else.

// AdoptedBy reports that the node is a reflector that the topology is to take over and has not yet.
func (n *Node) AdoptedBy(t *v1alpha1.RouteReflectorTopology) bool {
	if t.Spec.Adopt == nil || t.DeletionTimestamp != nil || n.ClusterID == "" {
		return false
	}
	_, labeled := n.Labels[v1alpha1.ReflectorLabel]
	return !labeled && Selects(t.Spec.Adopt.Nodes, n.Labels)
}

// Incumbent reports whether the node is a reflector of the topology, or one that the topology is to take over. The
// choice of reflectors MUST use it: the Adopt step adds the topology's label, and a choice by that label alone would
// change between two steps of one plan.
func (n *Node) Incumbent(t *v1alpha1.RouteReflectorTopology) bool {
	return n.Marked(t) || n.AdoptedBy(t)
}

// AdoptedWithID reports whether the Adopt step takes the node over, which changes no session: it has the topology's
// cluster ID.
func (n *Node) AdoptedWithID(t *v1alpha1.RouteReflectorTopology) bool {
	return n.AdoptedBy(t) && n.ClusterID == t.Spec.ClusterID
}

// NamesPeer reports that spec.adopt.bgpPeers names a BGPPeer.
func NamesPeer(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if start, open := strings.CutSuffix(pattern, "*"); open {
			return strings.HasPrefix(name, start)
		}
		return pattern == name
	})
}

// AdoptedPeers are the BGPPeers that spec.adopt names and that are nobody's topology's, sorted by name.
func (w *World) AdoptedPeers() []Peer {
	if w.Topology.Spec.Adopt == nil || w.Exiting() {
		return nil
	}
	out := slices.DeleteFunc(slices.Clone(w.Peers), func(p Peer) bool {
		return p.Topology != "" || !NamesPeer(w.Topology.Spec.Adopt.BGPPeers, p.Name)
	})
	slices.SortFunc(out, func(a, b Peer) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// AdoptedNodes are the nodes that are still to be taken over, sorted by name.
func (w *World) AdoptedNodes() []Node {
	out := slices.DeleteFunc(slices.Clone(w.Nodes), func(n Node) bool { return !n.AdoptedBy(&w.Topology) })
	slices.SortFunc(out, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Adopted reports that there is a spec.adopt and nothing left of what it names.
func (w *World) Adopted() bool {
	return w.Topology.Spec.Adopt != nil && len(w.AdoptedPeers()) == 0 && len(w.AdoptedNodes()) == 0
}

// TakesOver reports that there is something left of what spec.adopt names.
func (w *World) TakesOver() bool { return w.Topology.Spec.Adopt != nil && !w.Exiting() && !w.Adopted() }
