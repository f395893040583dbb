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

// snapshot is the last reading. The cluster is read when somebody looks, never by itself.
type snapshot struct {
	read  Reader
	clock clock.PassiveClock
	// turn is held by anyone who reads.
	turn chan struct{}

	mu   sync.Mutex // guards seen and tried
	seen seen
	// tried is when the last reading ended, well or not.
	tried time.Time
}

// seen is what is shown.
type seen struct {
	world ui.World
	svg   string
	// stale says why it could not be read again.
	stale string
}

// first reads for the first time.
func (s *snapshot) first(ctx context.Context) error {
	world, err := s.read(ctx)
	if err != nil {
		return err
	}
	s.keep(seen{world: world, svg: ui.SVG(world)})
	return nil
}

func (s *snapshot) keep(next seen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen, s.tried = next, s.clock.Now()
}

// now is the last reading.
func (s *snapshot) now() seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

// renew reads again unless somebody has just done so. Anyone who comes while another reads waits for that. If it fails, what was read stays,
// and says so.
func (s *snapshot) renew(ctx context.Context) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return
	}
	s.mu.Lock()
	last := s.tried
	s.mu.Unlock()
	if s.clock.Since(last) < freshFor {
		return
	}
	world, err := s.read(ctx)
	switch {
	case err == nil:
		s.keep(seen{world: world, svg: ui.SVG(world)})
	case ctx.Err() == nil: // otherwise it was the page that went away
		old := s.now()
		old.stale = err.Error()
		s.keep(old)
	}
}
