// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
)

// manyMachines is a world of 2,000 machines.
func manyMachines() *world {
	w := &world{}
	for i := range 2000 {
		w.named(fmt.Sprintf("node-%04d", i))
	}
	return w
}

// leave takes so many machines away, watched or not.
func (w *world) leave(machines int, watched bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.listed[:machines] {
		if watched {
			w.left = append(w.left, nodesync.Sighting{Node: n.Name, UID: n.UID})
		}
	}
	w.listed = w.listed[machines:]
}

// cleaned waits until so many machines are removed, and returns how long that took, and how many were removed within any five seconds at most.
func (w *world) cleaned(t *testing.T, machines int, meanwhile func()) (took time.Duration, most int) {
	t.Helper()
	began := time.Now()
	for {
		removed := get(w, func() []time.Time { return slices.Clone(w.removed) })
		for i, at := range removed {
			most = max(most, len(removed[i:])-len(slices.DeleteFunc(slices.Clone(removed[i:]), func(x time.Time) bool { return x.Sub(at) < 5*time.Second })))
		}
		if len(removed) == machines {
			return time.Since(began), most
		}
		if time.Since(began) > 24*time.Hour {
			t.Fatalf("%d of %d machines are removed after a day", len(removed), machines)
		}
		meanwhile()
		pass(time.Second)
	}
}

// Beyond the grace period no timer holds up what was watched but a second between two reads: 1,500 machines at once,
// which are three times what is read at a time, and machines that go one after the other. Machines whose deletion was
// not watched go in fives, five seconds apart, whatever happens meanwhile.
func TestWatchedDeparturesWaitForNoTimer(t *testing.T) {
	for name, test := range map[string]struct {
		machines int
		watched  bool
		events   bool // each second
		apart    time.Duration
		atMost   time.Duration // beyond the grace period
		most     int           // within five seconds
	}{
		"at once":               {machines: 1500, watched: true, atMost: 20 * time.Second, most: 1500},
		"one after the other":   {machines: 10, watched: true, apart: 2 * time.Second, atMost: 10*2*time.Second + 5*time.Second, most: 10},
		"not watched":           {machines: 100, atMost: 30 * 5 * time.Second, most: 5},
		"with events":           {machines: 100, events: true, atMost: 30 * 5 * time.Second, most: 5},
		"a node pool of twenty": {machines: 20, watched: true, atMost: 4 * time.Second, most: 20},
	} {
		t.Run(name, func(t *testing.T) {
			w := manyMachines()
			r := w.reconciler()
			run(t, r, func(t *testing.T, wake func()) {
				t.Helper()
				pass(time.Minute)
				gone := func(machines int) {
					w.leave(machines, test.watched)
					wake()
				}
				if test.apart == 0 {
					gone(test.machines)
				} else {
					for range test.machines {
						gone(1)
						pass(test.apart)
					}
				}
				if !test.events {
					wake = func() {}
				}
				took, most := w.cleaned(t, test.machines, wake)
				took += time.Duration(test.machines) * test.apart
				if took > r.Config.Grace+test.atMost || most > test.most {
					t.Errorf("it took %s, with up to %d machines in five seconds; want at most %s and %d", took, most, r.Config.Grace+test.atMost, test.most)
				}
			})
		})
	}
}

// 1,500 machines that leave at once are cleaned up within half a minute of the end of their grace period where each of
// six calls about a machine takes 20 ms, with no more calls at a time than there are workers. What a person asks for
// meanwhile is done long before the last of them is gone.
func TestManyDeparturesAreCleanedSideBySide(t *testing.T) {
	t.Parallel()
	const machines = 1500
	w := manyMachines().named("stale")
	w.listed = w.listed[:2000]
	var now, most atomic.Int64 // calls in progress
	w.before = func(_ context.Context, call, _ string) error {
		if slices.Contains([]string{"LookUp", "RunningPods", "AnnotateNode", "DeleteNode"}, call) {
			most.Store(max(most.Load(), now.Add(1)))
			<-time.After(20 * time.Millisecond)
			now.Add(-1)
		}
		return nil
	}
	r := w.reconciler()
	r.Requests, r.Config.MaxUnwitnessed, r.Config.MaxUnwitnessedPercent = w, 0, 0
	run(t, r, func(t *testing.T, wake func()) {
		t.Helper()
		pass(time.Minute)
		w.leave(machines, true)
		wake()
		pass(r.Config.Grace + 3*time.Second)
		asked := time.Now()
		get(w, func() string {
			w.asked = fmt.Sprintf(`{"id":"1","verb":"forget","names":["stale"],"until":%q}`, asked.Add(time.Hour).Format(time.RFC3339))
			return w.asked
		})
		answer := Answer{}
		for !answer.Final() && time.Since(asked) < time.Hour {
			pass(100 * time.Millisecond)
			answer = get(w, func() Answer { return w.last })
		}
		waited := time.Since(asked)
		took, _ := w.cleaned(t, machines+1, func() {})
		if took += waited + 3*time.Second; took > 30*time.Second {
			t.Errorf("it took %s beyond the grace period", took)
		}
		if answer.State != AnswerDone || waited > 10*time.Second || waited > took/2 {
			t.Errorf("the request was answered with %+v after %s of %s", answer, waited, took)
		}
		if most := most.Load(); most > machinesAtOnce || most < machinesAtOnce/2 {
			t.Errorf("up to %d calls at a time, want up to %d", most, machinesAtOnce)
		}
	})
}

// Machines with addresses in one block would make each other's writes conflicts: the block is changed for one of them at
// a time, and other blocks meanwhile.
func TestABlockIsChangedForOneMachineAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, writing, most, all := &world{}, map[string]int{}, 0, 0
		w.before = func(_ context.Context, call, block string) error {
			if call != "ReleaseAddresses" {
				return nil
			}
			count := func(n int) int {
				writing[block] += n
				most, all = max(most, writing[block]), max(all, writing["10.0.0.0/26"]+writing["10.0.1.0/26"])
				return 0
			}
			get(w, func() int { return count(1) })
			<-time.After(time.Second)
			get(w, func() int { return count(-1) })
			return nil
		}
		var plan nodesync.Plan
		for i := range 6 {
			name := fmt.Sprintf("n%d", i)
			block := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i / 3), 0}), 26)
			plan.Steps = append(plan.Steps, nodesync.ReleaseAddresses{
				Of: nodesync.Subject{Host: name, KubernetesNode: name}, Block: block, Addresses: []nodesync.Reservation{{Address: block.Addr(), Handle: name}},
			})
		}
		o := w.reconciler().options()
		o.Observe = func(context.Context, string) (*scene, error) { return &scene{plan: plan, work: &work{}}, nil }
		o.Plan = func(*scene) (p roundPlan) { p.Steps = plan.Steps; return p }
		o.Report = nil
		out := reconcile.New(o).Round(t.Context(), reconcile.Only).Applied
		if len(out) != 6 || most != 1 || all != 2 {
			t.Errorf("%d steps were tried, with up to %d writes to one block and %d to all at a time", len(out), most, all)
		}
		for i, a := range out {
			if a.Err != nil || a.Step.Subject() != plan.Steps[i].Subject() {
				t.Errorf("step %d: %+v", i, a)
			}
		}
	})
}
