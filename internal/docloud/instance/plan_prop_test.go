// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package instance_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/providerid"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// drawWorld draws any observation at all, consistent or not.
func drawWorld(t *rapid.T) instance.World {
	ids := rapid.SliceOfNDistinct(rapid.IntRange(1, 30), 0, 20, rapid.ID[int]).Draw(t, "nodes")
	some := func(label string) []int {
		return rapid.SliceOfDistinct(rapid.IntRange(1, 30), rapid.ID[int]).Draw(t, label)
	}
	age := func(label string) time.Time {
		return start.Add(-rapid.SampledFrom([]time.Duration{0, time.Second, time.Minute, 3 * time.Minute, 10 * time.Minute}).Draw(t, label))
	}
	accounts := []instance.Account{
		ours, ours, ours, other, {}, {UUID: "ours", Team: "team"}, {UUID: "other", Team: "team"}, {UUID: "other", Team: "another team"},
	}
	w := instance.World{
		Now: start, Recorded: rapid.SampledFrom(accounts).Draw(t, "recorded"), Current: rapid.SampledFrom(accounts).Draw(t, "current"),
		Known: some("known"), Answers: map[int]instance.Answer{},
		List: instance.List{At: age("list age"), Complete: rapid.IntRange(0, 4).Draw(t, "complete") > 0, Droplets: some("list")},
	}
	for _, id := range ids {
		w.Nodes = append(w.Nodes, node(fmt.Sprintf("n%02d", id), providerid.Format(id)))
	}
	if rapid.Bool().Draw(t, "a bare node") {
		w.Nodes = append(w.Nodes, node("bare", ""))
	}
	outcomes := []instance.Outcome{instance.AnswerNotFound, instance.AnswerNotFound, instance.AnswerFound, instance.AnswerFailed}
	for _, id := range some("answers") {
		w.Answers[id] = instance.Answer{At: age("answer age"), Outcome: rapid.SampledFrom(outcomes).Draw(t, "outcome")}
	}
	for _, id := range some("memory") {
		w.Memory.Gone = append(w.Memory.Gone, instance.Loss{Droplet: id, At: age("loss age")})
	}
	return w
}

func drawConfig(t *rapid.T) instance.Config {
	c := instance.DefaultConfig()
	c.AtLeast, c.Percent = rapid.IntRange(0, 6).Draw(t, "at least"), rapid.SampledFrom([]int{0, 10, 100}).Draw(t, "percent")
	return c
}

// Never gone without a 404 of its own, nor on another account, nor when nothing of the cluster is visible, nor by a list that proves nothing.
func TestSafe(t *testing.T) {
	t.Parallel()
	deleted := 0
	cases.CheckTimes(t, 100, 300, 3000, func(t *rapid.T) {
		w, c := drawWorld(t), drawConfig(t)
		if rapid.Bool().Draw(t, "in order") {
			w = inOrder(w)
		}
		d := instance.MakePlan(w, c)
		if len(d.Verdicts) != len(w.Nodes) {
			t.Fatalf("%d verdicts on %d nodes", len(d.Verdicts), len(w.Nodes))
		}
		gone := map[int]bool{}
		for _, v := range d.Verdicts {
			if v.Existence == instance.Gone {
				gone[v.Droplet] = true
			}
		}
		if len(gone) == 0 {
			return
		}
		deleted++
		for id := range gone {
			answer, asked := w.Answers[id]
			if !asked || answer.Outcome != instance.AnswerNotFound || w.Now.Sub(answer.At) > c.MaxAnswerAge {
				t.Errorf("droplet %d is gone by %+v", id, answer)
			}
			if slices.Contains(w.List.Droplets, id) {
				t.Errorf("droplet %d is gone and listed", id)
			}
		}
		if w.Recorded != (instance.Account{}) && !sameDroplets(w.Recorded, w.Current) || w.Current == (instance.Account{}) {
			t.Errorf("gone on account %v, recorded %v", w.Current, w.Recorded)
		}
		if !w.List.Complete || w.Now.Sub(w.List.At) > c.MaxListAge {
			t.Errorf("gone by the list %+v", w.List)
		}
		witness := false
		for _, id := range ids(w) {
			witness = witness || slices.Contains(w.List.Droplets, id) || w.Answers[id].Outcome == instance.AnswerFound
		}
		if !witness {
			t.Error("gone, and none of the cluster's droplets is visible")
		}
	})
	if deleted == 0 {
		t.Error("no world let anything go: the property was not tested")
	}
}

// inOrder is the world with nothing in it that holds everything back, which few drawn ones are: what remains is which droplets are gone.
func inOrder(w instance.World) instance.World {
	w.Recorded = w.Current
	w.List.At, w.List.Complete = w.Now, true
	for id, answer := range w.Answers {
		answer.At = w.Now
		w.Answers[id] = answer
	}
	return w
}

// sameDroplets is the rule of the account again, in other words: droplets are a team's if there is one, and else the user's.
func sameDroplets(a, b instance.Account) bool {
	if a.Team != "" || b.Team != "" {
		return a.Team == b.Team
	}
	return a.UUID == b.UUID
}

// ids are the droplets of the cluster.
func ids(w instance.World) []int {
	out := slices.Clone(w.Known)
	for _, n := range w.Nodes {
		if id, err := providerid.Parse(n.Spec.ProviderID); err == nil {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// The order in which things were read makes no difference.
func TestOrderBlind(t *testing.T) {
	t.Parallel()
	cases.CheckTimes(t, 100, 300, 3000, func(t *rapid.T) {
		w, c := drawWorld(t), drawConfig(t)
		shuffled := w
		shuffled.Nodes = rapid.Permutation(w.Nodes).Draw(t, "nodes again")
		shuffled.Known = rapid.Permutation(w.Known).Draw(t, "known again")
		shuffled.List.Droplets = rapid.Permutation(w.List.Droplets).Draw(t, "list again")
		shuffled.Memory.Gone = rapid.Permutation(w.Memory.Gone).Draw(t, "memory again")
		shuffled.Answers = maps.Clone(w.Answers)
		if diff := cmp.Diff(instance.MakePlan(w, c), instance.MakePlan(shuffled, c)); diff != "" {
			t.Errorf("(-one +other):\n%s", diff)
		}
	})
}

// Not more than the allowance goes within any window, however often and about whatever is asked.
func TestPaced(t *testing.T) {
	t.Parallel()
	cases.CheckTimes(t, 100, 300, 3000, func(t *rapid.T) {
		c := drawConfig(t)
		w := drawWorld(t)
		w.Memory = instance.Memory{}
		first := map[int]time.Time{} // when a droplet was declared gone, the first time within a window
		var grants []time.Time
		largest := 0
		for range rapid.IntRange(1, 12).Draw(t, "rounds") {
			next := drawWorld(t)
			next.Memory, next.Recorded, next.Current, next.List.Complete = w.Memory, ours, ours, true
			next.Now = w.Now.Add(rapid.SampledFrom([]time.Duration{0, time.Minute, 4 * time.Minute, 6 * time.Minute}).Draw(t, "pause"))
			next.List.At = next.Now
			for id, a := range next.Answers {
				a.At = next.Now
				next.Answers[id] = a
			}
			w = next
			largest = max(largest, len(ids(w)))
			d := instance.MakePlan(w, c)
			w.Memory = d.Memory
			for _, v := range d.Verdicts {
				at, before := first[v.Droplet]
				if v.Existence == instance.Gone && (!before || w.Now.Sub(at) >= c.Window) {
					first[v.Droplet] = w.Now
					grants = append(grants, w.Now)
				}
			}
		}
		limit := max(c.AtLeast, (largest*c.Percent+99)/100)
		for i, at := range grants {
			within := 0
			for _, other := range grants[i:] {
				if other.Sub(at) < c.Window {
					within++
				}
			}
			if within > limit {
				t.Fatalf("%d went within %s, %d are allowed", within, c.Window, limit)
			}
		}
	})
}

// A provider that reads what the decision asks for: some machines are really deleted, in the end exactly their Nodes are gone, whatever the
// cluster's size and however many went, as long as one is left.
func TestConverges(t *testing.T) {
	t.Parallel()
	cases.CheckTimes(t, 100, 300, 3000, func(t *rapid.T) {
		c := instance.DefaultConfig()
		all := rapid.SliceOfNDistinct(rapid.IntRange(1, 60), 2, 40, rapid.ID[int]).Draw(t, "droplets")
		keep := rapid.IntRange(1, len(all)).Draw(t, "how many stay")
		alive := all[:keep]
		w := instance.World{Now: start, Recorded: ours, Current: ours, Known: slices.Clone(all), Answers: map[int]instance.Answer{}}
		for _, id := range all {
			w.Nodes = append(w.Nodes, node(fmt.Sprintf("n%02d", id), providerid.Format(id)))
		}
		for round := 0; ; round++ {
			if round > 200 {
				t.Fatalf("after %d rounds %d of %d nodes are left", round, len(w.Nodes), len(all))
			}
			d := instance.MakePlan(w, c)
			w.Memory = d.Memory
			w.Nodes = slices.DeleteFunc(w.Nodes, func(n *corev1.Node) bool {
				v, _ := d.Verdict(n.Name)
				if v.Existence == instance.Gone && slices.Contains(alive, v.Droplet) {
					t.Fatalf("droplet %d lives", v.Droplet)
				}
				return v.Existence == instance.Gone
			})
			if len(w.Nodes) == len(alive) {
				return
			}
			if d.Refresh {
				w.List = instance.List{At: w.Now, Complete: rapid.IntRange(0, 3).Draw(t, "complete") > 0, Droplets: alive}
			}
			for _, id := range d.Ask {
				outcome := instance.AnswerNotFound
				if slices.Contains(alive, id) {
					outcome = instance.AnswerFound
				}
				if rapid.IntRange(0, 3).Draw(t, "fails") == 0 {
					outcome = instance.AnswerFailed
				}
				w.Answers[id] = instance.Answer{At: w.Now, Outcome: outcome}
			}
			w.Now = w.Now.Add(20 * time.Second)
		}
	})
}
