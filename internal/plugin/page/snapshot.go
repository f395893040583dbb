// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/ui"
)

// freshFor is how long a reading is as good as a new one: several windows, or a hand that does not rest, cost what one does.
const freshFor = Every * 2 / 3

// A page waits for a new reading for patience, and gets the last one then; the reading goes on. What is older than oldAfter
// is shown as old, whether or not the cluster has refused anything.
const (
	patience = Every * 2 / 3
	oldAfter = 2 * Every
)

// snapshot is the last reading. The cluster is read when somebody looks, never by itself.
type snapshot struct {
	read  Reader
	clock clock.PassiveClock
	// turn is held by anyone who reads.
	turn chan struct{}
	// life ends with the server, and what is being read then.
	life context.Context //nolint:containedctx // a reading outlives the request that asked for it

	mu   sync.Mutex // guards seen and tried
	seen seen
	// tried is when the last reading ended, well or not.
	tried time.Time
	// readAt is when it last ended well.
	readAt time.Time
}

// seen is what is shown.
type seen struct {
	world ui.World
	svg   string
	// stale says why it could not be read again.
	stale string
	// age is how long ago it was read.
	age time.Duration
}

// first reads for the first time.
func (s *snapshot) first(ctx context.Context) error {
	world, err := s.read(ctx)
	if err == nil {
		s.keep(seen{world: world, svg: ui.SVG(world)})
	}
	return err
}

func (s *snapshot) keep(next seen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen, s.tried = next, s.clock.Now(); next.stale == "" {
		s.readAt = s.tried
	}
}

// now is the last reading.
func (s *snapshot) now() seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.seen
	if last.age = s.clock.Since(s.readAt); last.stale == "" && last.age > oldAfter {
		last.stale = "it was read " + last.age.Round(time.Second).String() + " ago"
	}
	return last
}

// renew reads again unless somebody has just done so. Anyone who comes while another reads waits for that, for as long as
// patience lasts. If it fails, what was read stays, and says so.
func (s *snapshot) renew(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { <-s.turn }()
		s.again()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// again reads, unless somebody has just done so.
func (s *snapshot) again() {
	s.mu.Lock()
	last := s.tried
	s.mu.Unlock()
	if s.clock.Since(last) < freshFor {
		return
	}
	world, err := s.read(s.life)
	switch {
	case err == nil:
		s.keep(seen{world: world, svg: ui.SVG(world)})
	case s.life.Err() == nil:
		old := s.now()
		old.stale = err.Error()
		s.keep(old)
	}
}
