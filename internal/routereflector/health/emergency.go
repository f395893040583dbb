// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"slices"
	"time"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
)

// When no reflector of a flat topology is left, the mesh takes over within seconds, before others become reflectors:
//
//	no reflector serves ── mesh on ── reflectors come back, or others are made ── their sessions and routes are seen, and have stood for a minute ── mesh off
//
// The status says from the first of these to the last that it is an emergency, so that a new process carries it to its
// end. In a hierarchy the mesh cannot take over: clients of the groups whose reflectors live would lose nothing and
// their nodes not be reached by the members of the mesh, which pass nothing on.

// MeshStays is for how long the mesh stays on once reflectors carry the clients again: reflectors that fall ill in turn
// are to switch it once, not each time.
const MeshStays = time.Minute

// Adrift says why the mesh takes over at once, "" if it must not. All of these hold: clients depend on the reflectors
// of a flat topology and no reflector serves; the mesh is the topology's to switch, and not too large; and most Nodes
// that there were are there.
func Adrift(w *rr.World) string {
	if !Served(w) || w.Topology.Spec.Mesh != v1alpha1.MeshManage || !w.IsFlat() || MeshTooLargeByFar(w) ||
		w.OthersServe() {
		return ""
	}
	var down []string
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if !n.Marked(&w.Topology) {
			continue
		}
		if serves(w, n) {
			return ""
		}
		down = append(down, n.Name)
	}
	slices.Sort(down)
	if len(down) == 0 {
		return "the Nodes of all reflectors are gone"
	}
	return "no reflector is left: " + rr.Few(down)
}

// serves reports whether a reflector has to be counted on: until two of those who are queried about it have lost it and
// none holds it, its machine is off, or its grace period is over. One that only falls silent is BIRD's to judge.
func serves(w *rr.World, n *rr.Node) bool {
	t, troubled := trouble(w, n)
	if !troubled {
		return n.IsReflectorOf(&w.Topology) && n.Speaks()
	}
	lost := !t.IsLost() && len(t.Held) == 0 && len(t.Lost) > 0 && len(t.Lost) >= min(rr.Quorum, len(t.Observers()))
	return !t.Off && !lost && !t.Gone(w.Now)
}

// MeshTooLargeByFar reports that the mesh would be too large with the Nodes that are there and those that were; or that
// most of these are missing, so that nobody can say how large it would be.
func MeshTooLargeByFar(w *rr.World) bool {
	b := w.Topology.Status.Baseline
	if b == nil {
		return MeshTooLarge(w)
	}
	c := count(w)
	return vanished(b, c) || MeshNodes(w)+int(c.gone(b)) > MeshLimit(w)
}

// Rescuing reports that the mesh of a flat topology is on because no reflector was left, and is to go off again.
func Rescuing(w *rr.World) bool {
	return w.Topology.Status.Emergency != nil && w.Mesh.On && w.IsFlat() &&
		w.Topology.Spec.Mesh == v1alpha1.MeshManage &&
		!w.Exiting()
}

// EmergencyStatus is what the status says of an emergency: it begins before the mesh is turned on, and ends when that
// is off again. Where the mesh may not be turned on it lasts until a reflector lives: without it nobody would know,
// once the status names no reflectors, that clients depend on any.
func EmergencyStatus(w *rr.World) *v1alpha1.Emergency {
	switch {
	case Rescuing(w):
		return w.Topology.Status.Emergency
	case Adrift(w) != "", Emergency(w):
		if begun := w.Topology.Status.Emergency; begun != nil {
			return begun
		}
		return &v1alpha1.Emergency{Since: rr.Second(w.Now)}
	}
	return nil
}

// Served reports that clients depend on the topology's reflectors: the mesh is off, and there are reflectors, or were
// when the status was written.
func Served(w *rr.World) bool {
	if w.Mesh.On || w.Exiting() {
		return false
	}
	return len(w.Marked()) > 0 || w.Topology.Status.Emergency != nil ||
		slices.ContainsFunc(w.Topology.Status.Reflectors, func(r v1alpha1.ReflectorStatus) bool {
			return r.Role != string(rr.RoleJoining)
		})
}

// Emergency reports that there is nothing left to lose: clients depend on the topology's reflectors, and of these all
// are lost or gone, nor does anybody else's live. That the others have lost a reflector as well cannot be asked for
// then: there are none. If it was only the kubelets that died, some nodes have lost their traffic for seconds in vain;
// if it was the machines, it is the end of an outage, or there is none, as BIRD keeps the routes of a machine that fell
// silent for longer than the grace period.
//
// It is about the whole topology. A group of a hierarchy that has lost all of its reflectors is none: the others' are
// there to be asked, and its clients go to another group at once if no node can replace them. Spines have no clients,
// so that they do not count.
func Emergency(w *rr.World) bool {
	if !Served(w) {
		return false
	}
	for i := range w.Nodes {
		n := &w.Nodes[i]
		switch {
		case n.Marked(&w.Topology):
			if n.IsReflectorOf(&w.Topology) && n.Group() != rr.Spines && n.Speaks() && WhyLost(w, n) == "" {
				return false
			}
		case w.IsOthersReflector(n):
			return false
		}
	}
	return true
}
