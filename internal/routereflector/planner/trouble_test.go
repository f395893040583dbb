// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	rr "github.com/mooring-dev/mooring/internal/routereflector"
)

// deaf is the world in which witnesses reported at a time: those named hold their session with a node, and the others have lost it.
func deaf(w rr.World, node string, at time.Time, holding ...string) rr.World {
	w = settled(w)
	n, _ := w.Node(node)
	for i := range w.Sightings {
		s := &w.Sightings[i]
		s.At, s.Current = at, true
		delete(s.Established, n.IPv4)
		if slices.Contains(holding, s.Node) {
			s.Established[n.IPv4] = true
		}
	}
	return w
}

// A reflector's trouble is known at once, and three at most are queried about it: reflectors first, clients where there are too few.
func TestTroubleIsKnownAtOnce(t *testing.T) {
	t.Parallel()
	for redundancy, reflectors := range map[int32]int{2: 1, 3: 2, 4: 3} {
		w, _ := carryOut(t, redundant(cluster(12, 3), redundancy), nil)
		dead := w.Marked()[0]
		w = with(w, silentSince(w.Now), dead)
		p := MakePlan(w)
		if len(p.Troubles) != 1 || p.Troubles[0].Node != dead || len(p.Steps) != 0 {
			t.Fatalf("with %d reflectors: %+v, %v", redundancy, p.Troubles, p.Steps)
		}
		got := p.Troubles[0].Observers()
		asked := 0
		for _, name := range w.Marked()[1:] {
			asked += rr.Count(slices.Contains(got, name))
		}
		if asked != reflectors || len(got) > rr.MaxObservers || len(got) < rr.Quorum || slices.Contains(got, dead) {
			t.Errorf("with %d reflectors %v are queried about %s", redundancy, got, dead)
		}
		for _, name := range got {
			if !slices.Contains(p.Witnesses, name) {
				t.Errorf("%s is not queried: %v", name, p.Witnesses)
			}
		}
	}
}

// A reflector is replaced when the grace period is over, and two have lost it or its machine is off; never sooner, and never on one report, or on a
// report from before the trouble.
func TestWhenATroubledReflectorIsReplaced(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, redundant(spareless(cluster(12, 3)), 2), nil)
	dead, since := w.Marked()[0], w.Now
	w = with(w, silentSince(since), dead)
	observers := MakePlan(w).Troubles[0].Observers()
	grace := w.Topology.Spec.Failure.UnreachableGrace.Duration
	off := func(n *rr.Node) {
		n.Taints = append(slices.Clone(n.Taints), corev1.Taint{Key: rr.ShutdownTaint, Effect: corev1.TaintEffectNoSchedule})
	}
	for name, c := range map[string]struct {
		after, reported time.Duration
		holding         []string
		off, want       bool
		says            string
	}{
		"a reboot of a minute": {after: grace - time.Second, reported: time.Second, says: "; it is replaced after "},
		"two have lost it":     {after: grace, reported: time.Second, holding: observers[:1], want: true, says: "; it will be replaced"},
		"one has lost it":      {after: grace, reported: time.Second, holding: observers[1:], says: " once 2 of "},
		"all hold it":          {after: time.Hour, reported: time.Hour, holding: observers, says: " once 2 of "},
		"reports are older":    {after: grace, reported: -time.Second, says: " once 2 of "},
		"off, within grace":    {after: grace - time.Second, reported: time.Second, off: true, holding: observers, says: "powered off; it is replaced after "},
		"off":                  {after: grace, reported: time.Second, off: true, holding: observers, want: true, says: "powered off; it will be replaced"},
	} {
		w := w
		if c.off {
			w = with(w, off, dead)
		}
		w.Now = since.Add(c.after)
		w = deaf(w, dead, since.Add(c.reported), c.holding...)
		p := MakePlan(w)
		if got := len(p.Steps) > 0 && rr.Is[rr.Promote](p.Steps[0]); got != c.want {
			t.Errorf("%s: %v", name, p.Steps)
		}
		if got := p.Troubles[0].Describe(w.Now); !strings.Contains(got, c.says) || !strings.Contains(got, dead) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// A replacement resets what clients have reported; until they have again, the replacement stays, although its zone has another.
func TestAReplacementStaysUntilObserversReportAgain(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, redundant(cluster(12, 2), 2), nil)
	dead, since := w.Marked()[0], w.Now
	n, _ := w.Node(dead)
	zone := n.Labels[zoneLabel]
	w = with(w, cordon, others(w)...)
	for i := range w.Nodes {
		if o := &w.Nodes[i]; !o.Marked(&w.Topology) && o.Labels[zoneLabel] != zone {
			o.Unschedulable = false
		}
	}
	w = with(w, silentSince(since), dead)
	w.Now = since.Add(time.Hour)
	p := MakePlan(deaf(w, dead, w.Now))
	if len(p.Steps) == 0 || !rr.Is[rr.Promote](p.Steps[0]) {
		t.Fatalf("%v", p.Steps)
	}
	w = deaf(After(w, p.Steps[0]), dead, w.Now)
	w.Sightings = slices.DeleteFunc(w.Sightings, func(s rr.Sighting) bool {
		o, _ := w.Node(s.Node)
		return !o.Marked(&w.Topology) || s.Node == p.Steps[0].Node()
	})
	for _, s := range MakePlan(w).Steps {
		if rr.Is[rr.Promote](s) || rr.Is[rr.Demote](s) && s.Node() != dead {
			t.Errorf("%v", s)
		}
	}
}

// Where BIRD keeps the sessions of a silent machine, its kubelet, which answers no connection either, decides once the
// grace period is over. One that reports itself NotReady lives.
func TestAKubeletThatAnswersNobody(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, spareless(cluster(12, 3)), nil)
	dead := w.Marked()[0]
	begun, grace := w.Now, w.Topology.Spec.Failure.UnreachableGrace.Duration
	replaced := func(w rr.World, after time.Duration, ready corev1.ConditionStatus) []rr.Step {
		w = with(w, func(n *rr.Node) { n.Ready, n.ReadySince = ready, begun }, dead)
		w.Now = begun.Add(after)
		return MakePlan(deaf(w, dead, w.Now, namesOf(w)...)).Steps
	}
	silent := w
	silent.NoAnswer = map[string]time.Time{dead: begun.Add(time.Second)}
	for name, c := range map[string]struct {
		world rr.World
		after time.Duration
		ready corev1.ConditionStatus
		want  bool
	}{
		"it answers":                  {w, grace + time.Second, corev1.ConditionUnknown, false},
		"within the grace period":     {silent, grace - time.Second, corev1.ConditionUnknown, false},
		"after it":                    {silent, grace + time.Second, corev1.ConditionUnknown, true},
		"its Node is Ready meanwhile": {silent, grace + time.Second, corev1.ConditionTrue, false},
	} {
		steps := replaced(c.world, c.after, c.ready)
		if got := len(steps) > 0 && rr.Is[rr.Promote](steps[0]); got != c.want {
			t.Errorf("%s: replaced %v, want %v: %v", name, got, c.want, steps)
		}
	}
	w = with(silent, silentSince(begun), dead)
	if p := MakePlan(deaf(w, dead, w.Now)); len(p.Troubles) != 1 || !strings.Contains(p.Troubles[0].Describe(w.Now), "its kubelet answers no connection") {
		t.Errorf("it is not said: %+v", p.Troubles)
	}
}

// namesOf are the names of all nodes.
func namesOf(w rr.World) []string {
	var out []string
	for i := range w.Nodes {
		out = append(out, w.Nodes[i].Name)
	}
	return out
}
