// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package oldplanner

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
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
	// standingClients is how many clients of a group are witnesses, one more than the quorum.
	standingClients = quorum + 1
	// standingReflectors is how many reflectors of groups are witnesses of the spines in a hierarchy.
	standingReflectors = 4
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
	facts

	reflectors []*Node
	reporters  []*Node
	clients    roster
}

func (w facts) ballot() ballot {
	b := ballot{facts: w, reporters: make([]*Node, len(w.Sightings)), clients: w.roster()}
	at := make(map[string]int, len(w.Sightings))
	for i := range w.Sightings {
		at[w.Sightings[i].Node] = i
	}
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if n.isReflectorOf(&w.Topology) {
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
func (w ballot) isPeerOf(o, reflector *Node) bool {
	if o.Name == reflector.Name || o.Ready != corev1.ConditionTrue || !o.speaks() {
		return false
	}
	return o.isReflectorOf(&w.Topology) && o.linked(reflector) ||
		o.isClient(&w.Topology) && w.clients.has(o, reflector.group())
}

const (
	// seenLoss is how long a session must be missing to count as lost if the witness has not reported it as Established
	// since roles last changed, but the reflector itself has: for as long the witness's report may be from before.
	seenLoss = 5 * time.Second
	// unseenLoss is that time if only the status says that the reflector had sessions. If nobody does, as of a node that
	// has just been promoted, it is spec.rollout.sessionTimeout, or a minute where that is less.
	unseenLoss = 30 * time.Second
)

// session returns whether a report has an Established session with a reflector, and otherwise since when it is lost,
// zero if it is not known to be.
func (w facts) session(s *Sighting, n *Node) (held bool, lostAt time.Time) {
	if s.Established[n.IPv4] || s.Established[n.IPv6] {
		return true, time.Time{}
	}
	if lostAt = earliest(s.Lost, n); !lostAt.IsZero() {
		return false, lostAt
	}
	lostAt = earliest(s.Down, n)
	if lostAt.IsZero() || w.Now.Sub(lostAt) < w.patience(s, n) {
		return false, time.Time{}
	}
	return false, lostAt
}

// patience is how long a session that a report has never shown must be missing to count as lost.
func (w facts) patience(s *Sighting, n *Node) time.Duration {
	if w.reported(n, s.Node) {
		return seenLoss
	}
	if _, known := w.lostEntry(n); known || w.wasEstablished(n) {
		return unseenLoss
	}
	return max(w.Topology.Spec.Rollout.SessionTimeout.Duration, Freshness)
}

// reported says that a reflector has reported an Established session with a node since roles last changed.
func (w facts) reported(reflector *Node, with string) bool {
	at := slices.IndexFunc(w.Sightings, func(s Sighting) bool { return s.Node == reflector.Name })
	peer, exists := w.node(with)
	return at >= 0 && exists && (w.Sightings[at].Established[peer.IPv4] || w.Sightings[at].Established[peer.IPv6])
}

// earliest is the earlier of the times at a node's addresses, zero for none.
func earliest(at map[netip.Addr]time.Time, n *Node) time.Time {
	v4, v6 := at[n.IPv4], at[n.IPv6]
	if v4.IsZero() || !v6.IsZero() && v6.Before(v4) {
		return v6
	}
	return v4
}

// counts reports whether a report is evidence now: its status request stands, or it is fresh.
func (w facts) counts(s *Sighting) bool {
	return s.Standing || s.Current || w.Now.Sub(s.At) <= Freshness
}

// votes counts what is reported of a reflector. fresh admits no report that is older than [Freshness], even if its
// request stands: nobody would correct it if the witness's calico-node had died.
func (w ballot) votes(n *Node, fresh bool) votes {
	var out votes
	var times []time.Time
	for i, o := range w.reporters {
		s := &w.Sightings[i]
		if o == nil || !w.isPeerOf(o, n) {
			continue
		}
		held, lostAt := w.session(s, n)
		counts := w.counts(s) && (!fresh || w.Now.Sub(s.At) <= Freshness)
		switch {
		case counts && held:
			out.held = append(out.held, s.Node)
		case counts && !lostAt.IsZero() && w.holdsAnother(s, n):
			out.lost, times = append(out.lost, s.Node), append(times, lostAt)
		default:
			out.silent = append(out.silent, s.Node)
			continue
		}
		if s.At.After(out.latest) {
			out.latest = s.At
		}
	}
	if slices.SortFunc(times, time.Time.Compare); len(times) >= quorum {
		out.since = times[quorum-1]
	}
	for _, names := range [][]string{out.lost, out.held, out.silent} {
		slices.Sort(names)
	}
	return out
}

// holdsAnother reports whether a report has a session with a reflector apart from one.
func (w ballot) holdsAnother(s *Sighting, than *Node) bool {
	return slices.ContainsFunc(w.reflectors, func(r *Node) bool {
		held, _ := w.session(s, r)
		return held && r.Name != than.Name
	})
}

// LostReflectors is what the status must say of reflectors that their witnesses have lost or had lost.
func (w World) LostReflectors() []v1alpha1.LostReflector { return factsOf(&w).lostReflectors() }

// lostReflectors is what the status must say of lost reflectors: those that are lost now, and for
// spec.failure.stabilization those that were.
func (w facts) lostReflectors() []v1alpha1.LostReflector {
	if w.exiting() {
		return nil
	}
	var out []v1alpha1.LostReflector
	b := w.ballot()
	for _, n := range b.reflectors {
		before, known := w.lostEntry(n)
		if e, is := b.lostNow(n, before, known); is {
			out = append(out, e)
		}
	}
	for _, e := range w.Topology.Status.LostReflectors {
		n, exists := w.node(e.Node)
		if !exists || n.Created.After(e.Since.Time) || n.isReflectorOf(&w.Topology) {
			continue
		}
		if e.Until == nil { // nobody observes it as a reflector any more
			e.Until = new(second(w.Now))
		}
		if w.Now.Sub(e.Until.Time) < w.stabilization() {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b v1alpha1.LostReflector) int {
		return cmp.Or(boolInt(a.Until != nil)-boolInt(b.Until != nil), cmp.Compare(a.Node, b.Node))
	})
	return out[:min(len(out), v1alpha1.MaxLostReflectors)]
}

// lostEntry is what the status says of a node, unless it is about an earlier Node of the same name.
func (w facts) lostEntry(n *Node) (v1alpha1.LostReflector, bool) {
	all := w.Topology.Status.LostReflectors
	i := slices.IndexFunc(
		all,
		func(e v1alpha1.LostReflector) bool { return e.Node == n.Name && !n.Created.After(e.Since.Time) },
	)
	if i < 0 {
		return v1alpha1.LostReflector{}, false
	}
	return all[i], true
}

// lostNow decides about one reflector, given what the status says of it.
func (w ballot) lostNow(n *Node, before v1alpha1.LostReflector, known bool) (entry v1alpha1.LostReflector, is bool) {
	open := known && before.Until == nil
	v := w.votes(n, false)
	switch {
	case open && len(v.held) >= quorum && n.Ready == corev1.ConditionTrue:
		before.Until = new(second(w.Now))
		if !before.Until.After(before.Since.Time) { // so that its sessions are observed after it
			before.Until = new(metav1.NewTime(before.Since.Add(time.Second)))
		}
		return before, true
	case open:
		return before, true
	case len(v.lost) >= quorum && n.Ready == corev1.ConditionTrue && w.isLoss(v):
		return v1alpha1.LostReflector{Node: n.Name, Since: metav1.NewTime(v.since.UTC().Truncate(time.Second))}, true
	case known:
		return before, w.Now.Sub(before.Until.Time) < w.stabilization()
	}
	return v1alpha1.LostReflector{}, false
}

// isLoss reports whether votes are about a loss: a step resets sessions, so that until all have been seen after it,
// those that are down for a moment are waited for.
func (w facts) isLoss(v votes) bool { return !w.Unproven || w.Now.Sub(v.since) >= unseenLoss }

// wasEstablished reports that by the status the reflector has had sessions with its present cluster ID.
func (w facts) wasEstablished(n *Node) bool {
	return slices.ContainsFunc(w.Topology.Status.Reflectors, func(r v1alpha1.ReflectorStatus) bool {
		return r.Node == n.Name && r.ClusterID == n.ClusterID && r.Established > 0
	})
}

// Witnessed is the World in which the reflectors are known that their witnesses have lost.
func (w World) Witnessed() World {
	lost := factsOf(&w).lostReflectors()
	cloned := false
	for i := range w.Nodes {
		var since time.Time
		at := slices.IndexFunc(
			lost,
			func(e v1alpha1.LostReflector) bool { return e.Node == w.Nodes[i].Name && e.Until == nil },
		)
		if at >= 0 && w.Nodes[i].Ready == corev1.ConditionTrue {
			since = lost[at].Since.Time
		}
		dead := !since.IsZero() && w.Now.Sub(since) >= w.Topology.Spec.Failure.UnreachableGrace.Duration
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

// givenUp reports that a reflector that has its sessions again had been lost for longer than the grace period. It is
// not kept where enough others work.
func (w facts) givenUp(n *Node) bool {
	e, known := w.lostEntry(n)
	return known && e.Until != nil && e.Until.Sub(e.Since.Time) >= w.Topology.Spec.Failure.UnreachableGrace.Duration
}

// trustedSince is since when a node has been fit to become a reflector: its Node is Ready, and it has not been lost as
// a reflector.
func (w facts) trustedSince(n *Node) time.Time {
	e, known := w.lostEntry(n)
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

// isSilentClient reports that the status has named the node for a while as a client with which no reflector has a
// session. A client whose session is only being reset is not passed over.
func (w facts) isSilentClient(n *Node) bool {
	return slices.ContainsFunc(w.Topology.Status.SilentClients, func(c v1alpha1.SilentClient) bool {
		return c.Node == n.Name && w.Now.Sub(c.Since.Time) >= Freshness
	})
}

// lostTrouble is the trouble of a reflector whose Node is Ready and that its witnesses have lost.
func (w candidates) lostTrouble(n *Node) Trouble {
	b := w.ballot()
	v := b.votes(n, true)
	t := Trouble{
		Node:     n.Name,
		Word:     wordLost,
		Since:    n.LostSince,
		Until:    n.LostSince.Add(w.Topology.Spec.Failure.UnreachableGrace.Duration),
		Lost:     v.lost,
		Held:     v.held,
		Silent:   v.silent,
		Reported: b.votes(n, false).latest,
	}
	for _, name := range w.standing() {
		o, _ := w.node(name)
		if b.isPeerOf(&o, n) && !slices.Contains(t.observers(), name) {
			t.Silent = append(t.Silent, name)
		}
	}
	slices.Sort(t.Silent)
	return t
}

// describeLost is the trouble of a lost reflector in words.
func (t *Trouble) describeLost(now time.Time) string {
	who := strings.Join(t.Lost, ", ")
	if who == "" {
		who = "its witnesses"
	}
	out := fmt.Sprintf(
		"reflector %s is lost since %s, although its Node is Ready: %s report that they have no BGP session with it any more",
		t.Node,
		t.Since.UTC().Format(time.RFC3339),
		who,
	)
	if len(t.Held) > 0 {
		out += ", " + strings.Join(t.Held, ", ") + " still one"
	}
	switch {
	case t.gone(now):
		out += "; it will be replaced"
	case now.Before(t.Until):
		out += fmt.Sprintf(
			"; it is replaced after %s unless %d witnesses report a session again",
			t.Until.UTC().Format(time.RFC3339),
			quorum,
		)
	default:
		out += fmt.Sprintf(
			"; it is replaced once %d witnesses that still have a session with another reflector report so again",
			quorum,
		)
	}
	return out + fmt.Sprintf(
		"; check on %s that calico-node runs, that its disk is not full, and that TCP port 179 is open",
		t.Node,
	)
}

// isolated describes witnesses that have lost all of their reflectors, "" for fewer than two. That may be a partition,
// or the witnesses' own trouble: it is reported, and nothing is replaced for it.
func (w candidates) isolated() string {
	var names []string
	b := w.ballot()
	for i, o := range b.reporters {
		s := &w.Sightings[i]
		if o == nil || !w.counts(s) {
			continue
		}
		lost, held := false, false
		for _, r := range b.reflectors {
			if !b.isPeerOf(o, r) {
				continue
			}
			has, lostAt := b.session(s, r)
			lost, held = lost || !lostAt.IsZero(), held || has
		}
		if lost && !held {
			names = append(names, s.Node)
		}
	}
	if len(names) < quorum {
		return ""
	}
	slices.Sort(names)
	return fmt.Sprintf(
		"%s report that they have lost the BGP sessions with all of their reflectors; that may be a partition or their own trouble, so no reflector is "+
			"replaced for it; check calico-node and TCP port 179 on them and on the reflectors",
		Few(names),
	)
}

// standing lists, by name, the nodes on which a status request stands all the time. In a flat topology they are clients
// of different zones, in a hierarchy the spines and some reflectors, which have sessions with all groups and with each
// other; and clients of a group as soon as one of its reflectors is lost by anybody. One that leaves requests
// unanswered is replaced by another.
func (w candidates) standing() []string {
	b := w.ballot()
	reflectors := b.reflectors
	if len(reflectors) == 0 || w.meshCarries() {
		return nil
	}
	names := map[string]bool{}
	if w.isFlat() {
		clients := w.witnessesOf(firstGroup)
		for _, n := range w.responsive(slices.Concat(clients, nodesOf(reflectors)), standingClients) {
			names[n.Name] = true
		}
	} else {
		all := nodesOf(reflectors)
		for _, n := range w.responsive(groupOf(all, spines), spineCount) {
			names[n.Name] = true
		}
		others := slices.DeleteFunc(all, func(n Node) bool { return n.group() == spines })
		spread := spreadOver(
			others,
			w.Topology.Name,
			func(n *Node) string { return groupName(n.group()) },
			standingReflectors+len(w.Unresponsive),
		)
		for _, n := range w.responsive(spread, standingReflectors) {
			names[n.Name] = true
		}
		for _, r := range reflectors {
			if r.LostSince.IsZero() && len(b.votes(r, false).lost) == 0 {
				continue
			}
			for _, n := range w.responsive(w.witnessesOf(r.group()), standingClients) {
				names[n.Name] = true
			}
		}
	}
	return sortedKeys(names)
}

// meshCarries reports that the mesh is on only until all reflectors have their sessions, and nothing is known to be
// lost: what is waited for then is asked for anyway, and each step would make the reports of clients invalid.
func (w facts) meshCarries() bool {
	return w.Mesh.On && w.Topology.Spec.Mesh == v1alpha1.MeshManage &&
		!slices.ContainsFunc(w.Topology.Status.LostReflectors, func(e v1alpha1.LostReflector) bool {
			return e.Until == nil
		})
}

// witnessesOf are clients of a group that may be its witnesses, those to take first in front.
func (w candidates) witnessesOf(group int) []Node {
	clients := w.roster()
	var out []Node
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if n.Ready == corev1.ConditionTrue && n.isClient(&w.Topology) && clients.has(n, group) && !n.Deleting &&
			!n.departs() &&
			!w.isSilentClient(n) {
			out = append(out, *n)
		}
	}
	return spreadOver(out, w.Topology.Name, w.zone, standingClients+len(w.Unresponsive))
}

// responsive are the first of some nodes whose Nodes are Ready, and those that left requests unanswered only where
// there are too few others.
func (w candidates) responsive(from []Node, count int) []Node {
	from = slices.DeleteFunc(
		slices.Clone(from),
		func(n Node) bool { return n.Ready != corev1.ConditionTrue || !n.LostSince.IsZero() },
	)
	slices.SortStableFunc(from, func(a, b Node) int {
		return boolInt(slices.Contains(w.Unresponsive, a.Name)) - boolInt(slices.Contains(w.Unresponsive, b.Name))
	})
	return from[:min(len(from), count)]
}

// recheck is when a witness last lost a reflector, zero if none has. What the others reported before that is asked for
// again, as one of them may be silent.
func (w candidates) recheck() time.Time {
	var out time.Time
	b := w.ballot()
	for i := range w.Sightings {
		s := &w.Sightings[i]
		for _, r := range b.reflectors {
			if _, lostAt := w.session(s, r); lostAt.After(out) && w.counts(s) {
				out = lostAt
			}
		}
	}
	return out
}

func nodesOf(in []*Node) []Node {
	out := make([]Node, 0, len(in))
	for _, n := range in {
		out = append(out, *n)
	}
	return out
}
