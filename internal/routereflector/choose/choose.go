// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package choose

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/design"
	"github.com/mooring-dev/mooring/internal/routereflector/health"
	"github.com/mooring-dev/mooring/internal/routereflector/rank"
)

// Choice is who shall be a reflector.
type Choice struct {
	Design design.Design
	// Groups are the groups of those who shall be reflectors, by name.
	Groups map[string]int
	// Spares are the nodes that take the place of lost reflectors, or would, by name.
	Spares []v1alpha1.Spare
}

// Names lists who was chosen, sorted.
func (c Choice) Names() []string { return slices.Sorted(maps.Keys(c.Groups)) }

// Least is the number of reflectors of the group of clients that has the fewest.
func (c Choice) Least() int {
	count := map[int]int{}
	for _, g := range c.Groups {
		count[g]++
	}
	out := -1
	for _, g := range c.Design.Groups {
		if out < 0 || count[g] < out {
			out = count[g]
		}
	}
	return max(out, 1)
}

// Choose picks the nodes that shall be reflectors. Anyone who is one stays one in its group, unless that leaves a zone
// without a reflector in which there could be one, or is about to leave the cluster. A tainted incumbent stays: it
// works. Where there are too few nodes, the groups whose reflectors are made first have theirs. A lost reflector whose
// spare takes its place stays as well, until it is given up. At the end of a topology it is nobody.
func Choose(w *rr.World, d design.Design) Choice {
	if w.Exiting() {
		return Choice{Design: d}
	}
	f := divided(rank.Eligible(w))
	covers, out := f.covers(w), Choice{Design: d, Groups: map[string]int{}}
	taken := func(c rank.Candidate) bool { _, is := out.Groups[c.Node.Name]; return is }
	for _, g := range PromotionOrder(w, d) {
		// Incumbents of other groups keep their cluster IDs, or go.
		in := slices.DeleteFunc(slices.Clone(f.incumbents[g]), taken)
		in = append(in, f.others.best(most(w, d, g), taken)...)
		for _, name := range pickAlongside(w, d, g, in, covers[g]) {
			out.Groups[name] = g
		}
	}
	f.cover(w, covers, &out)
	f.spares(w, &out)
	return out
}

// newcomers are the candidates that are no incumbents. Those of a list suit equally well and have the same domains, so that
// nothing but their order decides between them: of each list the first are enough.
type newcomers [][]rank.Candidate

// field are the candidates: the incumbents by their group, and the newcomers.
type field struct {
	incumbents map[int][]rank.Candidate
	others     newcomers
}

// divided are all candidates.
func divided(all []rank.Candidate) field {
	f, lists := field{incumbents: map[int][]rank.Candidate{}}, map[string]int{}
	for _, c := range all {
		if c.Incumbent {
			f.incumbents[c.Node.Group()] = append(f.incumbents[c.Node.Group()], c)
			continue
		}
		key := strings.Join(append([]string{strconv.Itoa(int(c.Suits))}, c.Domains...), "\x00")
		at, known := lists[key]
		if !known {
			at = len(f.others)
			lists[key], f.others = at, append(f.others, nil)
		}
		f.others[at] = append(f.others[at], c)
	}
	for _, list := range f.others {
		slices.SortFunc(list, rank.Candidate.Compare)
	}
	return f
}

// best are the first of each list that are not taken.
func (n newcomers) best(count int, taken func(rank.Candidate) bool) []rank.Candidate {
	var out []rank.Candidate
	for _, list := range n {
		found := 0
		for _, c := range list {
			if found == count {
				break
			}
			if !taken(c) {
				out, found = append(out, c), found+1
			}
		}
	}
	return out
}

// most is how many reflectors a group may be given, or a zone of it.
func most(w *rr.World, d design.Design, g int) int {
	if zone := w.Topology.Spec.Sizing.PerZone; zone != nil {
		return int(zone.Max)
	}
	return d.Size(g)
}

// pickGroup picks the reflectors of a group, as if some nodes were not there.
func pickGroup(w *rr.World, d design.Design, g int, from []rank.Candidate, without map[string]bool) []string {
	perZone := w.Topology.Spec.Sizing.PerZone
	if perZone == nil {
		return pick(w, from, d.Size(g))
	}
	var chosen []string
	for _, zone := range zones(from) {
		in := slices.DeleteFunc(slices.Clone(from), func(c rank.Candidate) bool { return c.Domains[0] != zone })
		chosen = append(chosen, pick(w, in, PerZone(w, *perZone, zone, without))...)
	}
	return chosen
}

func zones(all []rank.Candidate) []string {
	var zones []string
	for _, c := range all {
		zones = append(zones, c.Domains[0])
	}
	slices.Sort(zones)
	return slices.Compact(zones)
}

// PerZone is the old operator's formula for one zone, in whole numbers, as if some reflectors were none. A number that is
// too great by now stays until the clients would have to grow by more than the hysteresis to call for it again.
func PerZone(w *rr.World, p v1alpha1.PerZone, zone string, without map[string]bool) int {
	key, clients, current := w.Topology.Spec.TopologyKeys[0], 0, 0
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if n.Labels[key] != zone {
			continue
		}
		if n.Incumbent(&w.Topology) && !without[n.Name] && health.WhyLost(w, n) == "" {
			current++
		}
		if n.Speaks() && rr.Selects(w.Topology.Spec.ClientSelector, n.Labels) {
			clients++
		}
	}
	number := func(clients int) int {
		return min(max(rr.CeilDiv(clients*int(p.RatioPermille), 1000), int(p.Min)), int(p.Max))
	}
	now := number(clients)
	if h := w.Topology.Spec.Sizing.HysteresisPercent; h != nil && current > now {
		return min(current, number(clients+rr.CeilDiv(clients*int(*h), 100)))
	}
	return now
}

// spread picks of the candidates until count are taken. The first topology key decides over staying and going, the
// others only among newcomers.
func spread(taken, all []rank.Candidate, count int) []rank.Candidate {
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
func before(a, b rank.Candidate, taken []rank.Candidate) bool {
	crowdA, crowdB := crowds(a, taken), crowds(b, taken)
	kept := func(c rank.Candidate) int {
		_, keep := c.Node.Annotations[v1alpha1.KeepAnnotation]
		return rr.Count(c.Incumbent && keep)
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
		cmp.Compare(b.Standing(), a.Standing()),
		slices.Compare(crowdA, crowdB),
		a.Compare(b),
	)
	return order < 0
}

// crowds counts, for each topology key, how many of the taken share the candidate's value.
func crowds(c rank.Candidate, taken []rank.Candidate) []int {
	out := make([]int, len(c.Domains))
	for _, t := range taken {
		for i, d := range c.Domains {
			if t.Domains[i] == d {
				out[i]++
			}
		}
	}
	return out
}

// Reflectors describes who shall be, becomes and ceases to be a reflector, sorted by name.
func Reflectors(w *rr.World, chosen Choice) []rr.Reflector {
	var out []rr.Reflector
	for i := range w.Nodes {
		n := &w.Nodes[i]
		g, wanted := chosen.Groups[n.Name]
		if !wanted && !n.Incumbent(&w.Topology) {
			continue
		}
		if !wanted {
			g = n.Group()
		}
		r := rr.Reflector{
			Node:      n.Name,
			Group:     design.Title(w, chosen.Design, g),
			Zone:      w.Zone(n),
			ClusterID: cmp.Or(chosen.Design.IDs[g], n.ClusterID),
			Role:      rr.RoleReflector,
			Reason:    "it is a reflector and suitable",
		}
		switch {
		case wanted && (!n.IsReflectorOf(&w.Topology) || n.Group() != g || n.ClusterID != r.ClusterID):
			r.Role, r.Reason = rr.RoleJoining, whyChosen(w, n, r)
			if lost := chosen.covers(n.Name); lost != "" {
				r.Reason = fmt.Sprintf("it takes the place of %s, which is lost; %s", lost, r.Reason)
			}
		case !wanted:
			r.Role, r.Reason = rr.RoleLeaving, whyLeaving(w, n)
			r.ClusterID = cmp.Or(n.ClusterID, r.ClusterID)
		case chosen.CoveredBy(n.Name) != "":
			r.Reason = fmt.Sprintf("it is lost, or was a moment ago, and keeps its role for now; %s takes its place",
				chosen.CoveredBy(n.Name))
		case rank.Reluctance(w, n) != "":
			r.Reason = rank.Reluctance(w, n) + ", and stays until another node can replace it"
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b rr.Reflector) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// AsTheyAre is the choice of those who are reflectors already.
func AsTheyAre(w *rr.World, d design.Design) Choice {
	out := Choice{Design: d, Groups: map[string]int{}}
	for i := range w.Nodes {
		if n := &w.Nodes[i]; n.Marked(&w.Topology) {
			out.Groups[n.Name] = n.Group()
		}
	}
	return out
}

func whyChosen(w *rr.World, n *rr.Node, r rr.Reflector) string {
	switch {
	case n.AdoptedBy(&w.Topology):
		return WhyAdopted(w, n)
	case n.Marked(&w.Topology):
		return fmt.Sprintf("its cluster ID is %q and must be %s", n.ClusterID, r.ClusterID)
	case n.Workloads == 0:
		return fmt.Sprintf("no workloads run on it, score %d", rank.Score(w, n))
	}
	return fmt.Sprintf("%d workload pods run on it, score %d; their traffic stops for some seconds", n.Workloads,
		rank.Score(w, n))
}

func whyLeaving(w *rr.World, n *rr.Node) string {
	if w.Exiting() {
		return "the topology is being deleted"
	}
	if why := cmp.Or(rank.Reluctance(w, n), rank.WhyUnfit(w, n), health.WhyLost(w, n)); why != "" {
		return why
	}
	if g := n.Group(); g != rr.FirstGroup {
		return fmt.Sprintf("group %s has enough others, or is to go", rr.GroupName(g))
	}
	return "there are enough others, or they are in zones without one"
}

// pick chooses count of the candidates: those that are fit, then nodes that are fresh if need be, and if that is not
// enough, reflectors that should go.
//
// Where enough reflectors are Ready, one whose Node is in trouble beyond its grace period is not kept, even if it is
// the only one of its zone: its replacement, on which all observers have to be queried again, would go otherwise. The
// same holds of one that its witnesses had lost for longer than that and that has returned since: a reflector that
// comes and goes takes a role away from nobody.
func pick(w *rr.World, all []rank.Candidate, count int) []string {
	ready := 0
	for _, c := range all {
		ready += rr.Count(c.Incumbent && c.Suits == rank.Fit && c.Node.Lives() && !health.GivenUp(w, c.Node))
	}
	if ready >= count {
		all = slices.DeleteFunc(slices.Clone(all), func(c rank.Candidate) bool {
			return c.Incumbent && (health.Overdue(w, c.Node) || health.GivenUp(w, c.Node))
		})
	}
	of := func(s rank.Suitability) []rank.Candidate {
		return slices.DeleteFunc(slices.Clone(all), func(c rank.Candidate) bool { return c.Suits != s })
	}
	taken := spread(nil, of(rank.Fit), count)
	if len(taken) < count {
		taken = spread(taken, of(rank.Fresh), pressed(w, count))
	}
	taken = spread(taken, of(rank.Retiring), count)
	taken = spread(taken, of(rank.Unwanted), count)
	var names []string
	for _, c := range taken {
		names = append(names, c.Node.Name)
	}
	return names
}

// pressed is up to which number nodes that are fresh must do: so many that clients are left with all sessions but one,
// or in an emergency with all. Without this a pool of nodes that is replaced faster than its nodes are trusted would
// run out of reflectors.
func pressed(w *rr.World, count int) int {
	switch {
	case health.Rescuing(w), health.Emergency(w):
		return count
	case !health.Served(w):
		return 0
	}
	return count - 1
}

// PromotionOrder lists the groups in the order in which reflectors are made: that of the design; but where groups
// beyond the first work and no spine links them, the spines come before all. A client that is moving reaches the
// reflectors of both groups; made a reflector of one, it would reach the other's by a spine alone.
func PromotionOrder(w *rr.World, d design.Design) []int {
	working := w.Working(nil)
	if !d.Hierarchical() || len(rr.GroupOf(working, rr.Spines)) > 0 || len(rr.GroupOf(working, d.Groups[1:]...)) == 0 {
		return d.Order()
	}
	return slices.Concat([]int{rr.Spines}, d.Groups)
}

// Roles lists the nodes that shall become reflectors, and those that shall cease to be.
func Roles(w *rr.World, chosen Choice) (joining, leaving []string) {
	for _, r := range Reflectors(w, chosen) {
		switch r.Role {
		case rr.RoleJoining:
			joining = append(joining, r.Node)
		case rr.RoleLeaving:
			leaving = append(leaving, r.Node)
		case rr.RoleReflector:
		}
	}
	return joining, leaving
}

// Groups describes the groups that there shall be.
func Groups(w *rr.World, reflectors []rr.Reflector, d design.Design) []rr.Group {
	load := w.Roster().Loads(w)
	order := slices.Clone(d.Groups)
	if d.Hierarchical() {
		order = append(order, rr.Spines)
	}
	var out []rr.Group
	for _, g := range order {
		group := rr.Group{Name: design.Title(w, d, g), ClusterID: d.IDs[g], Clients: load[g], Reflectors: []string{}}
		for _, r := range reflectors {
			if r.Group == group.Name && r.Role != rr.RoleLeaving {
				group.Reflectors = append(group.Reflectors, r.Node)
			}
		}
		out = append(out, group)
	}
	return out
}

// Hash names what shall be.
func Hash(w *rr.World, chosen Choice) string {
	h := sha256.New()
	fmt.Fprintln(h, w.Topology.UID, w.Exiting(), chosen.Names(), w.Topology.Spec.ClusterID, w.Topology.Spec.Mesh)
	if chosen.Design.Hierarchical() {
		for _, name := range chosen.Names() {
			fmt.Fprintln(h, name, chosen.Groups[name], chosen.Design.IDs[chosen.Groups[name]])
		}
	}
	for _, p := range rr.WantedPeers(w.Topology) {
		fmt.Fprintln(h, p.Name, p.PeerSpec)
	}
	if a := w.Topology.Spec.Adopt; a != nil {
		fmt.Fprintln(h, "adopt", rr.CalicoSelector(a.Nodes), a.BGPPeers)
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}
