// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package oldplanner

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// rescues lists the writes to clients that come before the first promotion while the mesh is on. The node that is promoted leaves the mesh, so a client
// that only the mesh carries would lose its path to the node. These are the clients whose groups have no working reflector; they get sessions with a
// group that has one. A client of the promoted node's own group has its session with that node, and stays.
func (w stages) rescues(chosen choice, promotions []Step) []Step {
	r := w.roster()
	if !w.Mesh.On || r.flat || len(promotions) == 0 {
		return nil
	}
	working := w.working(nil)
	promoted := chosen.groups[promotions[0].Node]
	a := newAssignment(w, chosen.design, r)
	to, found := a.refuge(working, promoted)
	if !found {
		return nil
	}
	var out []Step
	for _, n := range a.members {
		served := n.Name == promotions[0].Node || n.Ready != corev1.ConditionTrue || r.has(n, promoted) || r.has(n, to) ||
			slices.ContainsFunc(working, func(reflector Node) bool { return r.has(n, reflector.group()) })
		if served {
			continue
		}
		in, joins := a.where(n)
		if in == nowhere || joins != nowhere || !a.live[in] {
			out = append(out, a.assign(n, to, "its group has no working reflector"))
			continue
		}
		out = append(out, a.joinTo(n, in, to))
	}
	return out
}

// refuge is the group that takes clients whose own groups have no working reflector: of the wanted groups that have one, the one with the fewest
// clients; if none has, the group whose reflector is made next.
func (a *assignment) refuge(working []Node, promoted int) (group int, found bool) {
	best := nowhere
	for _, g := range a.d.groups {
		if len(groupOf(working, g)) > 0 && (best == nowhere || a.load[g] < a.load[best]) {
			best = g
		}
	}
	if best == nowhere && promoted != spines {
		best = promoted
	}
	return best, best != nowhere
}

// shelter is the group of clients with the fewest of them that has a working reflector apart from those named, if the group that takes clients without a
// label has none; else [nowhere].
func (w stages) shelter(but []string) int {
	r, best := w.roster(), nowhere
	if r.flat || w.exiting() {
		return nowhere
	}
	load := r.loads(*w.World)
	for _, n := range w.working(nil) {
		g := n.group()
		if g == spines || slices.Contains(but, n.Name) {
			continue
		}
		if g == r.open {
			return nowhere
		}
		if best == nowhere || load[g] < load[best] {
			best = g
		}
	}
	return best
}
