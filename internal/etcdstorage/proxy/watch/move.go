// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"maps"
	"time"
)

// moveAgain is the pause before another attempt to open the stream that shall take over.
const moveAgain = time.Second

// retire is called when the connection of a stream was replaced by a newer one. The shared stream is followed by another, and one that is
// kept for the next watcher ends. Watchers that catch up stay where they are: they soon come to the shared stream anyway, and those that do
// not are cut off with the connection some time later, which their clients get over.
func (c *core) retire() {
	if c.err != nil {
		return
	}
	c.retired = true
	switch {
	case c.shared:
		c.hub.moveOn(c.class)
	case len(c.feeds) == 0:
		c.fail(errMoved)
	}
}

// moveOn opens a stream that is to take the place of the shared one if that is retired. Each group gets a feed there, too.
func (h *Hub) moveOn(cl *class) {
	if cl.shared == nil || !cl.shared.retired || cl.next != nil || cl.opening || h.closed {
		return
	}
	cl.opening = true
	h.work.Go(func() {
		c, err := h.open(h.ctx, cl, true)
		h.mu.Lock()
		defer h.mu.Unlock()
		cl.opening = false
		switch {
		case cl.shared == nil: // it has ended meanwhile
			h.opened(cl, c, err)
		case err != nil || c.err != nil:
			h.moveLater(cl)
		default:
			cl.next = c
			for _, g := range cl.groups {
				h.startGroup(g)
			}
			cl.takeOver()
		}
	})
}

func (h *Hub) moveLater(cl *class) {
	time.AfterFunc(moveAgain, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.moveOn(cl)
	})
}

// leaving tells whether another stream is about to take the place of this one.
func (c *core) leaving() bool { return c.class.shared == c && c.class.next != nil }

// hold keeps a message of the feed that is to take over until it does.
func (g *group) hold(p *packet) {
	cl := g.class
	if p.EventCount > 0 {
		g.ahead = append(g.ahead, p)
		if cl.ahead += p.size(); cl.ahead > cl.next.hub.cfg.QueueBytes {
			cl.next.fail(errBehind) // the old stream is far behind the new one; another time
			return
		}
	}
	cl.takeOver()
}

// forgetNext gives up what was to take the place of the shared stream.
func (cl *class) forgetNext() {
	cl.next, cl.ahead = nil, 0
	for _, g := range cl.groups {
		g.next, g.ahead = nil, nil
	}
}

// takeOver puts the next stream in the place of the shared one, for all groups at once, since a session's progress answer must say something
// of all its watches. It waits until each group has handed on all that its new feed does not bring: a new feed brings everything after its
// position. What both bring is handed on once.
func (cl *class) takeOver() {
	old, c := cl.shared, cl.next
	if old == nil || c == nil {
		return
	}
	behind := false
	for _, g := range cl.groups {
		if g.next == nil || !g.next.live {
			return // the answer to its creation calls again
		}
		behind = behind || !g.feed.live || g.feed.mid || g.feed.pos < g.next.pos
	}
	if behind {
		old.ask() // the answer brings all feeds forward
		return
	}
	cl.shared, cl.next, cl.ahead = c, nil, 0
	for _, g := range cl.groups {
		g.takeOver()
	}
	maps.Copy(c.next, old.asking)
	maps.Copy(c.next, old.next)
	old.fail(errMoved)
	c.ask()
	if c.retired { // again
		c.hub.moveOn(cl)
	}
}

// takeOver goes on with the next feed, which brings some of what was handed on already.
func (g *group) takeOver() {
	old, ahead := g.feed, g.ahead
	old.group = nil
	old.detached.Store(true)
	g.feed, g.next, g.ahead, g.skip = g.next, nil, nil, old.pos
	g.feed.pos = max(g.feed.pos, old.pos)
	for _, p := range ahead {
		if g.feed != nil && g.feed.group == g {
			g.handle(p)
		}
	}
	if len(g.waiting) > 0 {
		g.settle()
	}
}

// unseen is a message without what was handed on before the group's feed took over; nil if nothing is left.
func (g *group) unseen(p *packet) *packet {
	switch {
	case g.skip == 0 || p.EventCount == 0:
		return p
	case p.LastRevision <= g.skip:
		return nil
	case p.FirstRevision <= g.skip:
		p = p.after(g.skip)
	}
	g.skip = 0
	return p
}
