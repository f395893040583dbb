// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package relay carries TCP connections from one listener to another address, as they are: no byte is lost, and an end that has said all it has to say
// (half-close) still hears the other. Where nobody answers on the far side, the near one is refused at once, by a reset.
package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Dial opens the far side of a connection that has just been accepted.
type Dial func(ctx context.Context) (*net.TCPConn, error)

// DialTo is a Dial to one address.
func DialTo(address string) Dial {
	return func(ctx context.Context) (*net.TCPConn, error) {
		far, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		return far.(*net.TCPConn), nil
	}
}

const (
	// dialTimeout bounds the opening of the far side: all of it is on this machine.
	dialTimeout = 10 * time.Second
	// acceptPause is waited after a failure to accept, as there is one while this process has no descriptor left.
	acceptPause = 50 * time.Millisecond
)

// Server relays the connections of one listener.
type Server struct {
	listener *net.TCPListener
	dial     Dial
	cancel   context.CancelFunc
	ended    sync.WaitGroup
	mu       sync.Mutex // guards open
	open     map[*net.TCPConn]bool
}

// Serve begins to relay what the listener accepts, until Close or Stop. The listener is the server's from now on.
func Serve(ctx context.Context, listener *net.TCPListener, dial Dial) *Server {
	ctx, cancel := context.WithCancel(ctx)
	s := &Server{listener: listener, dial: dial, cancel: cancel, open: map[*net.TCPConn]bool{}}
	s.ended.Go(func() { s.accept(ctx) })
	return s
}

// Stop listens no more; connections that are open go on.
func (s *Server) Stop() { _ = s.listener.Close() }

// Close listens no more, resets what is open and returns when all is over.
func (s *Server) Close() {
	s.Stop()
	s.cancel()
	s.mu.Lock()
	for c := range s.open {
		reset(c)
	}
	s.open = nil
	s.mu.Unlock()
	s.ended.Wait()
}

func (s *Server) accept(ctx context.Context) {
	for {
		near, err := s.listener.AcceptTCP()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			select {
			case <-ctx.Done():
				return
			case <-time.After(acceptPause):
			}
			continue
		}
		s.ended.Go(func() { s.carry(ctx, near) })
	}
}

// carry relays one connection until both of its ends are done.
func (s *Server) carry(ctx context.Context, near *net.TCPConn) {
	far, err := s.dial(ctx)
	if err != nil {
		reset(near)
		return
	}
	if !s.keep(near, far) {
		return
	}
	defer s.forget(near, far)
	Join(near, far)
}

// keep remembers connections for Close, and reports false, having ended them, if that has been called.
func (s *Server) keep(connections ...*net.TCPConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range connections {
		if s.open == nil {
			reset(c)
			continue
		}
		s.open[c] = true
	}
	return s.open != nil
}

func (s *Server) forget(connections ...*net.TCPConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range connections {
		delete(s.open, c)
	}
}

// Join copies between two connections, both ways, until both have ended, and closes them. The end of one way is passed on as such and leaves the
// other open; a failure of one ends both, by a reset, so that nobody takes it for the end of what was said.
func Join(a, b *net.TCPConn) {
	var ways sync.WaitGroup
	ways.Go(func() { pour(a, b) })
	ways.Go(func() { pour(b, a) })
	ways.Wait()
	_ = a.Close()
	_ = b.Close()
}

// pour copies from one connection to the other.
func pour(into, from *net.TCPConn) {
	if _, err := io.Copy(into, from); err != nil {
		reset(into)
		reset(from)
		return
	}
	_ = into.CloseWrite()
}

// reset closes a connection so that its other end hears of an abort, not of an end.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}
