// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/health"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// lostBy is the world whose standing witnesses, and reflectors that are left, have all lost a reflector since a time, and
// say so now; the status is written. With "" all have all their sessions.
func lostBy(w rr.World, dead string, since time.Time) rr.World {
	lost := map[string][]string{}
	n, any := w.Node(dead)
	for _, name := range MakePlan(w).Standing {
		if any {
			lost[name] = []string{dead}
		}
	}
	w = report(w, w.Now, since, lost)
	networks := networks(w)
	for _, name := range w.Marked() {
		if name == dead || slices.ContainsFunc(w.Sightings, func(s rr.Sighting) bool { return s.Node == name }) {
			continue
		}
		s := say(w, name, networks, false)
		if any {
			delete(s.Established, n.IPv4)
			s.Lost = map[netip.Addr]time.Time{n.IPv4: since}
		}
		w.Sightings = append(w.Sightings, s)
	}
	return written(w)
}

// written is the world whose status the controller has written.
func written(w rr.World) rr.World {
	p := MakePlan(w)
	w.Topology.Status.LostReflectors, w.Topology.Status.Spares = p.Lost, p.Spares
	return w
}

// inUse are the spares that take a reflector's place.
func inUse(all []v1alpha1.Spare) []v1alpha1.Spare {
	return slices.DeleteFunc(slices.Clone(all), func(s v1alpha1.Spare) bool { return s.Reflector == "" })
}

// There is a spare for each zone that has a reflector, of that zone: a client without a role, that stays the spare
// although another node suits as well; and no more than the spec allows.
func TestSparesAreChosenBeforehand(t *testing.T) {
	t.Parallel()
	w := written(established(t, 12))
	spares, zones := w.Topology.Status.Spares, map[string]bool{}
	for _, s := range spares {
		n, _ := w.Node(s.Node)
		if zones[s.Zone] = true; n.Marked(&w.Topology) || n.ClusterID != "" || s.Reflector != "" || s.Zone != n.Labels[zoneLabel] {
			t.Errorf("%+v is %+v", s, n)
		}
	}
	if len(spares) != 3 || len(zones) != 3 {
		t.Fatalf("%+v", spares)
	}
	if p := MakePlan(w); len(p.Steps) != 0 {
		t.Errorf("a spare asks for %v", p.Steps)
	}
	for _, s := range spares {
		w := with(w, func(n *rr.Node) { n.Workloads = 1 }, s.Node)
		changed := written(w).Topology.Status.Spares
		if len(changed) != 3 || slices.ContainsFunc(changed, func(c v1alpha1.Spare) bool { return c.Node == s.Node }) {
			t.Errorf("%s has workloads, and the spares are %+v", s.Node, changed)
		}
		w.Topology.Status.Spares = changed
		w = with(w, func(n *rr.Node) { n.Workloads = 0 }, s.Node)
		if got := MakePlan(w).Spares; !cmp.Equal(got, changed) {
			t.Errorf("it has none any more, and the spares change once more, to %+v", got)
		}
	}
	for count := range int32(4) {
		w.Topology.Spec.Failure.Spares = &count
		if got := MakePlan(w).Spares; len(got) != int(count) {
			t.Errorf("%d spares, want %d: %+v", len(got), count, got)
		}
	}
}

// A lost reflector's spare is promoted after spec.failure.promoteAfter, if two witnesses lost it, nobody has a session with
// it, and a reflector has one with the spare. The lost one keeps its role until its grace period is over; then it is
// demoted, and nobody else's role changes.
func TestASpareTakesThePlaceOfALostReflector(t *testing.T) {
	t.Parallel()
	w := written(established(t, 12))
	before, since := w.Marked(), w.Now
	dead, _ := w.Node(before[0])
	spare := w.Topology.Status.Spares[slices.IndexFunc(w.Topology.Status.Spares,
		func(s v1alpha1.Spare) bool { return s.Zone == dead.Labels[zoneLabel] })].Node
	w.Now = since.Add(2 * time.Second)
	if p := MakePlan(lostBy(w, dead.Name, since)); len(p.Steps) != 0 || len(inUse(p.Spares)) != 0 {
		t.Fatalf("after 2 s: %v, %+v", p.Steps, p.Spares)
	}
	w.Now = since.Add(3 * time.Second)
	held := lostBy(w, dead.Name, since)
	held.Topology.Status.Spares = w.Topology.Status.Spares
	held.Sightings[0].Established[dead.IPv4], held.Sightings[0].Lost = true, nil
	if p := MakePlan(held); len(p.Steps) != 0 {
		t.Errorf("%s has a session with it, and yet %v", held.Sightings[0].Node, p.Steps)
	}
	w = lostBy(w, dead.Name, since)
	p := MakePlan(w)
	if len(p.Steps) != 1 || !rr.Is[rr.Promote](p.Steps[0]) || p.Steps[0].Node() != spare || p.Waiting != "" {
		t.Fatalf("%v wait for %q, want %s", p.Steps, p.Waiting, spare)
	}
	if text := p.Troubles[0].Describe(w.Now); !strings.Contains(text, spare+" takes its place") {
		t.Error(text)
	}
	silent, unknown := apart(w, spare), w
	if p := MakePlan(silent); !strings.Contains(p.Waiting, "no reflector has an Established session with "+spare) {
		t.Errorf("the BIRD of %s is dead: %v wait for %q", spare, p.Steps, p.Waiting)
	}
	unknown.Sightings = slices.DeleteFunc(slices.Clone(w.Sightings), func(s rr.Sighting) bool { return slices.Contains(before, s.Node) })
	if p := MakePlan(unknown); !strings.Contains(p.Waiting, "no reflector has reported yet") ||
		!slices.Contains(p.Witnesses, before[1]) {
		t.Errorf("no reflector has reported: %v wait for %q of %v", p.Steps, p.Waiting, p.Witnesses)
	}
	w = After(w, p.Steps[0])
	w.Now = since.Add(w.Topology.Spec.Failure.UnreachableGrace.Duration - time.Second)
	w = lostBy(w, dead.Name, since)
	if p := MakePlan(w); len(p.Steps) != 0 || len(inUse(p.Spares)) != 1 {
		t.Fatalf("within the grace period: %v, %+v", p.Steps, p.Spares)
	}
	w.Now = w.Now.Add(time.Second)
	w = lostBy(w, dead.Name, since)
	if p = MakePlan(w); len(p.Steps) != 1 || !rr.Is[rr.Demote](p.Steps[0]) || p.Steps[0].Node() != dead.Name || p.Waiting != "" {
		t.Fatalf("after the grace period: %v wait for %q", p.Steps, p.Waiting)
	}
	w = written(After(w, p.Steps[0]))
	want := slices.Sorted(slices.Values(append([]string{spare}, before[1:]...)))
	if p := MakePlan(w); len(p.Steps) != 0 || !slices.Equal(w.Marked(), want) || len(p.Spares) != 3 {
		t.Errorf("%v, %v, want %v; spares %+v", p.Steps, w.Marked(), want, p.Spares)
	}
}

// A spare comes in addition to the lost reflector, so that another that should go has a successor of its own: whoever of
// the two is promoted first, a process that starts then goes on with the other.
func TestASpareIsNobodysSuccessor(t *testing.T) {
	t.Parallel()
	w := written(established(t, 12))
	dead, cordoned, since := w.Marked()[0], w.Marked()[1], w.Now
	w.Now = since.Add(4 * time.Second)
	w = lostBy(with(w, func(n *rr.Node) { n.Unschedulable = true }, cordoned), dead, since)
	p := MakePlan(w)
	if len(p.Steps) != 3 || !rr.Is[rr.Promote](p.Steps[1]) || p.Steps[2].Node() != cordoned {
		t.Fatalf("%v", p.Steps)
	}
	for _, first := range p.Steps[:2] {
		w := lostBy(After(w, first), dead, since)
		want := slices.DeleteFunc(slices.Clone(p.Steps), func(s rr.Step) bool { return s.Node() == first.Node() })
		if got := MakePlan(w).Steps; !slices.Equal(kinds(got), kinds(want)) {
			t.Errorf("after %s: %v, want %v", first, kinds(got), kinds(want))
		}
	}
}

// A reflector whose kubelet is silent has a spare as soon as the cloud reports its machine as off, its kubelet answers
// nobody, or nobody has a session with it; on the kubelet's word alone it has none.
func TestWhenASilentReflectorHasASpare(t *testing.T) {
	t.Parallel()
	w := written(established(t, 12))
	dead, since := w.Marked()[0], w.Now
	w = with(w, silentSince(since), dead)
	w.Now = since.Add(4 * time.Second)
	holding := hearing(settled(w), []string{dead})
	off := with(holding, func(n *rr.Node) {
		n.Taints = []corev1.Taint{{Key: rr.ShutdownTaint, Effect: corev1.TaintEffectNoSchedule}}
	}, dead)
	silent := holding
	silent.NoAnswer = map[string]time.Time{dead: since}
	for name, c := range map[string]struct {
		world rr.World
		want  bool
	}{
		"others have sessions": {holding, false}, "off": {off, true}, "its kubelet answers nobody": {silent, true},
		"others have lost it": {deaf(w, dead, w.Now), true}, "one has lost it": {deaf(w, dead, w.Now, w.Marked()[1]), false},
	} {
		steps := MakePlan(c.world).Steps
		if got := len(steps) > 0 && rr.Is[rr.Promote](steps[0]); got != c.want || len(steps) > 1 {
			t.Errorf("%s: %v", name, steps)
		}
	}
}

// However often reflectors are lost and return, at load or by somebody's malice, a group has one promotion and one
// demotion in spec.failure.stabilization, and in the end at most one reflector more than it shall have. Without spares
// it has none: what is lost for less than the grace period costs no role.
func TestAFalseAlarmIsBounded(t *testing.T) {
	t.Parallel()
	steady := written(established(t, 12))
	cases.Check(t, func(t *rapid.T) {
		w, begun := steady, steady.Now
		if without := rapid.Bool().Draw(t, "without spares"); without {
			w = spareless(w)
		}
		promoted, demoted := 0, 0
		for range rapid.IntRange(1, 30).Draw(t, "times") {
			who := rapid.SampledFrom(w.Marked()).Draw(t, "who")
			since := w.Now
			w.Now = w.Now.Add(time.Duration(rapid.IntRange(0, 59).Draw(t, "lost for")) * time.Second)
			for _, lost := range []string{who, ""} {
				w = lostBy(w, lost, since)
				for p := MakePlan(w); len(p.Steps) > 0 && p.Waiting == ""; p = MakePlan(w) {
					promoted += rr.Count(rr.Is[rr.Promote](p.Steps[0]))
					demoted += rr.Count(rr.Is[rr.Demote](p.Steps[0]))
					w = lostBy(After(w, p.Steps[0]), lost, since)
				}
				if count, used := len(w.Marked()), inUse(w.Topology.Status.Spares); count > 4 || len(used) > 1 {
					t.Fatalf("%d reflectors, spares %+v", count, used)
				}
			}
			w.Now = w.Now.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "well for")) * time.Second)
			if most := min(w.Spares(), 1) * (1 + int(w.Now.Sub(begun)/w.Stabilization())); promoted > most || demoted > most {
				t.Fatalf("%d promotions and %d demotions in %s", promoted, demoted, w.Now.Sub(begun))
			}
		}
	})
}

// ail makes reflectors be lost, return, and fall silent, at random, and lets time pass.
func ail(t *rapid.T, w rr.World) rr.World {
	w.Now = w.Now.Add(time.Duration(rapid.SampledFrom([]int{0, 3, 30, 90, 400}).Draw(t, "passes")) * time.Second)
	who := w.Marked()
	for range min(len(who), rapid.IntRange(1, 3).Draw(t, "changes of fate")) {
		name := rapid.SampledFrom(who).Draw(t, "who")
		at := slices.IndexFunc(w.Topology.Status.LostReflectors,
			func(e v1alpha1.LostReflector) bool { return e.Node == name })
		lost := slices.Clone(w.Topology.Status.LostReflectors)
		switch {
		case rapid.IntRange(0, 5).Draw(t, "its kubelet") == 0:
			w = with(w, silentSince(w.Now), name)
		case at >= 0 && lost[at].Until == nil:
			lost[at].Until = new(metav1.NewTime(w.Now))
		default:
			since := w.Now.Add(-time.Duration(rapid.SampledFrom([]int{0, 3, 10, 70}).Draw(t, "lost for")) * time.Second)
			if at >= 0 {
				lost = slices.Delete(lost, at, at+1)
			}
			lost = append(lost, v1alpha1.LostReflector{Node: name, Since: rr.Second(since)})
		}
		w.Topology.Status.LostReflectors = lost
	}
	return w
}

// ailing is planned, with the reports of those who have lost reflectors and a status that is written.
func ailing(w rr.World) (rr.World, rr.Plan) {
	w, _ = planned(w)
	for _, e := range w.Topology.Status.LostReflectors {
		n, exists := w.Node(e.Node)
		if !exists || e.Until != nil || !n.IsReflectorOf(&w.Topology) {
			continue
		}
		for i := range w.Sightings {
			s := &w.Sightings[i]
			if s.Lost == nil {
				s.Lost = map[netip.Addr]time.Time{}
			}
			for _, f := range rr.AddressFamilies() {
				if f.Up(&n) {
					delete(s.Established, f(&n))
					s.Lost[f(&n)] = e.Since.Time
				}
			}
		}
		w.Sightings = slices.DeleteFunc(w.Sightings, func(s rr.Sighting) bool { return s.Node == e.Node })
	}
	p := MakePlan(w)
	w.Topology.Status.LostReflectors, w.Topology.Status.Spares = p.Lost, p.Spares
	return w, p
}

// Whatever reflectors are lost, return or fall silent, and whatever else happens: the plan comes to an end, is safe at
// every prefix, changes nothing there, has at most one reflector of a group more than it shall have, and is the same in
// whichever order the world is listed, also for a process that starts again.
func TestAnyClusterWithSpares(t *testing.T) {
	t.Parallel()
	cases.CheckTimes(t, 60, 200, 2000, func(t *rapid.T) {
		w := anyWorld(t, 14)
		limitSpares(t, &w)
		w, _ = carryOut(t, w, safe(t))
		for range rapid.IntRange(1, 6).Draw(t, "rounds") {
			w = ail(t, w)
			if rapid.IntRange(0, 3).Draw(t, "something else") == 0 {
				w = churn(t, w)
			}
			w = heal(t, w, safe(t))
		}
	})
}

// The same of a hierarchy.
func TestAnyHierarchyWithSpares(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		w := anyHierarchy(t)
		limitSpares(t, &w)
		w, _ = arrive(t, w, guarded(t, 1))
		for range rapid.IntRange(1, 4).Draw(t, "rounds") {
			w = ail(t, w)
			if rapid.IntRange(0, 3).Draw(t, "something else") == 0 {
				w = reshape(t, churn(t, w))
			}
			w = heal(t, w, guarded(t, 0))
		}
	})
}

// limitSpares draws how many spares there may be.
func limitSpares(t *rapid.T, w *rr.World) {
	if rapid.IntRange(0, 3).Draw(t, "spares set") == 0 {
		w.Topology.Spec.Failure.Spares = new(int32(rapid.IntRange(0, 2).Draw(t, "spares")))
	}
}

// heal carries out what need not wait, and checks each plan.
func heal(t *rapid.T, w rr.World, look func(before, after rr.World, p rr.Plan)) rr.World {
	for range 300 {
		var p rr.Plan
		w, p = ailing(w)
		if rapid.IntRange(0, 3).Draw(t, "listed otherwise") == 0 {
			orderBlind(t, w)
		}
		groups := map[string]bool{}
		for _, s := range inUse(p.Spares) {
			n, _ := w.Node(s.Reflector)
			if name := rr.GroupName(n.Group()); groups[name] || !n.Marked(&w.Topology) {
				t.Fatalf("group %s has spares %+v", name, p.Spares)
			} else {
				groups[name] = true
			}
		}
		if len(p.Spares) > w.Spares() {
			t.Fatalf("%d spares, %d may be: %+v", len(p.Spares), w.Spares(), p.Spares)
		}
		if len(p.Steps) == 0 || p.Waiting != "" {
			return w
		}
		seen := health.Witnessed(w.Recognized())
		after := After(seen, p.Steps[0])
		look(seen, after, p)
		w = after
	}
	t.Fatalf("no end: %v", MakePlan(w).Steps)
	return w
}
