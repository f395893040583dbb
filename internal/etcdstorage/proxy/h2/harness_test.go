// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package h2_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/etcdstorage/proxy/h2"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// patience is how long anything may take; on the busiest machine it takes less.
const patience = time.Minute

// bigAnswer is how much /test/big answers with.
const bigAnswer = 100 << 20

// core is a grpc-go server with a few methods that tests need.
type core struct {
	Address  string
	Server   *grpc.Server
	Canceled atomic.Int64 // calls of /test/hang that were given up
	Hanging  atomic.Int64
}

func newCore(tb testing.TB, options ...grpc.ServerOption) *core {
	tb.Helper()
	c := &core{}
	options = append(options, grpc.ForceServerCodecV2(testkit.Bytes{}), grpc.UnknownServiceHandler(c.handle), grpc.MaxRecvMsgSize(1<<30))
	c.Server = grpc.NewServer(options...)
	l := listen(tb)
	c.Address = l.Addr().String()
	go func() { _ = c.Server.Serve(l) }()
	tb.Cleanup(c.Server.Stop)
	return c
}

func (c *core) handle(_ any, s grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(s)
	var request []byte
	switch method {
	case "/test/echo":
		if err := s.RecvMsg(&request); err != nil {
			return err
		}
		return s.SendMsg(&request)
	case "/test/metadata":
		md, _ := metadata.FromIncomingContext(s.Context())
		_, deadline := s.Context().Deadline()
		answer := fmt.Appendf(nil, "hasleader=%v token=%v deadline=%v", md.Get("hasleader"), md.Get("token"), deadline)
		return s.SendMsg(&answer)
	case "/test/fail":
		return status.Error(codes.OutOfRange, "ünfit: 100%\nof it")
	case "/test/silent":
		return nil // no message: not a unary answer
	case "/test/hang":
		c.Hanging.Add(1)
		<-s.Context().Done()
		c.Canceled.Add(1)
		return s.Context().Err()
	case "/test/stream":
		for {
			var m []byte
			if err := s.RecvMsg(&m); err != nil {
				if errors.Is(err, io.EOF) {
					return status.Error(codes.Aborted, "that was all")
				}
				return err
			}
			if err := s.SendMsg(&m); err != nil {
				return err
			}
		}
	case "/test/big":
		answer := make([]byte, bigAnswer)
		return s.SendMsg(&answer)
	case "/test/flood":
		block := make([]byte, 100<<10)
		for range 200 {
			if err := s.SendMsg(&block); err != nil {
				return err
			}
		}
		return nil
	}
	return status.Error(codes.Unimplemented, "no such method")
}

// through forwards every call from an h2.Server to an h2.Pool: the smallest proxy.
type through struct {
	pool      *h2.Pool
	began     atomic.Int64
	streaming atomic.Int64
}

type forwarded struct {
	s      *h2.Stream
	answer *h2.Buf

	mu   sync.Mutex
	call h2.Call
	gone bool
}

func (f *forwarded) begun(call h2.Call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.call = call; f.gone {
		call.Cancel(nil)
	}
}

func (f *forwarded) cancel(b *h2.Batch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gone = true
	f.call.Cancel(b)
}

func (f *forwarded) Message(_ *h2.Batch, m []byte, own *h2.Buf) {
	f.answer = h2.GetBuf(h2.MessageRoom + len(m))
	f.answer.B = append(f.answer.B[:h2.MessageRoom], m...)
	own.MoveHold(f.answer)
	own.Release()
}

func (f *forwarded) Done(b *h2.Batch, s h2.Status) {
	if s.OK() {
		f.s.Reply(b, f.answer)
		return
	}
	f.s.Fail(b, s)
}

func (t *through) Refused(*h2.Stream, h2.Status) {}

func (t *through) Accept(credentials.AuthInfo, net.Addr) h2.Admission { return h2.Admission{} }

func (t *through) Excess(string, net.Addr) {}

func (t *through) request(s *h2.Stream) *h2.Request {
	return &h2.Request{Method: s.Method, Timeout: s.Timeout, RequireLeader: s.RequireLeader, Token: "secret"}
}

func (t *through) Begin(s *h2.Stream, b *h2.Batch) func(*h2.Stream) {
	t.began.Add(1)
	switch s.Method {
	case "/test/stream", "/test/flood":
		return t.stream
	case "/test/panic":
		panic("begin")
	case "/test/refuse":
		s.Fail(b, h2.Status{Code: codes.PermissionDenied, Message: "no"})
	}
	return nil
}

func (t *through) Unary(s *h2.Stream, b *h2.Batch, request []byte) {
	if s.Method == "/test/panics" {
		panic("unary")
	}
	f := &forwarded{s: s}
	s.OnCancel = f.cancel
	message := append(make([]byte, h2.MessageRoom), request...)
	call, ok := t.pool.TryStart(b, t.request(s), message, f)
	if ok {
		f.begun(call)
		return
	}
	go func() {
		call, err := t.pool.Start(s.Context(), t.request(s), message, f)
		if err != nil {
			var st h2.Status
			if !errors.As(err, &st) {
				st = h2.Status{Code: codes.Unknown, Message: err.Error()}
			}
			s.Fail(nil, st)
			return
		}
		f.begun(call)
	}()
}

func (t *through) stream(s *h2.Stream) {
	t.streaming.Add(1)
	defer t.streaming.Add(-1)
	up, err := t.pool.Stream(s.Context(), t.request(s))
	if err != nil {
		s.Fail(nil, h2.Status{Code: codes.Unavailable, Message: err.Error()})
		return
	}
	go func() {
		for {
			m, err := s.Recv()
			if err != nil {
				_ = up.CloseSend()
				return
			}
			if up.Send(m) != nil {
				return
			}
		}
	}()
	for {
		m, err := up.Recv()
		switch {
		case errors.Is(err, io.EOF):
			s.Fail(nil, h2.Status{})
			return
		case err != nil:
			var st h2.Status
			if !errors.As(err, &st) {
				st = h2.Status{Code: codes.Canceled, Message: err.Error()}
			}
			s.Fail(nil, st)
			return
		}
		if s.Send(m[:len(m)/2], m[len(m)/2:]) != nil {
			return
		}
	}
}

func (t *through) Panicked(*h2.Stream, any) h2.Status {
	return h2.Status{Code: codes.Internal, Message: "contained"}
}

func listen(tb testing.TB) net.Listener {
	tb.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0")).Or(tb)
	return l
}

// listenOn listens on an address that was just given up.
func listenOn(tb testing.TB, address string) net.Listener {
	tb.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		tb.Error(err)
	}
	return l
}

// gateway is a through that listens.
type gateway struct {
	*through
	Server  *h2.Server
	Address string
}

func newGateway(tb testing.TB, connections int, endpoints ...string) *gateway {
	tb.Helper()
	return newGatewayWith(tb, connections, func(*h2.Server) {}, endpoints...)
}

// newGatewayWith is newGateway with other settings of its server.
func newGatewayWith(tb testing.TB, connections int, settings func(*h2.Server), endpoints ...string) *gateway {
	tb.Helper()
	var list []h2.Endpoint
	for _, e := range endpoints {
		list = append(list, h2.Endpoint{Address: e, Authority: e})
	}
	pool := h2.NewPool(context.Background(), h2.PoolConfig{Endpoints: list, Connections: connections, DialTimeout: 5 * time.Second})
	g := &gateway{through: &through{pool: pool}}
	g.Server = &h2.Server{Handler: g.through, MaxMessage: 8 << 20, StallTick: time.Second}
	settings(g.Server)
	l := listen(tb)
	g.Address = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- g.Server.Serve(l) }()
	tb.Cleanup(func() {
		g.Server.Close()
		pool.Close()
		if err := <-served; !errors.Is(err, h2.ErrStopped) {
			tb.Error(err)
		}
	})
	return g
}

// dial is a grpc-go client.
func dial(tb testing.TB, address string, options ...grpc.DialOption) *grpc.ClientConn {
	tb.Helper()
	options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(testkit.Bytes{}), grpc.MaxCallRecvMsgSize(1<<30)))
	c := must.Get(grpc.NewClient("passthrough:///"+address, options...)).Or(tb)
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// eventually waits until a condition holds.
func eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	deadline := time.Now().Add(patience)
	for !holds() {
		if time.Now().After(deadline) {
			tb.Fatalf("%s: it did not come to that", what)
		}
		select {
		case <-tb.Context().Done():
		case <-time.After(2 * time.Millisecond):
		}
	}
}
