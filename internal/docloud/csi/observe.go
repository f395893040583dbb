// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/volume"
)

const (
	// gather is how long requests are gathered before one call reads for all of them.
	gather = 50 * time.Millisecond
	// listFrom is from how many volumes on the list of the region is read instead of each, if it has fewer pages.
	listFrom = 3
)

// reader is what the observer asks DigitalOcean for.
type reader interface {
	// Volume reads one volume; doapi.ErrNotFound if there is none.
	Volume(ctx context.Context, id string) (volume.Observed, error)
	// VolumesNamed lists the volumes of a region whose names match, not only exactly.
	VolumesNamed(ctx context.Context, name, region string) ([]volume.Observed, error)
	// Volumes lists all volumes of a region, or is an error. It may lag behind Volume.
	Volumes(ctx context.Context, region string) ([]volume.Observed, error)
}

// observer reads volumes for many requests at once. What it returns was read after it was asked for.
type observer struct {
	api    reader
	region string
	byID   *gatherer[observation]
	byName *gatherer[namesakes]

	mu    sync.Mutex // guards pages
	pages int        // that the list had when it was last read
}

// observation is a volume as it was read.
type observation struct {
	volume volume.Observed
	listed bool // it comes from the list
	err    error
}

// namesakes are the volumes of a name.
type namesakes struct {
	volumes []volume.Observed
	err     error
}

func newObserver(api reader, region string, clock clock.Clock) *observer {
	o := &observer{api: api, region: region}
	o.byID, o.byName = newGatherer(clock, o.readIDs), newGatherer(clock, o.readNames)
	return o
}

// observe returns a volume. What the list shows of it is used only if needsChange reports that there is something to
// do, which DigitalOcean refuses where the list was wrong. Before "nothing to do" the volume is read by itself.
func (o *observer) observe(
	ctx context.Context, id string, needsChange func(volume.Observed) bool,
) (volume.Observed, error) {
	got, err := o.byID.get(ctx, id)
	if err != nil {
		return volume.Observed{}, err
	}
	if got.listed && !needsChange(got.volume) {
		return o.api.Volume(ctx, id)
	}
	return got.volume, got.err
}

// named returns the volumes of the region that a list shows to have a name.
func (o *observer) named(ctx context.Context, name string) ([]volume.Observed, error) {
	got, err := o.byName.get(ctx, name)
	if err != nil {
		return nil, err
	}
	return got.volumes, got.err
}

func (o *observer) readIDs(ctx context.Context, ids map[string]bool, respond func(string, observation)) {
	all, _ := o.list(ctx, len(ids))
	for _, v := range all {
		if ids[v.ID] {
			delete(ids, v.ID)
			respond(v.ID, observation{volume: v, listed: true})
		}
	}
	for id := range ids { // a list may lag behind
		v, err := o.api.Volume(ctx, id)
		respond(id, observation{volume: v, err: err})
	}
}

func (o *observer) readNames(ctx context.Context, names map[string]bool, respond func(string, namesakes)) {
	all, listed := o.list(ctx, len(names))
	found := map[string][]volume.Observed{}
	for _, v := range all {
		found[v.Name] = append(found[v.Name], v)
	}
	for name := range names {
		if listed {
			respond(name, namesakes{volumes: found[name]})
			continue
		}
		volumes, err := o.api.VolumesNamed(ctx, name, o.region)
		respond(name, namesakes{volumes, err})
	}
}

// list returns all volumes of the region if that takes fewer calls than a number, as far as is known, and succeeds.
func (o *observer) list(ctx context.Context, calls int) ([]volume.Observed, bool) {
	o.mu.Lock()
	pages := o.pages
	o.mu.Unlock()
	if calls < listFrom || calls <= pages {
		return nil, false
	}
	all, err := o.api.Volumes(ctx, o.region)
	if err != nil {
		return nil, false
	}
	o.mu.Lock()
	o.pages = len(all)/doapi.PageSize + 1
	o.mu.Unlock()
	return all, true
}

// gatherer reads for many requests at once, by keys.
type gatherer[T any] struct {
	clock clock.Clock
	// read responds to each key once.
	read func(ctx context.Context, keys map[string]bool, respond func(key string, got T))

	mu      sync.Mutex // guards waiting
	waiting map[string][]chan<- T
}

func newGatherer[T any](
	clock clock.Clock, read func(ctx context.Context, keys map[string]bool, respond func(key string, got T)),
) *gatherer[T] {
	return &gatherer[T]{clock: clock, read: read, waiting: map[string][]chan<- T{}}
}

// get returns what is read for a key after this call.
func (g *gatherer[T]) get(ctx context.Context, key string) (got T, err error) {
	response := make(chan T, 1)
	g.mu.Lock()
	first := len(g.waiting) == 0
	g.waiting[key] = append(g.waiting[key], response)
	g.mu.Unlock()
	if first {
		go g.readAll(context.WithoutCancel(ctx)) // for all who wait
	}
	select {
	case got = <-response:
		return got, nil
	case <-ctx.Done():
		return got, ctx.Err()
	}
}

// readAll waits for others and reads for all.
func (g *gatherer[T]) readAll(ctx context.Context) {
	<-g.clock.NewTimer(gather).C()
	g.mu.Lock()
	waiting := g.waiting
	g.waiting = map[string][]chan<- T{}
	g.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	keys := make(map[string]bool, len(waiting))
	for key := range waiting {
		keys[key] = true
	}
	g.read(ctx, keys, func(key string, got T) {
		for _, response := range waiting[key] {
			response <- got
		}
	})
}
