// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package oldplanner

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
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
// reflectors are made first have theirs. At the end of a topology it is nobody.
func (w choices) choose(d design) choice {
	if w.exiting() {
		return choice{design: d}
	}
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
		if n.incumbent(&w.Topology) {
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
		if !wanted && !n.incumbent(&w.Topology) {
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

// standing ranks who is a reflector over who is not, and one whose Node is Ready over one that is only heard of by others.
func (c candidate) standing() int {
	return boolInt(c.incumbent) + boolInt(c.incumbent && c.node.lives())
}

// pick chooses count of the candidates: those that are fit, then nodes that are fresh if need be, and if that is not enough, reflectors that should go.
//
// Where enough reflectors are Ready, one whose Node is in trouble beyond its grace period is not kept, even if it is the only one of its zone: its
// replacement, on which all observers have to be queried again, would go otherwise. The same holds of one that its witnesses had lost for longer than that and
// that has returned since: a reflector that comes and goes takes a role away from nobody.
func (w candidates) pick(all []candidate, count int) []string {
	ready := 0
	for _, c := range all {
		ready += boolInt(c.incumbent && c.suits == fit && c.node.lives() && !w.givenUp(c.node))
	}
	if ready >= count {
		all = slices.DeleteFunc(slices.Clone(all), func(c candidate) bool { return c.incumbent && (w.overdue(c.node) || w.givenUp(c.node)) })
	}
	of := func(s suitability) []candidate {
		return slices.DeleteFunc(slices.Clone(all), func(c candidate) bool { return c.suits != s })
	}
	taken := spread(nil, of(fit), count)
	if len(taken) < count {
		taken = spread(taken, of(fresh), w.pressed(count))
	}
	taken = spread(taken, of(retiring), count)
	taken = spread(taken, of(unwanted), count)
	var names []string
	for _, c := range taken {
		names = append(names, c.node.Name)
	}
	return names
}

// pressed is up to which number nodes that are fresh must do: so many that clients are left with all sessions but one, or in an emergency with all.
// Without this a pool of nodes that is replaced faster than its nodes are trusted would run out of reflectors.
func (w candidates) pressed(count int) int {
	switch {
	case w.rescuing(), w.emergency():
		return count
	case !w.served():
		return 0
	}
	return count - 1
}

// promoted lists the groups in the order in which reflectors are made: that of the design; but where groups beyond the first work and no spine
// links them, the spines come before all. A client that is moving reaches the reflectors of both groups; made a reflector of one, it would reach the
// other's by a spine alone.
func (w choices) promoted(d design) []int {
	working := w.working(nil)
	if !d.hierarchical() || len(groupOf(working, spines)) > 0 || len(groupOf(working, d.groups[1:]...)) == 0 {
		return d.order()
	}
	return slices.Concat([]int{spines}, d.groups)
}

// roles lists the nodes that shall become reflectors, and those that shall cease to be.
func (w choices) roles(chosen choice) (joining, leaving []string) {
	for _, r := range w.reflectors(chosen) {
		switch r.Role {
		case RoleJoining:
			joining = append(joining, r.Node)
		case RoleLeaving:
			leaving = append(leaving, r.Node)
		case RoleReflector:
		}
	}
	return joining, leaving
}

// groups describes the groups that there shall be.
func (w choices) groups(reflectors []Reflector, d design) []Group {
	load := w.roster().loads(*w.World)
	order := slices.Clone(d.groups)
	if d.hierarchical() {
		order = append(order, spines)
	}
	var out []Group
	for _, g := range order {
		group := Group{Name: w.groupTitle(d, g), ClusterID: d.ids[g], Clients: load[g], Reflectors: []string{}}
		for _, r := range reflectors {
			if r.Group == group.Name && r.Role != RoleLeaving {
				group.Reflectors = append(group.Reflectors, r.Node)
			}
		}
		out = append(out, group)
	}
	return out
}

// hash names what shall be.
func (w choices) hash(chosen choice) string {
	h := sha256.New()
	fmt.Fprintln(h, w.Topology.UID, w.exiting(), chosen.names(), w.Topology.Spec.ClusterID, w.Topology.Spec.Mesh)
	if chosen.design.hierarchical() {
		for _, name := range chosen.names() {
			fmt.Fprintln(h, name, chosen.groups[name], chosen.design.ids[chosen.groups[name]])
		}
	}
	for _, p := range wantedPeers(w.Topology) {
		fmt.Fprintln(h, p.Name, p.PeerSpec)
	}
	if a := w.Topology.Spec.Adopt; a != nil {
		fmt.Fprintln(h, "adopt", calicoSelector(a.Nodes), a.BGPPeers)
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}

func inRole(reflectors []Reflector, role Role) []Reflector {
	return slices.DeleteFunc(slices.Clone(reflectors), func(r Reflector) bool { return r.Role != role })
}
