// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package reachability

import "slices"

// MaxPaths is where counting ends: a network that brings a speaker so many paths to one prefix is beyond use, and to count on could take for
// ever, since the number grows with the factorial of the number of cluster IDs.
const MaxPaths = 10_000

// arrival is a route as a reflector holds it.
type arrival struct {
	// from is the speaker it came from.
	from int32
	// client says that it came on a client session.
	client bool
	// list is the cluster list, the last ID first.
	list *clusterList
}

// clusterList is an immutable list that shares its tail.
type clusterList struct {
	id   string
	next *clusterList
}

func (l *clusterList) has(id string) bool {
	for ; l != nil; l = l.next {
		if l.id == id {
			return true
		}
	}
	return false
}

// flood computes what each reflector holds of the prefix of one speaker. It gives up, and says so, once there are more than MaxPaths routes.
func (n *Network) flood(origin int32) (held map[int32][]arrival, all bool) {
	held = map[int32][]arrival{}
	type hop struct {
		at int32
		arrival
	}
	var queue []hop
	offer := func(at int32, a arrival) {
		if n.speakers[at].ClusterID == "" || at == origin {
			return
		}
		if a.client = n.isClient(at, a.from); a.client && a.list.has(n.speakers[at].ClusterID) {
			return
		}
		held[at] = append(held[at], a)
		queue = append(queue, hop{at, a})
	}
	for _, peer := range n.sessions[origin] {
		offer(peer, arrival{from: origin})
	}
	for len(queue) > 0 {
		if len(queue) > MaxPaths {
			return held, false
		}
		h := queue[0]
		queue = queue[1:]
		for _, peer := range n.sessions[h.at] {
			if n.speakers[peer].ClusterID != "" && n.passes(h.at, peer, h.arrival) {
				offer(peer, arrival{from: h.at, list: &clusterList{n.speakers[h.at].ClusterID, h.list}})
			}
		}
	}
	return held, true
}

// isClient says whether the session with peer is a client session at speaker at.
func (n *Network) isClient(at, peer int32) bool {
	own := n.speakers[at].ClusterID
	return own != "" && (n.speakers[peer].ClusterID != own || n.blind[[2]int32{at, peer}])
}

// passes says whether the reflector passes a route that it holds on to a peer.
func (n *Network) passes(reflector, peer int32, route arrival) bool {
	if peer == route.from {
		return false
	}
	toClient := n.isClient(reflector, peer)
	if toClient && route.list.has(n.speakers[reflector].ClusterID) {
		return false
	}
	return route.client || toClient
}

// paths counts the paths to the prefix of origin that speaker to has, given what the reflectors hold of it.
func (n *Network) paths(origin, to int32, held map[int32][]arrival) int {
	if n.speakers[to].ClusterID != "" {
		return len(held[to])
	}
	count := 0
	if n.Connected(origin, to) {
		count++
	}
	for _, peer := range n.sessions[to] {
		if peer == origin {
			continue
		}
		for _, route := range held[peer] {
			if n.passes(peer, to, route) {
				count++
			}
		}
	}
	return count
}

// Learn calls visit for the prefix of every other speaker that a speaker, which is no reflector, has a path to: whether a session of the mesh brings
// it, and which peers of other sessions do, by index. The slice is reused. It is what calico-node of that speaker lists as its routes.
func (n *Network) Learn(at int32, visit func(origin int32, mesh bool, from []int32)) {
	var from []int32
	for i := range n.speakers {
		origin := int32(i)
		if origin == at {
			continue
		}
		from = from[:0]
		if n.HasSession(origin, at) {
			from = append(from, origin)
		}
		held, _ := n.flood(origin)
		for _, peer := range n.sessions[at] {
			if peer != origin && slices.ContainsFunc(held[peer], func(route arrival) bool { return n.passes(peer, at, route) }) {
				from = append(from, peer)
			}
		}
		mesh := n.speakers[at].Mesh && n.speakers[origin].Mesh
		if mesh || len(from) > 0 {
			visit(origin, mesh, from)
		}
	}
}
