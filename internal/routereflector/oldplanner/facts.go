// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package oldplanner

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

// peer and node look one up by its name.
func (w facts) peer(name string) (Peer, bool) {
	i := slices.IndexFunc(w.Peers, func(p Peer) bool { return p.Name == name })
	if i < 0 {
		return Peer{}, false
	}
	return w.Peers[i], true
}

func (w facts) node(name string) (Node, bool) {
	i := slices.IndexFunc(w.Nodes, func(n Node) bool { return n.Name == name })
	if i < 0 {
		return Node{}, false
	}
	return w.Nodes[i], true
}

// firstNode is the first by name of the nodes of which something is true, "" for none.
func (w facts) firstNode(is func(n *Node) bool) string {
	first := ""
	for i := range w.Nodes {
		if n := &w.Nodes[i]; (first == "" || n.Name < first) && is(n) {
			first = n.Name
		}
	}
	return first
}

// exiting says that the topology is being deleted, so that nothing of it shall remain.
func (w facts) exiting() bool { return w.Topology.DeletionTimestamp != nil }

// abandons says that the reflectors go without a mesh that takes over, as somebody has asked for: nothing is waited for, and no loss is too great.
func (w facts) abandons() bool {
	return w.exiting() && !w.Mesh.On && w.Topology.Spec.Mesh != v1alpha1.MeshManage && w.forced(ReasonMeshNotManaged)
}

// forced says that somebody has accepted what a refusal of the exit warns of.
func (w facts) forced(r Reason) bool {
	return w.Topology.Annotations[v1alpha1.ForceExitAnnotation] == string(r)
}

// begun reports that the topology has written BGPPeers.
func (w facts) begun() bool {
	return slices.ContainsFunc(w.Peers, func(p Peer) bool { return p.Topology == w.Topology.Name })
}

// peerName is the name of one of the topology's BGPPeers.
func (w facts) peerName(kind string) string { return w.Topology.Name + "-" + kind }

func (w facts) redundancy() int {
	if r := w.Topology.Spec.Redundancy; r != nil {
		return int(*r)
	}
	return defaultRedundancy
}

func (w facts) groupRedundancy() int {
	if r := w.Topology.Spec.Redundancy; r != nil {
		return int(*r)
	}
	return groupRedundancy
}

func (w facts) stabilization() time.Duration {
	if d := w.Topology.Spec.Failure.Stabilization; d != nil {
		return d.Duration
	}
	return 0
}

func (w facts) zone(n *Node) string {
	if keys := w.Topology.Spec.TopologyKeys; len(keys) > 0 {
		return n.Labels[keys[0]]
	}
	return ""
}

// clients counts the nodes that are clients.
func (w facts) clients() int {
	count := 0
	for i := range w.Nodes {
		if w.Nodes[i].isClient(&w.Topology) {
			count++
		}
	}
	return count
}

// memberCount counts the nodes that are clients of the topology, or would be if they were not its reflectors.
func (w facts) memberCount() int {
	count := 0
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if foreign := n.foreignReflector(&w.Topology) && !n.adoptedBy(&w.Topology); n.speaks() && !foreign && selects(w.Topology.Spec.ClientSelector, n.Labels) {
			count++
		}
	}
	return count
}

// marked lists the nodes that have the topology's label.
func (w facts) marked() []string {
	var out []string
	for i := range w.Nodes {
		if n := &w.Nodes[i]; n.marked(&w.Topology) {
			out = append(out, n.Name)
		}
	}
	slices.Sort(out)
	return out
}

// presentGroups are the groups of clients that have a reflector, sorted.
func (w facts) presentGroups() []int {
	seen := map[int]bool{}
	for i := range w.Nodes {
		if n := &w.Nodes[i]; n.marked(&w.Topology) && n.group() >= firstGroup {
			seen[n.group()] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// outside lists the reflectors that are not of a group: of other groups first, then the spines that link them.
func (w facts) outside(group int) []string {
	var out []string
	for i := range w.Nodes {
		if n := &w.Nodes[i]; n.marked(&w.Topology) && n.group() != group {
			out = append(out, n.Name)
		}
	}
	slices.Sort(out)
	return out
}

// isFlat reports that the topology has one group, by what is written.
func (w facts) isFlat() bool { return w.roster().flat && len(w.outside(firstGroup)) == 0 }

// working lists the topology's reflectors on live nodes, but for some.
func (w facts) working(but []Reflector) []Node {
	var out []Node
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if !n.isReflectorOf(&w.Topology) {
			continue
		}
		left := slices.ContainsFunc(but, func(r Reflector) bool { return r.Node == n.Name })
		if n.speaks() && n.lives() && !left {
			out = append(out, *n)
		}
	}
	slices.SortFunc(out, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// manned reports that each group of clients has a working reflector. Until then the mesh stays: whether the reflectors come back or are replaced shows
// within their grace periods.
func (w facts) manned(d design) bool {
	working := w.working(nil)
	return !slices.ContainsFunc(d.groups, func(g int) bool { return len(groupOf(working, g)) == 0 })
}

// servesOthers reports that somebody else's BGPPeer names the node as a peer. Its cluster ID alone says nothing: a kubelet may write it.
func (w facts) servesOthers(n *Node) bool {
	return !n.ForeignMark && slices.ContainsFunc(w.Peers, func(p Peer) bool {
		return p.Topology != w.Topology.Name && (p.PeerMatcher != nil && p.PeerMatcher.Evaluate(n.Labels) ||
			p.PeerIP.IsValid() && (p.PeerIP == n.IPv4 || p.PeerIP == n.IPv6))
	})
}

// othersServe reports that a reflector of somebody else's lives.
func (w facts) othersServe() bool {
	return slices.ContainsFunc(w.Nodes, func(n Node) bool {
		return n.ClusterID != "" && !n.marked(&w.Topology) && n.Ready == corev1.ConditionTrue && w.servesOthers(&n)
	})
}

// sighting is what a node said last, if that is fresh or vouched for.
func (w facts) sighting(node string) (Sighting, bool) {
	i := slices.IndexFunc(w.Sightings, func(s Sighting) bool { return s.Node == node })
	if i < 0 || !w.Sightings[i].Current && w.Now.Sub(w.Sightings[i].At) > Freshness {
		return Sighting{}, false
	}
	return w.Sightings[i], true
}

// hasSpoken says that there is a sighting of the node, be it an old one.
func (w facts) hasSpoken(n Node) bool {
	return slices.ContainsFunc(w.Sightings, func(s Sighting) bool { return s.Node == n.Name })
}

// missing lists the live nodes with which one node should have a session, by who, and has not in every family that both speak. A session that cannot come up
// is not waited for.
func (w facts) missing(established map[netip.Addr]bool, of Node, who func(Node) bool) []Node {
	var out []Node
	for _, n := range w.Nodes {
		if n.Name == of.Name || !who(n) {
			continue
		}
		for _, f := range families() {
			if f.up(&n) && f.up(&of) && !established[f(&n)] && !w.parts(f, &of, &n) {
				out = append(out, n)
				break
			}
		}
	}
	slices.SortFunc(out, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// cutOff reports whether all those of the reflectors that a client is with have reported, and none has a session with it.
func (w facts) cutOff(n Node, clients roster, reflectors []Node) bool {
	return !slices.ContainsFunc(reflectors, func(r Node) bool {
		if !clients.has(&n, r.group()) {
			return false
		}
		s, seen := w.sighting(r.Name)
		return !seen || s.Established[n.IPv4] || s.Established[n.IPv6]
	})
}
