// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
)

// electionTick is how often the elector looks at the Lease as it is known.
const electionTick = 25 * time.Millisecond

// promptLock is a Lease that is watched: an elector on it may look every [electionTick], so that a Lease that was given
// back or has run out is taken at once, while calls are made as often as the retry period says. client-go's elector
// itself looks once in a retry period, with up to 1.2 times as much again by chance.
//
// What it serves from memory harms nobody: a Lease is written with the resourceVersion that was read last.
type promptLock struct {
	resourcelock.Interface
	// every is the time between two reads, and between two renewals.
	every time.Duration
	clock clock.PassiveClock

	mu      sync.Mutex // guards all below
	last    reading
	written time.Time // when a write was tried last, and what came of it
	problem error
}

// reading is what a Get came to.
type reading struct {
	at     time.Time // the zero time for none
	record *resourcelock.LeaderElectionRecord
	raw    []byte
	err    error
	// watched reports that it came by the watch, so that the lock below, which writes what it has read, has not seen it.
	watched bool
}

// Get implements resourcelock.Interface: what was read last, if it is not older than a retry period and no change was
// seen. A read that its caller gave up says nothing to the next: who is told to stop gives the Lease back.
func (l *promptLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	l.mu.Lock()
	if r := l.last; !r.at.IsZero() && l.clock.Since(r.at) < l.every {
		l.mu.Unlock()
		return r.record, r.raw, r.err
	}
	r := reading{at: l.clock.Now()}
	l.last = reading{at: r.at, err: errReading}
	l.mu.Unlock()
	r.record, r.raw, r.err = l.Interface.Get(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.last.at.Equal(r.at): // a change was seen meanwhile
	case r.err != nil && ctx.Err() != nil:
		l.last = reading{}
	default:
		l.last = r
	}
	return r.record, r.raw, r.err
}

// errReading is what one gets who reads while another does; the elector is one.
var errReading = errors.New("the Lease is being read")

// Update implements resourcelock.Interface. A renewal is made once in a retry period; one that failed is tried again
// after a quarter of it.
func (l *promptLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	wanted := record.HolderIdentity == l.Identity()
	l.mu.Lock()
	since, problem, holds := l.clock.Since(l.written), l.problem, !l.written.IsZero() && l.problem == nil
	l.mu.Unlock()
	if wanted && (holds && since < l.every || !holds && since < l.every/4) {
		return problem
	}
	at := l.clock.Now()
	if problem = nil; !holds {
		problem = l.catchUp(ctx)
	}
	if problem == nil {
		problem = l.Interface.Update(ctx, record)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last, l.written, l.problem = reading{}, at, problem
	return problem
}

// catchUp makes the lock below read what the watch has shown, and returns an error if that has changed meanwhile.
func (l *promptLock) catchUp(ctx context.Context) error {
	l.mu.Lock()
	known := l.last
	l.mu.Unlock()
	if !known.watched {
		return nil
	}
	if _, raw, err := l.Interface.Get(ctx); err != nil || !bytes.Equal(raw, known.raw) {
		return cmp.Or(err, errChanged)
	}
	return nil
}

var errChanged = errors.New("the Lease has changed since it was seen")

// longestWatchPause is the longest time between two attempts at a watch that is refused.
const longestWatchPause = time.Minute

// follow takes in each change of the Lease until ctx ends. Where it may not be watched the elector finds out by reading,
// a retry period later.
func (l *promptLock) follow(ctx context.Context, leases coordination.LeasesGetter, namespace, name string) {
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()}
	for pause := l.every; ctx.Err() == nil; pause = min(2*pause, longestWatchPause) {
		if w, err := leases.Leases(namespace).Watch(ctx, options); err == nil {
			l.take(ctx, w)
			w.Stop()
			pause = l.every
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// take takes in the changes of one watch until it ends.
func (l *promptLock) take(ctx context.Context, w watch.Interface) {
	for {
		select {
		case <-ctx.Done():
			return
		case event, open := <-w.ResultChan():
			if !open {
				return
			}
			seen := reading{}
			if lease, is := event.Object.(*coordinationv1.Lease); is && event.Type != watch.Deleted {
				record := resourcelock.LeaseSpecToLeaderElectionRecord(&lease.Spec)
				if raw, err := json.Marshal(*record); err == nil {
					seen = reading{at: l.clock.Now(), record: record, raw: raw, watched: true}
				}
			}
			l.mu.Lock()
			l.last = seen
			l.mu.Unlock()
		}
	}
}
