// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package next

import (
	"fmt"

	rr "github.com/mooring-dev/mooring/internal/routereflector"
)

// LeaveWaits says what is missing until a client can leave the group that it moves from: every working reflector of the
// group that it moves to must have said that it has sessions with the client, with the others of its group and with the
// spines. "" if nothing is.
func LeaveWaits(w *rr.World, step rr.Leave) string {
	client, _ := w.Node(step.Name)
	reflectors := Joined(w, client)
	if len(reflectors) == 0 {
		return fmt.Sprintf(noneWorks, client.Name)
	}
	for i := range reflectors {
		r := &reflectors[i]
		s, seen := w.Sighting(r.Name)
		if !seen {
			return fmt.Sprintf("reflector %s has not reported its sessions", r.Name)
		}
		missing := w.Missing(s.Established, *r, func(n rr.Node) bool {
			return n.Name == client.Name || n.IsReflectorOf(&w.Topology) && r.Linked(&n)
		})
		if len(missing) > 0 {
			return fmt.Sprintf("reflector %s has no Established session with %s", r.Name, rr.Names(missing))
		}
	}
	return ""
}

// Held says why clients cannot end their moves: no reflector of the group that one moves to works, or none of the
// spines that link it with the others; "" if they can. What would cut a client off waits with them, until the
// reflectors come back, or others take their place. While the open group gathers all clients, those of other groups are
// on the move to their own.
func Held(w *rr.World) string {
	gathers, working, moving := w.Roster().Gathers, w.Working(nil), false
	for i := range w.Nodes {
		n := &w.Nodes[i]
		in, to := n.Membership()
		if to == rr.Nowhere && gathers && !n.Unlabeled() {
			to = in
		}
		if to == rr.Nowhere || !n.IsClient(&w.Topology) {
			continue
		}
		if moving = true; len(rr.GroupOf(working, to)) == 0 {
			return fmt.Sprintf(noneWorks, n.Name)
		}
	}
	linked := func(n *rr.Node) bool { return n.IsReflectorOf(&w.Topology) && n.Group() == rr.Spines }
	if moving && (gathers || w.FirstNode(linked) != "") && len(rr.GroupOf(working, rr.Spines)) == 0 {
		return "no reflector of group " + rr.GroupName(rr.Spines) + " is working, which links the groups"
	}
	return ""
}

// noneWorks says of a client that no reflector of the group that it moves to works.
const noneWorks = "no reflector of the group that %s moves to is working"

// Joined lists the working reflectors of the group that a client moves to.
func Joined(w *rr.World, client rr.Node) []rr.Node {
	_, to := client.Membership()
	return rr.GroupOf(w.Working(nil), to)
}
