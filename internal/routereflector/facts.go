// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package routereflector

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

// Peer and node look one up by its name.
func (w *World) Peer(name string) (Peer, bool) {
	i := slices.IndexFunc(w.Peers, func(p Peer) bool { return p.Name == name })
	if i < 0 {
		return Peer{}, false
	}
	return w.Peers[i], true
}

// Node looks a node up by its name.
func (w *World) Node(name string) (Node, bool) {
	for i := range w.Nodes { // without a copy of each, as slices.IndexFunc makes one
		if w.Nodes[i].Name == name {
			return w.Nodes[i], true
		}
	}
	return Node{}, false
}

// FirstNode is the first by name of the nodes of which something is true, "" for none.
func (w *World) FirstNode(is func(n *Node) bool) string {
	first := ""
	for i := range w.Nodes {
		if n := &w.Nodes[i]; (first == "" || n.Name < first) && is(n) {
			first = n.Name
		}
	}
	return first
}

// Exiting says that the topology is being deleted, so that nothing of it shall remain.
func (w *World) Exiting() bool { return w.Topology.DeletionTimestamp != nil }

// Abandons says that the reflectors go without a mesh that takes over, as somebody has asked for: nothing is waited
// for, and no loss is too great.
func (w *World) Abandons() bool {
	return w.Exiting() && !w.Mesh.On && w.Topology.Spec.Mesh != v1alpha1.MeshManage && w.Forced(ReasonMeshNotManaged)
}

// Forced says that somebody has accepted what a refusal of the exit warns of.
func (w *World) Forced(r Reason) bool {
	return w.Topology.Annotations[v1alpha1.ForceExitAnnotation] == string(r)
}

// Begun reports that the topology has written BGPPeers.
func (w *World) Begun() bool {
	return slices.ContainsFunc(w.Peers, func(p Peer) bool { return p.Topology == w.Topology.Name })
}

// PeerName is the name of one of the topology's BGPPeers.
func (w *World) PeerName(kind string) string { return w.Topology.Name + "-" + kind }

// Redundancy is how many reflectors a flat topology shall have.
func (w *World) Redundancy() int {
	if r := w.Topology.Spec.Redundancy; r != nil {
		return int(*r)
	}
	return defaultRedundancy
}

// GroupRedundancy is how many reflectors each group of a hierarchy shall have.
func (w *World) GroupRedundancy() int {
	if r := w.Topology.Spec.Redundancy; r != nil {
		return int(*r)
	}
	return groupRedundancy
}

// Stabilization is for how long a node must have been trusted before it becomes a reflector.
func (w *World) Stabilization() time.Duration {
	if d := w.Topology.Spec.Failure.Stabilization; d != nil {
		return d.Duration
	}
	return 0
}

// PromoteAfter is how long a reflector must be lost before a spare takes its place.
func (w *World) PromoteAfter() time.Duration {
	if d := w.Topology.Spec.Failure.PromoteAfter; d != nil {
		return d.Duration
	}
	return 0
}

// Spares is how many spares there may be at most.
func (w *World) Spares() int {
	if count := w.Topology.Spec.Failure.Spares; count != nil {
		return int(*count)
	}
	return v1alpha1.MaxSpares
}

// IsSpare reports that the topology's status names a node as the spare of a reflector that it takes the place of.
func (w *World) IsSpare(node string) bool {
	return slices.ContainsFunc(w.Topology.Status.Spares,
		func(s v1alpha1.Spare) bool { return s.Node == node && s.Reflector != "" })
}

// Zone is the value of the first topology key on a node, "" without keys.
func (w *World) Zone(n *Node) string {
	if keys := w.Topology.Spec.TopologyKeys; len(keys) > 0 {
		return n.Labels[keys[0]]
	}
	return ""
}

// Clients counts the nodes that are clients.
func (w *World) Clients() int {
	count := 0
	for i := range w.Nodes {
		if w.Nodes[i].IsClient(&w.Topology) {
			count++
		}
	}
	return count
}

// MemberCount counts the nodes that are clients of the topology, or would be if they were not its reflectors.
func (w *World) MemberCount() int {
	count := 0
	for i := range w.Nodes {
		n := &w.Nodes[i]
		foreign := n.ForeignReflector(&w.Topology) && !n.AdoptedBy(&w.Topology)
		if n.Speaks() && !foreign && Selects(w.Topology.Spec.ClientSelector, n.Labels) {
			count++
		}
	}
	return count
}

// Marked lists the nodes that have the topology's label.
func (w *World) Marked() []string {
	var out []string
	for i := range w.Nodes {
		if n := &w.Nodes[i]; n.Marked(&w.Topology) {
			out = append(out, n.Name)
		}
	}
	slices.Sort(out)
	return out
}

// PresentGroups are the groups of clients that have a reflector, sorted.
func (w *World) PresentGroups() []int {
	seen := map[int]bool{}
	for i := range w.Nodes {
		if n := &w.Nodes[i]; n.Marked(&w.Topology) && n.Group() >= FirstGroup {
			seen[n.Group()] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// Outside lists the reflectors that are not of a group: of other groups first, then the spines that link them.
func (w *World) Outside(group int) []string {
	var out []string
	for i := range w.Nodes {
		if n := &w.Nodes[i]; n.Marked(&w.Topology) && n.Group() != group {
			out = append(out, n.Name)
		}
	}
	slices.Sort(out)
	return out
}

// IsFlat reports that the topology has one group, by what is written.
func (w *World) IsFlat() bool { return w.Roster().Flat && len(w.Outside(FirstGroup)) == 0 }

// Working lists the topology's reflectors on live nodes, but for some.
func (w *World) Working(but []Reflector) []Node {
	var out []Node
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if !n.IsReflectorOf(&w.Topology) {
			continue
		}
		left := slices.ContainsFunc(but, func(r Reflector) bool { return r.Node == n.Name })
		if n.Speaks() && n.Lives() && !left {
			out = append(out, *n)
		}
	}
	slices.SortFunc(out, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// ServesOthers reports that somebody else's BGPPeer names the node as a peer. Its cluster ID alone says nothing: a
// kubelet may write it.
func (w *World) ServesOthers(n *Node) bool {
	return !n.ForeignMark && slices.ContainsFunc(w.Peers, func(p Peer) bool {
		return p.Topology != w.Topology.Name && (p.PeerMatcher != nil && p.PeerMatcher.Evaluate(n.Labels) ||
			p.PeerIP.IsValid() && (p.PeerIP == n.IPv4 || p.PeerIP == n.IPv6))
	})
}

// OthersServe reports that a reflector of somebody else's lives.
func (w *World) OthersServe() bool {
	for i := range w.Nodes {
		if n := &w.Nodes[i]; !n.Marked(&w.Topology) && w.IsOthersReflector(n) {
			return true
		}
	}
	return false
}

// IsOthersReflector reports that the node, which is not the topology's, is a live reflector of somebody else's.
func (w *World) IsOthersReflector(n *Node) bool {
	return n.ClusterID != "" && n.Ready == corev1.ConditionTrue && w.ServesOthers(n)
}

// Sighting is what a node said last, if that is fresh or vouched for.
func (w *World) Sighting(node string) (Sighting, bool) {
	i := slices.IndexFunc(w.Sightings, func(s Sighting) bool { return s.Node == node })
	if i < 0 || !w.Sightings[i].Current && w.Now.Sub(w.Sightings[i].At) > Freshness {
		return Sighting{}, false
	}
	return w.Sightings[i], true
}

// HasSpoken says that there is a sighting of the node, be it an old one.
func (w *World) HasSpoken(n Node) bool {
	return slices.ContainsFunc(w.Sightings, func(s Sighting) bool { return s.Node == n.Name })
}

// Missing lists the live nodes with which one node should have a session, by who, and has not in every family that both
// speak. A session that cannot come up is not waited for.
func (w *World) Missing(established map[netip.Addr]bool, of Node, who func(Node) bool) []Node {
	var out []Node
	for _, n := range w.Nodes {
		if n.Name == of.Name || !who(n) {
			continue
		}
		for _, f := range AddressFamilies() {
			if f.Up(&n) && f.Up(&of) && !established[f(&n)] && !w.Parted(f, &of, &n) {
				out = append(out, n)
				break
			}
		}
	}
	slices.SortFunc(out, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// CutOff reports whether all those of the reflectors that a client is with have reported, and none has a session with
// it.
func (w *World) CutOff(n Node, clients Roster, reflectors []Node) bool {
	return !slices.ContainsFunc(reflectors, func(r Node) bool {
		if !clients.Has(&n, r.Group()) {
			return false
		}
		s, seen := w.Sighting(r.Name)
		return !seen || s.Established[n.IPv4] || s.Established[n.IPv6]
	})
}

// IsOthers reports that the node is another topology's client, by whose labels it is not for this one to judge.
func (w *World) IsOthers(n *Node) bool {
	return !Selects(w.Topology.Spec.ClientSelector, n.Labels) &&
		slices.ContainsFunc(w.Others, func(o v1alpha1.RouteReflectorTopology) bool {
			return Selects(o.Spec.ClientSelector, n.Labels)
		})
}
