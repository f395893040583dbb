// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy/wire"
)

// reasonDuplicate is what etcd says of a watch ID that is taken (storage/mvcc/watcher.go).
const reasonDuplicate = "mvcc: duplicate watch ID provided on the WatchStream"

// session is one Watch stream of the tenant. Hub.mu guards the first part.
type session struct {
	hub      *Hub
	class    *class
	stream   ServerStream
	watchers map[int64]*watcher
	nextID   int64
	progress bool  // the client waits for a progress answer
	high     int64 // the highest revision sent
	closed   bool
	header   wire.Header // of the last watch made

	limit int
	mu    sync.Mutex // guards what follows; taken inside Hub.mu
	room  sync.Cond  // the queue has become shorter, or somebody who waits need not wait any more
	queue []item
	bytes int // of the queue and of the message just being sent
	stall *time.Timer
	err   error
	wake  chan struct{} // holds one signal when queue is not empty
	done  chan struct{} // closed with err
}

// item is one message to the tenant.
type item struct {
	packet *packet
	id     []byte
}

func (i item) size() int { return i.packet.size() + len(i.id) }

// roomPart: a session has room for more history while at most this part of its queue's limit is used.
const roomPart = 8

func newSession(h *Hub, stream ServerStream) *session {
	s := &session{
		hub: h, class: h.classes[0], stream: stream, watchers: map[int64]*watcher{}, limit: h.cfg.QueueBytes,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	if stream.RequireLeader() {
		s.class = h.classes[1]
	}
	s.room.L = &s.mu
	return s
}

// fail ends the session: the first reason counts.
func (s *session) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.done:
	default:
		s.err = err
		for _, m := range s.queue {
			s.hub.memory.release(m.packet)
		}
		s.queue = nil
		if s.stall != nil {
			s.stall.Stop()
			s.stall = nil // stalled, if it runs just now, must not start it again
		}
		close(s.done)
		s.room.Broadcast()
	}
}

// send sends what is queued until the session ends.
func (s *session) send() {
	defer s.contain()
	for {
		select {
		case <-s.wake:
		case <-s.done:
			return
		}
		for {
			m, ok := s.pop()
			if !ok {
				break
			}
			err := s.stream.Send(m.packet.head, m.id, m.packet.Events)
			s.hub.memory.release(m.packet)
			if err != nil {
				s.fail(err)
				return
			}
			s.sent(m)
		}
	}
}

// pop takes the first message.
func (s *session) pop() (m item, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return m, false
	}
	m, s.queue[0] = s.queue[0], item{}
	if s.queue = s.queue[1:]; len(s.queue) == 0 {
		s.queue = nil
	}
	return m, true
}

// sent notes that a message is on its way.
func (s *session) sent(m item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes -= m.size()
	if s.roomy() {
		s.room.Broadcast()
		if s.stall != nil {
			s.stall.Stop()
			s.stall = nil
		}
	}
}

// waiting is the length of the queue in bytes; 0 after the end.
func (s *session) waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0
	}
	return s.bytes
}

// roomy tells whether there is room for more history; s.mu is held.
func (s *session) roomy() bool { return s.bytes <= s.limit/roomPart }

// stalled is called when there was no room for Patience: a session that keeps a turn from others meanwhile ends.
func (s *session) stalled() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	for _, w := range s.watchers {
		if w.feed != nil {
			s.hub.slow++
			s.fail(errSlow)
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stall != nil { // it may want a turn later
		s.stall.Reset(s.hub.cfg.Patience)
	}
}

// contain makes a panic the end of the session and of nothing else.
func (s *session) contain() {
	if r := recover(); r != nil {
		s.fail(s.hub.cfg.Panicked(r))
	}
}

// push queues a message for a watcher. A session whose queue is full already ends.
func (s *session) push(w *watcher, p *packet) {
	s.enqueue(item{p, w.idField})
}

func (s *session) enqueue(m item) {
	s.mu.Lock()
	ended, full := s.err != nil, s.bytes >= s.limit
	if !ended && !full {
		s.bytes += m.size()
		s.hub.memory.hold(m.packet)
		s.queue = append(s.queue, m)
		if !s.roomy() && s.stall == nil {
			s.stall = time.AfterFunc(s.hub.cfg.Patience, s.stalled)
		}
	}
	s.mu.Unlock()
	switch {
	case ended:
		return
	case full:
		s.hub.slow++
		s.fail(errSlow)
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
	s.hub.endLargest(s.hub.cfg.TotalBytes)
}

// hasRoom tells whether there is room for more history.
func (s *session) hasRoom() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.roomy()
}

// waitForRoom returns when there is room for more history, the session has ended, or nobody wants the feed any more.
func (s *session) waitForRoom(f *feed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.roomy() && s.err == nil && !f.detached.Load() {
		s.room.Wait()
	}
}

// broadcast wakes those who wait for room.
func (s *session) broadcast() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.room.Broadcast()
}

// receive deals with the requests of the tenant, in order; it waits for each watch to be created, so answers have the order of the requests.
// When the tenant has no more requests its watches go on, as in etcd.
func (s *session) receive() {
	defer s.contain()
	for {
		m, err := s.stream.Recv()
		if errors.Is(err, io.EOF) {
			return
		}
		if err == nil {
			err = s.handle(m)
		}
		if err != nil {
			s.fail(err)
			return
		}
	}
}

func (s *session) handle(m []byte) error {
	r, err := wire.ParseWatchRequest(s.hub.cfg.Tenant, m)
	if err != nil {
		if refused := requestError(err); refused != nil {
			return refused
		}
		return s.hub.cfg.Violation(err)
	}
	if s.hub.cfg.Pace != nil {
		if err := s.hub.cfg.Pace(s.stream.Context(), r.StartRevision); err != nil {
			return err
		}
	}
	switch r.Kind {
	case wire.WatchCreate:
		return s.create(&r)
	case wire.WatchCancel:
		s.cancel(r.WatchID)
	case wire.WatchProgress:
		s.requestProgress()
	case wire.WatchNone:
	}
	return nil
}

// create makes a watch and waits for the core's answer, which handleCreated queues. The error ends the session.
func (s *session) create(r *wire.WatchRequest) error {
	w := &watcher{
		session: s, id: r.WatchID, start: r.StartRevision,
		key: groupKey{
			key: r.Key, end: r.End, noPut: r.NoPut, noDelete: r.NoDelete, prevKV: r.PrevKV, progressNotify: r.ProgressNotify, fragment: r.Fragment,
		},
	}
	if r.StartRevision > 0 {
		if err := s.hub.cfg.Load(s.stream.Context()); err != nil {
			return err
		}
		if revision := s.hub.cfg.Compacted(); r.StartRevision < revision {
			w.compacted = revision
		}
	}
	for login := false; ; {
		select {
		case s.hub.turns <- struct{}{}: // in the order of asking
		case <-s.done:
			return s.err
		case <-s.stream.Context().Done():
			return contextError(s.stream.Context())
		}
		used, err := s.createOn(w)
		switch {
		case err == nil || s.stream.Context().Err() != nil:
			return err
		case used: // an old stream that had died; the next is another one
		case errors.Is(err, errMoved): // likewise, on the newer connection
		case errors.Is(err, errLogin) && !login:
			login = true // the next stream has a new one
		default:
			return err
		}
	}
}

// createOn creates the watch on some catch-up stream; used tells whether it had served others before.
func (s *session) createOn(w *watcher) (used bool, err error) {
	c, used, err := s.hub.private(s.stream.Context(), s.class)
	if err != nil {
		<-s.hub.turns
		return false, err
	}
	created, err := s.begin(w, c)
	if err != nil {
		<-s.hub.turns
		return used && !errors.Is(err, errClosed), err
	}
	select {
	case err = <-created:
		return used, err
	case <-s.done:
		return false, s.err
	case <-s.stream.Context().Done():
		return false, contextError(s.stream.Context())
	}
}

// contextError is the status of a stream whose context has ended; etcd has a text of its own for those that the client canceled.
func contextError(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return rpctypes.ErrGRPCWatchCanceled
	}
	return status.FromContextError(ctx.Err()).Err()
}

// begin asks for the watch on a stream to the core; the channel gets nil with the Created answer, or why the stream ended.
func (s *session) begin(w *watcher, c *core) (<-chan error, error) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if s.closed {
		c.fail(errClosed)
		return nil, errClosed
	}
	if c.err != nil {
		return nil, c.err
	}
	s.name(w)
	created := make(chan error, 1)
	w.created = created
	w.feed = &feed{owner: w, turn: true}
	start := w.start
	if w.compacted > 0 || w.refusal != "" {
		start = 0 // only the header of the answer is wanted
	}
	c.create(w.feed, &w.key, start)
	return created, nil
}

// name gives the watcher its ID and enters it; a taken ID is refused once the core has given a header.
func (s *session) name(w *watcher) {
	if w.refusal != "" || s.watchers[w.id] == w {
		return
	}
	if s.hub.full() {
		w.refusal = s.hub.cfg.TooMany
		s.hub.cfg.Refused()
		return
	}
	if w.id == 0 {
		for s.watchers[s.nextID] != nil {
			s.nextID++
		}
		w.id = s.nextID
		w.numbered = true
	} else if s.watchers[w.id] != nil {
		w.refusal = reasonDuplicate
		return
	}
	w.idField = idField(w.id)
	s.watchers[w.id] = w
}

// full reports that the tenant has as many watches as it may.
func (h *Hub) full() bool {
	if h.cfg.Watches <= 0 {
		return false
	}
	count := 0
	for s := range h.sessions {
		count += len(s.watchers)
	}
	return count >= h.cfg.Watches
}

// refuse answers that a watch could not be made.
func (s *session) refuse(w *watcher, p *packet) {
	if s.watchers[w.id] == w {
		delete(s.watchers, w.id)
	}
	reason := p.CancelReason
	if w.refusal != "" {
		reason = w.refusal
	}
	n := notice(p, func(r *wire.WatchResponse) { r.Created, r.Canceled, r.CancelReason = true, true, reason })
	s.enqueue(item{n, idField(everyWatch)})
}

// cancel ends a watch at the client's wish; etcd says nothing of an unknown ID.
func (s *session) cancel(id int64) {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	w := s.watchers[id]
	if w == nil {
		return
	}
	last := packet{WatchResponse: wire.WatchResponse{Header: s.header}}
	last.Header.Revision = s.high
	if c := s.class.shared; c != nil {
		last.Header.Revision = max(s.high, c.header.Revision)
	}
	h.detach(w)
	delete(s.watchers, id)
	s.push(w, notice(&last, func(r *wire.WatchResponse) { r.Canceled = true }))
	s.pursue() // it may have been the one that withheld a progress answer
}

// requestProgress notes that the client wants a progress answer. Requests that come before it is given are answered with it.
func (s *session) requestProgress() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.progress = len(s.watchers) > 0
	s.pursue()
}

// pursue asks for the progress answer that the client waits for, if its watches can have one. A watch that was ended and not canceled yet withholds
// it, as in etcd. Watches that catch up call it again when they have.
func (s *session) pursue() {
	if !s.progress || s.closed {
		return
	}
	for _, w := range s.watchers {
		switch {
		case w.over:
			s.progress = false
			return
		case w.feed != nil:
			return
		}
	}
	if c := s.class.shared; c != nil && len(s.watchers) > 0 {
		c.next[s] = struct{}{}
		c.ask()
	}
}

// answer passes a progress answer of the shared stream on if it says something of all watches, and nothing later has been sent. early: a later one
// is wanted.
func (s *session) answer(p *packet) (early bool) {
	if !s.progress || s.closed {
		return false
	}
	revision := p.Header.Revision
	for _, w := range s.watchers {
		switch {
		case w.over, revision < w.start: // etcd drops the request
			s.progress = false
			return false
		case w.feed != nil: // joining will ask again
			return false
		}
	}
	if revision < s.high {
		return true
	}
	s.progress = false
	s.high = revision
	s.enqueue(item{p, idField(everyWatch)})
	return false
}
