// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"cmp"
	"fmt"
	"slices"

	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/health"
	"github.com/mooring-dev/mooring/internal/routereflector/next"

	"time"
)

// meshSample is how many clients must see the whole mesh before a reflector goes for good.
const meshSample = 3

// Wait says what a step has to wait for, "" if it can be done now.
func Wait(w *rr.World, step rr.Step, reflectors []rr.Reflector) string {
	switch step := step.(type) {
	case rr.RetirePeer:
		return unadopted(w, reflectors)
	case rr.Promote:
		return promotionWaits(w, step.Name)
	case rr.Demote:
		if w.Abandons() {
			return ""
		}
		if GatedByMesh(w) {
			return meshUnsettled(w)
		}
		return unsettled(w, concerned(w, step.Name, reflectors))
	case rr.Leave:
		return next.LeaveWaits(w, step)
	case rr.MeshOff:
		if joining := rr.InRole(reflectors, rr.RoleJoining); len(joining) > 0 {
			return fmt.Sprintf("%s is not a reflector yet", joining[0].Node)
		}
		if why := unsettled(w, w.Working(nil)); why != "" {
			return why
		}
		return cmp.Or(Unrouted(w), MeshStays(w))
	case rr.EnsurePeer:
		if scatters(w, step) {
			return unsettled(w, w.Working(nil))
		}
	case rr.RemovePeer, rr.MeshOn, rr.Adopt, rr.Assign, rr.Join, rr.Release:
		// these take nothing away that is in use
	}
	return ""
}

// promotionWaits is Wait of a promotion. At most one reflector is without its sessions at any time: the one that has just
// been made.
func promotionWaits(w *rr.World, node string) string {
	switch {
	case w.Restores(node):
		return ""
	case w.IsSpare(node) && !w.Mesh.On:
		return unseenSpare(w, node)
	}
	return cmp.Or(unsettled(w, w.Working(nil)), silentCandidate(w, node))
}

// unseenSpare says that no reflector of a spare has reported yet whether it has a session with it. Nothing else is
// waited for: a client passes nothing on, so that its promotion resets nobody's sessions but its own.
func unseenSpare(w *rr.World, node string) string {
	n, _ := w.Node(node)
	clients := w.Roster()
	own := slices.DeleteFunc(w.Working(nil), func(r rr.Node) bool {
		return !clients.Has(&n, r.Group()) || !w.CouldMeet(&n, &r)
	})
	for i := range own {
		if s, seen := w.Sighting(own[i].Name); seen && (s.Established[n.IPv4] || s.Established[n.IPv6]) {
			return ""
		}
	}
	if len(own) == 0 || !n.IsClient(&w.Topology) {
		return ""
	}
	return cmp.Or(silentCandidate(w, node), fmt.Sprintf(
		"no reflector has reported yet whether it has an Established session with %s, which is to become one", n.Name))
}

// silentCandidate says that no reflector has a session with the node that is to become one: its BIRD may be dead. After
// a while the node is named as a silent client, and another is chosen.
func silentCandidate(w *rr.World, node string) string {
	n, exists := w.Node(node)
	clients := w.Roster()
	if !exists || w.Mesh.On || !n.IsClient(&w.Topology) {
		return ""
	}
	own := slices.DeleteFunc(w.Working(nil), func(r rr.Node) bool {
		return !clients.Has(&n, r.Group()) || !w.CouldMeet(&n, &r)
	})
	if len(own) == 0 || !w.CutOff(n, clients, own) {
		return ""
	}
	return fmt.Sprintf("no reflector has an Established session with %s, which is to become one", n.Name)
}

// unproven says what is missing until every reflector has been seen with its sessions after the last step, "" if
// nothing is.
func unproven(w *rr.World) string {
	silent := w.FirstNode(func(n *rr.Node) bool {
		return n.IsReflectorOf(&w.Topology) && (!n.Speaks() || !n.Lives())
	})
	if silent != "" {
		return fmt.Sprintf("reflector %s is not Ready or lost by its witnesses, and its sessions have not been seen",
			silent)
	}
	return unsettled(w, w.Working(nil))
}

// unsettled says which of the reflectors has not been seen with all its sessions, "" if all have. A client, of whatever
// AS, that has no session with any working reflector of its own, one that leaves included, while the mesh is off holds
// nothing up: it is cut off already, and its trouble is its own.
func unsettled(w *rr.World, reflectors []rr.Node) string {
	clients, working := w.Roster(), w.Working(nil)
	for i := range reflectors {
		r := &reflectors[i]
		s, seen := w.Sighting(r.Name)
		if !seen {
			return fmt.Sprintf("reflector %s has not reported its sessions", r.Name)
		}
		missing := w.Missing(s.Established, *r, func(n rr.Node) bool { return clients.Expects(r, &n) })
		missing = slices.DeleteFunc(missing, func(n rr.Node) bool {
			return !w.Mesh.On && n.IsSelected(&w.Topology) && w.CutOff(n, clients, working)
		})
		if len(missing) > 0 {
			return fmt.Sprintf("reflector %s has no Established session with %s", r.Name, rr.Names(missing))
		}
	}
	return ""
}

// meshUnsettled says what is missing until a sample of clients has been seen with a session to every other node of the
// mesh.
func meshUnsettled(w *rr.World) string {
	if !w.Mesh.On {
		return "the node-to-node mesh is off"
	}
	inMesh := func(n rr.Node) bool { return n.RunsBGP() && n.ClusterID == "" }
	members, full := 0, 0
	for _, n := range w.Nodes {
		if !inMesh(n) || !n.Lives() {
			continue
		}
		members++
		s, seen := w.Sighting(n.Name)
		if !seen {
			continue
		}
		if missing := w.Missing(s.Mesh, n, inMesh); len(missing) > 0 {
			return fmt.Sprintf("%s has no Established mesh session with %s", n.Name, rr.Names(missing))
		}
		full++
	}
	if want := min(meshSample, members); full < want {
		return fmt.Sprintf("%d of %d sampled nodes have reported that their mesh sessions are Established", full, want)
	}
	return ""
}

// atOnce counts the first steps that are done in one round: in an emergency all that add something. The one that is
// chosen first may be ill as well, and to wait for it would prolong the outage. Otherwise it is one, but for adopted
// BGPPeers that go and for clients that wait for nothing.
func atOnce(w *rr.World, p rr.Plan) int {
	one := min(len(p.Steps), 1)
	if !health.Emergency(w) && !health.Rescuing(w) || one > 0 && rr.Is[rr.MeshOn](p.Steps[0]) {
		retired := min(leading(p.Steps, rr.Is[rr.RetirePeer]), retireAtOnce)
		// Clients are independent of each other: a client passes nothing on. A plan lists no more than
		// [maxClientSteps] of them.
		return max(retired, one, leading(p.Steps, func(s rr.Step) bool {
			return rr.OfClient(s) && Wait(w, s, p.Reflectors) == ""
		}))
	}
	return max(one, leading(p.Steps, func(s rr.Step) bool { return rr.Is[rr.EnsurePeer](s) || rr.Is[rr.Promote](s) }))
}

// leading counts the first steps of which something holds.
func leading(steps []rr.Step, holds func(rr.Step) bool) int {
	for i, s := range steps {
		if !holds(s) {
			return i
		}
	}
	return len(steps)
}

// Decide says what the first step waits for, or the end of the last one, and whose word is needed for that.
func Decide(w *rr.World, p *rr.Plan) {
	p.AtOnce = atOnce(w, *p)
	switch {
	case len(p.Steps) > 0:
		p.Waiting = Wait(w, p.Steps[0], p.Reflectors)
		p.Lasting = p.Waiting != "" && rr.Is[rr.MeshOff](p.Steps[0]) && p.Waiting == MeshStays(w)
	case len(p.Refusals) > 0:
	case next.Held(w) != "":
		p.Waiting = next.Held(w)
	case w.Unproven && !w.Exiting():
		p.Waiting = unproven(w)
	}
	p.Witnesses, p.Samples = witnesses(w, *p)
}

// retireAtOnce is how many BGPPeers that a topology has adopted are deleted in one round. An old cluster has three for
// each node, and no session changes with any of them.
const retireAtOnce = 100

// unadopted says what is missing until BGPPeers that spec.adopt names can go: a live reflector, and the sessions of
// all.
func unadopted(w *rr.World, reflectors []rr.Reflector) string {
	working := w.Working(nil)
	if joining := rr.InRole(reflectors, rr.RoleJoining); len(joining) > 0 {
		return joining[0].Node + " is not a reflector yet"
	}
	if len(working) == 0 {
		return "no reflector of this topology is Ready"
	}
	return unsettled(w, working)
}

// MeshStays says until when the mesh stays on after an emergency, "" if it need not: every reflector must have been
// Ready, and the mesh on, for [MeshStays]. One that may still come back within its grace period is waited for, no
// longer than that.
func MeshStays(w *rr.World) string {
	if !health.Rescuing(w) {
		return ""
	}
	for _, t := range health.Troubles(w) {
		if w.Now.Before(t.Until) {
			return fmt.Sprintf(
				"all reflectors were lost, and the mesh stays on until %s is Ready again or, at %s, its grace period is over",
				t.Node, t.Until.UTC().Format(time.RFC3339))
		}
	}
	from := w.Topology.Status.Emergency.Since.Time
	for _, r := range w.Working(nil) {
		if r.ReadySince.After(from) {
			from = r.ReadySince
		}
	}
	until := from.Add(cmp.Or(w.MeshStays, health.MeshStays))
	if !w.Now.Before(until) {
		return ""
	}
	return fmt.Sprintf("all reflectors were lost, and the mesh stays on until %s, when they have been Ready for %s",
		until.UTC().Format(time.RFC3339), cmp.Or(w.MeshStays, health.MeshStays))
}
