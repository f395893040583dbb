// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
)

// A reflector whose BIRD is dead and whose kubelet is alive looks healthy to Kubernetes. Only its peers notice, so some
// of them, the witnesses, report their sessions all the time:
//
//	two witnesses report that they lost it ── lost ── it stays so for the grace period ── another node is promoted ── it is demoted
//	                                           └── two witnesses report a session again ── it keeps its role
//
// A witness that has no session with any reflector has trouble of its own, and does not count. What is known of lost
// reflectors is in the status, so that it survives the program, and a change of roles, after which the reports of
// clients are no evidence any more.

const (
	// StandingClients is how many clients of a group are witnesses, one more than the quorum.
	StandingClients = rr.Quorum + 1
	// StandingReflectors is how many reflectors of groups are witnesses of the spines in a hierarchy.
	StandingReflectors = 4
)

// votes are what witnesses report of a reflector, by their names, sorted: whether they lost it, have a session with it,
// or do not count.
type votes struct {
	lost, held, silent []string
	// since is when the second of those who lost it did so, latest the time of the newest report that counts.
	since, latest time.Time
}

// ballot is what votes are counted from: the topology's reflectors, and who reported each of the sightings, nil for a
// Node that is gone.
type ballot struct {
	in *rr.World

	reflectors []*rr.Node
	reporters  []*rr.Node
	clients    rr.Roster
}

// newBallot is what votes on the reflectors of a World are counted from.
func newBallot(w *rr.World) ballot {
	b := ballot{in: w, reporters: make([]*rr.Node, len(w.Sightings)), clients: w.Roster()}
	at := make(map[string]int, len(w.Sightings))
	for i := range w.Sightings {
		at[w.Sightings[i].Node] = i
	}
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if n.IsReflectorOf(&w.Topology) {
			b.reflectors = append(b.reflectors, n)
		}
		if reporter, reports := at[n.Name]; reports {
			b.reporters[reporter] = n
		}
	}
	return b
}

// isPeerOf reports whether the BGPPeers give the node a session with a reflector, and the node is alive as far as
// Kubernetes knows.
func (b ballot) isPeerOf(o, reflector *rr.Node) bool {
	if o.Name == reflector.Name || o.Ready != corev1.ConditionTrue || !o.Speaks() {
		return false
	}
	return b.clients.Expects(reflector, o)
}

const (
	// seenLoss is how long a session must be missing to count as lost if the witness has not reported it as Established
	// since roles last changed, but the reflector itself has: for as long the witness's report may be from before.
	seenLoss = 5 * time.Second
	// unseenLoss is that time if only the status says that the reflector had sessions. If nobody does, as of a node
	// that has just been promoted, it is spec.rollout.sessionTimeout, or a minute where that is less.
	unseenLoss = 30 * time.Second
)

// session returns whether a report has an Established session with a reflector, and otherwise since when it is lost,
// zero if it is not known to be.
func session(w *rr.World, s *rr.Sighting, n *rr.Node) (held bool, lostAt time.Time) {
	if s.Established[n.IPv4] || s.Established[n.IPv6] {
		return true, time.Time{}
	}
	if lostAt = earliest(s.Lost, n); !lostAt.IsZero() {
		return false, lostAt
	}
	lostAt = earliest(s.Down, n)
	if lostAt.IsZero() || w.Now.Sub(lostAt) < patience(w, s, n) {
		return false, time.Time{}
	}
	return false, lostAt
}

// patience is how long a session that a report has never shown must be missing to count as lost.
func patience(w *rr.World, s *rr.Sighting, n *rr.Node) time.Duration {
	e, known := lostEntry(w, n)
	if reported(w, n, s.Node) || known && e.Until == nil { // nobody has seen its sessions since it was lost
		return seenLoss
	}
	if known || wasEstablished(w, n) {
		return unseenLoss
	}
	return max(w.Topology.Spec.Rollout.SessionTimeout.Duration, rr.Freshness)
}

// reported says that a reflector has reported an Established session with a node since roles last changed.
func reported(w *rr.World, reflector *rr.Node, with string) bool {
	at := slices.IndexFunc(w.Sightings, func(s rr.Sighting) bool { return s.Node == reflector.Name })
	peer, exists := w.Node(with)
	return at >= 0 && exists && (w.Sightings[at].Established[peer.IPv4] || w.Sightings[at].Established[peer.IPv6])
}

// earliest is the earlier of the times at a node's addresses, zero for none.
func earliest(at map[netip.Addr]time.Time, n *rr.Node) time.Time {
	v4, v6 := at[n.IPv4], at[n.IPv6]
	if v4.IsZero() || !v6.IsZero() && v6.Before(v4) {
		return v6
	}
	return v4
}

// counts reports whether a report is evidence now: its status request stands, or it is fresh.
func counts(w *rr.World, s *rr.Sighting) bool {
	return s.Standing || s.Current || w.Now.Sub(s.At) <= rr.Freshness
}

// votes counts what is reported of a reflector. fresh admits no report that is older than [Freshness], even if its
// request stands: nobody would correct it if the witness's calico-node had died.
func (b ballot) votes(n *rr.Node, fresh bool) votes {
	var out votes
	var times []time.Time
	for i, o := range b.reporters {
		s := &b.in.Sightings[i]
		if o == nil || !b.isPeerOf(o, n) {
			continue
		}
		held, lostAt := session(b.in, s, n)
		counts := counts(b.in, s) && (!fresh || b.in.Now.Sub(s.At) <= rr.Freshness)
		switch {
		case counts && held:
			out.held = append(out.held, s.Node)
		case counts && !lostAt.IsZero() && b.holdsAnother(s, n):
			out.lost, times = append(out.lost, s.Node), append(times, lostAt)
		default:
			out.silent = append(out.silent, s.Node)
			continue
		}
		if s.At.After(out.latest) {
			out.latest = s.At
		}
	}
	if slices.SortFunc(times, time.Time.Compare); len(times) >= rr.Quorum {
		out.since = times[rr.Quorum-1]
	}
	for _, names := range [][]string{out.lost, out.held, out.silent} {
		slices.Sort(names)
	}
	return out
}

// holdsAnother reports whether a report has a session with a reflector apart from one.
func (b ballot) holdsAnother(s *rr.Sighting, than *rr.Node) bool {
	return slices.ContainsFunc(b.reflectors, func(r *rr.Node) bool {
		held, _ := session(b.in, s, r)
		return held && r.Name != than.Name
	})
}

// LostReflectors is what the status must say of lost reflectors: those that are lost now, and for
// spec.failure.stabilization those that were.
func LostReflectors(w *rr.World) []v1alpha1.LostReflector {
	if w.Exiting() {
		return nil
	}
	var out []v1alpha1.LostReflector
	b := newBallot(w)
	for _, n := range b.reflectors {
		before, known := lostEntry(w, n)
		if e, is := b.lostNow(n, before, known); is {
			out = append(out, e)
		}
	}
	for _, e := range w.Topology.Status.LostReflectors {
		n, exists := w.Node(e.Node)
		if !exists || n.Created.After(e.Since.Time) || n.IsReflectorOf(&w.Topology) {
			continue
		}
		if e.Until == nil { // nobody observes it as a reflector any more
			e.Until = new(rr.Second(w.Now))
		}
		if w.Now.Sub(e.Until.Time) < w.Stabilization() {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b v1alpha1.LostReflector) int {
		return cmp.Or(rr.Count(a.Until != nil)-rr.Count(b.Until != nil), cmp.Compare(a.Node, b.Node))
	})
	return out[:min(len(out), v1alpha1.MaxLostReflectors)]
}

// lostEntry is what the status says of a node, unless it is about an earlier Node of the same name.
func lostEntry(w *rr.World, n *rr.Node) (v1alpha1.LostReflector, bool) {
	all := w.Topology.Status.LostReflectors
	i := slices.IndexFunc(all,
		func(e v1alpha1.LostReflector) bool { return e.Node == n.Name && !n.Created.After(e.Since.Time) })
	if i < 0 {
		return v1alpha1.LostReflector{}, false
	}
	return all[i], true
}

// lostNow decides about one reflector, given what the status says of it.
func (b ballot) lostNow(n *rr.Node, before v1alpha1.LostReflector, known bool) (entry v1alpha1.LostReflector, is bool) {
	open := known && before.Until == nil
	v := b.votes(n, false)
	switch {
	case open && b.after(before.Since.Time, v.held) >= rr.Quorum && n.Ready == corev1.ConditionTrue:
		before.Until = new(rr.Second(b.in.Now))
		if !before.Until.After(before.Since.Time) { // so that its sessions are observed after it
			before.Until = new(metav1.NewTime(before.Since.Add(time.Second)))
		}
		return before, true
	case open:
		return before, true
	case known && !v.since.After(before.Until.Time): // a loss from before the return is that which is over
		return before, b.in.Now.Sub(before.Until.Time) < b.in.Stabilization()
	case len(v.lost) >= rr.Quorum && n.Ready == corev1.ConditionTrue && isLoss(b.in, v):
		return v1alpha1.LostReflector{Node: n.Name, Since: metav1.NewTime(v.since.UTC().Truncate(time.Second))}, true
	case known:
		return before, b.in.Now.Sub(before.Until.Time) < b.in.Stabilization()
	}
	return v1alpha1.LostReflector{}, false
}

// after is how many of the nodes have reported since a time. A report from before a loss is no sign of a return: a process
// that has just begun reads those of nodes that were not asked again.
func (b ballot) after(at time.Time, nodes []string) (many int) {
	for i := range b.in.Sightings {
		if s := &b.in.Sightings[i]; slices.Contains(nodes, s.Node) && !s.At.Before(at) {
			many++
		}
	}
	return many
}

// isLoss reports whether votes are about a loss: a step resets sessions, so that until all have been seen after it,
// those that are down for a moment are waited for.
func isLoss(w *rr.World, v votes) bool {
	return !w.Unproven || w.Now.Sub(v.since) >= unseenLoss
}

// wasEstablished reports that by the status the reflector has had sessions with its present cluster ID.
func wasEstablished(w *rr.World, n *rr.Node) bool {
	return slices.ContainsFunc(w.Topology.Status.Reflectors, func(r v1alpha1.ReflectorStatus) bool {
		return r.Node == n.Name && r.ClusterID == n.ClusterID && r.Established > 0
	})
}

// Witnessed is the World in which the reflectors are known that their witnesses have lost.
func Witnessed(w rr.World) rr.World {
	lost := LostReflectors(&w)
	cloned := false
	for i := range w.Nodes {
		var since time.Time
		at := slices.IndexFunc(lost,
			func(e v1alpha1.LostReflector) bool { return e.Node == w.Nodes[i].Name && e.Until == nil })
		if at >= 0 && w.Nodes[i].Ready == corev1.ConditionTrue {
			since = lost[at].Since.Time
		}
		dead := !since.IsZero() && w.Now.Sub(since) >= countedFor(&w)
		if since.Equal(w.Nodes[i].LostSince) && dead == w.Nodes[i].Dead {
			continue
		}
		if !cloned {
			w.Nodes, cloned = slices.Clone(w.Nodes), true
		}
		w.Nodes[i].LostSince, w.Nodes[i].Dead = since, dead
	}
	return w
}

// countedFor is for how long a lost reflector is counted on: until a spare can take its place, or the grace period is
// over.
func countedFor(w *rr.World) time.Duration {
	grace := w.Topology.Spec.Failure.UnreachableGrace.Duration
	if w.Spares() == 0 {
		return grace
	}
	return min(grace, w.PromoteAfter())
}

// GivenUp reports that a reflector that has its sessions again had been lost for longer than the grace period. It is
// not kept where enough others work.
func GivenUp(w *rr.World, n *rr.Node) bool {
	e, known := lostEntry(w, n)
	return known && e.Until != nil && e.Until.Sub(e.Since.Time) >= w.Topology.Spec.Failure.UnreachableGrace.Duration
}

// TrustedSince is since when a node has been fit to become a reflector: its Node is Ready, and it has not been lost as
// a reflector.
func TrustedSince(w *rr.World, n *rr.Node) time.Time {
	e, known := lostEntry(w, n)
	switch {
	case !known:
		return n.ReadySince
	case e.Until == nil:
		return w.Now
	case e.Until.After(n.ReadySince):
		return e.Until.Time
	}
	return n.ReadySince
}

// IsSilentClient reports that the status has named the node for a while as a client with which no reflector has a
// session. A client whose session is only being reset is not passed over.
func IsSilentClient(w *rr.World, n *rr.Node) bool {
	return slices.ContainsFunc(w.Topology.Status.SilentClients, func(c v1alpha1.SilentClient) bool {
		return c.Node == n.Name && w.Now.Sub(c.Since.Time) >= rr.Freshness
	})
}

// lostTrouble is the trouble of a reflector whose Node is Ready and that its witnesses have lost.
func lostTrouble(w *rr.World, n *rr.Node) rr.Trouble {
	b := newBallot(w)
	v := b.votes(n, true)
	t := rr.Trouble{
		Node:     n.Name,
		Word:     rr.WordLost,
		Since:    n.LostSince,
		Until:    n.LostSince.Add(w.Topology.Spec.Failure.UnreachableGrace.Duration),
		Lost:     v.lost,
		Held:     v.held,
		Silent:   v.silent,
		Reported: b.votes(n, false).latest,
	}
	for _, name := range StandingWitnesses(w) {
		o, _ := w.Node(name)
		if b.isPeerOf(&o, n) && !slices.Contains(t.Observers(), name) {
			t.Silent = append(t.Silent, name)
		}
	}
	slices.Sort(t.Silent)
	return t
}

// Isolated describes witnesses that have lost all of their reflectors, "" for fewer than two. That may be a partition,
// or the witnesses' own trouble: it is reported, and nothing is replaced for it.
func Isolated(w *rr.World) string {
	var names []string
	b := newBallot(w)
	for i, o := range b.reporters {
		s := &w.Sightings[i]
		if o == nil || !counts(w, s) {
			continue
		}
		lost, held := false, false
		for _, r := range b.reflectors {
			if !b.isPeerOf(o, r) {
				continue
			}
			has, lostAt := session(w, s, r)
			lost, held = lost || !lostAt.IsZero(), held || has
		}
		if lost && !held {
			names = append(names, s.Node)
		}
	}
	if len(names) < rr.Quorum {
		return ""
	}
	slices.Sort(names)
	return fmt.Sprintf(
		"%s report that they have lost the BGP sessions with all of their reflectors; that may be a partition or their own trouble, so no reflector is "+
			"replaced for it; check calico-node and TCP port 179 on them and on the reflectors", rr.Few(names))
}

// StandingWitnesses lists, by name, the nodes on which a status request stands all the time. In a flat topology they
// are clients of different zones, in a hierarchy the spines and some reflectors, which have sessions with all groups
// and with each other; and clients of a group as soon as one of its reflectors is lost by anybody. One that leaves
// requests unanswered is replaced by another.
func StandingWitnesses(w *rr.World) []string {
	b := newBallot(w)
	reflectors := b.reflectors
	if len(reflectors) == 0 || meshCarries(w) {
		return nil
	}
	names := map[string]bool{}
	if w.IsFlat() {
		clients := witnessesOf(w, rr.FirstGroup)
		for _, n := range responsive(w, slices.Concat(clients, nodesOf(reflectors)), StandingClients) {
			names[n.Name] = true
		}
	} else {
		all := nodesOf(reflectors)
		for _, n := range responsive(w, rr.GroupOf(all, rr.Spines), rr.SpineCount) {
			names[n.Name] = true
		}
		others := slices.DeleteFunc(all, func(n rr.Node) bool { return n.Group() == rr.Spines })
		spread := rr.SpreadOver(others, w.Topology.Name, func(n *rr.Node) string { return rr.GroupName(n.Group()) },
			StandingReflectors+len(w.Unresponsive))
		for _, n := range responsive(w, spread, StandingReflectors) {
			names[n.Name] = true
		}
		for _, r := range reflectors {
			if r.LostSince.IsZero() && len(b.votes(r, false).lost) == 0 {
				continue
			}
			for _, n := range responsive(w, witnessesOf(w, r.Group()), StandingClients) {
				names[n.Name] = true
			}
		}
	}
	return rr.SortedKeys(names)
}

// meshCarries reports that the mesh is on only until all reflectors have their sessions, and nothing is known to be
// lost: what is waited for then is asked for anyway, and each step would make the reports of clients invalid.
func meshCarries(w *rr.World) bool {
	return w.Mesh.On && w.Topology.Spec.Mesh == v1alpha1.MeshManage &&
		!slices.ContainsFunc(w.Topology.Status.LostReflectors, func(e v1alpha1.LostReflector) bool {
			return e.Until == nil
		})
}

// witnessesOf are clients of a group that may be its witnesses, those to take first in front.
func witnessesOf(w *rr.World, group int) []rr.Node {
	clients := w.Roster()
	var out []rr.Node
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if n.Ready == corev1.ConditionTrue && n.IsClient(&w.Topology) && clients.Has(n, group) && !n.Deleting &&
			!n.Departs() &&
			!IsSilentClient(w, n) {
			out = append(out, *n)
		}
	}
	return rr.SpreadOver(out, w.Topology.Name, w.Zone, StandingClients+len(w.Unresponsive))
}

// responsive are the first of some nodes whose Nodes are Ready, and those that left requests unanswered only where
// there are too few others.
func responsive(w *rr.World, from []rr.Node, count int) []rr.Node {
	from = slices.DeleteFunc(slices.Clone(from),
		func(n rr.Node) bool { return n.Ready != corev1.ConditionTrue || !n.LostSince.IsZero() })
	slices.SortStableFunc(from, func(a, b rr.Node) int {
		return rr.Count(slices.Contains(w.Unresponsive, a.Name)) - rr.Count(slices.Contains(w.Unresponsive, b.Name))
	})
	return from[:min(len(from), count)]
}

// Recheck is when a witness last lost a reflector, zero if none has. What the others reported before that is asked for
// again, as one of them may be silent.
func Recheck(w *rr.World) time.Time {
	var out time.Time
	b := newBallot(w)
	for i := range w.Sightings {
		s := &w.Sightings[i]
		for _, r := range b.reflectors {
			if _, lostAt := session(w, s, r); lostAt.After(out) && counts(w, s) {
				out = lostAt
			}
		}
	}
	return out
}

func nodesOf(in []*rr.Node) []rr.Node {
	out := make([]rr.Node, 0, len(in))
	for _, n := range in {
		out = append(out, *n)
	}
	return out
}
