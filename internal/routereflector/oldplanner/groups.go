// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package oldplanner

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

// Groups are numbered. The first is the one that a flat topology consists of, so that a flat topology is a hierarchy of one group without spines.
const (
	// nowhere is the group of a client that no label puts into a group that there is.
	nowhere = -1
	// spines is the number by which the spines are known, which have no clients.
	spines     = 0
	firstGroup = 1
	// maxGroups is how many groups a topology may have: the status has room for 256 reflectors.
	maxGroups = 100
)

const (
	// spineCount is how many spines there are. Between clients of two groups there are redundancy × spineCount × redundancy paths.
	spineCount = 2
	// groupRedundancy is the number of reflectors of a group of a hierarchy where the spec names none.
	groupRedundancy = 2
	// leastGroups is how many groups a hierarchy has.
	leastGroups = 2
)

// spineValue is the value of the group label on spines.
const spineValue = "spine"

// groupName is what a group is called in reports, and as value of labels.
func groupName(g int) string {
	if g == spines {
		return spineValue
	}
	return strconv.Itoa(g)
}

// parseGroup reads the number of a group of clients, [nowhere] if it is none.
func parseGroup(text string) int {
	if text == "" {
		return nowhere // as most nodes of most clusters have it: an error would be allocated for each
	}
	g, err := strconv.Atoi(text)
	if err != nil || g < firstGroup || g > maxGroups || strconv.Itoa(g) != text {
		return nowhere
	}
	return g
}

// group is the group of a node that is a reflector, by what was written on it.
func (n *Node) group() int {
	if n.Written != nil {
		return n.Written.Group
	}
	return n.labeledGroup()
}

// labeledGroup is the group that the labels of a reflector name. The first group's have no label for it, so that a flat topology's reflectors stay as
// they are.
func (n *Node) labeledGroup() int {
	label, has := n.Labels[v1alpha1.GroupLabel]
	switch {
	case !has:
		return firstGroup
	case label == spineValue:
		return spines
	case parseGroup(label) == firstGroup:
		return nowhere
	}
	return parseGroup(label)
}

// hasGroupsID reports whether a marked node has a cluster ID that may be its group's.
func (n *Node) hasGroupsID(t *v1alpha1.RouteReflectorTopology) bool {
	if n.altered() {
		return false
	}
	if n.group() == firstGroup {
		return n.ClusterID == t.Spec.ClusterID
	}
	return n.ClusterID != "" && n.ClusterID != t.Spec.ClusterID
}

// linked reports whether two reflectors have a session: those of a group, and every one with the spines. Reflectors of different groups
// never have, so that the cluster IDs are the vertices of a tree, and paths do not multiply.
func (n *Node) linked(other *Node) bool {
	a, b := n.group(), other.group()
	return a == b || a == spines || b == spines
}

// design is which groups there shall be.
type design struct {
	// groups are those that clients are divided among, sorted. The first is always one of them.
	groups []int
	// ids are the cluster IDs of the groups, and of the spines if there are to be any.
	ids map[int]string
	// redundancy is how many reflectors a group has.
	redundancy int
	// short says why there are fewer groups than the sizing asks for, "" if there are enough.
	short string
}

// hierarchical reports that there is more than one group, and spines between them.
func (d design) hierarchical() bool { return len(d.groups) > 1 }

func (d design) mode() v1alpha1.Mode {
	if d.hierarchical() {
		return v1alpha1.ModeHierarchical
	}
	return v1alpha1.ModeFlat
}

// order lists the groups in the order in which their reflectors are made: each has by then who it needs to reach all others.
func (d design) order() []int {
	if !d.hierarchical() {
		return d.groups
	}
	return slices.Concat([]int{firstGroup, spines}, d.groups[1:])
}

// size is how many reflectors a group shall have.
func (d design) size(g int) int {
	if g == spines {
		return spineCount
	}
	return d.redundancy
}

// design decides which groups there shall be. It depends on nothing but the cluster, so that a new process decides alike.
func (w designs) design() design {
	present := w.presentGroups()
	count, short := w.groupCount(present)
	d := design{groups: w.keptGroups(present, count), redundancy: w.redundancy(), short: short}
	if d.hierarchical() {
		d.redundancy = w.groupRedundancy()
	}
	d.ids = w.clusterIDs(d)
	return d
}

// groupCount is how many groups there shall be: as few as the limit of clients for each reflector allows, and no fewer than there are until a limit
// that is lower by the hysteresis allows it as well. It counts nodes, whatever their role, so that a change of roles changes nothing here.
func (w designs) groupCount(present []int) (count int, short string) {
	mode, sizing := w.Topology.Spec.Mode, w.Topology.Spec.Sizing
	if mode == v1alpha1.ModeFlat || sizing.PerZone != nil || sizing.MaxClientsPerReflector <= 0 {
		return 1, ""
	}
	least := 1
	if mode == v1alpha1.ModeHierarchical {
		least = leastGroups
	}
	now := max(1, len(present))
	if _, begun := w.peer(w.peerName(uplinksPeer)); begun {
		now = max(now, leastGroups)
	}
	limit, nodes := int(sizing.MaxClientsPerReflector), w.memberCount()
	if w.keepsShape() {
		return w.keptCount(now, w.groupsFor(nodes, limit, least))
	}
	lower := limit
	if h := sizing.HysteresisPercent; h != nil {
		lower = max(1, limit*(100-int(*h))/100)
	}
	needed := w.groupsFor(nodes, limit, least)
	count = min(max(now, needed), max(w.groupsFor(nodes, lower, least), needed))
	if count <= now {
		return count, ""
	}
	// There may be too few nodes that may be reflectors. What there is already stays.
	able := len(slices.DeleteFunc(w.eligible(), func(c candidate) bool { return c.suits != fit && c.suits != retiring }))
	possible := (able - spineCount) / w.groupRedundancy()
	if possible >= count {
		return count, ""
	}
	possible = max(possible, now)
	return possible, fmt.Sprintf("%d nodes ask for %d groups of %d reflectors each and %d spines, and only %d nodes may be reflectors",
		nodes, count, w.groupRedundancy(), spineCount, able)
}

// keepsShape reports that a topology neither becomes a hierarchy nor ceases to be one for now: the observed state is not trusted, no
// reflector lives, or reflectors are being taken over, into a flat topology.
func (w designs) keepsShape() bool {
	return w.takesOver() || w.emergency() || w.rescuing() || w.doubt() != nil
}

// keptCount is how many groups there shall be while the shape stays, given how many there are and how many are needed.
func (w designs) keptCount(now, needed int) (count int, short string) {
	switch {
	case w.takesOver() && needed > now:
		return now, fmt.Sprintf("%d nodes ask for %d groups, and the topology stays flat as long as there is something left that spec.adopt names", w.memberCount(), needed)
	case w.emergency() && now > 1:
		return max(now, needed), "" // groups whose Nodes are all gone have clients still
	}
	return now, ""
}

// groupsFor is the least number of groups with which no reflector has more than limit clients.
func (w designs) groupsFor(nodes, limit, least int) int {
	for count := least; count < maxGroups; count++ {
		reflectors := w.redundancy()
		if count > 1 {
			reflectors = count*w.groupRedundancy() + spineCount
		}
		if nodes-reflectors <= count*limit {
			return count
		}
	}
	return maxGroups
}

// keptGroups are the groups that stay, and new ones with the lowest free numbers. Those with the fewest clients go, never the first.
func (w designs) keptGroups(present []int, count int) []int {
	kept := slices.DeleteFunc(slices.Clone(present), func(g int) bool { return g == firstGroup })
	if surplus := len(kept) + 1 - count; surplus > 0 {
		load := w.roster().loads(*w.World)
		slices.SortStableFunc(kept, func(a, b int) int { return cmp.Or(cmp.Compare(load[b], load[a]), cmp.Compare(a, b)) })
		kept = kept[:len(kept)-surplus]
	}
	kept = append(kept, firstGroup)
	for g := firstGroup + 1; len(kept) < count; g++ {
		if !slices.Contains(kept, g) {
			kept = append(kept, g)
		}
	}
	slices.Sort(kept)
	return kept
}

// clusterIDs are the IDs of the design's groups: the first has the spec's, others keep what their reflectors have, and new ones take the first free
// addresses of the range, the spines before the groups. An ID that any node has, or another topology wants, is not free.
func (w designs) clusterIDs(d design) map[int]string {
	ids := map[int]string{firstGroup: w.Topology.Spec.ClusterID}
	if !d.hierarchical() {
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
		g := n.group()
		if n.isReflectorOf(&w.Topology) && g != firstGroup && (lowest[g] == "" || n.Name < lowest[g]) {
			lowest[g], ids[g] = n.Name, n.ClusterID
		}
	}
	next := w.firstID()
	for _, g := range d.order() {
		if ids[g] != "" {
			continue
		}
		for next.IsValid() && taken[next.String()] {
			next = w.idAfter(next)
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
func (w designs) idRange() netip.Prefix {
	p, err := netip.ParsePrefix(w.Topology.Spec.ClusterIDRange)
	if err != nil || !p.Addr().Is4() {
		return netip.Prefix{}
	}
	return p.Masked()
}

// firstID is the first address of the range after its network address; idAfter is the one after another, the zero Addr behind the end.
func (w designs) firstID() netip.Addr {
	if p := w.idRange(); p.IsValid() {
		return w.idAfter(p.Addr())
	}
	return netip.Addr{}
}

func (w designs) idAfter(a netip.Addr) netip.Addr {
	if next := a.Next(); next.IsValid() && w.idRange().Contains(next) {
		return next
	}
	return netip.Addr{}
}

// groupTitle is what a group is called in reports: that of a flat topology as the topology.
func (w designs) groupTitle(d design, g int) string {
	if g == firstGroup && !d.hierarchical() {
		return w.Topology.Name
	}
	return groupName(g)
}
