// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package oldplanner

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
	// Assign labels a client with a group. None of its sessions ends by it.
	Assign Kind = "Assign"
	// Join gives a client sessions with a second group, and Leave ends those with the first: two patches of labels make a move.
	Join  Kind = "Join"
	Leave Kind = "Leave"
	// Release takes the labels of a client away where groups do not matter any more.
	Release Kind = "Release"
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
	// Node is the node of Promote, Adopt, Demote, Assign, Join, Leave and Release.
	Node string `json:"-"`
	// NodeLabels are the labels of groups that the node gets with the step, nil for those that it loses. The label of a reflector comes with Promote and
	// Adopt, and goes with Demote.
	NodeLabels map[string]*string `json:"-"`
	// ClusterID is the cluster ID that the node gets with Promote, "" for the topology's.
	ClusterID string `json:"-"`
	// Peer is the BGPPeer of EnsurePeer, or the name of that of RemovePeer and RetirePeer.
	Peer Peer `json:"-"`
	// UID and ResourceVersion are those of the object that the step was decided on, "" for one that is to be created.
	UID             string `json:"-"`
	ResourceVersion string `json:"-"`
}

// meshObject is the object that holds the switch of the mesh.
const meshObject = "BGPConfiguration/default"

// stage lists the writes that come next and are alike, none if everything is as it shall be. What was measured prescribes the order: BGPPeers, then
// reflectors one at a time, then the mesh; a reflector leaves after the one that takes its place has its sessions. In a hierarchy clients move once
// the new group's reflectors are made, and before the old one's go. role says what a node was described as when the plan was begun.
func (w stages) stage(chosen choice, role map[string]Reflector) []Step {
	if w.exiting() {
		return w.exitStage(chosen, role)
	}
	d := chosen.design
	if why := w.adrift(); why != "" {
		return []Step{w.meshStep(MeshOn, why+"; the mesh takes over until others are reflectors")}
	}
	peers := w.changedPeers(d)
	if w.resetsSessions(peers) {
		return w.renewal(role)
	}
	if len(peers) > 0 {
		return peers
	}
	if adopted := w.adoptions(); len(adopted) > 0 {
		return adopted
	}
	joining, leaving := w.roles(chosen)
	// Anyone who leaves a group that stays has been replaced by now. Who links or serves clients that are to move leaves after them.
	replaced := slices.DeleteFunc(slices.Clone(leaving), func(name string) bool {
		n, _ := w.node(name)
		return !slices.Contains(d.order(), n.group())
	})
	promotions, clients := w.promotions(joining, chosen, role), w.clientSteps(d)
	for _, steps := range [][]Step{
		w.rescues(chosen, promotions), promotions, w.retirements(), clients.labels, w.forsaken(d), w.demotions(replaced, role), w.reopened(d), clients.moves,
		w.demotions(leaving, role), w.stalePeers(d), w.released(d),
	} {
		if len(steps) > 0 {
			return steps
		}
	}
	if w.Topology.Spec.Mesh == v1alpha1.MeshManage && w.Mesh.On && len(chosen.groups) > 0 && w.manned(d) {
		return []Step{w.meshStep(MeshOff, "every client takes its routes from reflectors")}
	}
	return nil
}

// renewal is what comes before a change of the sessions' options, which would cut off the reflectors' own pods and those of all clients at
// once: the mesh takes over, and the reflectors begin again one at a time.
func (w stages) renewal(role map[string]Reflector) []Step {
	if w.Topology.Spec.Mesh == v1alpha1.MeshManage && !w.Mesh.On {
		return []Step{w.meshStep(MeshOn, "options of the sessions change, which resets them; the mesh carries the clients meanwhile")}
	}
	return w.demotions(slices.DeleteFunc(w.marked(), func(name string) bool { return role[name].Role == RoleJoining }), role)
}

// exitStage lists the writes that come next when the topology is to end: the mesh first, then clients and reflectors of all groups but one, then the
// reflectors of that one, and what is left. As long as a group has clients, the reflectors of the others need its reflectors to reach them.
func (w stages) exitStage(chosen choice, role map[string]Reflector) []Step {
	if w.Topology.Spec.Mesh == v1alpha1.MeshManage && !w.Mesh.On {
		return []Step{w.meshStep(MeshOn, "the topology is being deleted; the mesh takes over")}
	}
	last := w.lastGroup()
	var steps [][]Step
	if deep := w.outside(last); last != nowhere && len(deep) > 0 && !w.roster().flat && !w.abandons() {
		d := chosen.design
		d.groups = []int{last}
		clients := w.clientSteps(d)
		steps = append(steps, clients.labels, w.reopened(d), clients.moves, w.demotions(deep, role))
	}
	steps = append(steps, w.demotions(w.marked(), role), w.released(design{}), w.stalePeers(design{}))
	for _, s := range steps {
		if len(s) > 0 {
			return s
		}
	}
	return nil
}

// lastGroup is the group that goes last when the topology ends: the first that has a working reflector, [nowhere] if none has.
func (w stages) lastGroup() int {
	last := nowhere
	for _, r := range w.working(nil) {
		if g := r.group(); g >= firstGroup && (last == nowhere || g < last) {
			last = g
		}
	}
	return last
}

// nodeStep is a write to a node.
func (w stages) nodeStep(kind Kind, name, reason string) Step {
	n, _ := w.node(name)
	return Step{Kind: kind, Object: "Node/" + name, Node: name, Reason: reason, UID: n.UID, ResourceVersion: n.ResourceVersion}
}

// promotions are steps that make nodes reflectors, group by group. A reflector is not a client.
func (w stages) promotions(names []string, chosen choice, role map[string]Reflector) []Step {
	var out []Step
	for _, g := range w.promoted(chosen.design) {
		for _, name := range names {
			if chosen.groups[name] != g {
				continue
			}
			step := w.nodeStep(Promote, name, role[name].Reason)
			step.ClusterID = chosen.design.ids[g]
			n, _ := w.node(name)
			step.NodeLabels = n.ungrouped()
			if g != firstGroup {
				step.NodeLabels[v1alpha1.GroupLabel] = new(groupName(g))
			}
			out = append(out, step)
		}
	}
	// What only gives back need not wait for a node that is promoted again and again.
	if len(out) > 0 && slices.Contains(w.Promoted, out[0].Node) {
		first := slices.IndexFunc(out, func(s Step) bool { return !slices.Contains(w.Promoted, s.Node) && w.restores(s) })
		if first > 0 {
			out = slices.Concat(out[first:first+1], out[:first], out[first+1:])
		}
	}
	return out
}

// ungrouped is what takes all labels of groups away.
func (n *Node) ungrouped() map[string]*string {
	return n.without(v1alpha1.GroupLabel, v1alpha1.ClientLabel, v1alpha1.JoinsLabel)
}

// hasAny reports whether the node has one of some labels.
func (n *Node) hasAny(keys ...string) bool {
	return slices.ContainsFunc(keys, func(key string) bool {
		_, has := n.Labels[key]
		return has
	})
}

// without is what takes those of the labels away that the node has.
func (n *Node) without(keys ...string) map[string]*string {
	out := map[string]*string{}
	for _, key := range keys {
		if _, has := n.Labels[key]; has {
			out[key] = nil
		}
	}
	return out
}

// demotions are steps that end the role of reflectors, those of the groups before the spines that link them. Such a node is a client without a label
// from then on; where the group that takes those has no working reflector, it is labeled with one that has.
func (w stages) demotions(names []string, role map[string]Reflector) []Step {
	var out, last []Step
	shelter := w.shelter(names)
	for _, name := range names {
		step := w.nodeStep(Demote, name, role[name].Reason)
		n, _ := w.node(name)
		step.NodeLabels = n.without(v1alpha1.GroupLabel)
		if shelter != nowhere {
			step.NodeLabels[v1alpha1.ClientLabel] = new(groupName(shelter))
		}
		if n.group() == spines {
			last = append(last, step)
			continue
		}
		out = append(out, step)
	}
	return append(out, last...)
}

func (w stages) meshStep(kind Kind, reason string) Step {
	return Step{Kind: kind, Object: meshObject, Reason: reason, UID: w.Mesh.UID, ResourceVersion: w.Mesh.ResourceVersion}
}

// stalePeers are steps that remove the topology's BGPPeers that it wants no more.
func (w stages) stalePeers(d design) []Step {
	var out []Step
	var wanted []Peer
	if !w.exiting() {
		wanted = w.peersFor(d)
	}
	for _, p := range w.Peers {
		wanted := slices.ContainsFunc(wanted, func(q Peer) bool { return q.Name == p.Name })
		if p.Topology == w.Topology.Name && !wanted {
			out = append(out, Step{
				Kind: RemovePeer, Object: "BGPPeer/" + p.Name, Peer: p, UID: p.UID, ResourceVersion: p.ResourceVersion,
				Reason: "the topology does not need it",
			})
		}
	}
	slices.SortFunc(out, func(a, b Step) int { return cmp.Compare(a.Object, b.Object) })
	return out
}

// String is the step in a line.
func (s Step) String() string { return fmt.Sprintf("%s %s: %s", s.Kind, s.Object, s.Reason) }
