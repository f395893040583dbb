// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	rr "github.com/mooring-dev/mooring/internal/routereflector"
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
func sample(w *rr.World) []rr.Node {
	clients, size := w.Roster(), routeSample
	var members []rr.Node
	if !clients.Flat {
		size = max(size, len(w.PresentGroups()))
	}
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if n.IsClient(&w.Topology) && n.Ready == corev1.ConditionTrue && !n.Deleting && !n.Departs() {
			members = append(members, *n)
		}
	}
	of := w.Zone
	if !clients.Flat {
		of = func(n *rr.Node) string { return rr.GroupName(clients.Intended(n)) }
	}
	out := rr.SpreadOver(members, w.Topology.Name, of, size)
	slices.SortFunc(out, func(a, b rr.Node) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// asksRoutes lists who of the sample is asked for routes: all, unless there are so many routes that an answer would not
// fit into an object.
func asksRoutes(w *rr.World, sample []rr.Node) []string {
	if TooManyRoutes(w) {
		return nil
	}
	out := make([]string, 0, len(sample))
	for _, n := range sample {
		out = append(out, n.Name)
	}
	return out
}

// Unrouted says what is missing until each client of the sample has from each reflector what it has from the mesh, ""
// if nothing is. What a client has not from the mesh either, the mesh's end does not take away.
func Unrouted(w *rr.World) string {
	all, clients := w.Working(nil), w.Roster()
	routes := !TooManyRoutes(w)
	for _, c := range sample(w) {
		reflectors := slices.DeleteFunc(slices.Clone(all), func(r rr.Node) bool { return !clients.Has(&c, r.Group()) })
		s, seen := w.Sighting(c.Name)
		if !seen || routes && s.Routes == nil {
			return fmt.Sprintf("client %s has not reported its %s", c.Name,
				map[bool]string{true: "routes", false: "sessions"}[routes])
		}
		missing := w.Missing(s.Established, c, func(n rr.Node) bool { return rr.IsOneOf(n, reflectors) })
		if len(missing) > 0 {
			return fmt.Sprintf("client %s has no Established session with reflector %s", c.Name, rr.Names(missing))
		}
		if !routes {
			continue
		}
		for _, r := range reflectors {
			if why := lacking(w, *s.Routes, c, r, reflectors); why != "" {
				return why
			}
		}
	}
	return ""
}

// lacking says which destinations that the client has from the mesh it has not from a reflector, by the families that
// both speak and have a session in; "" if it has all. What nobody announces but nodes with which no session of the
// reflector comes up, another reflector may bring.
func lacking(w *rr.World, routes rr.Routes, client, reflector rr.Node, all []rr.Node) string {
	for _, f := range rr.AddressFamilies() {
		if !f.Up(&client) || !f.Up(&reflector) || w.Parted(f, &client, &reflector) {
			continue
		}
		due, apart := map[netip.Prefix]bool{}, w.Apart(f, &reflector) // whether the reflector itself must bring it
		for from, list := range routes.Mesh {
			for _, d := range list {
				if d.Addr().Is4() == f(&reflector).Is4() {
					due[d] = due[d] || !apart[from]
				}
			}
		}
		brings := func(by *rr.Node, d netip.Prefix) bool {
			_, found := slices.BinarySearchFunc(routes.By[f(by)], d, netip.Prefix.Compare)
			return found
		}
		var lacks []netip.Prefix
		for d, own := range due {
			if !brings(&reflector, d) &&
				(own || !slices.ContainsFunc(all, func(o rr.Node) bool { return brings(&o, d) })) {
				lacks = append(lacks, d)
			}
		}
		if len(lacks) > 0 {
			return fmt.Sprintf(
				"client %s has from reflector %s no route to %d of %d destinations that the mesh brings, such as %s",
				client.Name, reflector.Name, len(lacks), len(due), slices.MinFunc(lacks, netip.Prefix.Compare))
		}
	}
	return ""
}

// TooManyRoutes reports that the answer of a client with all of its routes would not fit into an object.
func TooManyRoutes(w *rr.World) bool {
	speakers, reflectors := 0, map[int]int{}
	for i := range w.Nodes {
		n := &w.Nodes[i]
		for _, f := range rr.AddressFamilies() {
			speakers += rr.Count(f.Up(n))
		}
		if n.IsReflectorOf(&w.Topology) {
			reflectors[n.Group()]++
		}
	}
	most := 0 // a client has those of one group
	for _, count := range reflectors {
		most = max(most, count)
	}
	return speakers*blocksPerNode*(1+most)*entryBytes > answerBytes
}
