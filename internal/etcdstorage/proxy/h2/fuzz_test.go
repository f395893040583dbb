// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package h2_test

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/testkit/attacks"
)

// FuzzServer sends anything to a server. It must go on for others.
func FuzzServer(f *testing.F) {
	g := newGateway(f, 1, newCore(f).Address)
	conn := dial(f, g.Address)
	words := &attacks.Words{Own: attacks.OwnKeys(), Hostile: [][]byte{{0}, {0xff}}, Leases: []int64{1}}
	for n := range uint64(200) {
		f.Add(attacks.NewGenerator(words, 0, n).Script())
	}
	pipes := &pipeListener{Listener: listen(f), conns: make(chan net.Conn), closed: make(chan struct{})}
	f.Cleanup(func() { _ = pipes.Close() })
	go func() { _ = g.Server.Serve(pipes) }()
	f.Fuzz(func(t *testing.T, data []byte) {
		ours, theirs := net.Pipe()
		pipes.conns <- theirs
		_ = ours.SetDeadline(time.Now().Add(patience))
		read := make(chan struct{})
		go func() {
			_, _ = io.Copy(io.Discard, ours)
			close(read)
		}()
		_, _ = ours.Write(data)
		_ = ours.Close()
		<-read
		request, got := []byte("x"), []byte(nil)
		if err := conn.Invoke(t.Context(), "/test/echo", &request, &got); err != nil && status.Code(err) != codes.Canceled {
			t.Fatal(err)
		}
	})
}

// pipeListener hands out pipes, which use up no ports.
type pipeListener struct {
	net.Listener
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}
