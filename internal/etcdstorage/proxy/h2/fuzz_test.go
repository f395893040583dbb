// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package h2_test

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// FuzzServer sends anything to a server. It must go on for others.
func FuzzServer(f *testing.F) {
	g := newGateway(f, 1, newCore(f).Address)
	conn := dial(f, g.Address)
	var ok bytes.Buffer
	p := &peer{Framer: http2.NewFramer(&ok, nil)}
	p.enc = hpack.NewEncoder(&p.block)
	p.headers(1, p.request("/test/echo"), false)
	_ = p.WriteData(1, true, message("hello"))
	_ = p.WriteRSTStream(1, http2.ErrCodeCancel)
	_ = p.WritePing(false, [8]byte{})
	_ = p.WriteWindowUpdate(1, 5)
	p.headers(3, p.request("/test/stream", "grpc-timeout", "1S"), false)
	_ = p.WriteData(3, false, message("hello"))
	_ = p.WriteGoAway(0, 0, nil)
	f.Add(ok.Bytes())
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
		_, _ = io.WriteString(ours, http2.ClientPreface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
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
