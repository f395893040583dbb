// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/volume"
)

const (
	// gather is how long requests are gathered before one call reads for all of them.
	gather = 50 * time.Millisecond
	// listFrom is from how many volumes on the list of the region is read instead of each.
	listFrom = 3
)

// reader is what the looker asks DigitalOcean for.
type reader interface {
	// Volume reads one volume; doapi.ErrNotFound if there is none.
	Volume(ctx context.Context, id string) (volume.Observed, error)
	// Volumes lists all volumes of a region, or is an error. It may lag behind Volume.
	Volumes(ctx context.Context, region string) ([]volume.Observed, error)
}

// looker reads volumes for many requests at once. What it returns was read after it was asked for.
type looker struct {
	api    reader
	region string
	clock  clock.Clock

	mu      sync.Mutex // guards all below
	waiting map[string][]chan<- look
}

type look struct {
	volume volume.Observed
	err    error
}

func newLooker(api reader, region string, clock clock.Clock) *looker {
	return &looker{api: api, region: region, clock: clock, waiting: map[string][]chan<- look{}}
}

// at returns a volume as it is now.
func (l *looker) at(ctx context.Context, id string) (volume.Observed, error) {
	answer := make(chan look, 1)
	l.mu.Lock()
	first := len(l.waiting) == 0
	l.waiting[id] = append(l.waiting[id], answer)
	l.mu.Unlock()
	if first {
		go l.read(context.WithoutCancel(ctx)) // for all who wait
	}
	select {
	case got := <-answer:
		return got.volume, got.err
	case <-ctx.Done():
		return volume.Observed{}, ctx.Err()
	}
}

// read waits for others and reads for all.
func (l *looker) read(ctx context.Context) {
	<-l.clock.NewTimer(gather).C()
	l.mu.Lock()
	asked := l.waiting
	l.waiting = map[string][]chan<- look{}
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tell := func(id string, got look) {
		for _, answer := range asked[id] {
			answer <- got
		}
		delete(asked, id)
	}
	if len(asked) >= listFrom {
		if all, err := l.api.Volumes(ctx, l.region); err == nil {
			for _, v := range all {
				tell(v.ID, look{volume: v})
			}
		}
	}
	for id := range asked { // a list may lag behind
		v, err := l.api.Volume(ctx, id)
		tell(id, look{v, err})
	}
}
