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
	// LatestActions returns the newest actions of a volume.
	LatestActions(ctx context.Context, volumeID string) ([]volume.Action, error)
	// AccountActions returns a page of the account's actions, counted from 1 and the newest first, those of other
	// resources among them. doapi.ErrForbidden is a token without actions:read.
	AccountActions(ctx context.Context, page int) ([]volume.Action, error)
}

const (
	// mostAlone bounds how many actions one poll reads by themselves, and mostPages how many pages of the list.
	mostAlone, mostPages = 4, 10
	// mostKept is how many actions of the account are kept.
	mostKept = mostPages * doapi.PageSize
)

// poller waits for all actions that are under way. Several are read from the account's list with one call, or with some
// more while other resources have many newer actions. What the list does not show is read by itself, as is a single one.
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
	ledger  volume.Ledger                       // what the account's list has shown
	least   map[volume.ActionKind]time.Duration // what the last ones took at least
	running bool
	single  bool // the token may not list actions
}

type watch struct {
	volume volume.Observed
	id     int
	kind   volume.ActionKind
	began  time.Time
	asked  time.Time     // when it was last read or tried to be
	least  time.Duration // after which it was in progress
	ended  chan volume.ActionStatus
	// past asks for the volume's other actions, until history has what they show.
	past    bool
	history volume.History
}

func newPoller(api actions, clock clock.Clock, interval time.Duration, log logr.Logger) *poller {
	return &poller{
		api: api, clock: clock, interval: interval, log: log, wake: make(chan struct{}, 1),
		watched: map[int]*watch{}, owners: map[int]string{}, least: map[volume.ActionKind]time.Duration{},
	}
}

// wait returns when an action has ended: nil if it completed. With past it reads all actions of the volume in place of
// the one if that shows it, and returns what they show.
func (p *poller) wait(ctx context.Context, v volume.Observed, a volume.Action, past bool) (volume.History, error) {
	status, history := a.Status, volume.NotShown
	if status != volume.Completed && status != volume.Errored {
		w := p.add(ctx, v, a, past)
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

func (p *poller) add(ctx context.Context, v volume.Observed, a volume.Action, past bool) *watch {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	w := &watch{volume: v, id: a.ID, kind: a.Kind, began: now, asked: now, past: past}
	w.ended = make(chan volume.ActionStatus, 1)
	p.watched[a.ID] = w
	p.owners[a.ID], p.recent = v.ID, append(p.recent, a.ID)
	if len(p.recent) > mostKept {
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

// due is when to read an action again: after what the last ones of its kind took at least, then after the interval
// while it is young, and later as it grows old.
func (p *poller) due(w *watch) time.Time {
	most := max(longestPoll, p.interval)
	due := w.asked.Add(min(max(p.interval, w.asked.Sub(w.began)*6/10), most))
	if earliest := w.began.Add(min(p.least[w.kind], most)); due.Before(earliest) {
		return earliest
	}
	return due
}

// poll reads the list if there are several actions, and by themselves those that are due after that.
func (p *poller) poll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	now := p.clock.Now()
	if p.inFlight() > 1 && !p.single {
		found, whole, err := p.readList(ctx, now)
		if errors.Is(err, doapi.ErrForbidden) {
			p.single = true
			p.log.Info("The token lacks the scope actions:read, so that actions are read one by one")
		} else {
			p.judge(found, whole)
			p.record(now, err, found...)
			p.readBehind(ctx, now)
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

// readList reads the newest page of the account's list, and older ones as long as they may save calls. whole reports
// that there are no more.
func (p *poller) readList(ctx context.Context, now time.Time) (found []volume.Action, whole bool, err error) {
	for pages := 1; ; pages++ {
		page, err := p.api.AccountActions(ctx, pages)
		if err != nil {
			return found, false, fmt.Errorf("reading page %d of the account's actions: %w", pages, err)
		}
		found, whole = append(found, page...), len(page) < doapi.PageSize
		if whole || !p.readOn(now, found, pages) {
			return found, whole, nil
		}
	}
}

// readOn decides whether an older page is read, of which calls for one action or volume each would be as many or more.
// A page is no use for an action that is newer than what the list shows, since the list lags then, or for the past of a
// volume that is too old for some pages to reach. What was read before is not read for either.
func (p *poller) readOn(now time.Time, found []volume.Action, pages int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pages == mostPages || p.ledger.Meets(found) {
		return false
	}
	oldest, saved := found[len(found)-1], 0
	for _, w := range p.watched {
		shown := slices.ContainsFunc(found, func(a volume.Action) bool { return a.ID == w.id })
		behind := !shown && w.id < oldest.ID && !p.due(w).After(now)
		past := shown && w.past && !w.volume.Created.After(oldest.Began) &&
			now.Sub(w.volume.Created)*time.Duration(pages) <= mostPages*max(now.Sub(oldest.Began), time.Second)
		if behind || past {
			saved++
		}
	}
	return pages+1 < saved
}

// readBehind reads the page of the list that has most of the actions that are due and not on the first pages any more.
func (p *poller) readBehind(ctx context.Context, now time.Time) {
	p.mu.Lock()
	on, most := map[int]int{}, 0
	for _, w := range p.watched {
		at := p.ledger.Index(w.id)
		if at < 0 || p.due(w).After(now) {
			continue
		}
		page := at/doapi.PageSize + 1
		if on[page]++; on[page] > on[most] {
			most = page
		}
	}
	p.mu.Unlock()
	if on[most] > 1 {
		found, err := p.api.AccountActions(ctx, most)
		p.record(now, err, found...)
	}
}

// judge looks what the account's actions show of the past of volumes, where that is asked for.
func (p *poller) judge(found []volume.Action, whole bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ledger.Add(found, whole, mostKept)
	for _, w := range p.watched {
		if w.past {
			w.history = p.ledger.History(w.volume, w.id, func(id int) string { return p.owners[id] })
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

// record ends the waiting for what has ended. An error is one of a read that showed no more than was found.
func (p *poller) record(now time.Time, err error, found ...volume.Action) {
	if err != nil {
		p.log.V(1).Info("Cannot read actions under way, trying again", "error", err.Error())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	least := map[volume.ActionKind]time.Duration{}
	for _, a := range found {
		w, waited := p.watched[a.ID]
		if !waited {
			continue
		}
		w.asked = now
		if a.Status != volume.Completed && a.Status != volume.Errored {
			w.least = now.Sub(w.began)
			continue
		}
		w.ended <- a.Status
		delete(p.watched, a.ID)
		if before, more := least[w.kind]; a.Status == volume.Completed && (!more || w.least < before) {
			least[w.kind] = w.least
		}
	}
	maps.Copy(p.least, least)
}
