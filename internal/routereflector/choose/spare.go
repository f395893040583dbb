// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package choose

import (
	"cmp"
	"maps"
	"slices"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/design"
	"github.com/mooring-dev/mooring/internal/routereflector/health"
	"github.com/mooring-dev/mooring/internal/routereflector/rank"
)

// A spare is the node that would be chosen if a reflector was not there. So it is as good as any other choice, and
// stays when the reflector is demoted.

// covers are the spares in use, or wanted, by the group of the lost reflector that keeps its role until it is given up.
func (f field) covers(w *rr.World) map[int]v1alpha1.Spare {
	out := health.Covers(w)
	maps.DeleteFunc(out, func(g int, s v1alpha1.Spare) bool { return !isAmong(f.staying(w, g), s.Reflector) })
	return out
}

// staying are the reflectors of a group that nothing speaks against.
func (f field) staying(w *rr.World, g int) []rank.Candidate {
	return slices.DeleteFunc(slices.Clone(f.incumbents[g]),
		func(c rank.Candidate) bool { return c.Suits != rank.Fit || health.GivenUp(w, c.Node) })
}

// pickAlongside picks the reflectors of a group alongside the spare in use: it comes in addition to the lost one whose
// place it takes, so it is nobody else's successor. Where the lost one has returned, or is beyond those that the group
// shall have, the spare is one of these.
func pickAlongside(w *rr.World, d design.Design, g int, from []rank.Candidate, s v1alpha1.Spare) []string {
	others := slices.DeleteFunc(slices.Clone(from), func(c rank.Candidate) bool { return c.Node.Name == s.Node })
	if s.Node != "" && s.Until == nil {
		if picked := pickGroup(w, d, g, others, nil); slices.Contains(picked, s.Reflector) {
			return picked
		}
	}
	return pickGroup(w, d, g, from, nil)
}

// cover adds the spares of lost reflectors. Nobody else of their groups that nothing speaks against loses its role
// meanwhile.
func (f field) cover(w *rr.World, covers map[int]v1alpha1.Spare, out *Choice) {
	for _, g := range PromotionOrder(w, out.Design) {
		s, covered := covers[g]
		if !covered {
			continue
		}
		stay := f.staying(w, g)
		if s.Node = f.spareFor(w, out, s, stay); s.Node == "" {
			continue
		}
		for _, c := range stay {
			out.Groups[c.Node.Name] = g
		}
		n, _ := w.Node(s.Node)
		out.Groups[s.Node], s.Zone = g, w.Zone(&n)
		out.Spares = append(out.Spares, s)
	}
}

// spareFor is the node that takes the place of a lost reflector, "" for none: the one that does already, another
// reflector that the group has beyond those that it shall have, or the node that would be chosen if the reflector was
// not there.
func (f field) spareFor(w *rr.World, out *Choice, s v1alpha1.Spare, stay []rank.Candidate) string {
	if isAmong(stay, s.Node) {
		return s.Node
	}
	lost, _ := w.Node(s.Reflector)
	g, missing, working := lost.Group(), 0, ""
	for name, of := range out.Groups { // those that are joining will work
		missing += rr.Count(of == g && isAmong(f.incumbents[g], name))
	}
	for _, c := range stay {
		if c.Node.Name == s.Reflector || !c.Node.Lives() {
			continue
		}
		missing--
		if _, is := out.Groups[c.Node.Name]; working == "" || !is {
			working = c.Node.Name
		}
	}
	if missing <= 0 && working != "" {
		return working
	}
	return f.successor(w, out, &lost, g)
}

func isAmong(all []rank.Candidate, node string) bool {
	return slices.ContainsFunc(all, func(c rank.Candidate) bool { return c.Node.Name == node })
}

// spares adds the nodes that would take the place of reflectors: one for each zone of a group that has one, as many as
// there may be, those first that could take the place of most. While roles change they stay as they are.
func (f field) spares(w *rr.World, out *Choice) {
	if f.joins(out) { // one that has been chosen as a spare may be among them
		for _, s := range w.Topology.Status.Spares {
			n, exists := w.Node(s.Node)
			if exists && !n.Marked(&w.Topology) && s.Reflector == "" && out.covers(s.Node) == "" &&
				len(out.Spares) < w.Spares() {
				out.Spares = append(out.Spares, s)
			}
		}
	} else {
		f.chooseSpares(w, out)
	}
	slices.SortFunc(out.Spares, func(a, b v1alpha1.Spare) int { return cmp.Compare(a.Node, b.Node) })
}

// joins reports that somebody shall become a reflector who is no spare in use.
func (f field) joins(out *Choice) bool {
	for name, g := range out.Groups {
		if out.covers(name) == "" && !isAmong(f.incumbents[g], name) {
			return true
		}
	}
	return false
}

// chooseSpares chooses them from those that are no reflectors.
func (f field) chooseSpares(w *rr.World, out *Choice) {
	places, zones := map[string]int{}, map[string]bool{}
	for _, name := range out.Names() {
		n, _ := w.Node(name)
		g := out.Groups[name]
		in := rr.GroupName(g) + "\x00" + w.Zone(&n)
		covered := slices.ContainsFunc(out.Spares, func(s v1alpha1.Spare) bool { return out.Groups[s.Reflector] == g })
		if zones[in] || covered || !n.IsReflectorOf(&w.Topology) {
			continue
		}
		zones[in] = true
		if spare := f.successor(w, out, &n, g); spare != "" {
			places[spare]++
		}
	}
	names := rr.SortedKeys(places)
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(places[b], places[a]) })
	for _, name := range names[:max(0, min(len(names), w.Spares()-len(out.Spares)))] {
		n, _ := w.Node(name)
		out.Spares = append(out.Spares, v1alpha1.Spare{Node: name, Zone: w.Zone(&n)})
	}
}

// successor is the node that would be chosen if one reflector was not there, "" for none.
func (f field) successor(w *rr.World, out *Choice, of *rr.Node, g int) string {
	taken := func(c rank.Candidate) bool { _, is := out.Groups[c.Node.Name]; return is }
	elsewhere := func(c rank.Candidate) bool { return taken(c) && out.Groups[c.Node.Name] != g }
	in := slices.DeleteFunc(slices.Clone(f.incumbents[g]), func(c rank.Candidate) bool {
		return c.Node.Name == of.Name || !taken(c)
	})
	for _, c := range f.others.best(2*most(w, out.Design, g), elsewhere) { // those that are joining are among them
		if c.Suits == rank.Fit || taken(c) {
			in = append(in, c)
		}
	}
	for _, name := range pickGroup(w, out.Design, g, in, map[string]bool{of.Name: true}) {
		if _, chosen := out.Groups[name]; !chosen {
			return name
		}
	}
	return ""
}

// covers is the lost reflector whose place a node takes, "" for none.
func (c Choice) covers(node string) string {
	for _, s := range c.Spares {
		if s.Node == node {
			return s.Reflector
		}
	}
	return ""
}

// CoveredBy is the spare that takes the place of a reflector, "" for none.
func (c Choice) CoveredBy(reflector string) string {
	for _, s := range c.Spares {
		if s.Reflector == reflector {
			return s.Node
		}
	}
	return ""
}
