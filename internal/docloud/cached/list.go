// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package cached keeps lists of DigitalOcean's objects that many need: each is read by one caller at a time, when what is there is too old for
// whoever asks.
//
//	none ──Get──> reading ──> kept, served until it is too old for who asks ──Get──> reading
//	                 └──> failed: the old one stays
package cached

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/budget"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
)

// readTimeout bounds one reading of a list, all its pages and attempts included.
const readTimeout = 5 * time.Minute

// ErrMoved means that the token changed while something was being read with it.
var ErrMoved = errors.New("the token changed meanwhile")

// List is a list that many need and one reads. Its methods may be called from any goroutine.
type List[T any] struct {
	read  func(context.Context) (T, error)
	epoch func() uint64 // grows when another account may answer
	clock clock.PassiveClock

	mu     sync.Mutex // guards all below
	latest uint64
	last   *Reading[T] // the newest that succeeded
	flight *Reading[T] // the one under way
}

// Reading is one reading of a list. It MUST NOT be changed: many share it.
type Reading[T any] struct {
	// At is when it began.
	At    time.Time
	Value T
	// Epoch is that of the API's client during the whole reading.
	Epoch   uint64
	stamp   uint64
	urgency budget.Priority // of its calls
	done    chan struct{}   // closed when Value and err may be used
	err     error
}

// New returns a List that has read nothing yet. read returns a whole list or an error; epoch grows when what was read before may be about another
// account.
func New[T any](read func(context.Context) (T, error), epoch func() uint64, clock clock.PassiveClock) *List[T] {
	return &List[T]{read: read, epoch: epoch, clock: clock}
}

// Stamp orders readings and events without a clock: a reading that begins after a stamp was taken knows all that was before the stamp.
func (l *List[T]) Stamp() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latest++
	return l.latest
}

// At is when the newest reading that succeeded began, the zero time for none.
func (l *List[T]) At() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil {
		return time.Time{}
	}
	return l.last.At
}

// Get returns a reading that began after the stamp and is not older than age, a new one if need be. However many ask, one reads at a time.
// A failure is not kept.
func (l *List[T]) Get(ctx context.Context, after uint64, age time.Duration) (*Reading[T], error) {
	for {
		l.mu.Lock()
		after = min(after, l.latest) // a stamp of another list's would never be reached
		if r := l.last; r != nil && r.stamp >= after && r.Epoch == l.epoch() && l.clock.Since(r.At) < age {
			l.mu.Unlock()
			return r, nil
		}
		r := l.flight
		if r == nil {
			r = &Reading[T]{stamp: l.latest, Epoch: l.epoch(), At: l.clock.Now(), urgency: doapi.Urgency(ctx), done: make(chan struct{})}
			l.flight = r
			// Who asked first may give up while others wait.
			go l.fly(context.WithoutCancel(ctx), r)
		}
		l.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-r.done:
		}
		// What was put off for somebody who could wait may still be read for one who cannot.
		again := errors.Is(r.err, doapi.ErrHeld) && r.urgency < doapi.Urgency(ctx)
		switch {
		case r.stamp < after || again:
		case r.err != nil:
			return nil, r.err
		default:
			return r, nil
		}
	}
}

func (l *List[T]) fly(ctx context.Context, r *Reading[T]) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	r.Value, r.err = l.read(ctx)
	if r.err == nil && r.Epoch != l.epoch() {
		r.err = ErrMoved
	}
	l.mu.Lock()
	l.flight = nil
	if r.err == nil {
		l.last = r
	}
	l.mu.Unlock()
	close(r.done)
}
