// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package routereflector

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

// suitability says how well a node suits, before all else. Who is of a lesser one is chosen only where there are too few of the others.
type suitability int

const (
	// never is who may not be chosen.
	never suitability = iota
	// unwanted is a reflector that works and that the spec wants no more, or that is about to be deleted.
	unwanted
	// retiring is one that is cordoned.
	retiring
	// fresh is a node that has not been Ready for long enough to become one.
	fresh
	// fit is everybody else.
	fit
)

func (w candidates) suitability(n *Node) suitability {
	unfit := w.unfit(n)
	if n.marked(&w.Topology) || n.adoptedBy(&w.Topology) {
		switch {
		case w.lost(n) != "":
			return never
		case unfit == "" && n.retires():
			return retiring
		case unfit == "":
			return fit
		case n.isReflectorOf(&w.Topology) && n.speaks() && w.lacksFamily(n) == "":
			return unwanted
		}
		return never
	}
	switch {
	case unfit != "":
		return never
	case w.unfitToBecome(n) == "":
		return fit
	}
	old := *n
	old.ReadySince = time.Time{}
	if w.unfitToBecome(&old) == "" {
		return fresh
	}
	return never
}

// retires reports that somebody has cordoned the node, which is what comes before it is drained, started again or deleted. Anyone who means
// to keep a reflector through that says so with an annotation.
func (n *Node) retires() bool {
	_, keep := n.Annotations[v1alpha1.KeepAnnotation]
	return n.Unschedulable && !keep
}

// reluctance says why a reflector that works is to be replaced as soon as another can take its place, "" if it is not.
func (w candidates) reluctance(n *Node) string {
	switch w.suitability(n) {
	case retiring:
		return "it is cordoned"
	case unwanted:
		return w.unfit(n)
	case never, fresh, fit:
	}
	return ""
}

// unwanted counts those of the chosen that stay only because nobody can take their place.
func (w candidates) unwanted(chosen []string) int {
	count := 0
	for i := range w.Nodes {
		n := &w.Nodes[i]
		count += boolInt(n.marked(&w.Topology) && slices.Contains(chosen, n.Name) && w.suitability(n) == unwanted)
	}
	return count
}

// standing ranks who is a reflector over who is not, and one whose Node is Ready over one that is only heard of by others.
func (c candidate) standing() int {
	return boolInt(c.incumbent) + boolInt(c.incumbent && c.node.Ready == corev1.ConditionTrue)
}

// pick chooses count of the candidates: those that are fit, then nodes that are fresh if need be, and if that is not enough, reflectors that
// should go.
//
// Where enough reflectors are Ready, one whose Node is in trouble beyond its grace period is not kept, even if it is the only one of its zone: its
// replacement, on which all observers have to be queried again, would go otherwise.
func (w candidates) pick(all []candidate, count int) []string {
	ready := 0
	for _, c := range all {
		ready += boolInt(c.incumbent && c.suits == fit && c.node.Ready == corev1.ConditionTrue)
	}
	if ready >= count {
		all = slices.DeleteFunc(slices.Clone(all), func(c candidate) bool { return c.incumbent && w.overdue(c.node) })
	}
	of := func(s suitability) []candidate {
		return slices.DeleteFunc(slices.Clone(all), func(c candidate) bool { return c.suits != s })
	}
	taken := spread(nil, of(fit), count)
	if len(taken) < count {
		taken = spread(taken, of(fresh), w.pressed(count))
	}
	taken = spread(taken, of(retiring), count)
	taken = spread(taken, of(unwanted), count)
	var names []string
	for _, c := range taken {
		names = append(names, c.node.Name)
	}
	return names
}

// pressed is up to which number nodes that are fresh must do: so many that clients are left with all sessions but one, or in an emergency with all.
// Without this a pool of nodes that is replaced faster than its nodes are trusted would run out of reflectors.
func (w candidates) pressed(count int) int {
	switch {
	case w.rescuing(), w.emergency():
		return count
	case !w.served():
		return 0
	}
	return count - 1
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

// atOnce counts the first steps that are done in one round: in an emergency all that add something. Anyone who is chosen first may be ill as
// well, and to wait for it would prolong the outage. Otherwise it is one, but for adopted BGPPeers that go and for clients.
func (w checks) atOnce(p Plan) int {
	one := min(len(p.Steps), 1)
	if !w.emergency() && !w.rescuing() || one > 0 && p.Steps[0].Kind == MeshOn {
		return max(retiredAtOnce(p.Steps), w.clientsAtOnce(p), one)
	}
	first := slices.IndexFunc(p.Steps, func(s Step) bool { return s.Kind != EnsurePeer && s.Kind != Promote })
	if first < 0 {
		first = len(p.Steps)
	}
	return max(first, one)
}

// clientsAtOnce counts the first steps that are about one client each and wait for nothing. They are independent of each other: a client
// passes nothing on. A plan lists no more than [maxClientSteps] of them.
func (w checks) clientsAtOnce(p Plan) int {
	count := slices.IndexFunc(p.Steps, func(s Step) bool { return !s.ofClient() || w.wait(s, p.Reflectors) != "" })
	if count < 0 {
		count = len(p.Steps)
	}
	return count
}

// fallback plans what remains in an emergency in which no node may be a reflector: the mesh, if it is the topology's to switch, and not too large
// with the Nodes that there were.
func (w checks) fallback(p *Plan, now judged) {
	if !w.emergency() && w.adrift() == "" || w.Topology.Spec.Mesh != v1alpha1.MeshManage || w.meshTooLargeByFar() {
		return
	}
	step := w.meshStep(MeshOn, "no reflector is running, and no node may become one; the mesh takes over")
	p.Target = w.judge(now.state.after(step, w.Topology)).checks
	p.Steps, p.Simulated, p.AtOnce = []Step{step}, []Simulated{{Step: step, Checks: p.Target}}, 1
}
