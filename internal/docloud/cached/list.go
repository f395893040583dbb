// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package cached keeps lists of DigitalOcean's objects that many need: each is read by one caller at a time, when what is there is too old for
// anyone who asks.
//
//	none ──Get──> reading ──> kept, served until it is too old for who asks ──Get──> reading
//	                 └──> failed: the old one stays, and for a while nobody reads, if it is so wanted
package cached

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/budget"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
)

// readTimeout bounds one reading of a list, all its pages and attempts included.
const readTimeout = 5 * time.Minute

// List is a list that many need and one reads. Its methods may be called from any goroutine.
type List[T any] struct {
	read  func(context.Context) (T, error)
	epoch func() uint64 // grows when another account may answer
	clock clock.PassiveClock
	// pause is how long after a failure nobody reads at first; it doubles up to longest. 0 for none.
	pause, longest time.Duration

	mu       sync.Mutex // guards all below
	latest   uint64
	last     *Reading[T] // the newest that succeeded
	flight   *Reading[T] // the one under way
	failed   *Reading[T] // the newest, if it failed
	failures int         // in a row
	notSoon  time.Time   // no reading before
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

// Pausing makes nobody read for a while after a failure: the pause doubles from the first to the longest, with as long as DigitalOcean asks to wait.
func (l *List[T]) Pausing(first, longest time.Duration) *List[T] {
	l.pause, l.longest = first, longest
	return l
}

// Resume ends the pause after a failure: its cause may be over.
func (l *List[T]) Resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.notSoon, l.failures = time.Time{}, 0
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

// Last returns the newest reading that succeeded, nil if there is none or another account may answer by now. It reads
// nothing.
func (l *List[T]) Last() *Reading[T] {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil || l.last.Epoch != l.epoch() {
		return nil
	}
	return l.last
}

// Get returns a reading that began after the stamp and is not older than age, a new one if need be; age 0 is one that begins now. However
// many ask, one reads at a time. A failure is not kept, but for as long as nobody reads after it.
func (l *List[T]) Get(ctx context.Context, after uint64, age time.Duration) (*Reading[T], error) {
	for {
		l.mu.Lock()
		after = min(after, l.latest) // a stamp of another list's would never be reached
		if r := l.kept(ctx, after, age); r != nil {
			l.mu.Unlock()
			return r.result()
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
		if r.stamp >= after && !r.postponed(ctx) {
			return r.result()
		}
	}
}

// kept returns the reading that answers without another one: the newest, or the failure after which nobody reads for a while. Lock held.
func (l *List[T]) kept(ctx context.Context, after uint64, age time.Duration) *Reading[T] {
	if r := l.last; r != nil && r.stamp >= after && r.Epoch == l.epoch() && age > 0 && l.clock.Since(r.At) <= age {
		return r
	}
	if r := l.failed; r != nil && l.clock.Now().Before(l.notSoon) && !r.postponed(ctx) {
		return r
	}
	return nil
}

func (r *Reading[T]) result() (*Reading[T], error) {
	if r.err != nil {
		return nil, r.err
	}
	return r, nil
}

// postponed reports whether the reading was put off for a caller that could wait, and may still be made for this one.
func (r *Reading[T]) postponed(ctx context.Context) bool {
	return errors.Is(r.err, doapi.ErrHeld) && r.urgency < doapi.Urgency(ctx)
}

func (l *List[T]) fly(ctx context.Context, r *Reading[T]) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	r.Value, r.err = l.read(ctx)
	if r.err == nil && r.Epoch != l.epoch() {
		r.err = outputs.ErrMoved
	}
	l.mu.Lock()
	l.flight, l.failed = nil, nil
	if r.err == nil {
		l.last, l.failures = r, 0
	} else if l.pause > 0 {
		l.failed, l.notSoon = r, l.clock.Now().Add(l.after(r.err))
		l.failures++
	}
	l.mu.Unlock()
	close(r.done)
}

// after says how long not to read after a failure. A call that was put off costs nothing to try again. Lock held.
func (l *List[T]) after(err error) time.Duration {
	if errors.Is(err, doapi.ErrHeld) {
		return l.pause
	}
	wait := min(l.longest, reconcile.Spread(l.pause<<min(l.failures, 10)))
	if asked := doapi.NotBefore(err); !asked.IsZero() {
		wait = max(wait, asked.Sub(l.clock.Now()))
	}
	return wait
}

// RegisterAge registers the age of what was read of one kind; at is when, the zero time for never. The names are a contract: MUST NOT change.
func RegisterAge(registry prometheus.Registerer, kind string, clock clock.PassiveClock, at func() time.Time) {
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "mooring_digitalocean_snapshot_age_seconds", ConstLabels: prometheus.Labels{"kind": kind},
		Help: "Age in seconds of the newest complete list of a kind of object; -1 for none, or while nothing needs it.",
	}, func() float64 {
		if at := at(); !at.IsZero() {
			return clock.Since(at).Seconds()
		}
		return -1
	}))
}
