// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package routereflector

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

// Kind is what a step does.
type Kind string

// The kinds of steps.
const (
	// EnsurePeer creates or updates one of the topology's BGPPeers.
	EnsurePeer Kind = "EnsurePeer"
	// RemovePeer deletes one.
	RemovePeer Kind = "RemovePeer"
	// Promote makes a node a reflector: label and cluster ID in one patch.
	Promote Kind = "Promote"
	// Demote ends it, in one patch as well.
	Demote Kind = "Demote"
	// MeshOn and MeshOff switch the node-to-node mesh.
	MeshOn  Kind = "MeshOn"
	MeshOff Kind = "MeshOff"
	// Adopt gives a reflector that spec.adopt names the topology's label; its cluster ID is the topology's already.
	Adopt Kind = "Adopt"
	// RetirePeer deletes a BGPPeer that spec.adopt names, somebody else's.
	RetirePeer Kind = "RetirePeer"
)

// Step is one write.
type Step struct {
	Kind Kind `json:"kind"`
	// Object is what is written, as Kind/name.
	Object string `json:"object"`
	Reason string `json:"reason"`
	// Node is the node of Promote and Demote.
	Node string `json:"-"`
	// Peer is the BGPPeer of EnsurePeer, or the name of that of RemovePeer and RetirePeer.
	Peer Peer `json:"-"`
	// UID and ResourceVersion are those of the object that the step was decided on, "" for one that is to be created.
	UID             string `json:"-"`
	ResourceVersion string `json:"-"`
}

// meshObject is the object that holds the switch of the mesh.
const meshObject = "BGPConfiguration/default"

// exiting says that the topology is being deleted, so that nothing of it shall remain.
func (w World) exiting() bool { return w.Topology.DeletionTimestamp != nil }

// steps lists the writes that lead from here to what is wanted, in order. What was measured prescribes the order: BGPPeers, then reflectors one
// at a time, then the mesh; a reflector leaves after the one that takes its place has its sessions.
func (w World) steps(reflectors []Reflector) []Step {
	if w.exiting() {
		return w.exit(reflectors)
	}
	var out []Step
	peers := w.changedPeers()
	joining, leaving := inRole(reflectors, RoleJoining), inRole(reflectors, RoleLeaving)
	manage, mesh := w.Topology.Spec.Mesh == v1alpha1.MeshManage, w.Mesh.On
	if w.resetsSessions(peers) {
		// The sessions' options change, which would cut off the reflectors' own pods and those of all clients at once. So the mesh takes over,
		// and the reflectors begin anew one at a time.
		if manage && !mesh {
			out = append(out, w.meshStep(MeshOn, "options of the sessions change, which resets them; the mesh carries the clients meanwhile"))
			mesh = true
		}
		joining = slices.DeleteFunc(slices.Clone(reflectors), func(r Reflector) bool { return r.Role == RoleLeaving })
		leaving = slices.DeleteFunc(slices.Clone(reflectors), func(r Reflector) bool { return r.Role == RoleJoining })
		out = append(out, w.nodeSteps(Demote, leaving)...)
		leaving = nil
	}
	out = append(out, peers...)
	adopted, joining := w.adoptions(reflectors, joining)
	out = append(out, adopted...)
	out = append(out, w.nodeSteps(Promote, joining)...)
	out = append(out, w.retirements()...)
	out = append(out, w.nodeSteps(Demote, leaving)...)
	out = append(out, w.stalePeers()...)
	if manage && mesh && slices.ContainsFunc(reflectors, func(r Reflector) bool { return r.Role != RoleLeaving }) {
		out = append(out, w.meshStep(MeshOff, "every client takes its routes from reflectors"))
	}
	return out
}

// exit lists the writes that end the topology: the mesh first, then the reflectors one by one, then the BGPPeers.
func (w World) exit(reflectors []Reflector) []Step {
	var out []Step
	if w.Topology.Spec.Mesh == v1alpha1.MeshManage && !w.Mesh.On {
		out = append(out, w.meshStep(MeshOn, "the topology is being deleted; the mesh takes over"))
	}
	out = append(out, w.nodeSteps(Demote, reflectors)...)
	return append(out, w.stalePeers()...)
}

func inRole(reflectors []Reflector, role Role) []Reflector {
	return slices.DeleteFunc(slices.Clone(reflectors), func(r Reflector) bool { return r.Role != role })
}

func (w World) nodeSteps(kind Kind, reflectors []Reflector) []Step {
	var out []Step
	for _, r := range reflectors {
		n, _ := w.node(r.Node)
		out = append(out, Step{Kind: kind, Object: "Node/" + r.Node, Node: r.Node, Reason: r.Reason, UID: n.UID, ResourceVersion: n.ResourceVersion})
	}
	return out
}

func (w World) meshStep(kind Kind, reason string) Step {
	return Step{Kind: kind, Object: meshObject, Reason: reason, UID: w.Mesh.UID, ResourceVersion: w.Mesh.ResourceVersion}
}

// changedPeers are steps for the BGPPeers that are missing or are not as they should be.
func (w World) changedPeers() []Step {
	var out []Step
	for _, want := range wantedPeers(w.Topology) {
		have, exists := w.peer(want.Name)
		step := Step{Kind: EnsurePeer, Object: "BGPPeer/" + want.Name, Peer: want, UID: have.UID, ResourceVersion: have.ResourceVersion}
		switch {
		case !exists:
			step.Reason = "there is no such BGPPeer"
		case have.plain() && have.PeerSpec == want.PeerSpec:
			continue
		default:
			step.Reason = "it is not as the topology wants it"
		}
		out = append(out, step)
	}
	return out
}

// plain says that the BGPPeer uses none of the fields that Mooring leaves empty.
func (p Peer) plain() bool { return p.Node == "" && !p.PeerIP.IsValid() && !p.Other }

// resetsSessions says whether one of the steps changes options of sessions that there are.
func (w World) resetsSessions(peers []Step) bool {
	return slices.ContainsFunc(w.Nodes, func(n Node) bool { return n.isReflectorOf(&w.Topology) }) &&
		slices.ContainsFunc(peers, func(s Step) bool {
			have, exists := w.peer(s.Peer.Name)
			return exists && !have.SameSessions(s.Peer.PeerSpec)
		})
}

// stalePeers are steps that remove the topology's BGPPeers that it wants no more.
func (w World) stalePeers() []Step {
	var out []Step
	for _, p := range w.Peers {
		wanted := !w.exiting() && slices.ContainsFunc(wantedPeers(w.Topology), func(q Peer) bool { return q.Name == p.Name })
		if p.Topology == w.Topology.Name && !wanted {
			out = append(out, Step{
				Kind: RemovePeer, Object: "BGPPeer/" + p.Name, Peer: p, UID: p.UID, ResourceVersion: p.ResourceVersion,
				Reason: "the topology has no use for it",
			})
		}
	}
	slices.SortFunc(out, func(a, b Step) int { return cmp.Compare(a.Object, b.Object) })
	return out
}

func (w World) peer(name string) (Peer, bool) {
	i := slices.IndexFunc(w.Peers, func(p Peer) bool { return p.Name == name })
	if i < 0 {
		return Peer{}, false
	}
	return w.Peers[i], true
}

func (w World) node(name string) (Node, bool) {
	i := slices.IndexFunc(w.Nodes, func(n Node) bool { return n.Name == name })
	if i < 0 {
		return Node{}, false
	}
	return w.Nodes[i], true
}

// String is the step in a line.
func (s Step) String() string { return fmt.Sprintf("%s %s: %s", s.Kind, s.Object, s.Reason) }
