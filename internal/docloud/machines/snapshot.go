// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/cached"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/loop"
)

// Lister lists the account's droplets.
type Lister interface {
	// OrdinaryDroplets returns all droplets without GPUs, GPUDroplets those with, which DigitalOcean lists apart. Part of a list is an error.
	OrdinaryDroplets(ctx context.Context) ([]instance.Droplet, error)
	GPUDroplets(ctx context.Context) ([]instance.Droplet, error)
	// Epoch grows when what was read before may be about another account.
	Epoch() uint64
}

const (
	// listTimeout bounds one reading of all pages.
	listTimeout      = 5 * time.Minute
	listPause        = 2 * time.Second
	longestListPause = time.Minute
	// gpuAge is how old the list of droplets with GPUs may be where nothing depends on it: few accounts have any, and they do not change often.
	gpuAge = 15 * time.Minute
)

// DropletList is the droplets of the account as of one moment. It MUST NOT be changed: many share it.
type DropletList struct {
	// At is when the first page of ordinary droplets was asked for, the zero time for no list; GPUsAt is the same for those with GPUs, which is
	// read less often.
	At, GPUsAt time.Time
	// Epoch is that of the API's client during the whole list.
	Epoch uint64
	// Droplets are all; the last so many have GPUs.
	Droplets []instance.Droplet
	gpus     int
	// tagged says that some droplet shows a tag, so that the token may see them.
	tagged bool
	byID   map[int]instance.Droplet
}

// Oldest is when the oldest of what the list holds was asked for. A list of droplets with GPUs that is empty holds nothing.
func (l *DropletList) Oldest() time.Time {
	if l.gpus > 0 && l.GPUsAt.Before(l.At) {
		return l.GPUsAt
	}
	return l.At
}

// newDropletList makes a list of its two halves.
func newDropletList(at, gpusAt time.Time, epoch uint64, ordinary, gpus []instance.Droplet) *DropletList {
	l := &DropletList{
		At: at, GPUsAt: gpusAt, Epoch: epoch, Droplets: slices.Concat(ordinary, gpus), gpus: len(gpus),
		byID: make(map[int]instance.Droplet, len(ordinary)+len(gpus)),
	}
	for _, d := range l.Droplets {
		l.byID[d.ID] = d
		l.tagged = l.tagged || len(d.Tags) > 0
	}
	return l
}

// Droplet returns the droplet with an ID.
func (l *DropletList) Droplet(id int) (instance.Droplet, bool) {
	d, ok := l.byID[id]
	return d, ok
}

// pages is how many calls the list takes: at least one for ordinary droplets, and one for those with GPUs where there are any.
func (l *DropletList) pages() int {
	ordinary := len(l.Droplets) - l.gpus
	return 1 + max(0, ordinary-1)/doapi.PageSize + (l.gpus+doapi.PageSize-1)/doapi.PageSize
}

// Snapshot is one list of droplets, read when somebody needs it, and by one caller at a time however many ask.
//
//	none ──ask──> reading ──> list, served until it is too old for who asks ──ask──> reading
//	                 └──> failed: the old list stays, and for a while nobody reads
type Snapshot struct {
	api   Lister
	clock clock.Clock
	// pause is how long after a failure the list is left alone at first; it doubles up to longestPause.
	pause, longestPause time.Duration

	mu       sync.Mutex // guards all below
	list     *DropletList
	err      error // of the last reading
	failures int
	notSoon  time.Time // no reading before
	reading  chan struct{}
}

// NewSnapshot returns a Snapshot that has read nothing yet.
func NewSnapshot(api Lister, clock clock.Clock) *Snapshot {
	return &Snapshot{api: api, clock: clock, pause: listPause, longestPause: longestListPause, list: &DropletList{}}
}

// Latest returns the newest list without reading one; its At is zero if there is none.
func (s *Snapshot) Latest() *DropletList {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list
}

// Get returns a list that is not older than maxAge and of the current epoch, and reads one if there is none. Droplets with GPUs are of the last
// [gpuAge] if that is longer. With an error it returns the newest list there is, of which only what it holds may be believed, never what it lacks.
func (s *Snapshot) Get(ctx context.Context, maxAge time.Duration) (*DropletList, error) {
	return s.get(ctx, maxAge, max(maxAge, gpuAge))
}

// GetWhole is Get where droplets with GPUs are not older than maxAge either.
func (s *Snapshot) GetWhole(ctx context.Context, maxAge time.Duration) (*DropletList, error) {
	return s.get(ctx, maxAge, maxAge)
}

func (s *Snapshot) get(ctx context.Context, maxAge, maxGPUAge time.Duration) (*DropletList, error) {
	epoch := s.api.Epoch()
	s.mu.Lock()
	now := s.clock.Now()
	if s.list.Epoch != epoch && !s.list.At.IsZero() {
		s.list = &DropletList{} // it may be another account's
	}
	for {
		w := s.wants(now, maxAge, maxGPUAge)
		if !w.ordinary && !w.gpus {
			defer s.mu.Unlock()
			return s.list, nil
		}
		if s.reading == nil {
			if s.clock.Now().Before(s.notSoon) {
				defer s.mu.Unlock()
				return s.list, s.err
			}
			s.reading = make(chan struct{})
			go s.read(context.WithoutCancel(ctx), epoch, w, s.reading)
		}
		reading := s.reading
		s.mu.Unlock()
		select {
		case <-reading:
		case <-ctx.Done():
			return s.Latest(), ctx.Err()
		}
		s.mu.Lock()
		if s.err != nil || s.list.Epoch != epoch {
			defer s.mu.Unlock()
			return s.list, s.err
		}
	}
}

// halves says which lists to read.
type halves struct{ ordinary, gpus bool }

// wants says which lists are too old, seen from now, which is when somebody asked: what was read since is never too old. Lock held.
func (s *Snapshot) wants(now time.Time, maxAge, maxGPUAge time.Duration) halves {
	l := s.list
	return halves{
		ordinary: l.At.IsZero() || now.Sub(l.At) > maxAge,
		gpus:     l.GPUsAt.IsZero() || now.Sub(l.GPUsAt) > maxGPUAge,
	}
}

// read reads what is wanted for all who wait. It outlives who asked first.
func (s *Snapshot) read(ctx context.Context, epoch uint64, w halves, done chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	s.mu.Lock()
	old := s.list
	s.mu.Unlock()
	list, err := s.fetch(ctx, old, epoch, w)
	if err == nil && s.api.Epoch() != epoch {
		err = cached.ErrMoved
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(done)
	s.reading = nil
	if err != nil {
		s.err = fmt.Errorf("listing droplets: %w", err)
		s.notSoon = s.clock.Now().Add(s.after(err))
		s.failures++
		return
	}
	s.list, s.err, s.failures, s.notSoon = list, nil, 0, time.Time{}
}

// after says how long not to read after a failure. A call that was put off costs nothing to try again, and may be more urgent for who asks next.
// Lock held.
func (s *Snapshot) after(err error) time.Duration {
	if errors.Is(err, doapi.ErrHeld) {
		return s.pause
	}
	wait := min(s.longestPause, loop.Spread(s.pause<<min(s.failures, 10)))
	if asked := doapi.NotBefore(err); !asked.IsZero() {
		wait = max(wait, asked.Sub(s.clock.Now()))
	}
	return wait
}

// fetch reads what is wanted and takes the rest from the old list.
func (s *Snapshot) fetch(ctx context.Context, old *DropletList, epoch uint64, w halves) (*DropletList, error) {
	split := len(old.Droplets) - old.gpus
	ordinary, gpus := old.Droplets[:split], old.Droplets[split:]
	at, gpusAt := old.At, old.GPUsAt
	var err error
	if w.ordinary {
		at = s.clock.Now()
		if ordinary, err = s.api.OrdinaryDroplets(ctx); err != nil {
			return nil, err
		}
	}
	if w.gpus {
		gpusAt = s.clock.Now()
		if gpus, err = s.api.GPUDroplets(ctx); err != nil {
			return nil, err
		}
	}
	return newDropletList(at, gpusAt, epoch, ordinary, gpus), nil
}
