// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package oldplanner

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

const (
	// routeSample is how many clients must be seen to have their routes from the reflectors before the mesh goes off.
	routeSample = 3
	// An answer with routes has one entry for each destination from each of the reflectors and from the mesh.
	// entryBytes is the length of an entry in JSON, blocksPerNode how many destinations a node is reckoned with, and
	// answerBytes what fits into an object: etcd takes requests of 1.5 MiB.
	entryBytes    = 150
	blocksPerNode = 2
	answerBytes   = 1_250_000
)

// sample picks the clients whose own word is needed before the mesh goes off: one of each zone in turn, or in a
// hierarchy one of each group, the same ones as long as they live. Anyone who is about to go is not queried.
func (w gates) sample() []Node {
	clients, size := w.roster(), routeSample
	var members []Node
	if !clients.flat {
		size = max(size, len(w.presentGroups()))
	}
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if n.isClient(&w.Topology) && n.Ready == corev1.ConditionTrue && !n.Deleting && !n.departs() {
			members = append(members, *n)
		}
	}
	of := w.zone
	if !clients.flat {
		of = func(n *Node) string { return groupName(clients.intended(n)) }
	}
	out := spreadOver(members, w.Topology.Name, of, size)
	slices.SortFunc(out, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// spreadOver picks some of the nodes, one of each class in turn. The choice depends on nothing but their names and
// classes.
func spreadOver(nodes []Node, topology string, class func(*Node) string, size int) []Node {
	type member struct {
		at   int
		hash uint64
	}
	classes := map[string][]member{}
	for i := range nodes {
		of := class(&nodes[i])
		classes[of] = append(classes[of], member{i, rendezvous(topology, nodes[i].Name)})
	}
	for _, members := range classes {
		slices.SortFunc(members, func(a, b member) int {
			return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(nodes[a.at].Name, nodes[b.at].Name))
		})
	}
	var out []Node
	for turn := 0; ; turn++ {
		some := false
		for _, of := range sortedKeys(classes) {
			if members := classes[of]; turn < len(members) && len(out) < size {
				out, some = append(out, nodes[members[turn].at]), true
			}
		}
		if !some {
			return out
		}
	}
}

// sortedKeys are the keys of a map.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// asksRoutes lists who of the sample is asked for routes: all, unless there are so many routes that an answer would not
// fit into an object.
func (w gates) asksRoutes(sample []Node) []string {
	if w.tooManyRoutes() {
		return nil
	}
	out := make([]string, 0, len(sample))
	for _, n := range sample {
		out = append(out, n.Name)
	}
	return out
}

func (w facts) tooManyRoutes() bool {
	speakers, reflectors := 0, map[int]int{}
	for i := range w.Nodes {
		n := &w.Nodes[i]
		for _, f := range families() {
			speakers += boolInt(f.up(n))
		}
		if n.isReflectorOf(&w.Topology) {
			reflectors[n.group()]++
		}
	}
	most := 0 // a client has those of one group
	for _, count := range reflectors {
		most = max(most, count)
	}
	return speakers*blocksPerNode*(1+most)*entryBytes > answerBytes
}

// unrouted says what is missing until each client of the sample has from each reflector what it has from the mesh, ""
// if nothing is. What a client has not from the mesh either, the mesh's end does not take away.
func (w gates) unrouted() string {
	all, clients := w.working(nil), w.roster()
	routes := !w.tooManyRoutes()
	for _, c := range w.sample() {
		reflectors := slices.DeleteFunc(slices.Clone(all), func(r Node) bool { return !clients.has(&c, r.group()) })
		s, seen := w.sighting(c.Name)
		if !seen || routes && s.Routes == nil {
			return fmt.Sprintf(
				"client %s has not reported its %s",
				c.Name,
				map[bool]string{true: "routes", false: "sessions"}[routes],
			)
		}
		missing := w.missing(s.Established, c, func(n Node) bool { return isOneOf(n, reflectors) })
		if len(missing) > 0 {
			return fmt.Sprintf("client %s has no Established session with reflector %s", c.Name, names(missing))
		}
		if !routes {
			continue
		}
		for _, r := range reflectors {
			if why := w.lacking(*s.Routes, c, r, reflectors); why != "" {
				return why
			}
		}
	}
	return ""
}

func isOneOf(n Node, nodes []Node) bool {
	return slices.ContainsFunc(nodes, func(other Node) bool { return other.Name == n.Name })
}

// lacking says which destinations that the client has from the mesh it has not from a reflector, by the families that
// both speak and have a session in; "" if it has all. What nobody announces but nodes with which no session of the
// reflector comes up, another reflector may bring.
func (w gates) lacking(routes Routes, client, reflector Node, all []Node) string {
	for _, f := range families() {
		if !f.up(&client) || !f.up(&reflector) || w.parts(f, &client, &reflector) {
			continue
		}
		due, apart := map[netip.Prefix]bool{}, w.apart(f, &reflector) // whether the reflector itself must bring it
		for from, list := range routes.Mesh {
			for _, d := range list {
				if d.Addr().Is4() == f(&reflector).Is4() {
					due[d] = due[d] || !apart[from]
				}
			}
		}
		brings := func(by *Node, d netip.Prefix) bool {
			_, found := slices.BinarySearchFunc(routes.By[f(by)], d, netip.Prefix.Compare)
			return found
		}
		var lacks []netip.Prefix
		for d, own := range due {
			if !brings(&reflector, d) &&
				(own || !slices.ContainsFunc(all, func(o Node) bool { return brings(&o, d) })) {
				lacks = append(lacks, d)
			}
		}
		if len(lacks) > 0 {
			return fmt.Sprintf(
				"client %s has from reflector %s no route to %d of %d destinations that the mesh brings, such as %s",
				client.Name,
				reflector.Name,
				len(lacks),
				len(due),
				slices.MinFunc(lacks, netip.Prefix.Compare),
			)
		}
	}
	return ""
}
