// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package design

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/health"
	"github.com/mooring-dev/mooring/internal/routereflector/rank"
)

// Design is which groups there shall be.
type Design struct {
	// Groups are those that clients are divided among, sorted. The first is always one of them.
	Groups []int
	// IDs are the cluster IDs of the groups, and of the spines if there are to be any.
	IDs map[int]string
	// redundancy is how many reflectors a group has.
	redundancy int
	// Short says why there are fewer groups than the sizing asks for, "" if there are enough.
	Short string
}

// Hierarchical reports that there is more than one group, and spines between them.
func (d Design) Hierarchical() bool { return len(d.Groups) > 1 }

// Mode is the mode of the topology that the design is of.
func (d Design) Mode() v1alpha1.Mode {
	if d.Hierarchical() {
		return v1alpha1.ModeHierarchical
	}
	return v1alpha1.ModeFlat
}

// Order lists the groups in the order in which their reflectors are made: each has by then who it needs to reach all
// others.
func (d Design) Order() []int {
	if !d.Hierarchical() {
		return d.Groups
	}
	return slices.Concat([]int{rr.FirstGroup, rr.Spines}, d.Groups[1:])
}

// Size is how many reflectors a group shall have.
func (d Design) Size(g int) int {
	if g == rr.Spines {
		return rr.SpineCount
	}
	return d.redundancy
}

// Decide decides which groups there shall be. It depends on nothing but the cluster, so that a new process decides
// alike.
func Decide(w *rr.World) Design {
	present := w.PresentGroups()
	count, short := groupCount(w, present)
	d := Design{Groups: keptGroups(w, present, count), redundancy: w.Redundancy(), Short: short}
	if d.Hierarchical() {
		d.redundancy = w.GroupRedundancy()
	}
	d.IDs = clusterIDs(w, d)
	return d
}

// groupCount is how many groups there shall be: as few as the limit of clients for each reflector allows, and no fewer
// than there are until a limit that is lower by the hysteresis allows it as well. It counts nodes, whatever their role,
// so that a change of roles changes nothing here.
func groupCount(w *rr.World, present []int) (count int, short string) {
	mode, sizing := w.Topology.Spec.Mode, w.Topology.Spec.Sizing
	if mode == v1alpha1.ModeFlat || sizing.PerZone != nil || sizing.MaxClientsPerReflector <= 0 {
		return 1, ""
	}
	least := 1
	if mode == v1alpha1.ModeHierarchical {
		least = rr.LeastGroups
	}
	now := max(1, len(present))
	if _, begun := w.Peer(w.PeerName(rr.UplinksPeer)); begun {
		now = max(now, rr.LeastGroups)
	}
	limit, nodes := int(sizing.MaxClientsPerReflector), w.MemberCount()
	if KeepsShape(w) {
		return keptCount(w, now, groupsFor(w, nodes, limit, least))
	}
	lower := limit
	if h := sizing.HysteresisPercent; h != nil {
		lower = max(1, limit*(100-int(*h))/100)
	}
	needed := groupsFor(w, nodes, limit, least)
	count = min(max(now, needed), max(groupsFor(w, nodes, lower, least), needed))
	if count <= now {
		return count, ""
	}
	// There may be too few nodes that may be reflectors. What there is already stays.
	able := 0
	for _, c := range rank.Eligible(w) {
		able += rr.Count(c.Suits == rank.Fit || c.Suits == rank.Retiring)
	}
	possible := (able - rr.SpineCount) / w.GroupRedundancy()
	if possible >= count {
		return count, ""
	}
	possible = max(possible, now)
	return possible, fmt.Sprintf(
		"%d nodes ask for %d groups of %d reflectors each and %d spines, and only %d nodes may be reflectors", nodes,
		count, w.GroupRedundancy(), rr.SpineCount, able)
}

// KeepsShape reports that a topology neither becomes a hierarchy nor ceases to be one for now: the observed state is
// not trusted, no reflector lives, or reflectors are being taken over, into a flat topology.
func KeepsShape(w *rr.World) bool {
	return w.TakesOver() || health.Emergency(w) || health.Rescuing(w) || health.Doubt(w) != nil
}

// keptCount is how many groups there shall be while the shape stays, given how many there are and how many are needed.
func keptCount(w *rr.World, now, needed int) (count int, short string) {
	switch {
	case w.TakesOver() && needed > now:
		return now, fmt.Sprintf(
			"%d nodes ask for %d groups, and the topology stays flat as long as there is something left that spec.adopt names",
			w.MemberCount(), needed)
	case health.Emergency(w) && now > 1:
		return max(now, needed), "" // groups whose Nodes are all gone have clients still
	}
	return now, ""
}

// groupsFor is the least number of groups with which no reflector has more than limit clients.
func groupsFor(w *rr.World, nodes, limit, least int) int {
	for count := least; count < rr.MaxGroups; count++ {
		reflectors := w.Redundancy()
		if count > 1 {
			reflectors = count*w.GroupRedundancy() + rr.SpineCount
		}
		if nodes-reflectors <= count*limit {
			return count
		}
	}
	return rr.MaxGroups
}

// keptGroups are the groups that stay, and new ones with the lowest free numbers. Those with the fewest clients go,
// never the first.
func keptGroups(w *rr.World, present []int, count int) []int {
	kept := slices.DeleteFunc(slices.Clone(present), func(g int) bool { return g == rr.FirstGroup })
	if surplus := len(kept) + 1 - count; surplus > 0 {
		load := w.Roster().Loads(w)
		slices.SortStableFunc(kept,
			func(a, b int) int { return cmp.Or(cmp.Compare(load[b], load[a]), cmp.Compare(a, b)) })
		kept = kept[:len(kept)-surplus]
	}
	kept = append(kept, rr.FirstGroup)
	for g := rr.FirstGroup + 1; len(kept) < count; g++ {
		if !slices.Contains(kept, g) {
			kept = append(kept, g)
		}
	}
	slices.Sort(kept)
	return kept
}

// clusterIDs are the IDs of the design's groups: the first has the spec's, others keep what their reflectors have, and
// new ones take the first free addresses of the range, the spines before the groups. An ID that any node has, or
// another topology wants, is not free.
func clusterIDs(w *rr.World, d Design) map[int]string {
	ids := map[int]string{rr.FirstGroup: w.Topology.Spec.ClusterID}
	if !d.Hierarchical() {
		return ids
	}
	taken := map[string]bool{w.Topology.Spec.ClusterID: true}
	for _, o := range w.Others {
		taken[o.Spec.ClusterID] = true
	}
	lowest := map[int]string{} // the first by name decides for its group
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if n.ClusterID == "" {
			continue
		}
		taken[n.ClusterID] = true
		g := n.Group()
		if n.IsReflectorOf(&w.Topology) && g != rr.FirstGroup && (lowest[g] == "" || n.Name < lowest[g]) {
			lowest[g], ids[g] = n.Name, n.ClusterID
		}
	}
	next := firstID(w)
	for _, g := range d.Order() {
		if ids[g] != "" {
			continue
		}
		for next.IsValid() && taken[next.String()] {
			next = idAfter(w, next)
		}
		if !next.IsValid() {
			return ids
		}
		ids[g] = next.String()
		taken[ids[g]] = true
	}
	return ids
}

// idRange is the range of IDs, the zero Prefix if the spec's cannot be read.
func idRange(w *rr.World) netip.Prefix {
	p, err := netip.ParsePrefix(w.Topology.Spec.ClusterIDRange)
	if err != nil || !p.Addr().Is4() {
		return netip.Prefix{}
	}
	return p.Masked()
}

// firstID is the first address of the range after its network address; idAfter is the one after another, the zero Addr
// behind the end.
func firstID(w *rr.World) netip.Addr {
	if p := idRange(w); p.IsValid() {
		return idAfter(w, p.Addr())
	}
	return netip.Addr{}
}

func idAfter(w *rr.World, a netip.Addr) netip.Addr {
	if next := a.Next(); next.IsValid() && idRange(w).Contains(next) {
		return next
	}
	return netip.Addr{}
}

// Title is what a group is called in reports: that of a flat topology as the topology.
func Title(w *rr.World, d Design, g int) string {
	if g == rr.FirstGroup && !d.Hierarchical() {
		return w.Topology.Name
	}
	return rr.GroupName(g)
}
