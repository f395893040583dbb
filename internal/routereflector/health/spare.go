// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"cmp"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
)

// A false alarm that makes one more node a reflector costs that node's own Pods a second, and nobody else. One that
// takes a role away costs more. So the two have times of their own:
//
//	lost ── failure.promoteAfter ── its spare is promoted ── the grace period is over ── the lost one is demoted
//	                                 └── it returns ── both stay for failure.stabilization, a minute at least ── one is demoted
//
// While the mesh is on no spare is promoted: it carries the routes, and a node that is promoted leaves it.
//
// At most one spare of a group is in use, so that however often reflectors are lost and return, a group has one
// promotion and one demotion in that time.

// Covers lists, by group, the lost reflectors that keep their roles while spares take their places: of each the entry
// for the status, whose Node is "" as long as no spare has been chosen.
func Covers(w *rr.World) map[int]v1alpha1.Spare {
	out := map[int]v1alpha1.Spare{}
	if w.Exiting() || w.Spares() == 0 {
		return out
	}
	for _, s := range w.Topology.Status.Spares {
		if n, exists := w.Node(s.Reflector); exists && len(out) < w.Spares() {
			if s, stays := cover(w, &n, s); stays {
				out[n.Group()] = s
			}
		}
	}
	if w.Mesh.On {
		return out
	}
	for _, t := range Troubles(w) {
		n, _ := w.Node(t.Node)
		given := t.Gone(w.Now) || GivenUp(w, &n) // then it has a successor
		if _, has := out[n.Group()]; !given && !has && len(out) < w.Spares() && t.NeedsSpare(w.Now, w.PromoteAfter()) {
			out[n.Group()] = v1alpha1.Spare{Reflector: t.Node, Since: new(rr.Second(w.Now))}
		}
	}
	return out
}

// cover is what becomes of an entry of the status about a reflector, if the entry stays.
func cover(w *rr.World, n *rr.Node, s v1alpha1.Spare) (entry v1alpha1.Spare, stays bool) {
	t, troubled := trouble(w, n)
	spare, exists := w.Node(s.Node)
	promoted := exists && spare.Marked(&w.Topology)
	switch {
	case !n.IsReflectorOf(&w.Topology), GivenUp(w, n):
		return s, false
	case troubled:
		s.Until = nil
		return s, !t.Gone(w.Now) && (promoted || t.NeedsSpare(w.Now, w.PromoteAfter()))
	case !promoted:
		return s, false
	case s.Until == nil:
		s.Until = new(rr.Second(w.Now))
	}
	return s, w.Now.Sub(s.Until.Time) < max(w.Stabilization(), cmp.Or(w.MeshStays, MeshStays))
}
