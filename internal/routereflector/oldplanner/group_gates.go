// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package oldplanner

import (
	"fmt"
	"slices"
)

// leaveWaits says what is missing until a client can leave the group that it moves from: every working reflector of the group that it moves
// to must have said that it has sessions with the client, with the others of its group and with the spines. "" if nothing is.
func (w gates) leaveWaits(step Step) string {
	client, _ := w.node(step.Node)
	reflectors := w.joined(client)
	if len(reflectors) == 0 {
		return fmt.Sprintf("no reflector of the group that %s moves to is working", client.Name)
	}
	for i := range reflectors {
		r := &reflectors[i]
		s, seen := w.sighting(r.Name)
		if !seen {
			return fmt.Sprintf("reflector %s has not reported its sessions", r.Name)
		}
		missing := w.missing(s.Established, *r, func(n Node) bool { return n.Name == client.Name || n.isReflectorOf(&w.Topology) && r.linked(&n) })
		if len(missing) > 0 {
			return fmt.Sprintf("reflector %s has no Established session with %s", r.Name, names(missing))
		}
	}
	return ""
}

// joined lists the working reflectors of the group that a client moves to.
func (w gates) joined(client Node) []Node {
	_, to := client.membership()
	return groupOf(w.working(nil), to)
}

// movedTo lists the working reflectors of all groups that clients move to.
func (w gates) movedTo() []Node {
	var groups []int
	for i := range w.Nodes {
		if n := &w.Nodes[i]; n.isClient(&w.Topology) {
			if _, to := n.membership(); to != nowhere && !slices.Contains(groups, to) {
				groups = append(groups, to)
			}
		}
	}
	return groupOf(w.working(nil), groups...)
}

// concerned lists the working reflectors that a demotion concerns: those that the leaving one is linked with, and those of the group that it
// will be a client of. In a flat topology that is all.
func (w gates) concerned(step Step, reflectors []Reflector) []Node {
	stay := w.working(inRole(reflectors, RoleLeaving))
	leaving, exists := w.node(step.Node)
	if !exists {
		return stay
	}
	open := w.roster().open
	return slices.DeleteFunc(stay, func(n Node) bool { return !n.linked(&leaving) && n.group() != open })
}
