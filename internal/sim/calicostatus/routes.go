// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calicostatus

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
)

// reflector is a node with a cluster ID, and the sessions of BGPPeers that it has up.
type reflector struct {
	*node
	peers map[string]bool
}

// routes is what calico-node on a node lists as the routes that it has learned: one for each path to each other node.
func (n *network) routes(of *node, now time.Time, takes time.Duration) apiv3.CalicoNodeBGPRouteStatus {
	var out apiv3.CalicoNodeBGPRouteStatus
	reflectors := n.reflectors(now, takes)
	for _, name := range slices.Sorted(maps.Keys(n.nodes)) {
		origin := n.nodes[name]
		if origin == of {
			continue
		}
		for _, f := range []struct {
			own, other netip.Addr
			address    func(*node) netip.Addr
			routes     *[]apiv3.CalicoNodeRoute
		}{
			{of.v4, origin.v4, func(o *node) netip.Addr { return o.v4 }, &out.RoutesV4},
			{of.v6, origin.v6, func(o *node) netip.Addr { return o.v6 }, &out.RoutesV6},
		} {
			if !f.own.IsValid() || !f.other.IsValid() {
				continue
			}
			add := func(kind apiv3.CalicoNodeRouteSourceType, from netip.Addr) {
				*f.routes = append(*f.routes, apiv3.CalicoNodeRoute{
					Type: apiv3.RouteTypeRIB, Destination: Destination(f.other).String(), Gateway: f.other.String(), Interface: "eth0",
					LearnedFrom: apiv3.CalicoNodeRouteLearnedFrom{SourceType: kind, PeerIP: from.String()},
				})
			}
			if n.inMesh(of, origin) && n.up(of, origin, true, now, takes) {
				add(apiv3.RouteSourceTypeNodeMesh, f.other)
			}
			for _, r := range n.bring(of, origin, reflectors) {
				if a := f.address(r); a.IsValid() {
					add(apiv3.RouteSourceTypeBGPPeer, a)
				}
			}
		}
	}
	return out
}

// Destination is the network of the pods on the node with an address: one of a single address, in 240.0.0.0/4 for IPv4.
func Destination(node netip.Addr) netip.Prefix {
	bytes := node.AsSlice()
	bytes[0] = 240
	a, _ := netip.AddrFromSlice(bytes)
	return netip.PrefixFrom(a, a.BitLen())
}

func (n *network) reflectors(now time.Time, takes time.Duration) []reflector {
	var out []reflector
	for _, name := range slices.Sorted(maps.Keys(n.nodes)) {
		r := n.nodes[name]
		if r.id == "" {
			continue
		}
		peers := map[string]bool{}
		for _, other := range n.nodes {
			if other != r && n.explicit(r, other) && !n.inMesh(r, other) && n.up(r, other, false, now, takes) {
				peers[other.name] = true
			}
		}
		out = append(out, reflector{r, peers})
	}
	return out
}

// path is a route of one node at a reflector.
type path struct {
	at   reflector
	from string
	// client reports that it came to the reflector on a client session, list is its cluster list.
	client bool
	list   []string
}

// passes reports whether the reflector passes the route on to a node.
func (p path) passes(next *node) bool {
	client := next.id != p.at.id
	return p.at.peers[next.name] && next.name != p.from && (p.client || client) && !(client && slices.Contains(p.list, p.at.id))
}

// to is the route at the next reflector, if that takes it.
func (p path) to(next reflector) (path, bool) {
	out := path{at: next, from: p.at.name, client: p.at.id != next.id, list: append(slices.Clone(p.list), p.at.id)}
	return out, p.passes(next.node) && !(out.client && slices.Contains(out.list, next.id))
}

// mostPaths is where following routes ends: with reflectors of many cluster IDs there is no end in sight.
const mostPaths = 1000

// bring lists the nodes from which a node has the route of another by a session of a BGPPeer, once for each path.
func (n *network) bring(to, origin *node, reflectors []reflector) []*node {
	var out []*node
	var paths []path
	for _, r := range reflectors {
		switch {
		case r.node == origin && r.peers[to.name]:
			out = append(out, origin)
		case r.node != origin && r.peers[origin.name] && !n.withheld[origin.name]:
			paths = append(paths, path{at: r, from: origin.name, client: origin.id != r.id})
		}
	}
	for len(paths) > 0 && len(paths) < mostPaths {
		p := paths[0]
		paths = paths[1:]
		if p.passes(to) {
			out = append(out, p.at.node)
		}
		for _, r := range reflectors {
			if next, goes := p.to(r); goes && r.node != origin && r.node != to {
				paths = append(paths, next)
			}
		}
	}
	return out
}
