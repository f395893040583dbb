// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// task is something that falls due now and then. It is never run twice at the same time.
type task struct {
	// do runs the task. It returns after how long the task is due again, or false if it is not until scheduled again.
	do func(context.Context, *task) (next time.Duration, again bool)

	failures int // of do in a row; do's own

	// The scheduler's mutex guards the rest.

	at    time.Time // when it is due, if queued
	index int       // its place in the queue; -1 if not queued
	busy  bool      // a worker has it
	rerun time.Time // the earliest due time asked for while it was busy; zero if none
}

func newTask(do func(context.Context, *task) (time.Duration, bool)) *task {
	return &task{do: do, index: -1}
}

// settle ends a run of do: after a failure the task is due again after a growing delay, else after next, or not at
// all if next is negative.
func (t *task) settle(err error, next time.Duration) (time.Duration, bool) {
	if err != nil {
		t.failures++
		return backoff(t.failures), true
	}
	t.failures = 0
	return next, next >= 0
}

// scheduler runs tasks when they are due: one heap, one timer, and as many goroutines as run is given workers,
// however many tasks there are.
type scheduler struct {
	clock clock.WithTicker
	wake  chan struct{} // says that the head of the queue may have changed

	mu    sync.Mutex // guards queue and the tasks in it
	queue taskQueue
}

func newScheduler(c clock.WithTicker) *scheduler {
	return &scheduler{clock: c, wake: make(chan struct{}, 1)}
}

// schedule makes the task due after the given time, or earlier if it was due earlier already.
func (s *scheduler) schedule(t *task, after time.Duration) {
	s.mu.Lock()
	s.put(t, s.clock.Now().Add(after))
	s.mu.Unlock()
	s.signal()
}

// put files the task under the earlier of its due times. The caller holds mu.
func (s *scheduler) put(t *task, at time.Time) {
	switch {
	case t.busy:
		if t.rerun.IsZero() || at.Before(t.rerun) {
			t.rerun = at
		}
	case t.index < 0:
		t.at = at
		heap.Push(&s.queue, t)
	case at.Before(t.at):
		t.at = at
		heap.Fix(&s.queue, t.index)
	}
}

func (s *scheduler) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// take returns a task that is due, now in the hands of the caller, or how long to wait for the next one.
func (s *scheduler) take() (*task, time.Duration) {
	const idle = time.Hour // schedule wakes the scheduler earlier
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return nil, idle
	}
	if wait := s.queue[0].at.Sub(s.clock.Now()); wait > 0 {
		return nil, wait
	}
	t := heap.Pop(&s.queue).(*task)
	t.busy = true
	return t, 0
}

// finish files the task again after a worker has run it.
func (s *scheduler) finish(t *task, next time.Duration, again bool) {
	s.mu.Lock()
	t.busy = false
	if !t.rerun.IsZero() {
		s.put(t, t.rerun)
		t.rerun = time.Time{}
	}
	if again {
		s.put(t, s.clock.Now().Add(next))
	}
	s.mu.Unlock()
	s.signal()
}

// run runs tasks as they fall due until the context ends, and returns when the last of them has returned.
func (s *scheduler) run(ctx context.Context, workers int) {
	var pool sync.WaitGroup
	work := make(chan *task)
	for range workers {
		pool.Go(func() {
			for t := range work {
				next, again := t.do(ctx, t)
				s.finish(t, next, again)
			}
		})
	}
	defer pool.Wait()
	defer close(work)

	timer := s.clock.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		t, wait := s.take()
		if t != nil {
			select {
			case work <- t:
			case <-ctx.Done():
			}
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C():
		case <-s.wake:
		case <-ctx.Done():
		}
	}
}

// taskQueue is a heap of tasks, the earliest first.
type taskQueue []*task

func (q taskQueue) Len() int           { return len(q) }
func (q taskQueue) Less(i, j int) bool { return q[i].at.Before(q[j].at) }

func (q taskQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push is for container/heap.
func (q *taskQueue) Push(x any) {
	t := x.(*task)
	t.index = len(*q)
	*q = append(*q, t)
}

// Pop is for container/heap.
func (q *taskQueue) Pop() any {
	last := len(*q) - 1
	t := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	t.index = -1
	return t
}
