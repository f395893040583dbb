// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package next

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/design"
	"github.com/mooring-dev/mooring/internal/routereflector/health"
)

// MaxJoining is how many clients are on the move at a time, and have sessions with two groups.
const MaxJoining = 32

// clientSteps are the writes to clients that come next, by what must have been done before.
type clientSteps struct {
	// labels writes down in which group clients are that have no label yet, and puts those into a group that have no
	// session with any reflector.
	labels []rr.Step
	// moves are parts of moves.
	moves []rr.Step
}

// assignment divides clients among the groups of a design.
type assignment struct {
	w *rr.World
	d design.Design
	rr.Roster
	// live are the groups with a reflector that speaks BGP and is not lost, works are those of which one is Ready too:
	// one in its grace period may come back, and until then nobody moves to it. load is how many clients each group is
	// to have by what is decided so far, cap is how many it may have.
	live, works map[int]bool
	load        map[int]int
	cap         int
	// joining counts the clients on the move, by the group that they move to; total is all of them.
	joining map[int]int
	total   int
	// members are the clients: those without a label first, so that it is newcomers that move where a group is full.
	members []*rr.Node
}

// maxListed is how many labels are listed at a time, which is more than a plan has room for.
const maxListed = 32

// clientWrites lists the writes to clients that come next. A client that comes, goes or changes moves nobody else:
// clients move only out of a group that is to go, out of one with more than the limit of clients, and into a group that
// is new.
func clientWrites(w *rr.World, d design.Design) clientSteps {
	r := w.Roster()
	if r.Flat && !d.Hierarchical() {
		return clientSteps{}
	}
	a := newAssignment(w, d, r)
	a.sortMembers()
	var out clientSteps
	var joins, leaves []rr.Step
	for _, n := range a.members {
		switch in, to := a.where(n); {
		case to != rr.Nowhere:
			leaves = append(leaves, a.leave(n, in, to)...)
		case in == rr.Nowhere || a.Gathers && n.Unlabeled() || !a.mustGo(n, in):
			out.labels = append(out.labels, a.label(n, in)...)
		default:
			joins = append(joins, a.depart(n, in)...)
		}
		if len(out.labels) > maxListed {
			return out // what comes after them is decided once they are written
		}
	}
	if len(joins) == 0 {
		joins = a.fill()
	}
	out.moves = moves(w, leaves, joins)
	return out
}

// label writes down the group of a client: the one that it is in, or another one if that has no reflectors. While the
// open group gathers all clients, a label takes no session away, and each group gets its share.
func (a *assignment) label(n *rr.Node, in int) []rr.Step {
	if a.Gathers && n.Unlabeled() && len(a.d.Groups) > 1 {
		if in != rr.Nowhere {
			a.load[in]--
		}
		return []rr.Step{a.assign(n, a.lightest(), "the groups have their reflectors")}
	}
	if in != rr.Nowhere {
		if !n.Unlabeled() || len(a.d.Groups) < 2 { // labels that would go again at once are not written
			return nil
		}
		return []rr.Step{a.adopt(n, in)}
	}
	// Without a label it waits for the reflectors of the open group.
	if to := a.lightest(); a.live[to] && !n.Unlabeled() {
		return []rr.Step{a.assign(n, to, "its group has no reflectors")}
	}
	return nil
}

// depart begins the move of a client out of a group that it must leave, if there is room for it.
func (a *assignment) depart(n *rr.Node, in int) []rr.Step {
	if to := a.lightest(); a.total < MaxJoining && to != in && a.works[to] {
		return []rr.Step{a.join(n, in)}
	}
	return nil
}

// moves puts what can be done at once first. While more is to come one client stays on the move, since that is how a
// new process sees that a new group is not filled yet.
func moves(w *rr.World, leaves, joins []rr.Step) []rr.Step {
	var ready, waiting []rr.Step
	for _, s := range leaves {
		if leave, is := s.(rr.Leave); !is || LeaveWaits(w, leave) == "" {
			ready = append(ready, s)
		} else {
			waiting = append(waiting, s)
		}
	}
	if len(joins) > 0 && len(waiting) == 0 && len(ready) > 0 {
		ready = ready[:len(ready)-1]
	}
	if len(ready)+len(joins) > 0 {
		return slices.Concat(ready, joins)
	}
	return waiting
}

func newAssignment(w *rr.World, d design.Design, r rr.Roster) *assignment {
	a := &assignment{
		w: w, d: d, Roster: r,
		live: map[int]bool{}, works: map[int]bool{}, load: map[int]int{}, joining: map[int]int{},
	}
	for _, n := range w.Working(nil) {
		a.works[n.Group()] = true
	}
	for i := range w.Nodes {
		n := &w.Nodes[i]
		switch {
		case n.IsReflectorOf(&w.Topology):
			a.live[n.Group()] = a.live[n.Group()] || n.Speaks() && health.WhyLost(w, n) == ""
		case n.IsClient(&w.Topology):
			a.members = append(a.members, n)
		}
	}
	for _, n := range a.members {
		in, joins := a.where(n)
		switch {
		case joins != rr.Nowhere:
			a.load[joins]++
			a.joining[joins]++
			a.total++
		case in != rr.Nowhere:
			a.load[in]++
		}
	}
	a.cap = GroupCap(w, len(a.members), len(d.Groups))
	return a
}

// sortMembers puts those without a label first, and then in an order that follows from names alone.
func (a *assignment) sortMembers() {
	type member struct {
		*rr.Node
		labeled int
		place   uint64
	}
	members := make([]member, 0, len(a.members))
	for _, n := range a.members {
		members = append(members, member{n, rr.Count(!n.Unlabeled()), rr.Rendezvous(a.w.Topology.Name, n.Name)})
	}
	slices.SortFunc(members, func(x, y member) int {
		return cmp.Or(cmp.Compare(x.labeled, y.labeled), cmp.Compare(x.place, y.place), strings.Compare(x.Name, y.Name))
	})
	for i := range members {
		a.members[i] = members[i].Node
	}
}

// GroupCap is how many clients a group may have: a quarter more than its share, and no more than the limit if that is
// enough for all.
func GroupCap(w *rr.World, clients, groups int) int {
	bound := rr.CeilDiv(clients*5, groups*4)
	if limit := int(w.Topology.Spec.Sizing.MaxClientsPerReflector); limit > 0 {
		bound = min(bound, limit)
	}
	return max(bound, rr.CeilDiv(clients, groups))
}

// where is the group that a client is in, and the one that it moves to if that is still wanted. A group that is neither
// wanted nor has a reflector is nowhere, and so is the open group without a reflector.
func (a *assignment) where(n *rr.Node) (in, joins int) {
	in, joins = n.Membership()
	wanted := func(g int) bool { return slices.Contains(a.d.Groups, g) }
	if joins != rr.Nowhere && (!wanted(joins) || joins == in) {
		joins = rr.Nowhere
	}
	switch {
	case n.Unlabeled():
		if in = rr.Nowhere; a.live[a.Open] {
			in = a.Open
		}
	case !wanted(in) && !a.live[in]:
		in = rr.Nowhere
	}
	return in, joins
}

// lightest is the wanted group with the fewest clients, of those that have a working reflector, or one at least.
func (a *assignment) lightest() int {
	return slices.MinFunc(a.d.Groups, func(x, y int) int {
		return cmp.Or(
			cmp.Compare(rr.Count(!a.works[x]), rr.Count(!a.works[y])),
			cmp.Compare(rr.Count(!a.live[x]), rr.Count(!a.live[y])),
			cmp.Compare(a.load[x], a.load[y]), cmp.Compare(x, y))
	})
}

// mustGo reports that a client must leave the group that it is in: the group is to go, or has more clients than the
// limit. Of a group that takes clients without a label those go first that have none yet, as soon as the group has its
// share.
func (a *assignment) mustGo(n *rr.Node, in int) bool {
	if !slices.Contains(a.d.Groups, in) {
		return true
	}
	limit := int(a.w.Topology.Spec.Sizing.MaxClientsPerReflector)
	if n.Unlabeled() {
		limit = a.cap
	}
	return a.load[in] > max(limit, a.cap) && a.load[a.lightest()] < min(a.cap, a.load[in]-1)
}

// fill lists the joins that bring a new group its share: one that has no clients, or that clients are on the move to.
// Groups with more than their cap give them, and no more than that.
func (a *assignment) fill() []rr.Step {
	var out []rr.Step
	to := a.lightest()
	if a.load[to] > 0 && a.joining[to] == 0 || !a.works[to] {
		return nil
	}
	for _, n := range a.members {
		in, joins := a.where(n)
		if a.total >= MaxJoining || a.load[to] >= a.cap {
			break
		}
		if joins == rr.Nowhere && in != rr.Nowhere && in != to && a.load[in] > a.cap {
			out = append(out, a.join(n, in))
		}
	}
	return out
}

// assign labels a client with a group, and with nothing else.
func (a *assignment) assign(n *rr.Node, g int, why string) rr.Step {
	a.load[g]++
	why = fmt.Sprintf("%s; group %s takes it", why, rr.GroupName(g))
	labels := n.Without(v1alpha1.JoinsLabel)
	labels[v1alpha1.ClientLabel] = new(rr.GroupName(g))
	return rr.Assign{NodeChange: NodeStep(n, why, labels)}
}

// adopt labels a client with the group that it has sessions with already.
func (a *assignment) adopt(n *rr.Node, in int) rr.Step {
	a.load[in]--
	return a.assign(n, in, "its sessions are Established already")
}

// join gives a client sessions with the lightest group alongside those that it has.
func (a *assignment) join(n *rr.Node, in int) rr.Step {
	return a.joinTo(n, in, a.lightest())
}

// joinTo gives a client sessions with a second group.
func (a *assignment) joinTo(n *rr.Node, in, to int) rr.Step {
	a.load[in]--
	a.load[to]++
	a.joining[to]++
	a.total++
	why := fmt.Sprintf("it moves from group %s to group %s, and has sessions with both", rr.GroupName(in), rr.GroupName(to))
	return rr.Join{NodeChange: NodeStep(n, why, map[string]*string{
		v1alpha1.ClientLabel: new(rr.GroupName(in)),
		v1alpha1.JoinsLabel:  new(rr.GroupName(to)),
	})}
}

// leave ends the move of a client.
func (a *assignment) leave(n *rr.Node, in, joins int) []rr.Step {
	if !a.works[joins] && in != rr.Nowhere {
		return nil // its reflectors are to come, or to come back: see [Held]
	}
	from, to := rr.GroupName(in), rr.GroupName(joins)
	why := fmt.Sprintf("its sessions with group %s are Established, and it no longer needs those with group %s", to, from)
	labels := map[string]*string{v1alpha1.ClientLabel: new(to), v1alpha1.JoinsLabel: nil}
	if in == rr.Nowhere {
		why = fmt.Sprintf("the group that it moved from is gone; group %s has it", to)
		return []rr.Step{rr.Assign{NodeChange: NodeStep(n, why, labels)}}
	}
	return []rr.Step{rr.Leave{NodeChange: NodeStep(n, why, labels)}}
}

// scattered is the step by which a group gathers all clients no more: each has its label by now, and a group that
// works. For a flat topology the open group keeps them.
func scattered(w *rr.World, d design.Design) []rr.Step {
	r := w.Roster()
	if !r.Gathers || !d.Hierarchical() || Held(w) != "" {
		return nil
	}
	a := assignment{w: w, Roster: r}
	return a.open(r.Open, "each client has a group with reflectors of its own")
}

// reopened is the step by which clients without a label come to another group, if the open one is to go, or has its
// share. By then every client that there is has a label, so that no session is reset.
func reopened(w *rr.World, d design.Design) []rr.Step {
	r := w.Roster()
	if r.Flat || w.FirstNode(func(n *rr.Node) bool { return n.IsClient(&w.Topology) && n.Unlabeled() }) != "" {
		return nil
	}
	a := newAssignment(w, d, r)
	to := a.lightest()
	full := a.load[r.Open] >= a.cap && a.load[to] < a.load[r.Open]
	if slices.Contains(d.Groups, r.Open) && !full || !a.live[to] {
		return nil
	}
	return a.reopen(to, fmt.Sprintf("group %s has its share", rr.GroupName(r.Open)))
}

// forsaken is the step by which clients without a label come to another group, if no reflector of the open one lives
// and none can be made now. They have no sessions that it could reset. A reflector that is demoted becomes such a
// client, so it comes before demotions.
func forsaken(w *rr.World, d design.Design) []rr.Step {
	r := w.Roster()
	if r.Flat {
		return nil
	}
	a := newAssignment(w, d, r)
	to := a.lightest()
	if a.live[r.Open] || !a.live[to] {
		return nil
	}
	return a.reopen(to, fmt.Sprintf("group %s has no reflector", rr.GroupName(r.Open)))
}

// reopen lets clients without a label come to a group.
func (a *assignment) reopen(to int, why string) []rr.Step {
	if to == a.Open {
		return nil
	}
	return a.open(to, why)
}

// open writes the BGPPeer of the clients without a label.
func (a *assignment) open(to int, why string) []rr.Step {
	t := &a.w.Topology
	want := rr.NewcomersPeer(t, to)
	have, _ := a.w.Peer(want.Name)
	why = fmt.Sprintf("%s; new clients come to group %s", why, rr.GroupName(to))
	return []rr.Step{rr.EnsurePeer{About: rr.AboutPeer(want.Name, have, why), Peer: want}}
}

// released are steps that take labels away that nothing reads any more: those of all clients of a topology that is
// flat, or ends, and of nodes that no topology has as clients.
func released(w *rr.World, d design.Design) []rr.Step {
	var out []rr.Step
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if !n.HasAny(v1alpha1.ClientLabel, v1alpha1.JoinsLabel) || d.Hierarchical() && n.IsClient(&w.Topology) ||
			w.IsOthers(n) {
			continue
		}
		labels := n.Without(v1alpha1.ClientLabel, v1alpha1.JoinsLabel)
		out = append(out, rr.Release{NodeChange: NodeStep(n, "no group of reflectors has it as a client", labels)})
	}
	slices.SortFunc(out, func(a, b rr.Step) int { return strings.Compare(a.Node(), b.Node()) })
	return out
}
