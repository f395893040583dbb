// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/health"
	"github.com/mooring-dev/mooring/internal/routereflector/model"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// roll replaces the nodes of a pool, one after the other, as those do who run clusters.
type roll struct {
	*rapid.T
	w rr.World
	// least is the least number of sessions that a client may have.
	least, serial int
}

// look checks what must hold at any time.
func (r *roll) look(when string) {
	r.Helper()
	if got := model.Judge(&r.w, model.StateOf(r.w)).Checks; got.MinSessionsPerClient < r.least || got.UnreachablePairs > 0 {
		r.Fatalf("%s: a client has %d sessions, %d are the least; %d pairs have no path", when, got.MinSessionsPerClient, r.least, got.UnreachablePairs)
	}
}

// work lets the plan be carried out, with its sessions coming up, and sees that it is safe.
func (r *roll) work(when string) {
	r.Helper()
	r.w, _ = carryOut(r.T, r.w, func(before, after rr.World, p rr.Plan) {
		safe(r.T)(before, after, p)
		if p.AtOnce != 1 {
			r.Fatalf("%s: %d steps at once", when, p.AtOnce)
		}
		if got := model.Judge(&after, model.StateOf(after)).Checks; got.MinSessionsPerClient < r.least || got.UnreachablePairs > 0 {
			r.Fatalf("%s: %s leaves a client %d sessions, %d are the least", when, p.Steps[0], got.MinSessionsPerClient, r.least)
		}
	})
	r.w = remembering(r.w)
}

// join adds a machine to the pool, which is Ready from now on.
func (r *roll) join(zone string) {
	n := machine(r.serial, 1)
	n.Created, n.ReadySince, r.serial = r.w.Now, r.w.Now, r.serial+1
	n.Labels[zoneLabel], n.Labels["pool"] = zone, "rr"
	r.w.Nodes = append(slices.Clone(r.w.Nodes), n)
	r.look("a machine has joined")
}

// wait lets time pass.
func (r *roll) wait(least, most int) {
	r.w.Now = r.w.Now.Add(time.Duration(rapid.IntRange(least, most).Draw(r.T, "seconds")) * time.Second)
}

// A rolling replacement of the pool of the reflectors never leaves a client with fewer sessions than all but one: whether new machines come before the
// old ones go or after, and whether these are cordoned, tainted by an autoscaler, or deleted without a word, if only the next one is not touched before
// the plan for the last one has been carried out; without a word, not before a new machine is trusted either.
func TestRollingPool(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		w := cluster(rapid.IntRange(6, 9).Draw(t, "nodes"), 3)
		redundancy := int32(rapid.IntRange(2, 4).Draw(t, "redundancy"))
		w.Topology.Spec.Redundancy = &redundancy
		pool := rapid.IntRange(int(redundancy), 5).Draw(t, "pool")
		for i := range w.Nodes {
			w.Nodes[i].Labels["pool"] = map[bool]string{true: "rr", false: "work"}[i < pool]
			w.Nodes[i].Workloads = rapid.IntRange(0, 2).Draw(t, "workloads")
		}
		if rapid.Bool().Draw(t, "only the pool") {
			w.Topology.Spec.Reflectors.Required.MatchLabels = map[string]string{"pool": "rr"}
		}
		r := &roll{T: t, w: w, serial: 2000}
		r.work("at first")
		r.least = int(redundancy) - 1
		notice := rapid.SampledFrom([]string{"cordon", "taint", "deletion", "none"}).Draw(t, "notice")
		surge := rapid.Bool().Draw(t, "surge")
		for _, old := range rapid.Permutation(slices.Collect(func(yield func(int) bool) {
			for i := range pool {
				yield(i)
			}
		})).Draw(t, "order") {
			name := fmt.Sprintf("node-%05d", old)
			at := slices.IndexFunc(r.w.Nodes, func(n rr.Node) bool { return n.Name == name })
			zone := r.w.Nodes[at].Labels[zoneLabel]
			if surge {
				r.join(zone)
			}
			r.wait(0, 60)
			r.w = with(r.w, func(n *rr.Node) {
				switch notice {
				case "cordon":
					cordon(n)
				case "taint":
					taintForRemoval(n)
				case "deletion":
					n.Deleting = true
				}
			}, name)
			r.work(notice + " " + name)
			r.wait(0, 60)
			r.w = withoutNodes(r.w, name)
			r.look(name + " is gone")
			if !surge {
				r.join(zone)
			}
			if notice == "none" {
				r.wait(301, 400)
			}
			r.work(name + " is replaced")
		}
		r.w.Now = r.w.Now.Add(time.Hour)
		r.work("at the end")
		if got := model.Judge(&r.w, model.StateOf(r.w)).Checks.MinSessionsPerClient; got != int(redundancy) {
			t.Fatalf("at the end a client has %d sessions", got)
		}
	})
}

// However many reflectors fall ill and get well within the grace period, again and again and together, nothing is written as long as one is heard by others. When
// none is, the mesh is turned on, and goes off again when they have been well for a minute: nothing else is written, and the mesh is not switched more than
// twice a minute.
func TestManyFlapWithoutAWrite(t *testing.T) {
	t.Parallel()
	steady, _ := carryOut(t, spareless(cluster(12, 3)), nil)
	cases.Check(t, func(t *rapid.T) {
		w, switches := steady, 0
		heard := rapid.Bool().Draw(t, "BIRD lives")
		for range rapid.IntRange(1, 8).Draw(t, "times") {
			w = with(w, func(n *rr.Node) {
				condition := rapid.SampledFrom([]corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown}).Draw(t, "condition")
				if condition != n.Ready {
					n.Ready, n.ReadySince = condition, w.Now
				}
			}, w.Marked()...)
			since, well := w.Now, 0
			for _, n := range w.Nodes {
				if n.Ready != corev1.ConditionTrue && n.ReadySince.Before(since) {
					since = n.ReadySince
				}
				well += rr.Count(n.Marked(&w.Topology) && n.Ready == corev1.ConditionTrue)
			}
			for _, seconds := range []int{0, rapid.IntRange(0, 59).Draw(t, "seconds")} {
				if w.Now = w.Now.Add(time.Duration(seconds) * time.Second); w.Now.Sub(since) >= time.Minute {
					return // no longer within a grace period
				}
				w = settled(w)
				if heard {
					w = hearing(w, w.Marked())
				}
				p := MakePlan(w)
				if len(p.Steps) == 0 || p.Waiting != "" {
					continue
				}
				switch step := p.Steps[0]; {
				case heard:
					t.Fatalf("they are heard, and yet %v", p.Steps)
				case rr.Is[rr.MeshOn](step) && well > 0:
					t.Fatalf("%d reflectors live, and yet %v", well, p.Steps)
				case !rr.Is[rr.MeshOn](step) && !rr.Is[rr.MeshOff](step):
					t.Fatalf("%v", p.Steps)
				default:
					w, switches = After(w, step), switches+1
				}
				if most := 2 * (1 + int(w.Now.Sub(steady.Now)/health.MeshStays)); switches > most {
					t.Fatalf("the mesh was switched %d times in %s", switches, w.Now.Sub(steady.Now))
				}
			}
		}
	})
}
