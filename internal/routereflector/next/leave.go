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
func LeaveWaits(w *rr.World, step rr.Step) string {
	client, _ := w.Node(step.Node)
	reflectors := Joined(w, client)
	if len(reflectors) == 0 {
		return fmt.Sprintf("no reflector of the group that %s moves to is working", client.Name)
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

// Joined lists the working reflectors of the group that a client moves to.
func Joined(w *rr.World, client rr.Node) []rr.Node {
	_, to := client.Membership()
	return rr.GroupOf(w.Working(nil), to)
}
