// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package watch

import "slices"

// groupKey is what watchers must have in common to share a watch of the core: the core's range and all options but ID and start.
type groupKey struct {
	key, end                         string
	noPut, noDelete                  bool
	prevKV, progressNotify, fragment bool
}

// group is a watch of the core on the shared stream with the watchers that live from it. Hub.mu guards it.
type group struct {
	class *class
	key   groupKey
	feed  *feed // nil until the shared stream is open
	// members get its messages, those with a backlog later; waiting are synced watchers that could not join yet, because the feed is not live
	// or between the fragments of a response.
	members []*watcher
	waiting map[*watcher]struct{}
	// next is the feed that is to take over on class.next, ahead what it has brought so far. skip: events of a feed that took over up to this revision
	// were already handed on.
	next  *feed
	ahead []*packet
	skip  int64
}

// joinable tells whether a watcher may begin to listen.
func (g *group) joinable() bool { return g.feed != nil && g.feed.live && !g.feed.mid }

// startGroup gives a group its feed, and another on the stream that is to take over if there is one.
func (h *Hub) startGroup(g *group) {
	if g.feed == nil {
		g.feed = &feed{group: g}
		g.class.shared.create(g.feed, &g.key, 0)
	}
	if g.class.next != nil && g.next == nil {
		g.next = &feed{group: g}
		g.class.next.create(g.next, &g.key, 0)
	}
}

// dropGroup forgets a group that ended. Those who waited for it are private still and look for another after a while.
func (h *Hub) dropGroup(g *group) {
	if g.class.groups[g.key] == g {
		delete(g.class.groups, g.key)
	}
	for w := range g.waiting {
		w.waiting = nil
		w.feed.core.lookAgain()
	}
	for _, w := range g.members {
		w.leaveBehind()
		if w.feed != nil {
			w.feed.core.lookAgain()
		}
	}
	g.members, g.waiting = nil, nil
	g.dropNext()
}

// dropNext ends the feed that was to take over.
func (g *group) dropNext() {
	if f := g.next; f != nil {
		g.next, g.ahead = nil, nil
		f.core.drop(f, true)
	}
}

// leaveBehind forgets the group of a watcher.
func (w *watcher) leaveBehind() { w.group, w.backlog, w.backlogBytes = nil, nil, 0 }

// leave takes a watcher out, and ends the group after the last.
func (g *group) leave(w *watcher) {
	if w.waiting == g {
		delete(g.waiting, w)
		w.waiting = nil
	}
	if w.group == g {
		last := len(g.members) - 1
		g.members[w.index] = g.members[last]
		g.members[w.index].index = w.index
		g.members[last] = nil
		g.members = g.members[:last]
		w.leaveBehind()
	}
	g.endIfEmpty()
}

// endIfEmpty ends a group that nobody lives from.
func (g *group) endIfEmpty() {
	if len(g.members)+len(g.waiting) > 0 || g.class.groups[g.key] != g {
		return
	}
	delete(g.class.groups, g.key)
	if g.feed != nil {
		g.feed.core.drop(g.feed, true)
	}
	g.dropNext()
	g.class.takeOver() // it may have been the one that the others waited for
}

// settle lets those join who waited.
func (g *group) settle() {
	if !g.joinable() {
		return
	}
	waiting := g.waiting
	g.waiting = map[*watcher]struct{}{}
	for w := range waiting {
		w.waiting = nil
	}
	for w := range waiting {
		w.advance(true)
		if w.feed != nil && w.group == nil && w.waiting == nil { // it reads slowly
			w.feed.core.lookAgain()
		}
	}
	g.endIfEmpty()
}

// handle hands a message of the core on.
func (g *group) handle(p *packet) {
	if rest := g.unseen(p); rest != nil {
		g.pass(rest)
	} else {
		g.feed.moved(p)
	}
	if !g.feed.mid && len(g.waiting) > 0 {
		g.settle()
	}
	g.class.takeOver()
}

// pass hands a message on to the members.
func (g *group) pass(p *packet) {
	var overfull []*watcher
	for _, w := range g.members {
		switch {
		case w.feed == nil:
			w.deliver(p)
		case !w.keep(p):
			overfull = append(overfull, w)
		}
	}
	g.feed.moved(p)
	for _, w := range overfull { // it stays private and tries again when it has come nearer
		g.leave(w)
		w.synced = false
	}
}

// handleCanceled ends the group's watchers as the core ended its watch: it was behind, and the core has compacted what it was to see next. Those
// still on their private feeds stay there. Those who were ahead of the group want nothing that is gone: their clients take up their watches again.
func (g *group) handleCanceled(p *packet) {
	for _, w := range slices.Clone(g.members) {
		switch {
		case w.feed != nil:
		case w.skip+1 >= p.CompactRevision:
			w.session.fail(errBehind)
		default:
			w.end(p)
		}
	}
	g.feed.core.hub.dropGroup(g)
}

// moved sets the position after a message: after the last part of a response, all events up to its last one have been handed on.
func (f *feed) moved(p *packet) {
	switch {
	case p.EventCount == 0: // the core's own progress notice for this watch
		f.pos = max(f.pos, p.Header.Revision)
	case p.Fragment:
		f.mid = true
	default:
		f.mid = false
		f.pos = max(f.pos, p.LastRevision)
	}
}
