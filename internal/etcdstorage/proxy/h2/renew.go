// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"cmp"
	"errors"
	"time"

	"google.golang.org/grpc/credentials"
)

// Renewable is the AuthInfo of a connection to the core whose credentials may be replaced while it lives. A connection that is outdated is
// made again: the new one is there before the old one is given up, and an old one for which there is no new one goes on.
type Renewable interface {
	credentials.AuthInfo
	// Outdated reports that a new connection would be made with other credentials. It is asked every PoolConfig.Look.
	Outdated() bool
	// Left is how long the credentials are good for that the connection was made with; below 0 when they have ended.
	Left() time.Duration
}

// look is how often connections are asked whether they are outdated.
const look = 5 * time.Second

// What an old connection has for its last calls once there is a new one.
const (
	lingerMost   = 5 * time.Minute  // a large list for a slow reader ends within it
	lingerLeast  = 10 * time.Second // a request that was begun is answered, even if the credentials end meanwhile
	lingerMargin = time.Minute      // before the end of the credentials it is gone
)

var errReplaced = errors.New("the connection was replaced by one with newer credentials")

// lingers is how long an old connection whose credentials are good for left may go on. most is PoolConfig.Linger.
func lingers(left, most time.Duration) time.Duration {
	most = cmp.Or(most, lingerMost)
	return min(most, max(left-lingerMargin, lingerLeast))
}

// outdated reports whether a connection should be made again.
func (c *Conn) outdated() bool { return c.auth != nil && c.auth.Outdated() }

// keepFresh has connections made again that are outdated. One that could not be is tried again the next time.
func (p *Pool) keepFresh() {
	ticker := time.NewTicker(cmp.Or(p.cfg.Look, look))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-p.ctx.Done():
			return
		}
		for _, s := range p.slots {
			if c := s.conn.Load(); c != nil && c.outdated() {
				select {
				case s.renewal <- struct{}{}:
				default:
				}
			}
		}
	}
}

// replace makes a slot's connection again and returns the one that is used from here on: the old one if there is no new one.
func (p *Pool) replace(i int, s *slot, old *Conn) *Conn {
	if !old.outdated() { // it was, and has been replaced meanwhile
		return old
	}
	c, err := p.connectAny(i)
	if err != nil {
		return old // it was reported
	}
	p.set(s, c, false)
	p.retire(old)
	if p.cfg.Renewed != nil {
		p.cfg.Renewed(c.authority)
	}
	return c
}

// retire takes a connection out of use that has been replaced. Its calls come to their end; what is open-ended is told by
// ClientStream.Retired, and what is left after a while is cut off.
func (p *Pool) retire(c *Conn) {
	c.t.mu.Lock()
	c.leave()
	c.t.mu.Unlock()
	close(c.retired)
	c.closeIfIdle()
	p.work.Go(func() {
		most := time.NewTimer(lingers(c.auth.Left(), p.cfg.Linger))
		defer most.Stop()
		select {
		case <-most.C:
			c.t.close(errReplaced)
		case <-c.gone:
		}
	})
}

// Retired is closed when there is a newer connection than the one that the stream is on. Who can should open another stream, and give this one up: it
// is cut off some time later.
func (s *ClientStream) Retired() <-chan struct{} { return s.call.conn.retired }
