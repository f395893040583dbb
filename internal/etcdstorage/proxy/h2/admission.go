// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"time"

	"google.golang.org/grpc/credentials"
)

// Admission is how a connection is judged.
type Admission struct {
	// Peer is Stream.Peer of the connection's calls.
	Peer any
	// Share names whose connection it is: no share may have more than Server.MaxPerShare. "" has no bound.
	Share string
	// Refused is set if all its calls will be refused: it is closed soon after the first, or when none comes, and takes no place of those that
	// are let in.
	Refused bool
}

// admit is called when a connection got through the handshake; ok is false when there are too many, excess when there are too many of its share.
func (s *Server) admit(c *serverConn) (ok, excess bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notFresh(c)
	if c.share != "" && s.MaxPerShare > 0 && s.shares[c.share] >= s.MaxPerShare {
		return false, true
	}
	if len(s.conns)-len(s.fresh) > mostConnections {
		return false, false
	}
	if s.shares == nil {
		s.shares = map[string]int{}
	}
	s.shares[c.share]++
	c.admitted = true
	return true, false
}

// begins decides whether a connection is served. One that is refused stays among those in the handshake, and has their deadline: anyone who
// holds many of them keeps nobody out.
func (c *serverConn) begins() bool {
	if c.refused {
		return true
	}
	ok, excess := c.server.admit(c)
	if excess {
		c.server.Handler.Excess(c.share, c.raw.RemoteAddr())
	}
	if ok {
		_ = c.raw.SetDeadline(time.Time{})
	}
	return ok
}

// refuse ends a connection soon after its first call was refused: the client hears that it must go, and has a moment to read why.
func (c *serverConn) refuse(b *Batch) {
	c.refused = false                                  // once
	_ = c.raw.SetDeadline(time.Now().Add(refusedTime)) //nolint:forbidigo // a deadline of the network's
	c.t.mu.Lock()
	c.t.out = appendGoAway(c.t.out, c.last, NoError, "")
	c.t.mu.Unlock()
	b.add(c.t)
}

func (c *serverConn) judge(info credentials.AuthInfo) {
	a := c.server.Handler.Accept(info, c.raw.RemoteAddr())
	c.peer, c.share, c.refused = a.Peer, a.Share, a.Refused
}
