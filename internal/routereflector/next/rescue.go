// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package next

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/choose"
)

// rescues lists the writes to clients that come before the first promotion while the mesh is on. The node that is
// promoted leaves the mesh, so a client that only the mesh carries would lose its path to the node. These are the
// clients whose groups have no working reflector; they get sessions with a group that has one. A client of the promoted
// node's own group has its session with that node, and stays.
func rescues(w *rr.World, chosen choose.Choice, promotions []rr.Step) []rr.Step {
	r := w.Roster()
	if !w.Mesh.On || r.Flat || len(promotions) == 0 {
		return nil
	}
	working := w.Working(nil)
	promoted := chosen.Groups[promotions[0].Node()]
	a := newAssignment(w, chosen.Design, r)
	a.sortMembers()
	to, found := a.refuge(promoted)
	if !found {
		return nil
	}
	var out []rr.Step
	for _, n := range a.members {
		served := n.Name == promotions[0].Node() || n.Ready != corev1.ConditionTrue || r.Has(n, promoted) ||
			r.Has(n, to) ||
			slices.ContainsFunc(working, func(reflector rr.Node) bool { return r.Has(n, reflector.Group()) })
		if served {
			continue
		}
		in, joins := a.where(n)
		if in == rr.Nowhere || joins != rr.Nowhere || !a.live[in] {
			out = append(out, a.assign(n, to, "its group has no working reflector"))
			continue
		}
		out = append(out, a.joinTo(n, in, to))
	}
	return out
}

// refuge is the group that takes clients whose own groups have no working reflector: of the wanted groups that have
// one, the one with the fewest clients; if none has, the group whose reflector is made next.
func (a *assignment) refuge(promoted int) (group int, found bool) {
	best := rr.Nowhere
	for _, g := range a.d.Groups {
		if a.works[g] && (best == rr.Nowhere || a.load[g] < a.load[best]) {
			best = g
		}
	}
	if best == rr.Nowhere && promoted != rr.Spines {
		best = promoted
	}
	return best, best != rr.Nowhere
}

// shelter is the group of clients with the fewest of them that has a working reflector apart from those named, if the
// group that takes clients without a label has none; else [nowhere].
func shelter(w *rr.World, but []string) int {
	r, best := w.Roster(), rr.Nowhere
	if r.Flat || w.Exiting() {
		return rr.Nowhere
	}
	load := r.Loads(w)
	for _, n := range w.Working(nil) {
		g := n.Group()
		if g == rr.Spines || slices.Contains(but, n.Name) {
			continue
		}
		if g == r.Open {
			return rr.Nowhere
		}
		if best == rr.Nowhere || load[g] < load[best] {
			best = g
		}
	}
	return best
}
