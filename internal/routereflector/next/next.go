// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package next

import (
	"cmp"
	"slices"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/choose"
	"github.com/mooring-dev/mooring/internal/routereflector/design"
	"github.com/mooring-dev/mooring/internal/routereflector/health"
)

// meshObject is the object that holds the switch of the mesh.
const meshObject = "BGPConfiguration/default"

// Stages lists the writes that come next, those that are alike together; none if everything is as it shall be. What was
// measured prescribes the order: BGPPeers, then reflectors one at a time, then the mesh; a reflector leaves after the
// one that takes its place has its sessions. In a hierarchy clients move once the new group's reflectors are made, and
// before the old one's go. Where these moves may not be done, as they would cut somebody off, the stages after them
// may: a reflector that only clients on the move still reach goes before they leave it. Where nobody can be made a
// reflector now, as a client of a group that nothing links any more would be cut off, or since there would be more
// paths than Linux takes, clients move first, or others go. role says what a node was described as when the plan was
// begun.
func Stages(w *rr.World, chosen choose.Choice, role map[string]rr.Reflector) [][]rr.Step {
	if w.Exiting() {
		return exitStages(w, chosen, role)
	}
	d := chosen.Design
	if why := health.Adrift(w); why != "" {
		return [][]rr.Step{{rr.MeshOn{About: MeshStep(w, why+"; the mesh takes over until others are reflectors")}}}
	}
	peers := design.ChangedPeers(w, d)
	if design.ResetsSessions(w, peers) {
		return filled(renewal(w, role))
	}
	if len(peers) > 0 {
		return [][]rr.Step{peers}
	}
	if adopted := adoptions(w); len(adopted) > 0 {
		return [][]rr.Step{adopted}
	}
	joining, leaving := choose.Roles(w, chosen)
	// Anyone who leaves a group that stays has been replaced by now. Who links or serves clients that are to move
	// leaves after them.
	replaced := slices.DeleteFunc(slices.Clone(leaving), func(name string) bool {
		n, _ := w.Node(name)
		return !slices.Contains(d.Order(), n.Group())
	})
	promotions, clients := promotions(w, joining, chosen, role), clientWrites(w, d)
	if first := filled(rescues(w, chosen, promotions), promotions); len(first) > 0 {
		return filled(first[0], clients.labels, clients.moves, demotions(w, leaving, role))
	}
	if stages := filled(
		retirements(w), clients.labels, forsaken(w, d), demotions(w, replaced, role), scattered(w, d), reopened(w, d),
	); len(stages) > 0 {
		return stages[:1]
	}
	stages := filled(clients.moves, demotions(w, leaving, role), stalePeers(w, d), released(w, d))
	if len(stages) == 0 && w.Topology.Spec.Mesh == v1alpha1.MeshManage && w.Mesh.On && len(chosen.Groups) > 0 &&
		manned(w, d) {
		return [][]rr.Step{{rr.MeshOff{About: MeshStep(w, "every client takes its routes from reflectors")}}}
	}
	return stages
}

// filled leaves out the stages without steps.
func filled(stages ...[]rr.Step) [][]rr.Step {
	return slices.DeleteFunc(stages, func(steps []rr.Step) bool { return len(steps) == 0 })
}

// renewal is what comes before a change of the sessions' options, which would cut off the reflectors' own pods and
// those of all clients at once: the mesh takes over, and the reflectors begin again one at a time.
func renewal(w *rr.World, role map[string]rr.Reflector) []rr.Step {
	if w.Topology.Spec.Mesh == v1alpha1.MeshManage && !w.Mesh.On {
		return []rr.Step{
			rr.MeshOn{About: MeshStep(w,
				"options of the sessions change, which resets them; the mesh carries the clients meanwhile")},
		}
	}
	return demotions(w,
		slices.DeleteFunc(w.Marked(), func(name string) bool { return role[name].Role == rr.RoleJoining }), role)
}

// exitStages lists the writes that come next when the topology is to end: the mesh first, then clients and reflectors
// of all groups but one, then the reflectors of that one, and what is left. As long as a group has clients, the
// reflectors of the others need its reflectors to reach them.
func exitStages(w *rr.World, chosen choose.Choice, role map[string]rr.Reflector) [][]rr.Step {
	if w.Topology.Spec.Mesh == v1alpha1.MeshManage && !w.Mesh.On {
		return [][]rr.Step{{rr.MeshOn{About: MeshStep(w, "the topology is being deleted; the mesh takes over")}}}
	}
	last := lastGroup(w)
	var steps [][]rr.Step
	if deep := w.Outside(last); last != rr.Nowhere && len(deep) > 0 && !w.Roster().Flat && !w.Abandons() {
		d := chosen.Design
		d.Groups = []int{last}
		clients := clientWrites(w, d)
		steps = append(steps, clients.labels, reopened(w, d), clients.moves, demotions(w, deep, role))
	}
	steps = append(steps, demotions(w, w.Marked(), role), released(w, design.Design{}), stalePeers(w, design.Design{}))
	return filled(steps...)
}

// lastGroup is the group that goes last when the topology ends: the first that has a working reflector, [nowhere] if
// none has.
func lastGroup(w *rr.World) int {
	last := rr.Nowhere
	for _, r := range w.Working(nil) {
		if g := r.Group(); g >= rr.FirstGroup && (last == rr.Nowhere || g < last) {
			last = g
		}
	}
	return last
}

// NodeStep is a write to a node.
func NodeStep(n *rr.Node, reason string, labels map[string]*string) rr.NodeChange {
	about := rr.About{Object: "Node/" + n.Name, Reason: reason, UID: n.UID, ResourceVersion: n.ResourceVersion}
	return rr.NodeChange{About: about, Name: n.Name, Labels: labels}
}

// promotions are steps that make nodes reflectors, group by group. A reflector is not a client.
func promotions(w *rr.World, names []string, chosen choose.Choice, role map[string]rr.Reflector) []rr.Step {
	var out []rr.Step
	for _, g := range choose.PromotionOrder(w, chosen.Design) {
		for _, name := range names {
			if chosen.Groups[name] != g {
				continue
			}
			n, _ := w.Node(name)
			labels, id := n.Marks(w.Topology.Name), cmp.Or(chosen.Design.IDs[g], w.Topology.Spec.ClusterID)
			if g != rr.FirstGroup {
				labels[v1alpha1.GroupLabel] = new(rr.GroupName(g))
			}
			change := NodeStep(&n, role[name].Reason, labels)
			out = append(out, rr.Promote{RoleChange: rr.RoleChange{NodeChange: change, ClusterID: id}})
		}
	}
	// What only gives back need not wait for a node that is promoted again and again.
	if len(out) > 0 && slices.Contains(w.Promoted, out[0].Node()) {
		first := slices.IndexFunc(out,
			func(s rr.Step) bool { return !slices.Contains(w.Promoted, s.Node()) && w.Restores(s.Node()) })
		if first > 0 {
			out = slices.Concat(out[first:first+1], out[:first], out[first+1:])
		}
	}
	return out
}

// demotions are steps that end the role of reflectors, those of the groups before the spines that link them. Such a
// node is a client without a label from then on; where the group that takes those has no working reflector, it is
// labeled with one that has.
func demotions(w *rr.World, names []string, role map[string]rr.Reflector) []rr.Step {
	var out, last []rr.Step
	shelter := shelter(w, names)
	for _, name := range names {
		n, _ := w.Node(name)
		labels := n.Without(v1alpha1.GroupLabel)
		labels[v1alpha1.ReflectorLabel] = nil
		if shelter != rr.Nowhere {
			labels[v1alpha1.ClientLabel] = new(rr.GroupName(shelter))
		}
		step := rr.Demote{RoleChange: rr.RoleChange{NodeChange: NodeStep(&n, role[name].Reason, labels)}}
		if n.Group() == rr.Spines {
			last = append(last, step)
			continue
		}
		out = append(out, step)
	}
	return append(out, last...)
}

// MeshStep is a write to the switch of the mesh.
func MeshStep(w *rr.World, reason string) rr.About {
	return rr.About{Object: meshObject, Reason: reason, UID: w.Mesh.UID, ResourceVersion: w.Mesh.ResourceVersion}
}

// stalePeers are steps that remove the topology's BGPPeers that it wants no more.
func stalePeers(w *rr.World, d design.Design) []rr.Step {
	var out []rr.Step
	var wanted []rr.Peer
	if !w.Exiting() {
		wanted = design.PeersFor(w, d)
	}
	for _, p := range w.Peers {
		wanted := slices.ContainsFunc(wanted, func(q rr.Peer) bool { return q.Name == p.Name })
		if p.Topology == w.Topology.Name && !wanted {
			out = append(out, rr.RemovePeer{
				About: rr.AboutPeer(p.Name, p, "the topology does not need it"), Name: p.Name,
			})
		}
	}
	slices.SortFunc(out, func(a, b rr.Step) int { return cmp.Compare(a.What().Object, b.What().Object) })
	return out
}

// manned reports that each group of clients has a working reflector. Until then the mesh stays: whether the reflectors
// come back or are replaced shows within their grace periods.
func manned(w *rr.World, d design.Design) bool {
	working := w.Working(nil)
	return !slices.ContainsFunc(d.Groups, func(g int) bool { return len(rr.GroupOf(working, g)) == 0 })
}
