// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package tenantproxy

import (
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"io"
	"net"
	"sync"
	"testing"
)

// A Relay carries TCP connections to an address and cuts them when it is told to.
type Relay struct {
	// Address is where it listens.
	Address string

	listener net.Listener
	target   string
	mu       sync.Mutex
	conns    map[net.Conn]struct{}
	closed   bool
}

// NewRelay starts a relay to an address; it ends with the test.
func NewRelay(tb testing.TB, target string) *Relay {
	tb.Helper()
	listener := must.Get(new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")).Or(tb)
	r := &Relay{Address: listener.Addr().String(), listener: listener, target: target, conns: map[net.Conn]struct{}{}}
	go r.accept()
	tb.Cleanup(func() {
		_ = listener.Close()
		r.mu.Lock()
		r.closed = true
		r.mu.Unlock()
		r.Cut()
	})
	return r
}

// Cut ends all connections at once, in the middle of whatever they carry.
func (r *Relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for conn := range r.conns {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // a reset, not an orderly end
		}
		_ = conn.Close()
	}
	clear(r.conns)
}

func (r *Relay) accept() {
	for {
		conn, err := r.listener.Accept()
		if err != nil {
			return
		}
		go r.carry(conn)
	}
}

func (r *Relay) carry(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", r.target) //nolint:noctx // loopback
	if err != nil {
		return
	}
	defer server.Close()
	if !r.add(client, server) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { pass(server, client) })
	both.Go(func() { pass(client, server) })
	both.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, client)
	delete(r.conns, server)
}

func (r *Relay) add(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, conn := range conns {
		r.conns[conn] = struct{}{}
	}
	return !r.closed
}

// pass copies until one side ends, and ends the other.
func pass(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
	_ = from.Close()
}
