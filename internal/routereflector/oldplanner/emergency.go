// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package oldplanner

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

// When no reflector of a flat topology is left, the mesh takes over within seconds, before others become reflectors:
//
//	no reflector serves ── mesh on ── reflectors come back, or others are made ── their sessions and routes are seen, and have stood for a minute ── mesh off
//
// The status says from the first of these to the last that it is an emergency, so that a new process carries it to its end. In a hierarchy the mesh cannot take
// over: clients of the groups whose reflectors live would lose nothing and their nodes not be reached by the members of the mesh, which pass nothing on.

// MeshStays is for how long the mesh stays on once reflectors carry the clients again: reflectors that fall ill in turn are to switch it once, not each time.
const MeshStays = time.Minute

// adrift says why the mesh takes over at once, "" if it must not. All of these hold: clients depend on the reflectors of a flat topology and no reflector
// serves; the mesh is the topology's to switch, and not too large; and most Nodes that there were are there.
func (w candidates) adrift() string {
	if !w.served() || w.Topology.Spec.Mesh != v1alpha1.MeshManage || !w.isFlat() || w.meshTooLargeByFar() || w.othersServe() {
		return ""
	}
	var down []string
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if !n.marked(&w.Topology) {
			continue
		}
		if w.serves(n) {
			return ""
		}
		down = append(down, n.Name)
	}
	slices.Sort(down)
	if len(down) == 0 {
		return "the Nodes of all reflectors are gone"
	}
	return "no reflector is left: " + Few(down)
}

// serves reports whether a reflector has to be counted on: until two of those who are queried about it have lost it and none holds it, its machine is off, or
// its grace period is over. One that only falls silent is BIRD's to judge.
func (w candidates) serves(n *Node) bool {
	t, troubled := w.trouble(n)
	if !troubled {
		return n.isReflectorOf(&w.Topology) && n.speaks()
	}
	lost := !t.IsLost() && len(t.Held) == 0 && len(t.Lost) > 0 && len(t.Lost) >= min(quorum, len(t.observers()))
	return !t.Off && !lost && !t.gone(w.Now)
}

// meshTooLargeByFar reports that the mesh would be too large with the Nodes that are there and those that were; or that most of these are missing, so that
// nobody can say how large it would be.
func (w candidates) meshTooLargeByFar() bool {
	b := w.Topology.Status.Baseline
	if b == nil {
		return w.meshTooLarge()
	}
	c := w.census()
	return vanished(b, c) || w.meshNodes()+int(c.gone(b)) > w.meshLimit()
}

// rescuing reports that the mesh of a flat topology is on because no reflector was left, and is to go off again.
func (w candidates) rescuing() bool {
	return w.Topology.Status.Emergency != nil && w.Mesh.On && w.isFlat() && w.Topology.Spec.Mesh == v1alpha1.MeshManage && !w.exiting()
}

// emergencyStatus is what the status says of an emergency: it begins before the mesh is turned on, and ends when that is off again. Where the mesh may not be
// turned on it lasts until a reflector lives: without it nobody would know, once the status names no reflectors, that clients depend on any.
func (w candidates) emergencyStatus() *v1alpha1.Emergency {
	switch {
	case w.rescuing():
		return w.Topology.Status.Emergency
	case w.adrift() != "", w.emergency():
		if begun := w.Topology.Status.Emergency; begun != nil {
			return begun
		}
		return &v1alpha1.Emergency{Since: second(w.Now)}
	}
	return nil
}

// meshStays says until when the mesh stays on after an emergency, "" if it need not: every reflector must have been Ready, and the mesh on, for [MeshStays].
// One that may still come back within its grace period is waited for, no longer than that.
func (w gates) meshStays() string {
	if !w.rescuing() {
		return ""
	}
	for _, t := range w.troubles() {
		if w.Now.Before(t.Until) {
			return fmt.Sprintf("all reflectors were lost, and the mesh stays on until %s is Ready again or, at %s, its grace period is over", t.Node,
				t.Until.UTC().Format(time.RFC3339))
		}
	}
	from := w.Topology.Status.Emergency.Since.Time
	for _, r := range w.working(nil) {
		if r.ReadySince.After(from) {
			from = r.ReadySince
		}
	}
	until := from.Add(cmp.Or(w.MeshStays, MeshStays))
	if !w.Now.Before(until) {
		return ""
	}
	return fmt.Sprintf("all reflectors were lost, and the mesh stays on until %s, when they have been Ready for %s", until.UTC().Format(time.RFC3339),
		cmp.Or(w.MeshStays, MeshStays))
}

// served reports that clients depend on the topology's reflectors: the mesh is off, and there are reflectors, or were when the status was written.
func (w candidates) served() bool {
	if w.Mesh.On || w.exiting() {
		return false
	}
	return len(w.marked()) > 0 || w.Topology.Status.Emergency != nil || slices.ContainsFunc(w.Topology.Status.Reflectors, func(r v1alpha1.ReflectorStatus) bool {
		return r.Role != string(RoleJoining)
	})
}

// emergency reports that there is nothing left to lose: clients depend on the topology's reflectors, and of these all are lost or gone, nor
// does anybody else's live. That the others have lost a reflector as well cannot be asked for then: there are none. If it was only the
// kubelets that died, some nodes have lost their traffic for seconds in vain; if it was the machines, it is the end of an outage, or there
// is none, as BIRD keeps the routes of a machine that fell silent for longer than the grace period.
//
// It is about the whole topology. A group of a hierarchy that has lost all of its reflectors is none: the others' are there to be asked, and
// its clients go to another group at once if no node can replace them. Spines have no clients, so that they do not count.
func (w candidates) emergency() bool {
	return w.served() && !slices.ContainsFunc(w.Nodes, func(n Node) bool {
		if n.marked(&w.Topology) {
			return n.isReflectorOf(&w.Topology) && n.group() != spines && n.speaks() && w.lost(&n) == ""
		}
		return n.ClusterID != "" && n.Ready == corev1.ConditionTrue && w.servesOthers(&n)
	})
}
