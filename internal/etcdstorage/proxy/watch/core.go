// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy/wire"
)

// core is one stream to the core etcd: the shared one of its class, or a catch-up stream with one feed. Hub.mu guards it.
type core struct {
	hub    *Hub
	class  *class
	shared bool
	stream CoreStream
	ctx    context.Context //nolint:containedctx // the life of the stream
	cancel context.CancelFunc

	out  [][]byte      // requests to send
	wake chan struct{} // holds one signal when out is not empty
	err  error         // why it ended
	// retired is set when its connection was replaced by a newer one.
	retired bool

	header   wire.Header // of the last answer
	feeds    map[int64]*feed
	lastID   int64
	creating []*feed // in the order of their requests, which is the order of the Created answers

	// Progress: unanswered counts requests without a response: the core may have dropped them. While one is in flight the sessions that wait for
	// it are in asking, those that asked since are in next.
	unanswered   int
	inFlight     bool
	asking, next map[*session]struct{}
	retry        time.Duration
	timer        *time.Timer
	blocked      atomic.Bool // a catch-up stream that waits for its slow session
}

// feed is one watch of the core. Hub.mu guards it, but for detached.
type feed struct {
	core *core
	id   int64
	// owner is the watcher of a private feed, group that of a shared one; one of them is nil.
	owner *watcher
	group *group
	// live is set by the Created answer.
	live bool
	// pos is the position (see the package's comment), -1 while it is unknown; mid is set between the fragments of a response.
	pos int64
	mid bool
	// detached is set when nobody wants its events any more.
	detached atomic.Bool
	// turn is set while a private feed has one of Hub.turns.
	turn bool
	// held are the events of a revision of which more may come with the next fragment.
	held packet
}

// giveTurn lets another watcher catch up.
func (f *feed) giveTurn() {
	if f.turn {
		f.turn = false
		select {
		case <-f.core.hub.turns:
		default: // it cannot be; waiting under Hub.mu must not be either
		}
	}
}

// request sends a request some time soon.
func (c *core) request(w *wire.WatchRequest) {
	if c.err != nil {
		return
	}
	b, err := wire.AppendWatchRequest(nil, c.stream.Tenant(), w)
	if err != nil {
		c.fail(c.hub.cfg.Violation(err))
		return
	}
	c.out = append(c.out, b)
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// create asks for a watch from the revision given (0: from now on). The core may always answer in fragments: it else puts a thousand revisions into
// one message, whatever their size.
func (c *core) create(f *feed, k *groupKey, start int64) {
	c.lastID++
	f.core, f.id, f.pos = c, c.lastID, start-1
	c.feeds[f.id] = f
	c.creating = append(c.creating, f)
	c.request(&wire.WatchRequest{
		Kind: wire.WatchCreate, WatchID: f.id, Key: k.key, End: k.end, StartRevision: start, NoPut: k.noPut, NoDelete: k.noDelete,
		PrevKV: k.prevKV, ProgressNotify: k.progressNotify, Fragment: true,
	})
}

// drop cancels a feed that nobody wants any more. The stream is used again only after an orderly end.
func (c *core) drop(f *feed, orderly bool) {
	f.detached.Store(true)
	f.giveTurn()
	f.owner, f.group = nil, nil
	if c.shared || orderly {
		c.request(&wire.WatchRequest{Kind: wire.WatchCancel, WatchID: f.id})
		return
	}
	c.fail(errClosed)
}

// fail ends the stream, and with it the sessions that depend on it.
func (c *core) fail(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	delete(c.hub.cores, c)
	c.cancel()
	if c.timer != nil {
		c.timer.Stop()
	}
	if c.class.shared == c {
		c.class.shared = nil
	}
	for i, other := range c.class.idle {
		if other == c {
			c.class.idle = append(c.class.idle[:i], c.class.idle[i+1:]...)
			break
		}
	}
	if c.class.next == c {
		c.class.forgetNext()
		c.hub.moveLater(c.class)
	}
	for _, f := range c.feeds {
		f.lost(err)
	}
	if next := c.class.next; next != nil && c.class.shared == nil {
		next.fail(errEnded) // it was to take over from this one, and nobody is left
	}
}

// lost ends the sessions that live from a feed whose stream has ended.
func (f *feed) lost(err error) {
	f.giveTurn()
	switch {
	case f.owner != nil && f.owner.created != nil && !f.live:
		f.owner.lost(err) // its session tries again
	case f.owner != nil:
		f.owner.session.fail(err)
	case f.group != nil && f.group.feed == f:
		for _, w := range f.group.members {
			w.session.fail(err)
		}
		f.core.hub.dropGroup(f.group)
	}
}

func (c *core) sendLoop() {
	defer c.hub.work.Done()
	for {
		select {
		case <-c.wake:
		case <-c.ctx.Done():
			return
		}
		c.hub.mu.Lock()
		out := c.out
		c.out = nil
		c.hub.mu.Unlock()
		for _, m := range out {
			if err := c.stream.Send(m); err != nil {
				if !errors.Is(err, io.EOF) { // then receiveLoop learns the reason
					c.hub.mu.Lock()
					c.fail(ended(err))
					c.hub.mu.Unlock()
				}
				return
			}
		}
	}
}

// receiveLoop reads the stream. A panic ends the stream and nothing else.
func (c *core) receiveLoop() {
	defer c.hub.work.Done()
	defer c.cancel()
	defer func() {
		if r := recover(); r != nil {
			c.hub.mu.Lock()
			defer c.hub.mu.Unlock()
			c.fail(c.hub.cfg.Panicked(r))
		}
	}()
	for {
		m, err := c.stream.Recv()
		if err == nil && !c.shared {
			c.waitForRoom()
		}
		var p packet
		if err == nil {
			if _, p.WatchResponse, err = wire.ParseWatchResponse(nil, c.stream.Tenant(), m); err != nil {
				err = c.hub.cfg.Violation(err)
			}
			p.hidePrevious(c.hub.cfg.Compacted())
		}
		if !c.take(&p, err) {
			return
		}
	}
}

// take deals with an answer, or with the end of the stream; false when that was the last.
func (c *core) take(p *packet, err error) bool {
	if err == nil {
		p.encode()
	}
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	if err != nil {
		c.fail(ended(err))
	}
	if c.err != nil {
		return false
	}
	c.handle(p)
	return c.err == nil
}

// waitForRoom holds a catch-up stream while the queue of its session is half full.
func (c *core) waitForRoom() {
	c.hub.mu.Lock()
	var f *feed
	var s *session
	for _, each := range c.feeds {
		if each.owner != nil {
			f, s = each, each.owner.session
		}
	}
	c.hub.mu.Unlock()
	if s != nil {
		c.blocked.Store(true)
		c.hub.waitForMemory(f)
		s.waitForRoom(f)
		c.blocked.Store(false)
	}
}

// handle deals with one answer of the core.
func (c *core) handle(p *packet) {
	c.stream.Seen(p.CoreHeader)
	if p.Header.Revision < c.header.Revision { // the notice of a compacted watch has none
		p2 := p.Header
		p2.Revision = c.header.Revision
		c.header = p2
	} else {
		c.header = p.Header
	}
	switch {
	case p.Created:
		c.handleCreated(p)
	case p.WatchID == everyWatch:
		c.handleProgress(p)
	default:
		f := c.feeds[p.WatchID]
		switch {
		case f == nil:
		case p.Canceled:
			c.handleCanceled(f, p)
		case f.detached.Load():
		default:
			if p = f.whole(p); p == nil {
				return
			}
			f.handle(p)
		}
	}
}

// handle hands a message on.
func (f *feed) handle(p *packet) {
	switch {
	case f.group == nil:
		f.owner.handle(p)
	case f.group.next == f:
		f.group.hold(p)
	default:
		f.group.handle(p)
	}
}

// handleCreated deals with the answer to the oldest request to create; a refusal has no ID.
func (c *core) handleCreated(p *packet) {
	if len(c.creating) == 0 {
		c.fail(errEnded)
		return
	}
	f := c.creating[0]
	c.creating = c.creating[1:]
	if reason := loggedOut(p.CancelReason); reason != "" { // no watch can be made on this stream any more
		c.stream.LoggedOut(reason)
		c.fail(errLogin)
		return
	}
	if p.Canceled {
		delete(c.feeds, f.id)
		f.detached.Store(true)
		f.giveTurn()
	} else {
		f.live = true
	}
	switch {
	case f.group != nil && f.group.next == f && p.Canceled:
		c.fail(errEnded) // the old one serves on
		return
	case f.group != nil && f.group.next == f:
		f.pos = p.Header.Revision
		c.class.takeOver()
	case f.group != nil && p.Canceled:
		c.hub.dropGroup(f.group)
	case f.group != nil:
		// A watch from now on may bring events up to the answer's revision, and brings all after it.
		f.pos = p.Header.Revision
		f.group.settle()
	case f.owner != nil:
		f.owner.handleCreated(p)
	}
	if p.Canceled && !c.shared {
		c.rest()
	}
}

// loggedOut returns etcd's words if it refused a watch because the login of the stream has ended; "" otherwise.
func loggedOut(reason string) string {
	for _, e := range []error{rpctypes.ErrGRPCInvalidAuthToken, rpctypes.ErrGRPCAuthOldRevision, rpctypes.ErrGRPCUserEmpty} {
		if desc := rpctypes.ErrorDesc(e); strings.HasSuffix(reason, desc) {
			return desc
		}
	}
	return ""
}

// handleCanceled deals with the end of a watch: our own wish, or the core's, which has compacted what the watch was to see.
func (c *core) handleCanceled(f *feed, p *packet) {
	if !f.detached.Load() {
		if f.group != nil && f.group.next == f {
			c.fail(errEnded) // the old one serves on
			return
		}
		if f.group != nil {
			f.group.handleCanceled(p)
		} else {
			f.owner.handleCanceled(p)
		}
		// etcd keeps a compacted watch until it is canceled.
		c.drop(f, true)
		return
	}
	delete(c.feeds, f.id)
	if !c.shared {
		c.rest()
	}
}

// rest keeps a catch-up stream for the next watcher if nothing is open on it.
func (c *core) rest() {
	if c.err != nil || len(c.feeds) > 0 {
		return
	}
	if c.timer != nil {
		c.timer.Stop()
	}
	if c.retired || c.unanswered > 0 || len(c.class.idle) >= maxIdle || c.hub.closed {
		c.fail(errClosed)
		return
	}
	c.inFlight = false
	c.class.idle = append(c.class.idle, c)
}

// ask sends a progress request if anybody waits for one and none is in flight.
func (c *core) ask() {
	if c.err != nil || c.inFlight || (c.shared && len(c.next) == 0 && !c.leaving()) {
		return
	}
	c.asking, c.next = c.next, c.asking
	c.inFlight = true
	c.retry = firstRetry
	c.sendProgress()
}

func (c *core) sendProgress() {
	c.unanswered++
	c.request(&wire.WatchRequest{Kind: wire.WatchProgress})
	c.wait(c.retry)
}

// wait has again called after a while.
func (c *core) wait(d time.Duration) {
	if c.timer == nil {
		c.timer = time.AfterFunc(d, c.again)
	} else {
		c.timer.Reset(d)
	}
}

// lookAgain has the watcher of a catch-up stream look for a group after a while.
func (c *core) lookAgain() {
	if c.err == nil {
		c.wait(lastRetry)
	}
}

// tryAgain lets the watcher of a catch-up stream look for a group; true when there is nothing to ask for.
func (c *core) tryAgain() bool {
	for _, f := range c.feeds {
		if f.owner != nil && f.live {
			f.owner.advance(false)
			return f.owner == nil || f.owner.waiting != nil
		}
	}
	return true
}

// again repeats a request that the core seems to have dropped, as it does while a watch of the stream is not synced.
func (c *core) again() {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	for s := range c.asking {
		if !s.progress {
			delete(c.asking, s)
		}
	}
	switch {
	case c.err != nil:
	case !c.shared && len(c.feeds) == 0, c.shared && len(c.asking)+len(c.next) == 0 && !c.leaving():
		c.inFlight = false
	case !c.shared && c.tryAgain():
	case !c.inFlight:
		c.ask()
	default:
		c.retry = min(2*c.retry, lastRetry)
		if c.blocked.Load() {
			c.wait(c.retry)
			return
		}
		c.sendProgress()
	}
}

// handleProgress deals with the answer to a progress request: all events up to its revision have arrived. That is true of every feed that is live:
// on a catch-up stream requests are sent only while its one feed is live, and all are answered before it is used again; a feed of the shared stream
// that was not there yet when the core answered begins at or after the answer's revision.
func (c *core) handleProgress(p *packet) {
	c.unanswered--
	c.inFlight = false
	if c.timer != nil {
		c.timer.Stop()
	}
	for _, f := range c.feeds {
		if f.live && !f.detached.Load() {
			f.pos = max(f.pos, p.Header.Revision)
		}
	}
	if c.shared {
		c.answer(p)
		c.class.takeOver()
		return
	}
	for _, f := range c.feeds {
		if f.owner != nil && f.live {
			f.owner.advance(true)
			switch {
			case c.err != nil || f.owner == nil || c.inFlight:
			case f.owner.group != nil: // another member of the core may be a little behind
				c.wait(firstRetry)
			default: // look again: it could not join yet
				c.wait(lastRetry)
			}
		}
	}
}

// answer tells those who asked. Sessions that asked since are asked for at once, those for whom the answer came too early after a while: a member of
// the core may be behind another one.
func (c *core) answer(p *packet) {
	asking, asked := c.asking, len(c.next) > 0
	c.asking = map[*session]struct{}{}
	for s := range asking {
		if s.answer(p) {
			c.next[s] = struct{}{}
		}
	}
	switch {
	case asked:
		c.ask()
	case len(c.next) > 0, c.leaving():
		c.wait(firstRetry)
	}
}
