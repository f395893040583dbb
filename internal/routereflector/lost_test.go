// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package routereflector

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// established is a world of some nodes with reflectors whose sessions the status shows as Established, and the mesh
// off.
func established(t interface {
	Helper()
	Fatalf(string, ...any)
}, nodes int,
) World {
	t.Helper()
	w, _ := carryOut(t, cluster(nodes, 3), nil)
	w = w.Recognized()
	for _, name := range factsOf(&w).marked() {
		n, _ := factsOf(&w).node(name)
		w.Topology.Status.Reflectors = append(
			w.Topology.Status.Reflectors,
			v1alpha1.ReflectorStatus{Node: name, ClusterID: n.ClusterID, Established: 1},
		)
	}
	return w
}

// report is what the witnesses of a world say when some of them have lost some reflectors since a time, as status
// requests that stand; the reports are written at another.
func (w World) report(at, since time.Time, lost map[string][]string) World {
	w.Sightings = slices.DeleteFunc(
		w.settled().Sightings,
		func(s Sighting) bool { return !slices.Contains(Make(w).Standing, s.Node) },
	)
	for _, name := range Make(w).Standing {
		if !slices.ContainsFunc(w.Sightings, func(s Sighting) bool { return s.Node == name }) {
			w.Sightings = append(w.Sightings, w.sayAlone(name))
		}
	}
	for i := range w.Sightings {
		s := &w.Sightings[i]
		s.At, s.Standing, s.Lost, s.Down = at, true, map[netip.Addr]time.Time{}, map[netip.Addr]time.Time{}
		for _, reflector := range lost[s.Node] {
			n, _ := factsOf(&w).node(reflector)
			delete(s.Established, n.IPv4)
			s.Lost[n.IPv4] = since
		}
	}
	return w
}

// sayAlone is what a client says: it has a session with every reflector.
func (w World) sayAlone(name string) Sighting {
	s := Sighting{Node: name, At: w.Now, Established: map[netip.Addr]bool{}}
	for _, r := range factsOf(&w).marked() {
		if n, _ := factsOf(&w).node(r); r != name {
			s.Established[n.IPv4] = true
		}
	}
	return s
}

// remember is the world whose status was written.
func (w World) remember() World {
	w.Topology.Status.LostReflectors = Make(w).Lost
	return w
}

// Three clients of different zones are witnesses all the time, without anything that waits; one that does not answer is
// replaced.
func TestStandingWitnesses(t *testing.T) {
	t.Parallel()
	w := established(t, 12)
	p := Make(w)
	if len(p.Standing) != standingClients || len(p.Witnesses) != 0 || p.Waiting != "" {
		t.Fatalf("standing %v, witnesses %v, waiting %q", p.Standing, p.Witnesses, p.Waiting)
	}
	zones := map[string]bool{}
	for _, name := range p.Standing {
		n, _ := factsOf(&w).node(name)
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
	if got := Make(w).Standing; len(got) != standingClients || slices.Contains(got, silent) {
		t.Errorf("%s does not answer, and these are witnesses: %v", silent, got)
	}
	w = w.with(silentSince(w.Now), silent)
	w.Unresponsive = nil
	if got := Make(w).Standing; len(got) != standingClients || slices.Contains(got, silent) {
		t.Errorf("%s is dead, and these are witnesses: %v", silent, got)
	}
}

// A hierarchy's spines and some reflectors witness for all groups, however many there are; clients join them where
// somebody has lost a reflector.
func TestStandingWitnessesOfAHierarchy(t *testing.T) {
	t.Parallel()
	w := cluster(80, 3)
	w.Topology.Spec.Sizing.MaxClientsPerReflector = 20
	w, _ = carryOut(t, w, nil)
	standing := Make(w).Standing
	if len(standing) == 0 || len(standing) > spineCount+standingReflectors {
		t.Fatalf("witnesses are %v", standing)
	}
	voters := func(w World, reflector string) int {
		n, _ := factsOf(&w).node(reflector)
		b, count := factsOf(&w).ballot(), 0
		for _, name := range Make(w).Standing {
			o, _ := factsOf(&w).node(name)
			count += boolInt(b.isPeerOf(&o, &n))
		}
		return count
	}
	for _, reflector := range factsOf(&w).marked() {
		if voters(w, reflector) < quorum {
			t.Errorf("%s has fewer than %d witnesses", reflector, quorum)
		}
	}
	for _, reflector := range factsOf(&w).marked() {
		n, _ := factsOf(&w).node(reflector)
		if n.group() == spines || slices.Contains(standing, reflector) {
			continue
		}
		lost := w.report(
			w.Now,
			w.Now,
			map[string][]string{
				standing[0]: {reflector},
				standing[1]: {reflector},
				standing[2]: {reflector},
				standing[3]: {reflector},
			},
		)
		if got := voters(lost, reflector); got < quorum+standingClients {
			t.Errorf("%s is lost by some, and %d witness for it", reflector, got)
		}
	}
}

// What is decided about a reflector follows from what its witnesses report: lost at once when two of them lost it,
// replaced after the grace period, and never on one report, on old ones, or on those of witnesses that have lost all.
func TestWhatWitnessesDecide(t *testing.T) {
	t.Parallel()
	w := established(t, 12)
	dead, others := factsOf(&w).marked()[0], factsOf(&w).marked()[1:]
	who, since := Make(w).Standing, w.Now
	all := factsOf(&w).marked()
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
		w = w.report(since, since, c.lost).remember()
		w.Now = since.Add(c.after)
		w = w.report(since.Add(c.reported), since, c.lost)
		if c.unseen {
			w.Topology.Status.LostReflectors = nil
			for i := range w.Sightings {
				s := &w.Sightings[i]
				s.Lost, s.Down = nil, s.Lost
			}
		}
		if c.reflectorSaw {
			w.Sightings = append(w.Sightings, Sighting{Node: dead, At: since, Established: addresses(w, who)})
		}
		p := Make(w)
		got := len(p.Lost) == 1 && p.Lost[0].Node == dead && p.Lost[0].Until == nil
		if got != c.isLost || len(p.Troubles) != boolInt(c.isLost) {
			t.Errorf("%s: lost are %+v, in trouble %+v", name, p.Lost, p.Troubles)
		}
		if got := len(p.Steps) > 0 && p.Steps[0].Kind == Promote; got != c.isReplaced {
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
func addresses(w World, nodes []string) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for _, name := range nodes {
		n, _ := factsOf(&w).node(name)
		out[n.IPv4] = true
	}
	return out
}

// A kubelet's death is judged as before, whatever the standing witnesses report.
func TestAKubeletDiesAndBIRDLives(t *testing.T) {
	t.Parallel()
	w := established(t, 12)
	dead, since := factsOf(&w).marked()[0], w.Now
	w = w.with(silentSince(since), dead)
	w.Now = since.Add(time.Hour)
	w = w.report(w.Now, since, nil)
	p := Make(w)
	if len(p.Lost) != 0 || len(p.Steps) != 0 || len(p.Troubles) != 1 || p.Troubles[0].IsLost() {
		t.Errorf("lost %v, steps %v, troubles %+v", p.Lost, p.Steps, p.Troubles)
	}
}

// A dead reflector is replaced by another node, in one promotion and one demotion, although a promotion makes the
// clients' reports invalid; no step makes the way of others worse, and it is not promoted again.
func TestALostReflectorIsReplaced(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		w := established(t, rapid.IntRange(7, 14).Draw(t, "nodes"))
		dead := rapid.SampledFrom(factsOf(&w).marked()).Draw(t, "dead")
		lost := map[string][]string{}
		for _, name := range Make(w).Standing {
			lost[name] = []string{dead}
		}
		since := w.Now
		w = w.report(since, since, lost).remember()
		w.Now = since.Add(w.Topology.Spec.Failure.UnreachableGrace.Duration)
		w = w.report(w.Now, since, lost).remember()
		first := Make(w)
		if len(first.Steps) != 2 || first.Steps[0].Kind != Promote || first.Steps[0].Node == dead ||
			first.Steps[1].Kind != Demote ||
			first.Steps[1].Node != dead {
			t.Fatalf("%v", first.Steps)
		}
		after := w.After(first.Steps[0])
		after.Sightings = nil
		second := Make(after)
		if len(second.Steps) != 1 || second.Steps[0].Kind != Demote || second.Steps[0].Node != dead {
			t.Fatalf("with no report: %v", second.Steps)
		}
		returns := rapid.Bool().Draw(t, "it returns meanwhile")
		after = after.report(after.Now, since, map[string][]string{})
		if !returns {
			after = after.report(after.Now, since, lost)
		}
		after = after.remember()
		if got := Make(after).Steps; len(got) != 1 || got[0].Kind != Demote || got[0].Node != dead {
			t.Fatalf("it returns: %t: %v", returns, got)
		}
		end := after.After(second.Steps[0]).remember()
		if steps := Make(end).Steps; len(steps) != 0 {
			t.Fatalf("at the end: %v", steps)
		}
		if n, _ := factsOf(&end).node(dead); candidatesOf(&end).unfitToBecome(&n) == "" {
			t.Fatalf("%s could be promoted again at once", dead)
		}
		end.Now = end.Now.Add(time.Hour)
		if got := Make(end); len(got.Lost) != 0 {
			t.Fatalf("an hour later: %+v", got.Lost)
		}
	})
}

// A reflector that is lost and returns within the grace period, again and again, never costs a role.
func TestAReflectorFlaps(t *testing.T) {
	t.Parallel()
	w := established(t, 12)
	dead := factsOf(&w).marked()[0]
	grace := w.Topology.Spec.Failure.UnreachableGrace.Duration
	lost := map[string][]string{}
	for _, name := range Make(w).Standing {
		lost[name] = []string{dead}
	}
	for range 20 {
		since := w.Now
		w = w.report(w.Now, since, lost).remember()
		if p := Make(w); len(p.Troubles) != 1 {
			t.Fatalf("it is not lost: %+v", p.Lost)
		}
		w.Now = w.Now.Add(grace - time.Second)
		w = w.report(w.Now, since, lost).remember()
		if p := Make(w); len(p.Steps) != 0 {
			t.Fatalf("within the grace period: %v", p.Steps)
		}
		w.Now = w.Now.Add(time.Second)
		w = w.report(w.Now, since, nil).remember()
		if p := Make(w); len(p.Steps) != 0 || len(p.Troubles) != 0 {
			t.Fatalf("it has returned: %v, %+v", p.Steps, p.Troubles)
		}
		w.Now = w.Now.Add(10 * time.Second)
	}
}

// A node whose BIRD is dead is not promoted in place of a lost reflector: the status names it as silent, or its
// reflectors report no session with it.
func TestADeadNodeIsNoReplacement(t *testing.T) {
	t.Parallel()
	w := established(t, 12)
	w = w.with(func(n *Node) { n.Unschedulable = true }, factsOf(&w).marked()[0])
	w, p := w.planned()
	if len(p.Steps) == 0 || p.Steps[0].Kind != Promote || p.Waiting != "" {
		t.Fatalf("%v wait for %q", p.Steps, p.Waiting)
	}
	next := p.Steps[0].Node
	n, _ := factsOf(&w).node(next)
	for i := range w.Sightings {
		delete(w.Sightings[i].Established, n.IPv4)
	}
	if p = Make(w); p.Steps[0].Node != next || !strings.Contains(p.Waiting, next) {
		t.Errorf("%v wait for %q", p.Steps, p.Waiting)
	}
	w.Topology.Status.SilentClients = []v1alpha1.SilentClient{{Node: next, Since: second(w.Now.Add(-50 * time.Second))}}
	if p = Make(w); p.Steps[0].Node != next { // a step may have reset its session
		t.Errorf("%v take the place of %s", p.Steps, next)
	}
	w.Topology.Status.SilentClients[0].Since = second(w.Now.Add(-Freshness))
	if p = Make(w); p.Steps[0].Node == next || p.Waiting != "" {
		t.Errorf("%v wait for %q", p.Steps, p.Waiting)
	}
	if n.Ready != corev1.ConditionTrue {
		t.Error("its Node is not Ready")
	}
}
