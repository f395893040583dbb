// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package h2_test

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"

	"github.com/mooring-dev/mooring/internal/etcdstorage/proxy/h2"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// overGateway is a gateway whose connections are over when the test says so: once for each, or for good.
func overGateway(t *testing.T, once bool) (*gateway, *atomic.Bool) {
	t.Helper()
	over := &atomic.Bool{}
	return newGatewayWith(t, 1, func(s *h2.Server) {
		s.StallTick = 10 * time.Millisecond
		if !once {
			s.OverTime = 20 * time.Millisecond
		}
		s.Over = func(_ any, first bool) (h2.Status, bool) {
			return h2.Status{Code: codes.Unavailable, Message: "connect again"}, over.Load() && (first || !once)
		}
	}, newCore(t).Address), over
}

// hear reads until a GOAWAY has come.
func (p *peer) hear() {
	p.Helper()
	for {
		f := must.Get(p.ReadFrame()).Or(p)
		if _, ok := f.(*http2.GoAwayFrame); ok {
			return
		}
	}
}

// TestOver: a connection that is over is told to go, its open-ended call gets the status, one that runs is answered, and then it is closed.
func TestOver(t *testing.T) {
	t.Parallel()
	g, over := overGateway(t, true)
	p := clientPeer(t, g.Address)
	p.headers(1, p.request("/test/stream"), false)
	_ = p.WriteData(1, false, message("hello"))
	p.headers(3, p.request("/test/echo"), false) // its message comes later
	for data := ""; data == ""; {
		f := must.Get(p.ReadFrame()).Or(t)
		if d, ok := f.(*http2.DataFrame); ok {
			data = string(d.Data())
		}
	}
	over.Store(true)
	p.hear()
	if got := p.answerTo(1); got.trailer["grpc-status"] != fmtCode(codes.Unavailable) || got.trailer["grpc-message"] != "connect again" {
		t.Errorf("the open-ended call: %+v", got)
	}
	_ = p.WriteData(3, true, message("late"))
	if got := p.answerTo(3); got.data != string(message("late")) {
		t.Errorf("the call under way: %+v", got)
	}
	_ = p.WritePing(true, [8]byte{'d', 'r', 'a', 'i', 'n', 'i', 'n', 'g'})
	if got := p.answerTo(0); !got.lost {
		t.Error("the connection stays")
	}
}

// TestOverAndDeaf: one that neither answers nor goes is cut off.
func TestOverAndDeaf(t *testing.T) {
	t.Parallel()
	g, over := overGateway(t, false)
	p := clientPeer(t, g.Address)
	p.headers(1, p.request("/test/hang"), false)
	_ = p.WriteData(1, true, message(""))
	over.Store(true)
	if got := p.answerTo(1); !got.lost {
		t.Errorf("it goes on: %+v", got)
	}
	// Others are served.
	over.Store(false)
	q := clientPeer(t, g.Address)
	q.headers(1, q.request("/test/echo"), false)
	_ = q.WriteData(1, true, message("x"))
	if got := q.answerTo(1); got.data != string(message("x")) {
		t.Errorf("another: %+v", got)
	}
}

// gated holds writes back while the test says so. It lies above TCP, so that they block.
type gated struct {
	net.Conn
	on         atomic.Bool
	held, gate chan struct{}
}

func (g *gated) Write(b []byte) (int, error) {
	if g.on.CompareAndSwap(true, false) {
		close(g.held)
		<-g.gate
	}
	return g.Conn.Write(b)
}

// handshake makes each connection a gated one.
type handshake struct {
	credentials.TransportCredentials
	made chan *gated
}

// ServerHandshake implements credentials.TransportCredentials.
func (h handshake) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	g := &gated{Conn: conn, held: make(chan struct{}), gate: make(chan struct{})}
	h.made <- g
	return g, nil, nil
}

// TestAnswersAreWrittenBeforeTheEnd: a connection that drains is not closed while its last answer is being written, though no call is open.
func TestAnswersAreWrittenBeforeTheEnd(t *testing.T) {
	t.Parallel()
	c := newCore(t)
	made := make(chan *gated, 1)
	g := newGatewayWith(t, 1, func(s *h2.Server) { s.Credentials = handshake{made: made} }, c.Address)
	p := clientPeer(t, g.Address)
	conn := <-made
	p.headers(1, p.request("/test/echo"), false)
	p.headers(3, p.request("/test/hang"), false)
	_ = p.WriteData(3, true, message(""))
	eventually(t, "the call that hangs", func() bool { return c.Hanging.Load() == 1 })
	go g.Server.Drain(t.Context())
	p.hear()
	_ = p.WritePing(true, [8]byte{'d', 'r', 'a', 'i', 'n', 'i', 'n', 'g'})
	p.hear() // with the last stream: now it drains
	conn.on.Store(true)
	_ = p.WriteData(1, true, message("last"))
	<-conn.held
	_ = p.WriteRSTStream(3, http2.ErrCodeCancel)
	eventually(t, "the other call to be given up", func() bool { return c.Canceled.Load() == 1 })
	close(conn.gate)
	if got := p.answerTo(1); got.data != string(message("last")) {
		t.Errorf("the last answer: %+v", got)
	}
	if got := p.answerTo(0); !got.lost {
		t.Error("the connection stays")
	}
}
