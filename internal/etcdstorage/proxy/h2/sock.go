// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
)

// mostPending bounds what a peer that does not read makes us hold at this level; the transports above write no more while something is pending,
// so it is only ever what one write brought.
const mostPending = 8 << 20

var errSlowPeer = errors.New("the peer does not read")

// sock is a connection whose Write never blocks. What the kernel does not take at once is written by a goroutine, which exists only meanwhile.
type sock struct {
	net.Conn

	raw syscall.RawConn // nil when it cannot be written without blocking (pipes of tests): a goroutine writes then
	// try is attempt's, prepared once because a closure per write would be an allocation.
	try     func(fd uintptr) bool
	tryData []byte
	tried   int
	tryErr  error

	mu      sync.Mutex
	pending []byte
	busy    atomic.Bool // a goroutine is writing pending
	err     error
	drained func() // called without locks when pending was written
}

func newSock(c net.Conn) *sock {
	s := &sock{Conn: c, drained: func() {}}
	if sc, ok := c.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			s.raw = raw
		}
	}
	s.try = func(fd uintptr) bool {
		s.tried, s.tryErr = writeOnce(fd, s.tryData)
		return true
	}
	return s
}

// tell has f called whenever what had to wait was written. A handshake that is just over may have left something that does.
func (s *sock) tell(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drained = f
}

// blocked tells whether earlier bytes still wait.
func (s *sock) blocked() bool { return s.busy.Load() }

// Write takes everything or fails for good.
func (s *sock) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	rest := b
	if !s.busy.Load() && s.raw != nil {
		n, err := s.attempt(b)
		if err != nil {
			s.err = err
			return n, err
		}
		rest = b[n:]
	}
	if len(rest) == 0 {
		return len(b), nil
	}
	if len(s.pending)+len(rest) > mostPending {
		s.err = errSlowPeer
		_ = s.Conn.Close()
		return 0, s.err
	}
	s.pending = append(s.pending, rest...)
	if !s.busy.Load() {
		s.busy.Store(true)
		go s.drain()
	}
	return len(b), nil
}

// attempt writes what the kernel takes at once.
func (s *sock) attempt(b []byte) (int, error) {
	s.tryData = b
	err := s.raw.Write(s.try)
	s.tryData = nil
	if err == nil {
		err = s.tryErr
	}
	return s.tried, err
}

// drain writes what is pending, blocking.
func (s *sock) drain() {
	var buf []byte
	for {
		s.mu.Lock()
		buf, s.pending = s.pending, buf[:0]
		if len(buf) == 0 || s.err != nil {
			s.pending = nil
			s.busy.Store(false)
			drained := s.drained
			s.mu.Unlock()
			drained()
			return
		}
		s.mu.Unlock()
		if _, err := s.Conn.Write(buf); err != nil {
			s.mu.Lock()
			s.err = err
			s.mu.Unlock()
		}
	}
}
