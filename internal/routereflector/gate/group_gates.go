// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"slices"

	rr "github.com/mooring-dev/mooring/internal/routereflector"
)

// movedTo lists the working reflectors of all groups that clients move to.
func movedTo(w *rr.World) []rr.Node {
	var groups []int
	for i := range w.Nodes {
		if n := &w.Nodes[i]; n.IsClient(&w.Topology) {
			if _, to := n.Membership(); to != rr.Nowhere && !slices.Contains(groups, to) {
				groups = append(groups, to)
			}
		}
	}
	return rr.GroupOf(w.Working(nil), groups...)
}

// scatters reports that a step ends that the open group gathers all clients: those of other groups lose their sessions with
// its working reflectors, and must have those with their own.
func scatters(w *rr.World, step rr.EnsurePeer) bool {
	r := w.Roster()
	return r.Gathers && step.Peer.Name == w.PeerName(rr.ClientsPeer) && len(rr.GroupOf(w.Working(nil), r.Open)) > 0
}

// concerned lists the working reflectors that a demotion concerns: those that the leaving one is linked with, and those
// of the group that it will be a client of. In a flat topology that is all.
func concerned(w *rr.World, node string, reflectors []rr.Reflector) []rr.Node {
	stay := w.Working(rr.InRole(reflectors, rr.RoleLeaving))
	leaving, exists := w.Node(node)
	if !exists {
		return stay
	}
	open := w.Roster().Open
	return slices.DeleteFunc(stay, func(n rr.Node) bool { return !n.Linked(&leaving) && n.Group() != open })
}
