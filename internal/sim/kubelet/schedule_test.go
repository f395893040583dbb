// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// elapse lets virtual time pass; it is for tests in a synctest bubble only.
func elapse(d time.Duration) { <-time.After(d) }

// startScheduler runs a scheduler until the test ends.
func startScheduler(t *testing.T, workers int) *scheduler {
	t.Helper()
	s := newScheduler(clock.RealClock{})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.run(ctx, workers) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return s
}

func TestTasksRunWhenTheyAreDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := startScheduler(t, 2)
		var mu sync.Mutex
		var order []string
		began := time.Now()
		for name, due := range map[string]time.Duration{"c": 3 * time.Second, "a": time.Second, "b": 2 * time.Second} {
			s.schedule(newTask(func(context.Context, *task) (time.Duration, bool) {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, name)
				if late := time.Since(began) - due; late != 0 {
					t.Errorf("%s ran %v late", name, late)
				}
				return 0, false
			}), due)
		}
		elapse(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if len(order) != 3 || order[0] != "a" || order[1] != "b" || order[2] != "c" {
			t.Errorf("ran %v", order)
		}
	})
}

func TestTaskIsRescheduledOnlyToAnEarlierTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := startScheduler(t, 1)
		var runs []time.Duration
		began := time.Now()
		again := newTask(func(context.Context, *task) (time.Duration, bool) {
			runs = append(runs, time.Since(began))
			return 10 * time.Second, len(runs) < 3
		})
		s.schedule(again, 5*time.Second)
		s.schedule(again, 8*time.Second) // later: nothing changes
		s.schedule(again, 2*time.Second)
		elapse(time.Minute)
		synctest.Wait()
		want := []time.Duration{2 * time.Second, 12 * time.Second, 22 * time.Second}
		if len(runs) != 3 || runs[0] != want[0] || runs[1] != want[1] || runs[2] != want[2] {
			t.Errorf("ran after %v, want %v", runs, want)
		}
	})
}

func TestTaskNeverRunsTwiceAtOnceAndForgetsNoRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := startScheduler(t, 4)
		var now, most, runs atomic.Int32
		slow := newTask(func(context.Context, *task) (time.Duration, bool) {
			most.Store(max(most.Load(), now.Add(1)))
			elapse(time.Second)
			now.Add(-1)
			runs.Add(1)
			return 0, false
		})
		s.schedule(slow, 0)
		elapse(500 * time.Millisecond)
		s.schedule(slow, 0) // while it runs: again afterwards
		s.schedule(slow, 0)
		elapse(time.Minute)
		if most.Load() != 1 || runs.Load() != 2 {
			t.Errorf("%d runs, up to %d at once; want 2 runs, one at a time", runs.Load(), most.Load())
		}
	})
}

func TestFailuresBackOffToSevenSeconds(t *testing.T) {
	t.Parallel()
	failing := newTask(nil)
	var waits []time.Duration
	for range 8 {
		wait, again := failing.settle(errors.New("no"), time.Hour)
		if !again {
			t.Fatal("a failed task was given up")
		}
		waits = append(waits, wait)
	}
	if waits[0] != 200*time.Millisecond || waits[1] != 400*time.Millisecond || waits[7] != 7*time.Second {
		t.Errorf("waits %v", waits)
	}
	if wait, again := failing.settle(nil, time.Hour); !again || wait != time.Hour {
		t.Errorf("after a success: due again %v after %v", again, wait)
	}
	if wait, _ := failing.settle(errors.New("no"), time.Hour); wait != 200*time.Millisecond {
		t.Errorf("first failure after a success waits %v", wait)
	}
	if _, again := failing.settle(nil, never); again {
		t.Error("a task that is never due again is due again")
	}
}
