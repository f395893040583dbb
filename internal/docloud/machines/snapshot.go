// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/cached"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
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
	// listPause is how long after a failure the list is left alone at first; it doubles up to longestListPause.
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
	// tagged reports that some droplet shows a tag, so that the token may see them.
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

// Snapshot is the list of droplets that all share, made of two lists that are read when somebody needs them. After a failure the old ones
// stay, and for a while nobody reads.
type Snapshot struct {
	epoch          func() uint64
	ordinary, gpus *cached.List[[]instance.Droplet]

	mu   sync.Mutex // guards list and of
	list *DropletList
	of   [2]*cached.Reading[[]instance.Droplet] // what list is made of
}

// NewSnapshot returns a Snapshot that has read nothing yet.
func NewSnapshot(api Lister, clock clock.PassiveClock) *Snapshot {
	return newSnapshot(api, clock, listPause, longestListPause)
}

func newSnapshot(api Lister, clock clock.PassiveClock, pause, longest time.Duration) *Snapshot {
	epoch := func() uint64 { return api.Epoch() }
	half := func(read func(context.Context) ([]instance.Droplet, error)) *cached.List[[]instance.Droplet] {
		return cached.New(read, epoch, clock).Pausing(pause, longest)
	}
	return &Snapshot{
		epoch: epoch, list: &DropletList{},
		ordinary: half(func(ctx context.Context) ([]instance.Droplet, error) { return api.OrdinaryDroplets(ctx) }),
		gpus:     half(func(ctx context.Context) ([]instance.Droplet, error) { return api.GPUDroplets(ctx) }),
	}
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
	ordinary, err := s.ordinary.Get(ctx, 0, maxAge)
	var gpus *cached.Reading[[]instance.Droplet]
	if err == nil {
		gpus, err = s.gpus.Get(ctx, 0, maxGPUAge)
	}
	if err == nil && ordinary.Epoch != gpus.Epoch {
		err = outputs.ErrMoved
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if s.list.Epoch != s.epoch() && !s.list.At.IsZero() {
			s.list = &DropletList{} // it may be another account's
		}
		return s.list, fmt.Errorf("listing droplets: %w", err)
	}
	newest := s.of // others may have got newer ones meanwhile
	for i, half := range []*cached.Reading[[]instance.Droplet]{ordinary, gpus} {
		if newest[i] == nil || newest[i].Epoch != half.Epoch || half.At.After(newest[i].At) {
			newest[i] = half
		}
	}
	if newest != s.of || s.list.At.IsZero() {
		s.list, s.of = newDropletList(newest[0].At, newest[1].At, ordinary.Epoch, newest[0].Value, newest[1].Value), newest
	}
	return s.list, nil
}
