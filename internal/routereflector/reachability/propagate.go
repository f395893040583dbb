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
	// client reports that it came on a client session.
	client bool
	// list is the cluster list, the last ID first.
	list *clusterList
	// external reports that it came on an external session; path are the AS numbers that it has come through, the last first, without those
	// that it never left.
	external bool
	path     *asPath
}

// asPath is an immutable list that shares its tail.
type asPath struct {
	as   uint32
	next *asPath
}

func (p *asPath) has(as uint32) bool {
	for ; p != nil; p = p.next {
		if p.as == as {
			return true
		}
	}
	return false
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

// holdings are the routes that each reflector holds of the prefix of one speaker, by the reflector's index.
type holdings [][]arrival

// flooder follows routes. It keeps what it needs from one prefix to the next.
type flooder struct {
	*Network
	held holdings
	// reflectors holds, for each reflector, those with which it has a session: of its clients, which are many, none passes a route on.
	reflectors [][]int32
	// queue are the routes to follow, in the order in which reflectors got hold of them.
	queue []hop
	// most is how many routes wait to be followed at most: a hierarchy has as many as the square of its reflectors.
	most int
}

// hop is a route at the reflector that holds it.
type hop struct {
	at int32
	arrival
}

// flooder returns one that has followed nothing yet.
func (n *Network) flooder() *flooder {
	f := &flooder{Network: n, held: make(holdings, len(n.speakers)), reflectors: make([][]int32, len(n.speakers))}
	reflectors := 0
	for at, s := range n.speakers {
		if s.ClusterID == "" {
			continue
		}
		reflectors++
		for _, peer := range n.sessions[at] {
			if n.speakers[peer].ClusterID != "" {
				f.reflectors[at] = append(f.reflectors[at], peer)
			}
		}
	}
	f.most = MaxPaths + reflectors*reflectors
	return f
}

// flood computes what each reflector holds of the prefix of one speaker. It gives up, and says so, if more routes are to be
// followed than each reflector would hold of every other in a hierarchy, and [MaxPaths].
func (n *Network) flood(origin int32) (held holdings, all bool) { return n.flooder().flood(origin) }

// flood is [Network.flood]. What it returned before is gone.
func (f *flooder) flood(origin int32) (held holdings, all bool) {
	for _, h := range f.queue {
		f.held[h.at] = f.held[h.at][:0]
	}
	f.queue = f.queue[:0]
	for _, peer := range f.sessions[origin] {
		f.offer(origin, peer, arrival{from: origin, path: f.crossed(origin, peer, nil)})
	}
	for next := 0; next < len(f.queue); next++ {
		if len(f.queue)-next > f.most {
			return f.held, false
		}
		h := f.queue[next]
		var list *clusterList
		for _, peer := range f.reflectors[h.at] {
			if !f.passes(h.at, peer, h.arrival) {
				continue
			}
			a := arrival{from: h.at, path: f.crossed(h.at, peer, h.path)}
			if reflected := !h.external && !f.External(h.at, peer); reflected {
				if list == nil {
					list = &clusterList{f.speakers[h.at].ClusterID, h.list}
				}
				a.list = list
			}
			f.offer(origin, peer, a)
		}
	}
	return f.held, true
}

// offer brings a route to a speaker.
func (f *flooder) offer(origin, at int32, a arrival) {
	id := f.speakers[at].ClusterID
	if id == "" || at == origin {
		return
	}
	if a.client = f.isClient(at, a.from); a.client && a.list.has(id) {
		return
	}
	if a.external = f.External(at, a.from); a.external && a.path.has(f.speakers[at].AS) {
		return
	}
	f.held[at] = append(f.held[at], a)
	f.queue = append(f.queue, hop{at, a})
}

// crossed is the AS path of a route once it has gone from one speaker to another.
func (n *Network) crossed(from, to int32, path *asPath) *asPath {
	if !n.External(from, to) {
		return path
	}
	return &asPath{n.speakers[from].AS, path}
}

// isClient reports whether the session with peer is a client session at speaker at.
func (n *Network) isClient(at, peer int32) bool {
	own := n.speakers[at].ClusterID
	return own != "" && !n.External(at, peer) && (n.speakers[peer].ClusterID != own || len(n.blind) > 0 && n.blind[[2]int32{at, peer}])
}

// passes reports whether the reflector passes a route that it holds on to a peer.
func (n *Network) passes(reflector, peer int32, route arrival) bool {
	if peer == route.from {
		return false
	}
	if n.External(reflector, peer) {
		// To another AS goes everything, and there it is refused if it has come from there.
		return n.speakers[peer].AS != n.speakers[reflector].AS && !route.path.has(n.speakers[peer].AS)
	}
	toClient := n.isClient(reflector, peer)
	if toClient && route.list.has(n.speakers[reflector].ClusterID) {
		return false
	}
	return route.client || toClient || route.external
}

// paths counts the paths to the prefix of origin that speaker to has, given what the reflectors hold of it.
func (n *Network) paths(origin, to int32, held holdings) int {
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

// Learn calls visit for the prefix of every other speaker that a speaker, which is not a reflector, has a path to: whether a session of the
// mesh brings it, and which peers of other sessions do, by index. The slice is reused. It is what calico-node of that speaker lists as its routes.
func (n *Network) Learn(at int32, visit func(origin int32, mesh bool, from []int32)) {
	var from []int32
	routes := n.flooder()
	for i := range n.speakers {
		origin := int32(i)
		if origin == at {
			continue
		}
		from = from[:0]
		if n.HasSession(origin, at) {
			from = append(from, origin)
		}
		held, _ := routes.flood(origin)
		for _, peer := range n.sessions[at] {
			if peer != origin && slices.ContainsFunc(held[peer], func(route arrival) bool { return n.passes(peer, at, route) }) {
				from = append(from, peer)
			}
		}
		mesh := n.speakers[at].Mesh && n.speakers[origin].Mesh && !n.Parted(at, origin)
		if mesh || len(from) > 0 {
			visit(origin, mesh, from)
		}
	}
}
