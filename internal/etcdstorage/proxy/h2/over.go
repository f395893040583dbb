// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"
)

// overTime is what a connection that is over has for its last calls and for hearing that it must go, before it is cut off.
const overTime = 30 * time.Second

var errOver = errors.New("the connection's time is over")

// endIfOver asks Server.Over about a connection. One that is over is told to go elsewhere, as when the server drains; what is open-ended ends with the
// status that Over gave, so that clients go on where they go to; what is not comes to its end. One that does not go is cut off some time later.
func (c *serverConn) endIfOver() {
	over := c.server.Over
	c.mu.Lock()
	t := c.t
	c.mu.Unlock()
	if over == nil || t == nil {
		return
	}
	status, ended := over(c.peer, c.overAt.IsZero())
	if !ended {
		return
	}
	now := time.Now() //nolint:forbidigo // a bound of the network's
	switch most := cmp.Or(c.server.OverTime, overTime); {
	case c.overAt.IsZero():
		c.overAt = now
		c.drain()
	case now.Sub(c.overAt) > most:
		t.close(errOver)
		return
	}
	for _, s := range c.streaming() {
		s.Fail(nil, status)
	}
}

// endIfIdle tells a connection to go elsewhere that has had no call for too long, and cuts off one that does not go.
func (c *serverConn) endIfIdle() {
	c.mu.Lock()
	t := c.t
	c.mu.Unlock()
	most := c.server.IdleTime
	if t == nil || most <= 0 {
		return
	}
	t.mu.Lock()
	busy := len(t.streams) > 0 || t.begun != c.begunThen
	c.begunThen = t.begun
	t.mu.Unlock()
	now := time.Now() //nolint:forbidigo // a bound of the network's
	switch {
	case busy || c.idleSince.IsZero():
		c.idleSince = now
	case now.Sub(c.idleSince) > most+min(most, cmp.Or(c.server.OverTime, overTime)):
		t.close(errIdle)
	case now.Sub(c.idleSince) > most:
		c.drain()
	}
}

var errIdle = errors.New("the connection is not used")

// streaming are the streaming calls that run.
func (c *serverConn) streaming() []*Stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.open))
}

// opened notes a streaming call that begins to run, ended that it does not any more.
func (c *serverConn) opened(s *Stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[*Stream]struct{}{}
	}
	c.open[s] = struct{}{}
}

func (c *serverConn) ended(s *Stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, s)
}
