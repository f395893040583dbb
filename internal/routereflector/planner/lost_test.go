// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/health"
	"github.com/mooring-dev/mooring/internal/routereflector/rank"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// established is a world of some nodes with reflectors whose sessions the status shows as Established, and the mesh
// off.
func established(t tester, nodes int) rr.World {
	t.Helper()
	w, _ := carryOut(t, cluster(nodes, 3), nil)
	w = w.Recognized()
	for _, name := range w.Marked() {
		n, _ := w.Node(name)
		w.Topology.Status.Reflectors = append(
			w.Topology.Status.Reflectors,
			v1alpha1.ReflectorStatus{Node: name, ClusterID: n.ClusterID, Established: 1},
		)
	}
	return w
}

// report is what the witnesses of a world say when some of them have lost some reflectors since a time, as status
// requests that stand; the reports are written at another.
func report(w rr.World, at, since time.Time, lost map[string][]string) rr.World {
	standing := MakePlan(w).Standing
	w.Sightings = slices.DeleteFunc(settled(w).Sightings, func(s rr.Sighting) bool { return !slices.Contains(standing, s.Node) })
	for _, name := range standing {
		if !slices.ContainsFunc(w.Sightings, func(s rr.Sighting) bool { return s.Node == name }) {
			w.Sightings = append(w.Sightings, sayAlone(w, name))
		}
	}
	for i := range w.Sightings {
		s := &w.Sightings[i]
		s.At, s.Standing, s.Lost, s.Down = at, true, map[netip.Addr]time.Time{}, map[netip.Addr]time.Time{}
		for _, reflector := range lost[s.Node] {
			n, _ := w.Node(reflector)
			delete(s.Established, n.IPv4)
			s.Lost[n.IPv4] = since
		}
	}
	return w
}

// sayAlone is what a client says: it has a session with every reflector.
func sayAlone(w rr.World, name string) rr.Sighting {
	s := rr.Sighting{Node: name, At: w.Now, Established: map[netip.Addr]bool{}}
	for _, r := range w.Marked() {
		if n, _ := w.Node(r); r != name {
			s.Established[n.IPv4] = true
		}
	}
	return s
}

// remember is the world whose status was written.
func remember(w rr.World) rr.World {
	w.Topology.Status.LostReflectors = MakePlan(w).Lost
	return w
}

// Three clients of different zones are witnesses all the time, without anything that waits; one that does not answer is
// replaced.
func TestStandingWitnesses(t *testing.T) {
	t.Parallel()
	w := established(t, 12)
	p := MakePlan(w)
	if len(p.Standing) != health.StandingClients || len(p.Witnesses) != 0 || p.Waiting != "" {
		t.Fatalf("standing %v, witnesses %v, waiting %q", p.Standing, p.Witnesses, p.Waiting)
	}
	zones := map[string]bool{}
	for _, name := range p.Standing {
		n, _ := w.Node(name)
		zones[n.Labels[zoneLabel]] = true
		if n.ClusterID != "" {
			t.Errorf("%s is a reflector", name)
		}
	}
	if len(zones) != 3 {
		t.Errorf("they are of zones %v", zones)
	}
	silent := p.Standing[0]
	w.Unresponsive = []string{silent}
	if got := MakePlan(w).Standing; len(got) != health.StandingClients || slices.Contains(got, silent) {
		t.Errorf("%s does not answer, and these are witnesses: %v", silent, got)
	}
	w = with(w, silentSince(w.Now), silent)
	w.Unresponsive = nil
	if got := MakePlan(w).Standing; len(got) != health.StandingClients || slices.Contains(got, silent) {
		t.Errorf("%s is dead, and these are witnesses: %v", silent, got)
	}
}

// A hierarchy's spines and some reflectors witness for all groups, however many there are; clients join them where
// somebody has lost a reflector.
func TestStandingWitnessesOfAHierarchy(t *testing.T) {
	t.Parallel()
	w := settled(inTheEnd(limited(80, 3, 20)))
	standing := MakePlan(w).Standing
	if len(standing) == 0 || len(standing) > rr.SpineCount+health.StandingReflectors {
		t.Fatalf("witnesses are %v", standing)
	}
	voters := func(w rr.World, standing []string, reflector string) int {
		n, _ := w.Node(reflector)
		clients, count := w.Roster(), 0
		for _, name := range standing {
			o, _ := w.Node(name)
			count += rr.Count(o.Name != n.Name && clients.Expects(&n, &o))
		}
		return count
	}
	for _, reflector := range w.Marked() {
		if voters(w, standing, reflector) < rr.Quorum {
			t.Errorf("%s has fewer than %d witnesses", reflector, rr.Quorum)
		}
	}
	for _, reflector := range w.Marked() {
		n, _ := w.Node(reflector)
		if n.Group() == rr.Spines || slices.Contains(standing, reflector) {
			continue
		}
		by := map[string][]string{}
		for _, name := range standing[:4] {
			by[name] = []string{reflector}
		}
		lost := report(w, w.Now, w.Now, by)
		if got := voters(lost, MakePlan(lost).Standing, reflector); got < rr.Quorum+health.StandingClients {
			t.Errorf("%s is lost by some, and %d witness for it", reflector, got)
		}
	}
}

// What is decided about a reflector follows from what its witnesses report: lost at once when two of them lost it,
// replaced after the grace period, and never on one report, on old ones, or on those of witnesses that have lost all.
func TestWhatWitnessesDecide(t *testing.T) {
	t.Parallel()
	w := spareless(established(t, 12))
	dead, others := w.Marked()[0], w.Marked()[1:]
	who, since := MakePlan(w).Standing, w.Now
	all := w.Marked()
	grace := w.Topology.Spec.Failure.UnreachableGrace.Duration
	for name, c := range map[string]struct {
		lost               map[string][]string
		after, reported    time.Duration
		unseen, unproven   bool
		reflectorSaw       bool
		isLost, isReplaced bool
		isolated           bool
	}{
		"BIRD is dead, at once":         {lost: map[string][]string{who[0]: {dead}, who[1]: {dead}, who[2]: {dead}}, isLost: true},
		"two of three lost it":          {lost: map[string][]string{who[0]: {dead}, who[2]: {dead}}, after: grace, reported: grace, isLost: true, isReplaced: true},
		"just before the grace is over": {lost: map[string][]string{who[0]: {dead}, who[2]: {dead}}, after: grace - time.Second, reported: grace - time.Second, isLost: true},
		"one forged report":             {lost: map[string][]string{who[1]: {dead}}, after: time.Hour, reported: time.Hour},
		"all lost":                      {lost: map[string][]string{who[0]: all, who[1]: all, who[2]: all}, after: time.Hour, reported: time.Hour, isolated: true},
		"one witness lost all":          {lost: map[string][]string{who[0]: all, who[1]: {dead}}, after: time.Hour, reported: time.Hour},
		"the reports are old":           {lost: map[string][]string{who[0]: {dead}, who[1]: {dead}}, after: time.Hour, isLost: true},
		"it never had a session":        {lost: map[string][]string{who[0]: {dead}, who[1]: {dead}}, after: 179 * time.Second, unseen: true, unproven: true},
		"none within sessionTimeout":    {lost: map[string][]string{who[0]: {dead}, who[1]: {dead}}, after: 180 * time.Second, unseen: true, unproven: true, isLost: true},
		"a new leader, for a moment":    {lost: map[string][]string{who[0]: {dead}, who[1]: {dead}}, after: 29 * time.Second, unseen: true},
		"a new leader":                  {lost: map[string][]string{who[0]: {dead}, who[1]: {dead}}, after: 30 * time.Second, unseen: true, isLost: true},
		"the reflector has reported it, for a moment": {
			lost:  map[string][]string{who[0]: {dead}, who[1]: {dead}},
			after: 4 * time.Second, unseen: true, reflectorSaw: true,
		},
		"the reflector has reported it": {
			lost:  map[string][]string{who[0]: {dead}, who[1]: {dead}},
			after: 5 * time.Second, unseen: true, reflectorSaw: true, isLost: true,
		},
		"its own report says so, too":     {lost: map[string][]string{who[0]: {dead}, who[1]: {dead}}, unproven: true, isLost: true},
		"each of two lost another of two": {lost: map[string][]string{who[0]: {others[0]}, who[1]: {others[1]}}, after: time.Hour, reported: time.Hour},
	} {
		w := w
		if c.unproven {
			w.Topology.Status.Reflectors = nil
		}
		w = remember(report(w, since, since, c.lost))
		w.Now = since.Add(c.after)
		w = report(w, since.Add(c.reported), since, c.lost)
		if c.unseen {
			w.Topology.Status.LostReflectors = nil
			for i := range w.Sightings {
				s := &w.Sightings[i]
				s.Lost, s.Down = nil, s.Lost
			}
		}
		if c.reflectorSaw {
			w.Sightings = append(w.Sightings, rr.Sighting{Node: dead, At: since, Established: addresses(w, who)})
		}
		p := MakePlan(w)
		got := len(p.Lost) == 1 && p.Lost[0].Node == dead && p.Lost[0].Until == nil
		if got != c.isLost || len(p.Troubles) != rr.Count(c.isLost) {
			t.Errorf("%s: lost are %+v, in trouble %+v", name, p.Lost, p.Troubles)
		}
		if got := len(p.Steps) > 0 && rr.Is[rr.Promote](p.Steps[0]); got != c.isReplaced {
			t.Errorf("%s: the steps are %v", name, p.Steps)
		}
		if (p.Isolated != "") != c.isolated {
			t.Errorf("%s: isolated: %q", name, p.Isolated)
		}
		if !c.isLost {
			continue
		}
		text := p.Troubles[0].Describe(w.Now)
		for _, part := range []string{dead, "although its Node is Ready", since.UTC().Format(time.RFC3339), "TCP port 179"} {
			if !strings.Contains(text, part) {
				t.Errorf("%s: %q is not in: %s", name, part, text)
			}
		}
	}
}

// addresses are those of some nodes.
func addresses(w rr.World, nodes []string) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for _, name := range nodes {
		n, _ := w.Node(name)
		out[n.IPv4] = true
	}
	return out
}

// Two reports of a session with a lost reflector say that it is back, unless they are older than the loss: a new leader
// finds those of nodes that were not asked again.
func TestOldReportsAreNoReturn(t *testing.T) {
	t.Parallel()
	w := spareless(established(t, 12))
	dead, since, lost := w.Marked()[0], w.Now, map[string][]string{}
	for _, name := range MakePlan(w).Standing {
		lost[name] = []string{dead}
	}
	w = remember(report(w, since, since, lost))
	w.Now = since.Add(2 * time.Second)
	for at, back := range map[time.Duration]bool{-time.Second: false, 0: true, time.Second: true} {
		p := MakePlan(report(w, since.Add(at), since, nil))
		if len(p.Lost) != 1 || p.Lost[0].Node != dead || (p.Lost[0].Until != nil) != back {
			t.Errorf("reported %v after the loss: %+v", at, p.Lost)
		}
	}
	// Nor is a loss from before the return another one.
	w.Topology.Status.LostReflectors = MakePlan(report(w, w.Now, since, nil)).Lost
	w.Now = w.Now.Add(time.Minute)
	for at, again := range map[time.Duration]bool{0: false, time.Second: false, 30 * time.Second: true} {
		p := MakePlan(report(w, w.Now, since.Add(at), lost))
		if is := len(p.Lost) == 1 && p.Lost[0].Until == nil; is != again {
			t.Errorf("lost %v after the first time: %+v", at, p.Lost)
		}
	}
}

// A dead reflector is replaced by another node, in one promotion and one demotion, although a promotion makes the
// clients' reports invalid; no step makes the way of others worse, and it is not promoted again.
func TestALostReflectorIsReplaced(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		w := established(t, rapid.IntRange(7, 14).Draw(t, "nodes"))
		dead := rapid.SampledFrom(w.Marked()).Draw(t, "dead")
		lost := map[string][]string{}
		for _, name := range MakePlan(w).Standing {
			lost[name] = []string{dead}
		}
		since := w.Now
		w = remember(report(w, since, since, lost))
		w.Now = since.Add(w.Topology.Spec.Failure.UnreachableGrace.Duration)
		w = remember(report(w, w.Now, since, lost))
		first := MakePlan(w)
		if len(first.Steps) != 2 || !rr.Is[rr.Promote](first.Steps[0]) || first.Steps[0].Node() == dead ||
			!rr.Is[rr.Demote](first.Steps[1]) ||
			first.Steps[1].Node() != dead {
			t.Fatalf("%v", first.Steps)
		}
		after := After(w, first.Steps[0])
		after.Sightings = nil
		second := MakePlan(after)
		if len(second.Steps) != 1 || !rr.Is[rr.Demote](second.Steps[0]) || second.Steps[0].Node() != dead {
			t.Fatalf("with no report: %v", second.Steps)
		}
		returns := rapid.Bool().Draw(t, "it returns meanwhile")
		after = report(after, after.Now, since, map[string][]string{})
		if !returns {
			after = report(after, after.Now, since, lost)
		}
		after = remember(after)
		if got := MakePlan(after).Steps; len(got) != 1 || !rr.Is[rr.Demote](got[0]) || got[0].Node() != dead {
			t.Fatalf("it returns: %t: %v", returns, got)
		}
		end := remember(After(after, second.Steps[0]))
		if steps := MakePlan(end).Steps; len(steps) != 0 {
			t.Fatalf("at the end: %v", steps)
		}
		if n, _ := end.Node(dead); rank.WhyUnfitToBecome(&end, &n) == "" {
			t.Fatalf("%s could be promoted again at once", dead)
		}
		end.Now = end.Now.Add(time.Hour)
		if got := MakePlan(end); len(got.Lost) != 0 {
			t.Fatalf("an hour later: %+v", got.Lost)
		}
	})
}

// A node whose BIRD is dead is not promoted in place of a lost reflector: the status names it as silent, or its
// reflectors report no session with it.
func TestADeadNodeIsNoReplacement(t *testing.T) {
	t.Parallel()
	w := established(t, 12)
	w = with(w, func(n *rr.Node) { n.Unschedulable = true }, w.Marked()[0])
	w, p := planned(w)
	if len(p.Steps) == 0 || !rr.Is[rr.Promote](p.Steps[0]) || p.Waiting != "" {
		t.Fatalf("%v wait for %q", p.Steps, p.Waiting)
	}
	next := p.Steps[0].Node()
	n, _ := w.Node(next)
	w = apart(w, next)
	if p = MakePlan(w); p.Steps[0].Node() != next || !strings.Contains(p.Waiting, next) {
		t.Errorf("%v wait for %q", p.Steps, p.Waiting)
	}
	w.Topology.Status.SilentClients = []v1alpha1.SilentClient{{Node: next, Since: rr.Second(w.Now.Add(-50 * time.Second))}}
	if p = MakePlan(w); p.Steps[0].Node() != next { // a step may have reset its session
		t.Errorf("%v take the place of %s", p.Steps, next)
	}
	w.Topology.Status.SilentClients[0].Since = rr.Second(w.Now.Add(-rr.Freshness))
	if p = MakePlan(w); p.Steps[0].Node() == next || p.Waiting != "" {
		t.Errorf("%v wait for %q", p.Steps, p.Waiting)
	}
	if n.Ready != corev1.ConditionTrue {
		t.Error("its Node is not Ready")
	}
}

// A machine without a network is lost by its witnesses first, and its kubelet falls silent later: its grace period does
// not begin again. One whose witnesses had lost it and have it again has the whole of it, and a report from before the
// loss decides nothing.
func TestOneGracePeriodForOneTrouble(t *testing.T) {
	t.Parallel()
	w := spareless(established(t, 12))
	dead, standing := w.Marked()[0], MakePlan(w).Standing
	lostAt, grace := w.Now, w.Topology.Spec.Failure.UnreachableGrace.Duration
	loss := map[string][]string{standing[0]: {dead}, standing[1]: {dead}}
	w.Now = lostAt.Add(time.Second)
	w = remember(report(w, w.Now, lostAt, loss))
	back := w
	back.Now = lostAt.Add(10 * time.Second)
	back = remember(report(back, back.Now, lostAt, nil))
	silence := lostAt.Add(grace / 2)
	later := func(w rr.World, after time.Duration, reported time.Time) []rr.Step {
		w = with(w, silentSince(silence), dead)
		w.Now = lostAt.Add(after)
		return MakePlan(deaf(w, dead, reported)).Steps
	}
	for name, c := range map[string]struct {
		world    rr.World
		after    time.Duration
		reported time.Time
		replaced bool
	}{
		"before the grace period is over": {w, grace - 2*time.Second, silence.Add(time.Second), false},
		"after it":                        {w, grace + 2*time.Second, silence.Add(time.Second), true},
		"reports from before the loss":    {w, grace + 2*time.Second, lostAt.Add(-time.Second), false},
		"it was back meanwhile":           {back, grace + 2*time.Second, silence.Add(time.Second), false},
		"and is gone for long":            {back, grace/2 + grace + 2*time.Second, silence.Add(time.Second), true},
	} {
		steps := later(c.world, c.after, c.reported)
		if got := len(steps) > 0 && rr.Is[rr.Promote](steps[0]); got != c.replaced {
			t.Errorf("%s: replaced %v, want %v: %v", name, got, c.replaced, steps)
		}
	}
}
