// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package routereflector

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

// Role is what a node is to a topology.
type Role string

// The roles.
const (
	RoleReflector Role = "Reflector"
	RoleJoining   Role = "Joining"
	RoleLeaving   Role = "Leaving"
)

// Reflector is a node that is a reflector, or is to become or to cease to be one.
type Reflector struct {
	Node      string `json:"node"`
	Group     string `json:"group"`
	Zone      string `json:"zone"`
	ClusterID string `json:"clusterID"`
	Role      Role   `json:"role"`
	// Reason says why.
	Reason string `json:"reason"`
}

// defaultRedundancy is the number of reflectors where the spec names none.
const defaultRedundancy = 3

// candidate is a node that may be chosen.
type candidate struct {
	node      *Node
	incumbent bool
	suits     suitability
	score     int
	hash      uint64
	// domains are the values of the topology keys.
	domains []string
}

// eligible lists who may be chosen: reflectors that are fit and not lost, nodes that are fit to become one, and those who are better than nobody.
func (w candidates) eligible() []candidate {
	keys := w.Topology.Spec.TopologyKeys
	var out []candidate
	var domains []string // of all candidates, one after the other
	parted := partedPairs(w.Nodes, w.Peers)
	for i := range w.Nodes {
		n := &w.Nodes[i]
		incumbent, suits := n.marked(&w.Topology) || n.adoptedBy(&w.Topology), w.suitability(n)
		if suits == never {
			continue
		}
		c := candidate{node: n, incumbent: incumbent, suits: suits, score: w.score(n) + w.adoptionScore(n) - min(parted[n.Name], mostParted), hash: rendezvous(w.Topology.Name, n.Name)}
		for _, key := range keys {
			domains = append(domains, n.Labels[key])
		}
		c.domains = domains[len(domains)-len(keys):]
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b candidate) int { return cmp.Compare(a.node.Name, b.node.Name) })
	return out
}

// idleScore outweighs every sum of preferences short of the greatest, since pods on a reflector are what a change of roles hurts.
const idleScore = 1000

// mostParted is how many points a node may lose for nodes with which no session comes up.
const mostParted = idleScore / 2

// score says how well a node suits, without regard to where it stands.
func (w candidates) score(n *Node) int {
	s := &w.Topology.Spec.Reflectors
	score := 0
	if (s.AvoidWorkloads == nil || *s.AvoidWorkloads) && n.Workloads == 0 {
		score += idleScore
	}
	for _, p := range s.Preferred {
		if selects(p.Selector, n.Labels) {
			score += int(p.Weight)
		}
	}
	return score
}

// rendezvous orders nodes that suit equally well, so that the choice depends on nothing but the names.
func rendezvous(topology, node string) uint64 {
	sum := sha256.Sum256([]byte(topology + "\x00" + node))
	return binary.BigEndian.Uint64(sum[:8])
}

// choice is who shall be a reflector.
type choice struct {
	design design
	// groups are the groups of those who shall be reflectors, by name.
	groups map[string]int
}

// names lists who was chosen, sorted.
func (c choice) names() []string { return slices.Sorted(maps.Keys(c.groups)) }

// least is the number of reflectors of the group of clients that has the fewest.
func (c choice) least() int {
	count := map[int]int{}
	for _, g := range c.groups {
		count[g]++
	}
	out := -1
	for _, g := range c.design.groups {
		if out < 0 || count[g] < out {
			out = count[g]
		}
	}
	return max(out, 1)
}

// choose picks the nodes that shall be reflectors. Anyone who is one stays one in its group, unless that leaves a zone without a reflector in
// which there could be one, or is about to leave the cluster. A tainted incumbent stays: it works. Where there are too few nodes, the groups whose
// reflectors are made first have theirs.
func (w choices) choose(d design) choice {
	all := w.eligible()
	out := choice{design: d, groups: map[string]int{}}
	for _, g := range w.promoted(d) {
		// Incumbents of other groups keep their cluster IDs, or go.
		in := slices.DeleteFunc(slices.Clone(all), func(c candidate) bool {
			_, taken := out.groups[c.node.Name]
			return taken || c.incumbent && c.node.group() != g
		})
		for _, name := range w.pickGroup(d, g, in) {
			out.groups[name] = g
		}
	}
	return out
}

// pickGroup picks the reflectors of a group.
func (w choices) pickGroup(d design, g int, from []candidate) []string {
	perZone := w.Topology.Spec.Sizing.PerZone
	if perZone == nil {
		return w.pick(from, d.size(g))
	}
	var chosen []string
	for _, zone := range w.zones(from) {
		in := slices.DeleteFunc(slices.Clone(from), func(c candidate) bool { return c.domains[0] != zone })
		chosen = append(chosen, w.pick(in, w.perZone(*perZone, zone))...)
	}
	return chosen
}

func (w facts) redundancy() int {
	if r := w.Topology.Spec.Redundancy; r != nil {
		return int(*r)
	}
	return defaultRedundancy
}

func (w choices) zones(all []candidate) []string {
	var zones []string
	for _, c := range all {
		zones = append(zones, c.domains[0])
	}
	slices.Sort(zones)
	return slices.Compact(zones)
}

// perZone is the old operator's formula for one zone, in whole numbers. A number that is too great by now stays until the clients would have
// to grow by more than the hysteresis to call for it again.
func (w choices) perZone(p v1alpha1.PerZone, zone string) int {
	key, clients, current := w.Topology.Spec.TopologyKeys[0], 0, 0
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if n.Labels[key] != zone {
			continue
		}
		if n.marked(&w.Topology) {
			current++
		}
		if n.speaks() && selects(w.Topology.Spec.ClientSelector, n.Labels) {
			clients++
		}
	}
	number := func(clients int) int {
		return min(max(ceilDiv(clients*int(p.RatioPermille), 1000), int(p.Min)), int(p.Max))
	}
	now := number(clients)
	if h := w.Topology.Spec.Sizing.HysteresisPercent; h != nil && current > now {
		return min(current, number(clients+ceilDiv(clients*int(*h), 100)))
	}
	return now
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }

// spread picks of the candidates until count are taken. The first topology key decides over staying and going, the others only among newcomers.
func spread(taken, all []candidate, count int) []candidate {
	rest := slices.Clone(all)
	for len(taken) < count && len(rest) > 0 {
		best := 0
		for i := range rest {
			if i > 0 && before(rest[i], rest[best], taken) {
				best = i
			}
		}
		taken = append(taken, rest[best])
		rest = slices.Delete(rest, best, best+1)
	}
	return taken
}

// before reports whether a is the better next choice than b, given who is taken.
func before(a, b candidate, taken []candidate) bool {
	crowdA, crowdB := crowds(a, taken), crowds(b, taken)
	kept := func(c candidate) int {
		_, keep := c.node.Annotations[v1alpha1.KeepAnnotation]
		return boolInt(c.incumbent && keep)
	}
	first := func(crowd []int) int {
		if len(crowd) == 0 {
			return 0
		}
		return crowd[0]
	}
	order := cmp.Or(
		cmp.Compare(kept(b), kept(a)),
		cmp.Compare(first(crowdA), first(crowdB)),
		cmp.Compare(b.standing(), a.standing()),
		slices.Compare(crowdA, crowdB),
		cmp.Compare(b.score, a.score),
		cmp.Compare(a.hash, b.hash),
		cmp.Compare(a.node.Name, b.node.Name),
	)
	return order < 0
}

// crowds counts, for each topology key, how many of the taken share the candidate's value.
func crowds(c candidate, taken []candidate) []int {
	out := make([]int, len(c.domains))
	for _, t := range taken {
		for i, d := range c.domains {
			if t.domains[i] == d {
				out[i]++
			}
		}
	}
	return out
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// reflectors describes who shall be, becomes and ceases to be a reflector, sorted by name.
func (w choices) reflectors(chosen choice) []Reflector {
	var out []Reflector
	for i := range w.Nodes {
		n := &w.Nodes[i]
		g, wanted := chosen.groups[n.Name]
		if !wanted && !n.marked(&w.Topology) && !n.adoptedBy(&w.Topology) {
			continue
		}
		if !wanted {
			g = n.group()
		}
		r := Reflector{
			Node: n.Name, Group: w.groupTitle(chosen.design, g), Zone: w.zone(n), ClusterID: cmp.Or(chosen.design.ids[g], n.ClusterID), Role: RoleReflector,
			Reason: "it is a reflector and suitable",
		}
		switch {
		case wanted && (!n.isReflectorOf(&w.Topology) || n.group() != g || n.ClusterID != r.ClusterID):
			r.Role, r.Reason = RoleJoining, w.whyChosen(n, r)
		case !wanted:
			r.Role, r.Reason = RoleLeaving, w.whyLeaving(n)
			r.ClusterID = cmp.Or(n.ClusterID, r.ClusterID)
		case w.reluctance(n) != "":
			r.Reason = w.reluctance(n) + ", and stays until another node can replace it"
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b Reflector) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// groupTitle is what a group is called in reports: that of a flat topology as the topology.
func (w designs) groupTitle(d design, g int) string {
	if g == firstGroup && !d.hierarchical() {
		return w.Topology.Name
	}
	return groupName(g)
}

// asTheyAre is the choice of those who are reflectors already.
func (w choices) asTheyAre(d design) choice {
	out := choice{design: d, groups: map[string]int{}}
	for i := range w.Nodes {
		if n := &w.Nodes[i]; n.marked(&w.Topology) {
			out.groups[n.Name] = n.group()
		}
	}
	return out
}

func (w facts) zone(n *Node) string {
	if keys := w.Topology.Spec.TopologyKeys; len(keys) > 0 {
		return n.Labels[keys[0]]
	}
	return ""
}

func (w choices) whyChosen(n *Node, r Reflector) string {
	switch {
	case n.adoptedBy(&w.Topology):
		return w.whyAdopted(n)
	case n.marked(&w.Topology):
		return fmt.Sprintf("its cluster ID is %q and must be %s", n.ClusterID, r.ClusterID)
	case n.Workloads == 0:
		return fmt.Sprintf("no workloads run on it, score %d", w.score(n))
	}
	return fmt.Sprintf("%d workload pods run on it, score %d; their traffic stops for some seconds", n.Workloads, w.score(n))
}

func (w choices) whyLeaving(n *Node) string {
	if w.exiting() {
		return "the topology is being deleted"
	}
	if why := cmp.Or(w.reluctance(n), w.unfit(n), w.lost(n)); why != "" {
		return why
	}
	if g := n.group(); g != firstGroup {
		return fmt.Sprintf("group %s has enough others, or is to go", groupName(g))
	}
	return "there are enough others, or they are in zones without one"
}
