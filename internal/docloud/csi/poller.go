// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/volume"
)

// DefaultPollInterval is how far apart calls about actions under way are at least: 30 a minute, however many volumes move.
const DefaultPollInterval = 2 * time.Second

// longestPoll bounds how far apart they become when nothing new was begun.
const longestPoll = 15 * time.Second

// actions is what the poller asks DigitalOcean for.
type actions interface {
	// VolumeAction reads one action of a volume.
	VolumeAction(ctx context.Context, volumeID string, id int) (volume.Action, error)
	// LatestActions returns the newest actions of the account, those of other resources among them. doapi.ErrForbidden is a token without actions:read.
	LatestActions(ctx context.Context) ([]volume.Action, error)
}

// poller waits for all actions that are under way with one call at a time: that of one action is read by itself, several are read from the
// account's list.
type poller struct {
	api      actions
	clock    clock.Clock
	interval time.Duration
	log      logr.Logger

	mu      sync.Mutex // guards all below
	watched map[int]*watch
	running bool
	single  bool // the token may not list actions
}

type watch struct {
	volume string
	id     int
	began  time.Time
	asked  int // how often it was asked about by itself
	ended  chan volume.ActionStatus
}

func newPoller(api actions, clock clock.Clock, interval time.Duration, log logr.Logger) *poller {
	return &poller{api: api, clock: clock, interval: interval, log: log, watched: map[int]*watch{}}
}

// wait returns when an action has ended: nil if it completed.
func (p *poller) wait(ctx context.Context, v volume.Observed, a volume.Action) error {
	status := a.Status
	if status != volume.Completed && status != volume.Errored {
		w := p.add(ctx, v.ID, a.ID)
		select {
		case status = <-w.ended:
		case <-ctx.Done():
			p.remove(a.ID)
			return fmt.Errorf("action %d at DigitalOcean has not ended yet: %w", a.ID, ctx.Err())
		}
	}
	if status == volume.Errored {
		return &actionError{volume: v.Name, action: a}
	}
	return nil
}

// actionError is an action that DigitalOcean ended as errored.
type actionError struct {
	volume string
	action volume.Action
}

// Error implements error.
func (e *actionError) Error() string {
	return fmt.Sprintf("DigitalOcean ended action %d (%s of volume %s) as errored, and gives no cause; it is tried again with the next request",
		e.action.ID, e.action.Kind, e.volume)
}

func (p *poller) add(ctx context.Context, volumeID string, id int) *watch {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := &watch{volume: volumeID, id: id, began: p.clock.Now(), ended: make(chan volume.ActionStatus, 1)}
	p.watched[id] = w
	if !p.running {
		p.running = true
		go p.run(context.WithoutCancel(ctx)) // for all who wait, not only for this request
	}
	return w
}

func (p *poller) remove(id int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.watched, id)
}

// inFlight is how many actions are waited for.
func (p *poller) inFlight() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.watched)
}

// run polls until nothing is waited for any more.
func (p *poller) run(ctx context.Context) {
	for {
		timer := p.clock.NewTimer(p.pause())
		<-timer.C()
		p.poll(ctx)
		p.mu.Lock()
		if len(p.watched) == 0 {
			p.running = false
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
	}
}

// pause is how long to wait before the next call: the interval while an action is young, longer as the youngest grows old.
func (p *poller) pause() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	youngest := longestPoll * 2
	for _, w := range p.watched {
		youngest = min(youngest, p.clock.Since(w.began))
	}
	return min(max(p.interval, youngest*6/10), max(longestPoll, p.interval))
}

// poll makes one call and tells anyone who waits for what has ended.
func (p *poller) poll(ctx context.Context) {
	p.mu.Lock()
	var next *watch // what was asked about least by itself
	if len(p.watched) > 0 {
		next = slices.MinFunc(slices.Collect(maps.Values(p.watched)), func(a, b *watch) int {
			return cmp.Or(cmp.Compare(a.asked, b.asked), cmp.Compare(a.id, b.id))
		})
	}
	list := len(p.watched) > 1 && !p.single
	p.mu.Unlock()
	if next == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var found []volume.Action
	var err error
	if list {
		found, err = p.api.LatestActions(ctx)
	} else {
		next.asked++
		var one volume.Action
		one, err = p.api.VolumeAction(ctx, next.volume, next.id)
		found = []volume.Action{one}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		if list && errors.Is(err, doapi.ErrForbidden) {
			p.single = true
			p.log.Info("The token lacks the scope actions:read, so that actions are asked about one by one")
			return
		}
		p.log.V(1).Info("Cannot ask about actions under way, trying again", "error", err.Error())
		return
	}
	for _, a := range found {
		if w, waited := p.watched[a.ID]; waited && (a.Status == volume.Completed || a.Status == volume.Errored) {
			w.ended <- a.Status
			delete(p.watched, a.ID)
		}
	}
}
