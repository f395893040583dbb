// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mooring-dev/mooring/internal/routereflector/health"

	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/evidence"
)

// MomentAnnotation on a CalicoNodeStatus of ours: the moment ([routereflector.Moment]) in which it was created. A
// report from another moment is evidence only if it is still valid. MUST NOT change: a new version would ignore the old
// one's objects, and leave them.
const MomentAnnotation = "bgp.mooring.dev/moment"

const (
	// maxStatuses is how many CalicoNodeStatuses a topology has at once. Calico's documents advise fewer than ten.
	maxStatuses = 8
	// unanswered is how long an object may remain empty before another node gets its place, at first.
	unanswered = 15 * time.Second
	// renewal is the age at which something that was said is asked for again, so that a node that has fallen silent is
	// noticed. What was said before counts until then.
	renewal = routereflector.Freshness * 2 / 3
	// renewalInTrouble is that age while a reflector's Node is not Ready: few are queried then, and often.
	renewalInTrouble = 12 * time.Second
	// standingRenewal is the age at which a status request that stands is renewed, so that a witness whose calico-node
	// has died is noticed; they are renewed one after the other. recheckAfter is how long after one witness lost a
	// reflector the others have to report by themselves, before they are asked again.
	standingRenewal = 10 * time.Minute
	recheckAfter    = 5 * time.Second
	// standingWrites is how many times a second, in all, calico-nodes may learn of what standing requests report, and
	// slowest the longest period that this may lead to. Where a node has BGP sessions in one address family only,
	// calico-node writes its report in each period, changed or not: it compares an empty list with none
	// (node/pkg/status/reporter.go), and every calico-node watches all reports. calmAfter is the age at which a request
	// that was made for a step, and only stands since, is renewed with the longer period.
	standingWrites = 1000
	slowest        = 30 * time.Second
	calmAfter      = time.Minute
	// unresponsiveAfter is how long a standing request may remain empty before another node is the witness,
	// unresponsiveFor how long a node that left a standing request unanswered is not chosen as a witness where there
	// are others, and maxUnresponsive how many are remembered: where no node answers, requests do not wander through
	// the cluster.
	unresponsiveAfter = routereflector.Freshness
	unresponsiveFor   = 10 * time.Minute
	maxUnresponsive   = 8
	// Once a step has timed out its witnesses are asked for askWindow in every askEvery: its cause will not go away in
	// seconds.
	askEvery  = 5 * time.Minute
	askWindow = time.Minute
)

// memory is what is remembered of a topology between rounds. All of it can be lost without harm.
type memory struct {
	// unresponsive is when nodes left a standing request unanswered.
	unresponsive map[string]time.Time
	// moment is the present one, since when it was first seen.
	moment routereflector.Moment
	since  time.Time
	// waitingSince is when a step of this moment was first seen to wait.
	waitingSince time.Time
	// said is what witnesses have said that holds in this moment.
	said evidence.Log
	// proof is the last moment in which every reflector was seen with its sessions, if proven; entered is false before
	// the first round.
	proof           routereflector.Moment
	proven, entered bool
	// created names the questions that have been asked and may not be shown by the informers yet; last is the last step
	// that was carried out, and ours the topology as it was last written, over the resourceVersions that the informers
	// may still show.
	created map[string]bool
	last    routereflector.Step
	ours    *v1alpha1.RouteReflectorTopology
	over    []string
	// foreign are the labels of somebody else's that a live read has shown as well.
	foreign map[routereflector.Foreign]bool
	// dropped are the questions that have been deleted and that the informers still show.
	dropped map[types.UID]bool
	// dark is since when clients have been seen without a session, nil before the first round; named are those that are
	// silent for long, of which the status has the first.
	dark  map[string]time.Time
	named []v1alpha1.SilentClient
	// reported is when the status was last written.
	reported time.Time
	// trouble is why the last write failed, "" if it did not.
	trouble string
	// done is when the last step was carried out, begun since when there has been something to do; zero while there is
	// not.
	done, begun time.Time
	// promoted is when nodes were promoted, by UID.
	promoted map[string]time.Time
}

// enter resets what holds no more if the moment is a new one, takes in what is in the statuses, and says what counts.
func (m *memory) enter(s *scene) {
	now := s.world.Now
	if m.said.Begin(); m.created == nil {
		m.created = map[string]bool{}
	}
	if !m.moment.Equal(s.moment) {
		m.moment, m.since, m.waitingSince = s.moment, now, time.Time{}
		m.said.Keep(s.holds)
	}
	dropped := m.dropped
	m.dropped = map[types.UID]bool{}
	maps.DeleteFunc(m.unresponsive, func(_ string, at time.Time) bool { return now.Sub(at) >= unresponsiveFor })
	for i := range s.statuses {
		status := &s.statuses[i]
		m.dropped[status.UID] = dropped[status.UID]
		asked, ours := s.asked(status)
		if !ours || dropped[status.UID] {
			continue // nobody would correct what one that is deleted says last
		}
		said, filled := sighting(status, now)
		if filled {
			m.said.Take(said, asked, now)
			delete(m.unresponsive, status.Spec.Node)
		} else {
			m.said.Owe(status.Spec.Node, now)
			m.unanswered(status, now)
		}
	}
	s.world.Sightings = m.said.Sightings(s.world.Nodes, now, s.world.Topology.Spec.Rollout.SessionTimeout.Duration)
	s.world.Unresponsive = slices.Sorted(maps.Keys(m.unresponsive))
	s.world.Unproven = !m.isProven(s)
	s.world = health.Witnessed(s.world)
	s.world.Unproven = s.world.Unproven || s.returned()
	m.entered = true
}

// unanswered remembers that a node has left a request unanswered for too long.
func (m *memory) unanswered(status *calicov3.CalicoNodeStatus, now time.Time) {
	if now.Sub(status.CreationTimestamp.Time) < unresponsiveAfter || len(m.unresponsive) >= maxUnresponsive {
		return
	}
	if m.unresponsive == nil {
		m.unresponsive = map[string]time.Time{}
	}
	if _, known := m.unresponsive[status.Spec.Node]; !known {
		m.unresponsive[status.Spec.Node] = now
	}
}

// maxCreated is how many names of requests are remembered while requests stand.
const maxCreated = 64

// talk notes which witnesses are being asked, and on which nodes requests stand.
func (m *memory) talk(now time.Time, witnesses []string, standing ...string) {
	m.said.Talk(now, witnesses)
	if len(witnesses)+len(standing) == 0 || len(m.created) > maxCreated {
		m.created = map[string]bool{}
	}
}

// isProven reports that every reflector has been seen with its sessions in this moment. After a start the status says
// so if nothing was under way: it is written before each step that there is something to do, and after the last one
// only when the sessions have been seen. A dry run asks nobody.
func (m *memory) isProven(s *scene) bool {
	if s.asksNobody() {
		return true
	}
	if !m.entered && s.saidProven() {
		m.proof, m.proven = s.moment, true
	}
	return m.proven && m.proof.Equal(s.moment)
}

// returned reports that the Node of a reflector has become Ready, or that its witnesses have sessions with it again,
// since the reflector's sessions were last seen, as the status has it.
func (s *scene) returned() bool {
	if s.asksNobody() {
		return false
	}
	lost := health.LostReflectors(&s.world)
	return slices.ContainsFunc(s.topology.Status.Reflectors, func(r v1alpha1.ReflectorStatus) bool {
		if r.LastObserved == nil || r.Role != string(routereflector.RoleReflector) {
			return false
		}
		if slices.ContainsFunc(lost, func(l v1alpha1.LostReflector) bool {
			return l.Node == r.Node && l.Until != nil && r.LastObserved.Before(l.Until)
		}) {
			return true
		}
		at := slices.IndexFunc(s.world.Nodes, func(n routereflector.Node) bool { return n.Name == r.Node })
		return at >= 0 && s.world.Nodes[at].Ready == corev1.ConditionTrue &&
			!s.world.Nodes[at].ReadySince.Before(r.LastObserved.Time)
	})
}

// saidProven reports that by its status the topology is as wanted, with the reflectors that there are.
func (s *scene) saidProven() bool {
	if s.topology == nil {
		return false
	}
	was := s.topology.Status
	asWanted := slices.ContainsFunc(was.Conditions, func(c metav1.Condition) bool {
		return c.Type == v1alpha1.ConditionProgressing && c.Status == metav1.ConditionFalse &&
			c.Reason == reasonUpToDate
	})
	var are, were []string
	for _, n := range s.world.Nodes {
		if n.Labels[v1alpha1.ReflectorLabel] == s.topology.Name && !n.ForeignMark {
			are = append(are, n.Name+" "+n.ClusterID)
		}
	}
	for _, r := range was.Reflectors {
		were = append(were, r.Node+" "+r.ClusterID)
	}
	slices.Sort(are)
	slices.Sort(were)
	return asWanted && slices.Equal(are, were)
}

// prove remembers that a plan found every reflector with its sessions.
func (m *memory) prove(s *scene, plan routereflector.Plan) {
	if s.world.Unproven && len(plan.Steps) == 0 && len(plan.Refusals) == 0 && plan.Waiting == "" &&
		s.topology.DeletionTimestamp == nil {
		m.proof, m.proven = s.moment, true
	}
}

// catchUp takes the topology as it was last written while the informers still show what was there before: else each
// round until they have caught up would write the same again, in vain.
func (m *memory) catchUp(s *scene) {
	if m.ours != nil && m.ours.UID == s.topology.UID && slices.Contains(m.over, s.topology.ResourceVersion) {
		s.topology = m.ours.DeepCopy()
		s.world.Topology.Status = *m.ours.Status.DeepCopy()
	}
	s.recognize()
}

// recognize tells nodes apart by who labeled them.
func (s *scene) recognize() {
	s.world = s.world.Recognized()
	s.moment = s.world.Present()
}

// wrote remembers the topology as it has just been written, over what the informers show.
func (m *memory) wrote(over string, object *v1alpha1.RouteReflectorTopology) {
	if m.ours == nil || m.ours.ResourceVersion != over {
		m.over = nil
	}
	m.over = append(m.over, over)
	m.ours = object.DeepCopy()
}

// holds reports whether what a node was asked in a moment is evidence now.
func (s *scene) holds(asked routereflector.Moment, node string) bool {
	at := slices.IndexFunc(s.world.Nodes, func(n routereflector.Node) bool { return n.Name == node })
	return at >= 0 && s.moment.Holds(asked, &s.world.Nodes[at])
}

// asked returns the moment of a question; ok says that the answer to it is evidence now.
func (s *scene) asked(status *calicov3.CalicoNodeStatus) (asked routereflector.Moment, ok bool) {
	asked, ok = routereflector.ParseMoment(status.Annotations[MomentAnnotation])
	return asked, ok && s.holds(asked, status.Spec.Node)
}

// asksRoutes reports that a question is about routes as well.
func asksRoutes(status *calicov3.CalicoNodeStatus) bool {
	return slices.Contains(status.Spec.Classes, calicov3.NodeStatusClassTypeRoutes)
}

// renewalOf is the age at which reports are requested again. A node is asked at most once with the same name in half of
// that time.
func renewalOf(plan routereflector.Plan) time.Duration {
	if len(plan.Troubles) > 0 {
		return renewalInTrouble
	}
	return renewal
}

// statusName is the name of the object that asks a node at a time. Anyone who asks at about the same time gives it the
// same name.
func statusName(topology, node string, moment routereflector.Moment, slot time.Duration, now time.Time) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d", node, moment, now.Unix()/int64(slot/time.Second)))
	return topology + "-" + hex.EncodeToString(sum[:6])
}

// fate is what becomes of a status request.
type fate int

const (
	stays fate = iota
	// makesRoom is one that goes if others need its place, goes one that is of no use, and renewed a standing one that
	// is asked for again.
	makesRoom
	goes
	renewed
)

// inquiry is what is decided about the status requests of a topology in a round.
type inquiry struct {
	s    *scene
	m    *memory
	plan routereflector.Plan
	// pause reports that witnesses have been asked for long enough; timeout is how long a step may wait.
	pause   bool
	timeout time.Duration
}

// lacksRoutes reports that a node is to be asked for its routes, and the request is not about them.
func (q inquiry) lacksRoutes(status *calicov3.CalicoNodeStatus) bool {
	return slices.Contains(q.plan.Samples, status.Spec.Node) && !asksRoutes(status)
}

// unneeded decides about a request that nobody needs. It stays, as long as a step may wait, if the reflector was last seen
// without a session that it should have, with a client that others have one with: the status would say so until somebody
// asks again, although the session may only have been reset.
func (q inquiry) unneeded(node string, open time.Duration) fate {
	n, _ := q.s.world.Node(node)
	lacking, at := routereflector.Lacking(&q.s.world, n)
	isShort := slices.ContainsFunc(lacking,
		func(c routereflector.Node) bool { _, dark := q.m.dark[c.Name]; return !dark })
	if isShort && !at.IsZero() && n.IsReflectorOf(&q.s.world.Topology) && open <= q.timeout {
		return makesRoom
	}
	return goes
}

// fate decides about a request.
func (q inquiry) fate(status *calicov3.CalicoNodeStatus) fate {
	now, node := q.s.world.Now, status.Spec.Node
	said, filled := sighting(status, now)
	_, holds := q.s.asked(status)
	open := now.Sub(status.CreationTimestamp.Time)
	needed, stands := slices.Contains(q.plan.Witnesses, node), slices.Contains(q.plan.Standing, node)
	switch {
	case !holds || q.lacksRoutes(status):
		return goes
	case !needed && !stands:
		return q.unneeded(node, open)
	case stands && (!needed || q.pause):
		return q.stands(status, filled, said.At)
	case filled && now.Sub(said.At) > renewalOf(q.plan), q.pause && (filled || open > q.timeout):
		return goes // in a pause a question remains that has not been answered, for as long as it may take
	case filled, open > q.m.said.Patience(node, unanswered):
		return makesRoom
	}
	return stays
}

// stands decides about a request that only stands, and was answered at a time, if it is filled.
func (q inquiry) stands(status *calicov3.CalicoNodeStatus, filled bool, at time.Time) fate {
	now := q.s.world.Now
	open, period := now.Sub(status.CreationTimestamp.Time), status.Spec.UpdatePeriodSeconds
	hurries := period != nil && time.Duration(*period)*time.Second < q.s.period(status.Spec.Node, q.plan)
	if filled && (isStale(open, at, q.plan.Recheck, now) || hurries && open > calmAfter) {
		return renewed
	}
	return makesRoom
}

// questions returns which CalicoNodeStatuses to delete and which nodes to ask, so that witnesses answer for the present
// moment and at most maxStatuses objects live. An object whose answer still holds stays as it is: calico-node keeps it
// up with what changes. Of standing requests one at a time is renewed, and they are made as far as there is room.
func questions(
	s *scene,
	m *memory,
	plan routereflector.Plan,
	settle, timeout time.Duration,
) (drop []calicov3.CalicoNodeStatus, ask []string) {
	q := inquiry{s, m, plan, len(plan.Troubles) == 0 && m.tired(s.world.Now, timeout), timeout}
	alive, renewing := map[string]bool{}, false
	var replaceable []calicov3.CalicoNodeStatus
	for _, status := range s.statuses {
		fate := q.fate(&status)
		if alive[status.Spec.Node] || fate == goes || fate == renewed && !renewing {
			drop, renewing = append(drop, status), renewing || fate == renewed
			continue
		}
		if alive[status.Spec.Node] = true; fate != stays {
			replaceable = append(replaceable, status)
		}
	}
	// confd may not have taken up the last step; what somebody asked in this moment before us stays
	if s.world.Now.Sub(m.since) < settle {
		return drop, nil
	}
	for _, node := range plan.Witnesses {
		if !alive[node] && !q.pause {
			ask = append(ask, node)
		}
	}
	// Who has never answered in this moment comes first, then who answered longest ago.
	slices.SortStableFunc(ask, func(a, b string) int { return m.said.Seen[a].At.Compare(m.said.Seen[b].At) })
	more, ask := room(replaceable, ask, maxStatuses-len(alive))
	standing := slices.DeleteFunc(
		slices.Clone(plan.Standing),
		func(node string) bool { return alive[node] || slices.Contains(ask, node) },
	)
	free := maxStatuses - len(alive) + len(more) - len(ask)
	return append(drop, more...), append(ask, standing[:min(len(standing), max(free, 0))]...)
}

// isStale reports that an answer to a standing request is to be asked for again: it is old, or one witness lost a
// reflector since and this one should have reported it by now.
func isStale(open time.Duration, at, recheck, now time.Time) bool {
	return open > standingRenewal || at.Before(recheck) && now.Sub(recheck) >= recheckAfter
}

// room returns which of the questions that may go make room, the oldest first, and who can then be asked, where free
// more may live.
func room(
	replaceable []calicov3.CalicoNodeStatus,
	ask []string,
	free int,
) (drop []calicov3.CalicoNodeStatus, now []string) {
	if len(ask) <= free {
		return nil, ask
	}
	slices.SortFunc(replaceable, func(a, b calicov3.CalicoNodeStatus) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	drop = replaceable[:min(len(replaceable), len(ask)-free)]
	return drop, ask[:min(len(ask), free+len(drop))]
}

// tired reports that witnesses have been asked for longer than a step may wait, since the last change or since they are
// asked at all, and that it is not the time to try again.
func (m *memory) tired(now time.Time, timeout time.Duration) bool {
	from := m.since
	if m.said.Talking.After(from) {
		from = m.said.Talking
	}
	over := now.Sub(from) - timeout
	return over >= 0 && over%askEvery >= askWindow
}

// question is a status request to make, or with a UID one to delete; empty reports that it was not answered. subject is
// the step.s.
type question struct {
	calico.StatusRequest

	uid     types.UID
	empty   bool
	subject string
}

// requests lists the status requests to delete and to make.
func (r *Reconciler) requests(s *scene, m *memory, plan routereflector.Plan, subject string) (out []step) {
	m.talk(s.world.Now, plan.Witnesses, plan.Standing...)
	old, ask := questions(s, m, plan, r.Timing.Settle, s.world.Topology.Spec.Rollout.SessionTimeout.Duration)
	gone := map[string]bool{}
	for i := range old {
		if m.dropped[old[i].UID] {
			continue
		}
		_, filled := sighting(&old[i], s.world.Now)
		gone[old[i].Name] = true
		out = append(
			out,
			question{calico.StatusRequest{Name: old[i].Name, Node: old[i].Spec.Node}, old[i].UID, !filled, subject},
		)
	}
	for _, node := range ask {
		name := statusName(s.topology.Name, node, s.moment, renewalOf(plan)/2, s.world.Now)
		if m.created[name] && !gone[name] {
			continue // the informers are behind
		}
		out = append(out, question{StatusRequest: calico.StatusRequest{
			Name: name, Node: node, Period: s.period(node, plan),
			Labels:      map[string]string{v1alpha1.TopologyLabel: s.topology.Name},
			Annotations: map[string]string{MomentAnnotation: s.moment.String()},
			Routes:      slices.Contains(plan.Samples, node),
		}, subject: subject})
	}
	return out
}

// period is how often calico-node looks at the sessions of a node: from 2 s to 10 s, the longer the more there are to
// list. A client of reflectors has few. For a request that only stands, while no witness has just lost a reflector, it is
// as long as standingWrites demands.
func (s *scene) period(node string, plan routereflector.Plan) time.Duration {
	sessions := len(s.world.Nodes)
	if is, _ := s.client(node); is && !s.world.Mesh.On {
		sessions = len(s.world.Topology.Status.Reflectors)
	}
	quick := min(2*time.Second+time.Duration(sessions/500)*time.Second, 10*time.Second)
	if slices.Contains(plan.Witnesses, node) || len(plan.Lost) > 0 || s.world.Now.Sub(plan.Recheck) < calmAfter {
		return quick
	}
	calm := time.Duration(len(plan.Standing)*len(s.world.Nodes)/standingWrites) * time.Second
	return max(quick, min(calm, slowest))
}

// observing reports that a standing request is due, or about to be answered: the next round must not be a resync away.
func (s *scene) observing(plan routereflector.Plan) bool {
	now := s.world.Now
	answered := map[string]time.Time{}
	for i := range s.statuses {
		status := &s.statuses[i]
		said, filled := sighting(status, now)
		if !filled && now.Sub(status.CreationTimestamp.Time) <= 2*unresponsiveAfter {
			return true
		}
		if _, holds := s.asked(status); holds {
			answered[status.Spec.Node] = said.At
		}
	}
	return slices.ContainsFunc(plan.Standing, func(node string) bool {
		at, asked := answered[node]
		return !asked || !at.IsZero() && at.Before(plan.Recheck)
	})
}
