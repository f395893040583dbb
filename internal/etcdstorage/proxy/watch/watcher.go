// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy/wire"
)

// watcher is one watch of the tenant. Hub.mu guards it.
type watcher struct {
	session *session
	id      int64
	idField []byte // the ID as a field of a response
	key     groupKey
	start   int64 // as asked for; 0: from now on

	// created is set while the session waits for the Created answer; it gets nil, or why the stream to the core was lost.
	created chan error
	// numbered is set when the session chose the ID.
	numbered bool
	// refusal is why the watch is refused although the core accepts it; compacted is the tenant's compact revision that it starts below.
	refusal   string
	compacted int64
	// over is set when the watch was ended by compaction: its ID stays taken until the client cancels it, as in etcd.
	over bool

	// feed is the private feed, nil once it has joined. group is the group it listens to, waiting the one it would like to join.
	feed           *feed
	synced         bool // the private feed had all there was, not long ago
	group, waiting *group
	index          int // in group.members
	// While both feed and group are set, messages of the group are kept in backlog until the feed has come to target.
	target       int64
	backlog      []*packet
	backlogBytes int
	// skip: events of the group up to this revision were already sent from the private feed.
	skip int64
}

// lost ends the wait for the Created answer.
func (w *watcher) lost(err error) {
	w.created <- err
	w.created = nil
}

// handleCreated passes the core's answer on.
func (w *watcher) handleCreated(p *packet) {
	s := w.session
	f := w.feed
	defer func() { w.created <- nil; w.created = nil }()
	if p.Canceled || w.refusal != "" {
		w.feed = nil
		if !p.Canceled {
			f.core.drop(f, true)
		}
		s.refuse(w, p)
		return
	}
	if w.numbered {
		s.nextID = w.id + 1
	}
	s.header, s.high = p.Header, max(s.high, p.Header.Revision)
	s.push(w, p)
	if w.compacted > 0 {
		f.core.drop(f, true)
		w.end(notice(p, func(r *wire.WatchResponse) { r.Header.Revision, r.Canceled, r.CompactRevision = 0, true, w.compacted }))
		return
	}
	now := p.Header.Revision
	w.advance(w.start > now)
	if w.feed != nil && w.waiting == nil {
		f.core.ask()
	}
}

// handle passes a message of the private feed on.
func (w *watcher) handle(p *packet) {
	w.deliver(p)
	w.feed.moved(p)
	w.advance(p.EventCount == 0)
}

// handleCanceled passes the end of the private feed on.
func (w *watcher) handleCanceled(p *packet) {
	if w.group != nil {
		w.group.leave(w)
	}
	if w.waiting != nil {
		w.waiting.leave(w)
	}
	w.feed = nil
	w.end(p)
}

// end tells the tenant that the watch is over; its ID stays taken.
func (w *watcher) end(p *packet) {
	w.over = true
	w.group, w.feed, w.backlog = nil, nil, nil
	w.session.push(w, p)
}

// deliver queues a message, without what the watcher has already.
func (w *watcher) deliver(p *packet) {
	s := w.session
	if p.EventCount == 0 {
		if r := p.Header.Revision; r >= w.start && r >= w.skip && r >= s.high {
			s.high = r
			s.push(w, p)
		}
		return
	}
	if p.LastRevision <= w.skip {
		return
	}
	if p.FirstRevision <= w.skip {
		p = p.after(w.skip)
	}
	w.skip = 0
	s.high = max(s.high, p.LastRevision, p.Header.Revision)
	s.push(w, p)
}

// keep puts a message of the group aside until the private feed has caught up; false when there are too many.
func (w *watcher) keep(p *packet) bool {
	if p.EventCount > 0 {
		w.backlog = append(w.backlog, p)
		w.backlogBytes += p.size()
	}
	return w.backlogBytes <= w.session.limit/roomPart
}

// advance is called when the private feed has moved: the watcher joins its group if it can. synced: the core has said that the feed has all there
// is.
func (w *watcher) advance(synced bool) {
	f := w.feed
	w.synced = w.synced || synced
	if f == nil || f.mid || f.pos < 0 || w.waiting != nil || w.session.closed {
		return
	}
	if w.group != nil {
		if f.pos >= w.target {
			w.join()
		}
		return
	}
	if w.session.hasRoom() { // while it reads slowly it stays private
		w.approach()
	}
}

// approach begins to listen to the group, or to wait until there is one to listen to.
func (w *watcher) approach() {
	f := w.feed
	cl := f.core.class
	g := cl.groups[w.key]
	switch {
	case g == nil && !w.synced:
	case g == nil:
		g = &group{class: cl, key: w.key, waiting: map[*watcher]struct{}{w: {}}}
		w.waiting = g
		cl.groups[w.key] = g
		if cl.shared != nil {
			w.session.hub.startGroup(g)
		} else {
			w.session.hub.needShared(cl)
		}
	case !g.joinable():
		if w.synced {
			g.waiting[w] = struct{}{}
			w.waiting = g
		}
	case f.pos >= g.feed.pos || w.synced:
		w.group, w.target, w.index = g, g.feed.pos, len(g.members)
		g.members = append(g.members, w)
		if f.pos >= w.target {
			w.join()
		} else {
			f.core.ask()
		}
	}
}

// join makes a watcher a member: from here on the group's messages are its messages.
func (w *watcher) join() {
	f := w.feed
	w.feed, w.skip = nil, f.pos
	f.core.drop(f, true)
	backlog := w.backlog
	w.backlog, w.backlogBytes = nil, 0
	for _, p := range backlog {
		w.deliver(p)
	}
	w.session.pursue()
}

// detach takes a watcher from whatever it lives from.
func (h *Hub) detach(w *watcher) {
	if w.group != nil {
		w.group.leave(w)
	}
	if w.waiting != nil {
		w.waiting.leave(w)
	}
	if f := w.feed; f != nil {
		w.feed = nil
		f.core.drop(f, false)
		w.session.broadcast()
		h.memory.wake()
	}
}
