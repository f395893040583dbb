// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/budget"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
)

// readTimeout bounds one reading of a list, all its pages and attempts included.
const readTimeout = 5 * time.Minute

// stamp orders readings and events without a clock: a reading that began after a stamp was taken knows all that was before the stamp.
type stamp uint64

// shared is a list that many need and one reads. Its methods may be called from any goroutine.
type shared[T any] struct {
	read  func(context.Context) (T, error)
	epoch func() uint64 // grows when another account may answer
	clock clock.PassiveClock

	mu     sync.Mutex // guards all below
	latest stamp
	last   *reading[T] // the newest that succeeded
	flight *reading[T] // the one under way
}

// reading is one reading of a list. Its result may be used once done is closed, and MUST NOT be changed.
type reading[T any] struct {
	stamp stamp
	epoch uint64
	// at is when it began.
	at time.Time
	// urgency is how urgent the calls are.
	urgency budget.Priority
	done    chan struct{}
	value   T
	err     error
}

// or is what was read, nothing for no reading.
func (r *reading[T]) or() T {
	if r == nil {
		var none T
		return none
	}
	return r.value
}

func newShared[T any](read func(context.Context) (T, error), epoch func() uint64, clock clock.PassiveClock) *shared[T] {
	return &shared[T]{read: read, epoch: epoch, clock: clock}
}

// stamp takes a stamp: readings that began before are too old for whoever asks for it.
func (s *shared[T]) stamp() stamp {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest++
	return s.latest
}

// at is when the newest reading that succeeded began, the zero time for none.
func (s *shared[T]) at() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil {
		return time.Time{}
	}
	return s.last.at
}

// get returns a reading that began after the stamp and is not older than age, a new one if need be. However many ask, one reads at a time.
// A failure is not kept.
func (s *shared[T]) get(ctx context.Context, after stamp, age time.Duration) (*reading[T], error) {
	for {
		s.mu.Lock()
		if r := s.last; r != nil && r.stamp >= after && r.epoch == s.epoch() && s.clock.Since(r.at) < age {
			s.mu.Unlock()
			return r, nil
		}
		r := s.flight
		if r == nil {
			r = &reading[T]{stamp: s.latest, epoch: s.epoch(), at: s.clock.Now(), urgency: doapi.Urgency(ctx), done: make(chan struct{})}
			s.flight = r
			// Who asked first may give up while others wait.
			go s.fly(context.WithoutCancel(ctx), r)
		}
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-r.done:
		}
		// What was put off for somebody who could wait may still be read for one who cannot.
		again := errors.Is(r.err, doapi.ErrHeld) && r.urgency < doapi.Urgency(ctx)
		if r.stamp >= after && !again {
			return r, r.err
		}
	}
}

func (s *shared[T]) fly(ctx context.Context, r *reading[T]) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	r.value, r.err = s.read(ctx)
	if r.err == nil && r.epoch != s.epoch() {
		r.err = errListMoved
	}
	s.mu.Lock()
	s.flight = nil
	if r.err == nil {
		s.last = r
	}
	s.mu.Unlock()
	close(r.done)
}

// balancerList is the list of load balancers together with what this process did since: lists lag behind.
type balancerList struct {
	*shared[[]loadbalancer.Observed]
	settle time.Duration

	mu    sync.Mutex // guards known
	known map[string]learned
}

// learned is what the API answered to a write: how the load balancer is, nil for one that was deleted.
type learned struct {
	at time.Time
	// epoch is that of the pass: what one account answered is not true of another.
	epoch uint64
	lb    *loadbalancer.Observed
}

func newBalancerList(api BalancerAPI, clock clock.PassiveClock, settle time.Duration) *balancerList {
	return &balancerList{shared: newShared(api.LoadBalancers, api.Epoch, clock), settle: settle, known: map[string]learned{}}
}

// learn notes how a load balancer is since now, by an answer to a pass of that epoch.
func (l *balancerList) learn(lb loadbalancer.Observed, epoch uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known[lb.ID] = learned{at: l.clock.Now(), epoch: epoch, lb: &lb}
}

// gone notes that a load balancer was deleted, in the same way.
func (l *balancerList) gone(id string, epoch uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known[id] = learned{at: l.clock.Now(), epoch: epoch}
}

// forget drops what is known of a load balancer: it may have changed without an answer.
func (l *balancerList) forget(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.known, id)
}

// all returns the load balancers of the account, from a reading that began after the stamp and is not older than age. What was learned from a
// write counts more than a reading that began before it or shortly after; but a load balancer that is new is taken for active when a list says so.
func (l *balancerList) all(ctx context.Context, after stamp, age time.Duration) ([]loadbalancer.Observed, error) {
	r, err := l.get(ctx, after, age)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.known, func(_ string, known learned) bool { return r.at.Sub(known.at) >= l.settle || known.epoch != r.epoch })
	if len(l.known) == 0 {
		return r.value, nil
	}
	out := make([]loadbalancer.Observed, 0, len(r.value)+1)
	listed := map[string]bool{}
	for _, lb := range r.value {
		listed[lb.ID] = true
		known, ok := l.known[lb.ID]
		switch {
		case !ok, known.lb != nil && known.lb.Status == loadbalancer.StatusNew && lb.Status != loadbalancer.StatusNew:
			out = append(out, lb)
		case known.lb != nil:
			out = append(out, *known.lb)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(l.known)) {
		if known := l.known[id]; !listed[id] && known.lb != nil {
			out = append(out, *known.lb)
		}
	}
	return out, nil
}
