// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/health"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// remembering is the world once what is believed of it is in the status, as the controller writes it there.
func remembering(w rr.World) rr.World {
	w.Topology.Status.Baseline = MakePlan(w).Baseline
	return w
}

// labeled is a cluster with reflectors on the nodes of pool rr, clients in pool work, and its baseline.
func labeled(t tester, nodes int) rr.World {
	t.Helper()
	w := cluster(nodes, 3)
	for i := range w.Nodes {
		w.Nodes[i].Labels["pool"] = map[bool]string{true: "rr", false: "work"}[i < 6]
		w.Nodes[i].Labels["bgp"] = "yes"
	}
	w.Topology.Spec.ClientSelector.MatchLabels = map[string]string{"bgp": "yes"}
	w.Topology.Spec.Reflectors.Required.MatchLabels = map[string]string{"pool": "rr"}
	w, _ = carryOut(t, w, nil)
	return remembering(w)
}

// unlabel takes a label from the first nodes that have it.
func unlabel(w rr.World, count int, key string, which func(n *rr.Node) bool) rr.World {
	var names []string
	for i := range w.Nodes {
		if n := &w.Nodes[i]; len(names) < count && which(n) {
			names = append(names, n.Name)
		}
	}
	return with(w, func(n *rr.Node) {
		n.Labels = maps.Clone(n.Labels)
		delete(n.Labels, key)
	}, names...)
}

func anybody(*rr.Node) bool  { return true }
func inPool(n *rr.Node) bool { return n.Labels["pool"] == "rr" }
func firstNames(w rr.World, count int) []string {
	var out []string
	for _, n := range w.Nodes[len(w.Nodes)-count:] {
		out = append(out, n.Name)
	}
	return out
}

// The observed state all of a sudden is not believed, and nothing is written.
func TestFrozen(t *testing.T) {
	t.Parallel()
	w := labeled(t, 20)
	promoted := func(n *rr.Node) bool { return n.ClusterID != "" }
	for name, c := range map[string]struct {
		w      rr.World
		reason rr.Reason
		words  string
	}{
		"clients: none":            {unlabel(w, 20, "bgp", anybody), rr.ReasonMatchesNothing, "spec.clientSelector selects none of the 20 Nodes that it selected at 2026-11-21T03:00:00Z and that still exist"},
		"clients: less than half":  {unlabel(w, 11, "bgp", anybody), rr.ReasonMatchesTooFew, "spec.clientSelector selects only 9 of the 20 Nodes that it selected"},
		"clients: half":            {unlabel(w, 10, "bgp", anybody), "", ""},
		"required: none":           {unlabel(w, 20, "pool", inPool), rr.ReasonMatchesNothing, "spec.reflectors.required selects none of the 6 Nodes that it selected"},
		"required: less than half": {unlabel(w, 4, "pool", inPool), rr.ReasonMatchesTooFew, "spec.reflectors.required selects only 2 of the 6 Nodes that it selected"},
		"required: half":           {unlabel(w, 3, "pool", func(n *rr.Node) bool { return inPool(n) && !promoted(n) }), "", ""},
		"reflectors: less than half": {
			unlabel(w, 2, "pool", promoted), rr.ReasonMatchesTooFew, "spec.reflectors.required selects only 1 of the 3 Nodes that it selected",
		},
		"reflectors: one":       {unlabel(w, 1, "pool", promoted), "", ""},
		"nodes: half":           {withoutNodes(w, firstNames(w, 10)...), rr.ReasonNodesVanished, "of 20 Nodes at 2026-11-21T03:00:00Z there are 10 left; nothing is written until this has lasted for 5m0s"},
		"nodes: less than half": {withoutNodes(w, firstNames(w, 9)...), "", ""},
		"addresses":             {with(w, func(n *rr.Node) { n.ForeignAS = true }, firstNames(w, 20)...), rr.ReasonMatchesNothing, "spec.clientSelector selects none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := settledPlan(c.w)
			if c.reason == "" {
				if len(p.Refusals) > 0 {
					t.Errorf("%+v", p.Refusals)
				}
				return
			}
			if len(p.Steps)+len(p.Witnesses) != 0 || len(p.Refusals) != 1 || p.Refusals[0].Reason != c.reason || !strings.Contains(p.Refusals[0].Message, c.words) {
				t.Fatalf("%v, %+v", p.Steps, p.Refusals)
			}
			// The same after a day, anyone who looks.
			later := remembering(c.w)
			later.Now = later.Now.Add(24 * time.Hour)
			if p := MakePlan(remembering(later)); len(p.Refusals) != 1 || p.Refusals[0].Reason != c.reason {
				t.Errorf("a day later %+v", p.Refusals)
			}
			// Somebody who knows better repeats the word of the message; it holds once.
			_, word, _ := strings.Cut(p.Refusals[0].Message, v1alpha1.ConfirmAnnotation+"=")
			believed := later
			believed.Topology.Annotations = map[string]string{v1alpha1.ConfirmAnnotation: word}
			if p := MakePlan(believed); slices.ContainsFunc(p.Refusals, func(r rr.Refusal) bool { return r.Reason == c.reason }) {
				t.Errorf("believed, and yet %+v", p.Refusals)
			}
			believed = remembering(believed)
			if p := MakePlan(believed); slices.ContainsFunc(p.Refusals, func(r rr.Refusal) bool { return r.Reason == c.reason }) || p.Baseline.DoubtedSince != nil {
				t.Errorf("believed once, and yet %+v", p.Refusals)
			}
			if again := withoutNodes(believed, firstNames(believed, len(believed.Nodes)/2+1)...); len(MakePlan(again).Refusals) == 0 {
				t.Error("the word holds for the next loss as well")
			}
		})
	}
}

// A selector that is changed on purpose may select whom it likes.
func TestASelectorThatIsChanged(t *testing.T) {
	t.Parallel()
	w := labeled(t, 20)
	w.Topology.Spec.Reflectors.Required.MatchLabels = map[string]string{"pool": "work"}
	w = remembering(w)
	w, done := carryOut(t, w, nil)
	if got := order(done); got != "Promote Promote Promote Demote Demote Demote" || len(MakePlan(remembering(w)).Refusals) != 0 {
		t.Errorf("%s, %+v", got, MakePlan(remembering(w)).Refusals)
	}
}

// Labels that come back end the doubt, and so does a list of the API server once a loss of Nodes has stood for a while.
func TestThaw(t *testing.T) {
	t.Parallel()
	w := labeled(t, 20)
	frozen := remembering(unlabel(w, 20, "bgp", anybody))
	if frozen.Topology.Status.Baseline.DoubtedSince == nil {
		t.Error("nothing says since when")
	}
	frozen.Nodes = w.Nodes
	if p := MakePlan(frozen); len(p.Refusals) != 0 || p.Baseline.DoubtedSince != nil || p.Baseline.Nodes != 20 {
		t.Errorf("%+v, %+v", p.Refusals, p.Baseline)
	}
	gone := remembering(withoutNodes(w, firstNames(w, 12)...))
	for _, c := range []struct {
		after     time.Duration
		confirmed bool
		frozen    bool
		confirm   bool
	}{
		{0, true, true, false},
		{health.DoubtPeriod - time.Second, true, true, false},
		{health.DoubtPeriod, false, true, true},
		{health.DoubtPeriod, true, false, false},
	} {
		later := gone
		later.Now, later.Confirmed = later.Now.Add(c.after), c.confirmed
		p := MakePlan(later)
		if len(p.Refusals) > 0 != c.frozen || p.Confirm != c.confirm {
			t.Errorf("after %v, confirmed %v: %+v, asks for a list: %v", c.after, c.confirmed, p.Refusals, p.Confirm)
		}
		if !c.frozen && (p.Baseline.Nodes != 8 || p.Baseline.DoubtedSince != nil) {
			t.Errorf("believed is %+v", p.Baseline)
		}
	}
}

// In an emergency nothing is lost by acting on what is gone: but what is gone is not believed for it.
func TestAnEmergencyIsNotFrozen(t *testing.T) {
	t.Parallel()
	w := labeled(t, 20)
	for _, r := range w.Marked() {
		w.Topology.Status.Reflectors = append(w.Topology.Status.Reflectors, v1alpha1.ReflectorStatus{Node: r, Role: string(rr.RoleReflector)})
	}
	w = withoutNodes(w, append(w.Marked(), firstNames(w, 12)...)...)
	p := MakePlan(w)
	if p.AtOnce != 3 || len(p.Refusals) != 0 || p.Baseline.Nodes != 20 {
		t.Fatalf("%v, %+v, %+v", p.Steps, p.Refusals, p.Baseline)
	}
	for _, s := range p.Steps {
		w = After(w, s)
	}
	if p := MakePlan(remembering(w)); len(p.Refusals) != 1 || p.Refusals[0].Reason != rr.ReasonNodesVanished {
		t.Errorf("afterwards %+v", p.Refusals)
	}
}

// The end of a topology waits for Nodes that vanished as well: an informer that lacks them would leave their reflectors behind. It does not
// care for labels.
func TestExitAndFreeze(t *testing.T) {
	t.Parallel()
	w := labeled(t, 20)
	now := metav1.NewTime(w.Now)
	w.Topology.DeletionTimestamp = &now
	if p := MakePlan(withoutNodes(w, firstNames(w, 12)...)); len(p.Steps) != 0 || p.Refusals[0].Reason != rr.ReasonNodesVanished {
		t.Errorf("%v, %+v", p.Steps, p.Refusals)
	}
	if p := MakePlan(unlabel(w, 20, "bgp", anybody)); len(p.Refusals) != 0 || len(p.Steps) == 0 {
		t.Errorf("%v, %+v", p.Steps, p.Refusals)
	}
}

// The baseline follows what adds to it at once and what takes away from it slowly, and stays the same object while nothing changes: it is in
// the status, and nothing is to be written in a steady state.
func TestBaseline(t *testing.T) {
	t.Parallel()
	w := labeled(t, 20)
	first := *w.Topology.Status.Baseline
	if first.Nodes != 20 || first.Clients != 20 || first.Candidates != 6 || first.Reflectors != 3 {
		t.Errorf("%+v", first)
	}
	w.Now = w.Now.Add(time.Hour)
	if got := *MakePlan(w).Baseline; got != first {
		t.Errorf("without a change it is %+v, was %+v", got, first)
	}
	grown := w
	late := machine(100, 3)
	late.Created, late.Labels["bgp"] = w.Now.Add(time.Second), "yes" // the clock of the API server is ahead
	grown.Nodes = append(slices.Clone(w.Nodes), late)
	grown = remembering(grown)
	if got := *grown.Topology.Status.Baseline; got.Nodes != 21 || got.Clients != 21 || !got.Newest.Time.Equal(late.Created) || !got.Time.Time.Equal(w.Now) {
		t.Errorf("grown it is %+v", got)
	}
	grown.Now = grown.Now.Add(24 * time.Hour) // an old baseline is lowered no faster than a new one
	fewer := withoutNodes(grown, firstNames(grown, 3)...)
	if got := *MakePlan(fewer).Baseline; got.Nodes != 21 || !got.FewerSince.Time.Equal(fewer.Now) {
		t.Errorf("at once it is %+v", got)
	}
	fewer = remembering(fewer)
	fewer.Now = fewer.Now.Add(health.DoubtPeriod - time.Second)
	if got := *MakePlan(fewer).Baseline; got.Nodes != 21 {
		t.Errorf("before its time it is %+v", got)
	}
	back := fewer
	back.Nodes = grown.Nodes
	if got := *MakePlan(back).Baseline; got.FewerSince != nil || got.Nodes != 21 {
		t.Errorf("once they are back it is %+v", got)
	}
	fewer.Now = fewer.Now.Add(2 * time.Second)
	if got := *MakePlan(fewer).Baseline; got.Nodes != 18 || !got.Time.Time.Equal(fewer.Now) {
		t.Errorf("later it is %+v", got)
	}
	// One for one: the number is the same, and the old ones are forgotten all the same.
	swapped := withoutNodes(grown, firstNames(grown, 1)...)
	next := machine(101, 3)
	next.Created, next.Labels["bgp"] = grown.Now.Add(time.Minute), "yes"
	swapped.Nodes = append(slices.Clone(swapped.Nodes), next)
	swapped.Now = swapped.Now.Add(2 * health.DoubtPeriod)
	swapped = remembering(swapped)
	swapped.Now = swapped.Now.Add(health.DoubtPeriod)
	if got := *MakePlan(swapped).Baseline; got.Nodes != 21 || !got.Time.Time.Equal(swapped.Now) {
		t.Errorf("after an exchange it is %+v", got)
	}
}

// Whatever an autoscaler does, and however fast, no person is needed: Nodes come and go, labels stay, and what is doubted is believed when
// it has stood.
func TestAutoscalingNeedsNobody(t *testing.T) {
	t.Parallel()
	steady := labeled(t, 24)
	cases.Check(t, func(t *rapid.T) {
		w, serial := steady, 1000
		for range rapid.IntRange(1, 12).Draw(t, "events") {
			// Who is created in the very second of the newest of those who were counted cannot be told from them.
			w.Now = w.Now.Add(time.Second)
			w.Nodes = slices.Clone(w.Nodes)
			for range rapid.IntRange(0, 20).Draw(t, "come") {
				n := machine(serial, 3)
				n.Labels["bgp"], n.Labels["pool"], n.Created, n.ReadySince, serial = "yes", rapid.SampledFrom([]string{"rr", "work", "other"}).Draw(t, "pool"), w.Now, w.Now, serial+1
				if n.Labels["pool"] == "other" {
					delete(n.Labels, "bgp")
				}
				w.Nodes = append(w.Nodes, n)
			}
			for range rapid.IntRange(0, 20).Draw(t, "go") {
				if at := rapid.IntRange(0, len(w.Nodes)-1).Draw(t, "who"); len(w.Nodes) > 2 {
					w.Nodes = slices.Delete(w.Nodes, at, at+1)
				}
			}
			w.Now, w.Confirmed = w.Now.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "seconds"))*time.Second), false
			p := MakePlan(w)
			for _, r := range p.Refusals {
				if r.Reason == rr.ReasonMatchesNothing || r.Reason == rr.ReasonMatchesTooFew {
					t.Fatalf("%+v; believed was %+v", r, w.Topology.Status.Baseline)
				}
			}
			w = remembering(w)
		}
		w.Now = w.Now.Add(health.DoubtPeriod)
		w.Confirmed = true
		if p := MakePlan(w); health.Doubt(&w) != nil || len(p.Baseline.Selectors) == 0 {
			t.Fatalf("it is still doubted: %+v", p.Refusals)
		}
	})
}

// Labels that are lost by all nodes are noticed, however many writes it takes, as long as it takes less than the time for which a baseline holds.
func TestLabelsLostOneByOne(t *testing.T) {
	t.Parallel()
	steady := labeled(t, 20)
	steady.Now = steady.Now.Add(time.Hour)
	cases.Check(t, func(t *rapid.T) {
		w, frozen := steady, false
		for left := 20; left > 0; {
			batch := rapid.IntRange(1, 3).Draw(t, "batch")
			w = unlabel(w, batch, "bgp", func(n *rr.Node) bool { return n.Labels["bgp"] != "" })
			left -= batch
			w.Now = w.Now.Add(time.Duration(rapid.IntRange(1, 13).Draw(t, "seconds")) * time.Second)
			w = remembering(w)
			if frozen = frozen || w.Topology.Status.Baseline.DoubtedSince != nil; frozen && len(MakePlan(w).Steps) != 0 {
				t.Fatalf("frozen, and yet %v", MakePlan(w).Steps)
			}
		}
		if !frozen {
			t.Fatal("all labels were lost, and nobody noticed")
		}
	})
}
