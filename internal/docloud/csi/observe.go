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

// reader is what the observer asks DigitalOcean for.
type reader interface {
	// Volume reads one volume; doapi.ErrNotFound if there is none.
	Volume(ctx context.Context, id string) (volume.Observed, error)
	// Volumes lists all volumes of a region, or is an error. It may lag behind Volume.
	Volumes(ctx context.Context, region string) ([]volume.Observed, error)
}

// observer reads volumes for many requests at once. What it returns was read after it was asked for.
type observer struct {
	api    reader
	region string
	clock  clock.Clock

	mu      sync.Mutex // guards all below
	waiting map[string][]chan<- observation
}

type observation struct {
	volume volume.Observed
	listed bool // it comes from the list
	err    error
}

func newObserver(api reader, region string, clock clock.Clock) *observer {
	return &observer{api: api, region: region, clock: clock, waiting: map[string][]chan<- observation{}}
}

// observe returns a volume. What the list shows of it is used only if needsChange reports that there is something to
// do, which DigitalOcean refuses where the list was wrong. Before "nothing to do" the volume is read by itself.
func (o *observer) observe(
	ctx context.Context, id string, needsChange func(volume.Observed) bool,
) (volume.Observed, error) {
	answer := make(chan observation, 1)
	o.mu.Lock()
	first := len(o.waiting) == 0
	o.waiting[id] = append(o.waiting[id], answer)
	o.mu.Unlock()
	if first {
		go o.read(context.WithoutCancel(ctx)) // for all who wait
	}
	select {
	case got := <-answer:
		if got.listed && !needsChange(got.volume) {
			return o.api.Volume(ctx, id)
		}
		return got.volume, got.err
	case <-ctx.Done():
		return volume.Observed{}, ctx.Err()
	}
}

// read waits for others and reads for all.
func (o *observer) read(ctx context.Context) {
	<-o.clock.NewTimer(gather).C()
	o.mu.Lock()
	asked := o.waiting
	o.waiting = map[string][]chan<- observation{}
	o.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	respond := func(id string, got observation) {
		for _, answer := range asked[id] {
			answer <- got
		}
		delete(asked, id)
	}
	if len(asked) >= listFrom {
		if all, err := o.api.Volumes(ctx, o.region); err == nil {
			for _, v := range all {
				respond(v.ID, observation{volume: v, listed: true})
			}
		}
	}
	for id := range asked { // a list may lag behind
		v, err := o.api.Volume(ctx, id)
		respond(id, observation{volume: v, err: err})
	}
}
