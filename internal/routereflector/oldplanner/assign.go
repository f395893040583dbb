// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package oldplanner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

// maxJoining is how many clients are on the move at a time, and have sessions with two groups.
const maxJoining = 32

// clientSteps are the writes to clients that come next, by what must have been done before.
type clientSteps struct {
	// labels writes down in which group clients are that have no label yet, and puts those into a group that have no session with any reflector.
	labels []Step
	// moves are parts of moves.
	moves []Step
}

// assignment divides clients among the groups of a design.
type assignment struct {
	w stages
	d design
	roster
	// live are the groups with a reflector that speaks BGP and is not lost, load is how many clients each group is to have by what is decided
	// so far, cap is how many it may have.
	live map[int]bool
	load map[int]int
	cap  int
	// joining counts the clients on the move, by the group that they move to; total is all of them.
	joining map[int]int
	total   int
	// members are the clients: those without a label first, so that it is newcomers that move where a group is full.
	members []*Node
}

// clientSteps lists the writes to clients that come next. A client that comes, goes or changes moves nobody else: clients move only out of a
// group that is to go, out of one with more than the limit of clients, and into a group that is new.
func (w stages) clientSteps(d design) clientSteps {
	r := w.roster()
	if r.flat && !d.hierarchical() {
		return clientSteps{}
	}
	a := newAssignment(w, d, r)
	var out clientSteps
	var joins, leaves []Step
	for _, n := range a.members {
		switch in, joins2 := a.where(n); {
		case joins2 != nowhere:
			leaves = append(leaves, a.leave(n, in, joins2)...)
		case in == nowhere:
			// Without a label it waits for the reflectors of the open group.
			if to := a.lightest(); a.live[to] && !n.unlabeled() {
				out.labels = append(out.labels, a.assign(n, to, "its group has no reflectors"))
			}
		case a.mustGo(n, in):
			if to := a.lightest(); a.total < maxJoining && to != in && a.live[to] {
				joins = append(joins, a.join(n, in))
			}
		case n.unlabeled() && len(d.groups) > 1: // labels that would go again at once are not written
			out.labels = append(out.labels, a.adopt(n, in))
		}
	}
	more := len(joins) > 0
	if !more {
		joins = a.fill()
		more = len(joins) > 0
	}
	out.moves = moves(w, leaves, joins, more)
	return out
}

// moves puts what can be done at once first. While more is to come one client stays on the move, since that is how a new process sees that a
// new group is not filled yet.
func moves(w stages, leaves, joins []Step, more bool) []Step {
	var ready, waiting []Step
	for _, s := range leaves {
		if s.Kind != Leave || (gates{w}).leaveWaits(s) == "" {
			ready = append(ready, s)
		} else {
			waiting = append(waiting, s)
		}
	}
	if more && len(waiting) == 0 && len(ready) > 0 {
		ready = ready[:len(ready)-1]
	}
	if len(ready)+len(joins) > 0 {
		return slices.Concat(ready, joins)
	}
	return waiting
}

func newAssignment(w stages, d design, r roster) *assignment {
	a := &assignment{w: w, d: d, roster: r, live: map[int]bool{}, load: map[int]int{}, joining: map[int]int{}}
	for i := range w.Nodes {
		n := &w.Nodes[i]
		switch {
		case n.isReflectorOf(&w.Topology):
			a.live[n.group()] = a.live[n.group()] || n.speaks() && w.lost(n) == ""
		case n.isClient(&w.Topology):
			a.members = append(a.members, n)
		}
	}
	a.sortMembers()
	for _, n := range a.members {
		in, joins := a.where(n)
		switch {
		case joins != nowhere:
			a.load[joins]++
			a.joining[joins]++
			a.total++
		case in != nowhere:
			a.load[in]++
		}
	}
	a.cap = w.groupCap(len(a.members), len(d.groups))
	return a
}

// sortMembers puts those without a label first, and then in an order that follows from names alone.
func (a *assignment) sortMembers() {
	places := make(map[*Node]uint64, len(a.members)) // each is a hash, which takes longer than all else here
	for _, n := range a.members {
		places[n] = rendezvous(a.w.Topology.Name, n.Name)
	}
	slices.SortFunc(a.members, func(x, y *Node) int {
		return cmp.Or(cmp.Compare(boolInt(y.unlabeled()), boolInt(x.unlabeled())),
			cmp.Compare(places[x], places[y]), strings.Compare(x.Name, y.Name))
	})
}

// groupCap is how many clients a group may have: a quarter more than its share, and no more than the limit if that is enough for all.
func (w stages) groupCap(clients, groups int) int {
	bound := ceilDiv(clients*5, groups*4)
	if limit := int(w.Topology.Spec.Sizing.MaxClientsPerReflector); limit > 0 {
		bound = min(bound, limit)
	}
	return max(bound, ceilDiv(clients, groups))
}

// where is the group that a client is in, and the one that it moves to if that is still wanted. A group that is neither wanted nor has a reflector is
// nowhere, and so is the open group without a reflector.
func (a *assignment) where(n *Node) (in, joins int) {
	in, joins = n.membership()
	wanted := func(g int) bool { return slices.Contains(a.d.groups, g) }
	if joins != nowhere && (!wanted(joins) || joins == in) {
		joins = nowhere
	}
	switch {
	case n.unlabeled():
		if in = nowhere; a.live[a.open] {
			in = a.open
		}
	case !wanted(in) && !a.live[in]:
		in = nowhere
	}
	return in, joins
}

// lightest is the wanted group with the fewest clients, of those that have a reflector.
func (a *assignment) lightest() int {
	return slices.MinFunc(a.d.groups, func(x, y int) int {
		return cmp.Or(cmp.Compare(boolInt(!a.live[x]), boolInt(!a.live[y])), cmp.Compare(a.load[x], a.load[y]), cmp.Compare(x, y))
	})
}

// mustGo reports that a client must leave the group that it is in: the group is to go, or has more clients than the limit. Of a group that
// takes clients without a label those go first that have none yet, as soon as the group has its share.
func (a *assignment) mustGo(n *Node, in int) bool {
	if !slices.Contains(a.d.groups, in) {
		return true
	}
	limit := int(a.w.Topology.Spec.Sizing.MaxClientsPerReflector)
	if n.unlabeled() {
		limit = a.cap
	}
	return a.load[in] > max(limit, a.cap) && a.load[a.lightest()] < min(a.cap, a.load[in]-1)
}

// fill lists the joins that bring a new group its share: one that has no clients, or that clients are on the move to. Groups with more than
// their cap give them, and no more than that.
func (a *assignment) fill() []Step {
	var out []Step
	to := a.lightest()
	if a.load[to] > 0 && a.joining[to] == 0 || !a.live[to] {
		return nil
	}
	for _, n := range a.members {
		in, joins := a.where(n)
		if a.total >= maxJoining || a.load[to] >= a.cap {
			break
		}
		if joins == nowhere && in != nowhere && in != to && a.load[in] > a.cap {
			out = append(out, a.join(n, in))
		}
	}
	return out
}

// assign labels a client with a group, and with nothing else.
func (a *assignment) assign(n *Node, g int, why string) Step {
	a.load[g]++
	step := a.w.nodeStep(Assign, n.Name, fmt.Sprintf("%s; group %s takes it", why, groupName(g)))
	step.NodeLabels = n.without(v1alpha1.JoinsLabel)
	step.NodeLabels[v1alpha1.ClientLabel] = new(groupName(g))
	return step
}

// adopt labels a client with the group that it has sessions with already.
func (a *assignment) adopt(n *Node, in int) Step {
	a.load[in]--
	return a.assign(n, in, "its sessions are Established already")
}

// join gives a client sessions with the lightest group alongside those that it has.
func (a *assignment) join(n *Node, in int) Step { return a.joinTo(n, in, a.lightest()) }

// joinTo gives a client sessions with a second group.
func (a *assignment) joinTo(n *Node, in, to int) Step {
	a.load[in]--
	a.load[to]++
	a.joining[to]++
	a.total++
	step := a.w.nodeStep(Join, n.Name, fmt.Sprintf("it moves from group %s to group %s, and has sessions with both", groupName(in), groupName(to)))
	step.NodeLabels = map[string]*string{v1alpha1.ClientLabel: new(groupName(in)), v1alpha1.JoinsLabel: new(groupName(to))}
	return step
}

// leave ends the move of a client.
func (a *assignment) leave(n *Node, in, joins int) []Step {
	if !a.live[joins] && in != nowhere {
		return nil // its reflectors are to come
	}
	step := a.w.nodeStep(Leave, n.Name, fmt.Sprintf("its sessions with group %s are Established, and it no longer needs those with group %s", groupName(joins), groupName(in)))
	if in == nowhere {
		step = a.w.nodeStep(Assign, n.Name, fmt.Sprintf("the group that it moved from is gone; group %s has it", groupName(joins)))
	}
	step.NodeLabels = map[string]*string{v1alpha1.ClientLabel: new(groupName(joins)), v1alpha1.JoinsLabel: nil}
	return []Step{step}
}

// reopened is the step by which clients without a label come to another group, if the open one is to go, or has its share. By then every client that
// there is has a label, so that no session is reset.
func (w stages) reopened(d design) []Step {
	r := w.roster()
	if r.flat || w.firstNode(func(n *Node) bool { return n.isClient(&w.Topology) && n.unlabeled() }) != "" {
		return nil
	}
	a := newAssignment(w, d, r)
	to := a.lightest()
	full := a.load[r.open] >= a.cap && a.load[to] < a.load[r.open]
	if slices.Contains(d.groups, r.open) && !full || !a.live[to] {
		return nil
	}
	return a.reopen(to, fmt.Sprintf("group %s has its share", groupName(r.open)))
}

// forsaken is the step by which clients without a label come to another group, if no reflector of the open one lives and none can be made now. They
// have no sessions that it could reset. A reflector that is demoted becomes such a client, so it comes before demotions.
func (w stages) forsaken(d design) []Step {
	r := w.roster()
	if r.flat {
		return nil
	}
	a := newAssignment(w, d, r)
	to := a.lightest()
	if a.live[r.open] || !a.live[to] {
		return nil
	}
	return a.reopen(to, fmt.Sprintf("group %s has no reflector", groupName(r.open)))
}

// reopen lets clients without a label come to a group.
func (a *assignment) reopen(to int, why string) []Step {
	if to == a.open {
		return nil
	}
	t := &a.w.Topology
	want := newPeer(t, clientsPeer, unlabeledMatcher{clientsMatcher{t.Spec.ClientSelector}}, groupMatcher{t.Name, to})
	have, _ := a.w.peer(want.Name)
	return []Step{{
		Kind: EnsurePeer, Object: "BGPPeer/" + want.Name, Peer: want, UID: have.UID, ResourceVersion: have.ResourceVersion,
		Reason: fmt.Sprintf("%s; new clients come to group %s", why, groupName(to)),
	}}
}

// released are steps that take labels away that nothing reads any more: those of all clients of a topology that is flat, or ends, and of
// nodes that no topology has as clients.
func (w stages) released(d design) []Step {
	var out []Step
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if !n.hasAny(v1alpha1.ClientLabel, v1alpha1.JoinsLabel) || d.hierarchical() && n.isClient(&w.Topology) || w.isOthers(n) {
			continue
		}
		step := w.nodeStep(Release, n.Name, "no group of reflectors has it as a client")
		step.NodeLabels = n.without(v1alpha1.ClientLabel, v1alpha1.JoinsLabel)
		out = append(out, step)
	}
	slices.SortFunc(out, func(a, b Step) int { return strings.Compare(a.Node, b.Node) })
	return out
}

// isOthers reports that the node is another topology's client, by whose labels it is not for this one to judge.
func (w facts) isOthers(n *Node) bool {
	return !selects(w.Topology.Spec.ClientSelector, n.Labels) && slices.ContainsFunc(w.Others, func(o v1alpha1.RouteReflectorTopology) bool {
		return selects(o.Spec.ClientSelector, n.Labels)
	})
}

// ofClient reports that the step is a write to a client.
func (s Step) ofClient() bool {
	return s.Kind == Assign || s.Kind == Join || s.Kind == Leave || s.Kind == Release
}
