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

// DefaultPollInterval is how far apart calls about actions under way are at least: 30 a minute, however many volumes
// move.
const DefaultPollInterval = 2 * time.Second

// longestPoll bounds how far apart they become when nothing new was begun.
const longestPoll = 15 * time.Second

// actions is what the poller asks DigitalOcean for.
type actions interface {
	// VolumeAction reads one action of a volume.
	VolumeAction(ctx context.Context, volumeID string, id int) (volume.Action, error)
	// LatestActions returns the newest actions of a volume, or of the account if the ID is empty, those of other
	// resources among them. doapi.ErrForbidden is a token without actions:read.
	LatestActions(ctx context.Context, volumeID string) ([]volume.Action, error)
}

// mostAlone bounds how many actions one poll reads by themselves.
const mostAlone = 4

// poller waits for all actions that are under way. Several are read from the account's list with one call. What the
// list does not show, since other resources have newer actions, is read by itself, as is a single one.
type poller struct {
	api      actions
	clock    clock.Clock
	interval time.Duration
	log      logr.Logger
	wake     chan struct{} // an action was added

	mu      sync.Mutex // guards all below
	watched map[int]*watch
	// owners are the volumes of the newest actions that were waited for, by ID; recent has those IDs, the oldest first.
	owners  map[int]string
	recent  []int
	running bool
	single  bool // the token may not list actions
}

type watch struct {
	volume volume.Observed
	id     int
	began  time.Time
	asked  time.Time // when it was last read or tried to be
	ended  chan volume.ActionStatus
	// past asks for the volume's other actions, until history has what they show.
	past    bool
	history volume.History
}

func newPoller(api actions, clock clock.Clock, interval time.Duration, log logr.Logger) *poller {
	return &poller{
		api: api, clock: clock, interval: interval, log: log, wake: make(chan struct{}, 1),
		watched: map[int]*watch{}, owners: map[int]string{},
	}
}

// wait returns when an action has ended: nil if it completed. With past it reads all actions of the volume in place of
// the one if that shows it, and returns what they show.
func (p *poller) wait(ctx context.Context, v volume.Observed, a volume.Action, past bool) (volume.History, error) {
	status, history := a.Status, volume.NotShown
	if status != volume.Completed && status != volume.Errored {
		w := p.add(ctx, v, a.ID, past)
		select {
		case status = <-w.ended:
			p.mu.Lock()
			history = w.history
			p.mu.Unlock()
		case <-ctx.Done():
			p.remove(a.ID)
			return history, fmt.Errorf("action %d at DigitalOcean has not ended yet: %w", a.ID, ctx.Err())
		}
	}
	if status == volume.Errored {
		return history, &actionError{volume: v.Name, action: a}
	}
	return history, nil
}

// actionError is an action that DigitalOcean ended as errored.
type actionError struct {
	volume string
	action volume.Action
}

// Error implements error.
func (e *actionError) Error() string {
	return fmt.Sprintf("DigitalOcean ended action %d (%s of volume %s) as errored, and gives no cause; "+
		"it is tried again with the next request",
		e.action.ID, e.action.Kind, e.volume)
}

func (p *poller) add(ctx context.Context, v volume.Observed, id int, past bool) *watch {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	w := &watch{volume: v, id: id, began: now, asked: now, past: past, ended: make(chan volume.ActionStatus, 1)}
	p.watched[id] = w
	p.owners[id], p.recent = v.ID, append(p.recent, id)
	if len(p.recent) > doapi.PageSize { // a page has no more
		delete(p.owners, p.recent[0])
		p.recent = p.recent[1:]
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
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
	polled := p.clock.Now()
	for {
		timer := p.clock.NewTimer(p.next(polled).Sub(p.clock.Now()))
		select {
		case <-p.wake: // the new action may be due before all others
			timer.Stop()
			continue
		case <-timer.C():
		}
		p.poll(ctx)
		polled = p.clock.Now()
		p.mu.Lock()
		if len(p.watched) == 0 {
			p.running = false
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
	}
}

// next is when the first action is due, and at least an interval after the last poll.
func (p *poller) next(polled time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := polled.Add(longestPoll)
	for _, w := range p.watched {
		if due := p.due(w); due.Before(next) {
			next = due
		}
	}
	if least := polled.Add(p.interval); next.Before(least) {
		return least
	}
	return next
}

// due is when to read an action again: after the interval while it is young, later as it grows old.
func (p *poller) due(w *watch) time.Time {
	return w.asked.Add(min(max(p.interval, w.asked.Sub(w.began)*6/10), max(longestPoll, p.interval)))
}

// poll reads the list if there are several actions, and by themselves those that are due after that.
func (p *poller) poll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	now := p.clock.Now()
	if p.inFlight() > 1 && !p.single {
		found, err := p.api.LatestActions(ctx, "")
		if errors.Is(err, doapi.ErrForbidden) {
			p.single = true
			p.log.Info("The token lacks the scope actions:read, so that actions are read one by one")
		} else {
			p.judge(found)
			p.record(now, err, found...)
		}
	}
	for _, w := range p.dueAlone(now) {
		found, err := p.read(ctx, w)
		p.mu.Lock()
		w.asked = now
		p.mu.Unlock()
		p.record(now, err, found...)
	}
}

// judge looks what the account's newest actions show of the past of volumes, where that is asked for.
func (p *poller) judge(page []volume.Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.watched {
		if w.past {
			whole, owner := len(page) < doapi.PageSize, func(id int) string { return p.owners[id] }
			w.history = volume.HistoryOnPage(page, whole, w.volume, w.id, owner)
			w.past = w.history == volume.NotShown
		}
	}
}

// read reads an action, with the others of its volume as long as what they show is asked for. That list may lag behind.
func (p *poller) read(ctx context.Context, w *watch) ([]volume.Action, error) {
	if w.past {
		all, err := p.api.LatestActions(ctx, w.volume.ID)
		if err == nil && slices.ContainsFunc(all, func(a volume.Action) bool { return a.ID == w.id }) {
			p.mu.Lock()
			w.past, w.history = false, volume.HistoryOf(all, w.id)
			p.mu.Unlock()
			return all, nil
		}
	}
	a, err := p.api.VolumeAction(ctx, w.volume.ID, w.id)
	return []volume.Action{a}, err
}

// dueAlone returns the actions that are due, the longest unread first.
func (p *poller) dueAlone(now time.Time) []*watch {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := slices.DeleteFunc(slices.Collect(maps.Values(p.watched)), func(w *watch) bool { return p.due(w).After(now) })
	slices.SortFunc(all, func(a, b *watch) int { return cmp.Or(a.asked.Compare(b.asked), cmp.Compare(a.id, b.id)) })
	return all[:min(len(all), mostAlone)]
}

// record ends the waiting for what has ended.
func (p *poller) record(now time.Time, err error, found ...volume.Action) {
	if err != nil {
		p.log.V(1).Info("Cannot read actions under way, trying again", "error", err.Error())
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range found {
		w, waited := p.watched[a.ID]
		if !waited {
			continue
		}
		w.asked = now
		if a.Status == volume.Completed || a.Status == volume.Errored {
			w.ended <- a.Status
			delete(p.watched, a.ID)
		}
	}
}
