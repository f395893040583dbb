// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package h2_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"

	"github.com/mooring-dev/mooring/internal/etcdstorage/proxy/h2"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// result waits for a unary call.
type result struct {
	data []byte
	done chan h2.Status
}

func (r *result) Message(_ *h2.Batch, m []byte, _ *h2.Buf) { r.data = append([]byte{}, m...) }
func (r *result) Done(_ *h2.Batch, status h2.Status)       { r.done <- status }

// badCore accepts connections and lets a function answer each; it returns a pool to it.
func badCore(tb testing.TB, answer func(p *peer)) *h2.Pool {
	tb.Helper()
	return badCoreWithin(tb, nil, answer)
}

// badCoreWithin is badCore with a budget of answers.
func badCoreWithin(tb testing.TB, budget *h2.Budget, answer func(p *peer)) *h2.Pool {
	tb.Helper()
	l := listen(tb)
	tb.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				preface := make([]byte, len(http2.ClientPreface))
				if _, err := io.ReadFull(conn, preface); err != nil || string(preface) != http2.ClientPreface {
					return
				}
				answer(newPeer(tb, conn))
			}()
		}
	}()
	pool := h2.NewPool(context.Background(), h2.PoolConfig{
		Endpoints: []h2.Endpoint{{Address: l.Addr().String(), Authority: "core"}}, Connections: 1, DialTimeout: 2 * time.Second,
		KeepAlive: 500 * time.Millisecond, Answers: budget,
	})
	tb.Cleanup(pool.Close)
	return pool
}

// call makes one call.
func call(tb testing.TB, pool *h2.Pool) (h2.Status, []byte) {
	tb.Helper()
	r := &result{done: make(chan h2.Status, 1)}
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	if _, err := pool.Start(ctx, &h2.Request{Method: "/x"}, append(make([]byte, h2.MessageRoom), "hello"...), r); err != nil {
		var s h2.Status
		if !errors.As(err, &s) {
			tb.Fatal(err)
		}
		return s, nil
	}
	select {
	case s := <-r.done:
		return s, r.data
	case <-ctx.Done():
		tb.Fatal("the call does not end")
		return h2.Status{}, nil
	}
}

// next reads until a whole request came, and returns its stream.
func (p *peer) next() (uint32, bool) {
	for {
		f, err := p.ReadFrame()
		if err != nil {
			return 0, false
		}
		if d, ok := f.(*http2.DataFrame); ok && d.StreamEnded() {
			return d.StreamID, true
		}
	}
}

func TestBadAnswers(t *testing.T) {
	t.Parallel()
	head := []string{":status", "200", "content-type", "application/grpc"}
	const notGRPC = "etcd-storage-proxy: the core etcd answered with something else than gRPC"
	const lost = "etcd-storage-proxy: the connection to the core etcd was lost"
	for name, c := range map[string]struct {
		want   h2.Status
		data   string
		answer func(p *peer, id uint32)
	}{
		"well, in pieces": {h2.Status{Answered: true}, "hello", func(p *peer, id uint32) {
			p.headers(id, p.encode(head...), false)
			for _, b := range message("hello") {
				_ = p.WriteData(id, false, []byte{b})
			}
			p.headers(id, p.encode("grpc-status", "0"), true)
		}},
		"an error alone": {h2.Status{Code: codes.OutOfRange, Message: "a b%", Answered: true}, "", func(p *peer, id uint32) {
			p.headers(id, p.encode(append(head, "grpc-status", "11", "grpc-message", "a%20b%")...), true)
		}},
		"an error before the request has ended": {h2.Status{Code: codes.OutOfRange, Answered: true}, "", func(p *peer, id uint32) {
			p.headers(id, p.encode(append(head, "grpc-status", "11")...), true)
		}},
		"OK without a message": {h2.Status{Code: codes.Unavailable, Message: notGRPC}, "", func(p *peer, id uint32) {
			p.headers(id, p.encode(append(head, "grpc-status", "0")...), true)
		}},
		"two messages": {h2.Status{Code: codes.Unavailable, Message: notGRPC}, "hello", func(p *peer, id uint32) {
			p.headers(id, p.encode(head...), false)
			_ = p.WriteData(id, false, append(message("hello"), message("again")...))
		}},
		"an end without trailers": {h2.Status{Code: codes.Unavailable, Message: notGRPC}, "hello", func(p *peer, id uint32) {
			p.headers(id, p.encode(head...), false)
			_ = p.WriteData(id, true, message("hello"))
		}},
		"a web page": {h2.Status{Code: codes.Unavailable, Message: notGRPC}, "", func(p *peer, id uint32) {
			p.headers(id, p.encode(":status", "502", "content-type", "text/html"), false)
			_ = p.WriteData(id, true, []byte("<html>"))
		}},
		"a status that is none": {h2.Status{Code: codes.Unavailable, Message: notGRPC}, "", func(p *peer, id uint32) {
			p.headers(id, p.encode(append(head, "grpc-status", "fine")...), true)
		}},
		"a refusal": {h2.Status{Code: codes.Unavailable, Message: lost, Unprocessed: true}, "", func(p *peer, id uint32) {
			_ = p.WriteRSTStream(id, http2.ErrCodeRefusedStream)
		}},
		"a reset":  {h2.Status{Code: codes.Unavailable, Message: lost}, "", func(p *peer, id uint32) { _ = p.WriteRSTStream(id, http2.ErrCodeInternal) }},
		"a cancel": {h2.Status{Code: codes.Canceled, Message: "etcdserver: request canceled"}, "", func(p *peer, id uint32) { _ = p.WriteRSTStream(id, http2.ErrCodeCancel) }},
		"calm": {h2.Status{Code: codes.ResourceExhausted, Message: "etcd-storage-proxy: the core etcd asks for fewer requests"}, "", func(p *peer, id uint32) {
			_ = p.WriteRSTStream(id, http2.ErrCodeEnhanceYourCalm)
		}},
		"an end of the connection": {h2.Status{Code: codes.Unavailable, Message: lost}, "", func(p *peer, _ uint32) { _ = p.Conn.Close() }},
		"away, unseen": {h2.Status{Code: codes.Unavailable, Message: "etcd-storage-proxy: the core etcd is unreachable", Unprocessed: true}, "", func(p *peer, _ uint32) {
			_ = p.WriteGoAway(0, http2.ErrCodeNo, nil)
		}},
		"away, seen": {h2.Status{Answered: true}, "hello", func(p *peer, id uint32) {
			_ = p.WriteGoAway(id, http2.ErrCodeNo, nil)
			p.headers(id, p.encode(head...), false)
			_ = p.WriteData(id, false, message("hello"))
			p.headers(id, p.encode("grpc-status", "0"), true)
		}},
		"garbage": {h2.Status{Code: codes.Unavailable, Message: lost}, "", func(p *peer, _ uint32) { _ = p.WriteData(0, false, []byte("x")) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := badCore(t, func(p *peer) {
				_ = p.WriteSettings()
				for {
					id, ok := p.next()
					if !ok {
						return
					}
					c.answer(p, id)
				}
			})
			for range 2 { // the second time on the same connection, or on another one
				if got, data := call(t, pool); got != c.want || string(data) != c.data {
					t.Errorf("%+v with %q, want %+v with %q", got, data, c.want, c.data)
				}
			}
		})
	}
}

// TestNoCore are cores that accept connections and do not speak: calls fail, and nobody calls in a tight loop.
func TestNoCore(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(p *peer){
		"hangs up":      func(*peer) {},
		"says nothing":  func(p *peer) { _, _ = p.next() },
		"says nonsense": func(p *peer) { _, _ = io.WriteString(p.Conn, "HTTP/1.1 400 Bad Request\r\n\r\n") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var connections atomic.Int64
			pool := badCore(t, func(p *peer) {
				connections.Add(1)
				answer(p)
			})
			if got, _ := call(t, pool); got.Code != codes.Unavailable {
				t.Errorf("%+v", got)
			}
			if n := connections.Load(); n > 20 {
				t.Errorf("%d connections", n)
			}
		})
	}
}

// TestStreamsOfTheCore shows that calls wait for a stream when the core allows one at a time.
func TestStreamsOfTheCore(t *testing.T) {
	t.Parallel()
	var most, now atomic.Int64
	pool := badCore(t, func(p *peer) {
		_ = p.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1}, http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0})
		for {
			id, ok := p.next()
			if !ok {
				return
			}
			most.Store(max(most.Load(), now.Add(1)))
			p.headers(id, p.encode(":status", "200", "content-type", "application/grpc"), false)
			_ = p.WriteData(id, false, message("hello"))
			now.Add(-1)
			p.headers(id, p.encode("grpc-status", "0"), true)
		}
	})
	ended := make(chan h2.Status, 20)
	for range cap(ended) {
		go func() {
			s, _ := call(t, pool)
			ended <- s
		}()
	}
	for range cap(ended) {
		if s := <-ended; !s.OK() {
			t.Errorf("%+v", s)
		}
	}
	if most.Load() > 1 {
		t.Errorf("%d streams at once", most.Load())
	}
}

// keeper is a sink that keeps the buffer of its answer.
type keeper struct {
	result
	own *h2.Buf
}

func (k *keeper) Message(_ *h2.Batch, _ []byte, own *h2.Buf) { k.own = own }

// TestAnAnswerCountsUntilItIsReleased shows that the budget holds a large answer for as long as its buffer is in use, and not only until the call ends: what was
// passed on to a client that does not read is in memory.
func TestAnAnswerCountsUntilItIsReleased(t *testing.T) {
	t.Parallel()
	const size = 256 << 10
	budget := h2.NewBudget(1<<20, nil)
	pool := badCoreWithin(t, budget, func(p *peer) {
		_ = p.WriteSettings()
		id, ok := p.next()
		if !ok {
			return
		}
		p.headers(id, p.encode(":status", "200", "content-type", "application/grpc"), false)
		text := message(strings.Repeat("x", size))
		_ = p.WriteData(id, false, text[:16<<10]) // the size is known from here on, and the window for the rest is asked for
		for sent := 16 << 10; sent < len(text); {
			f, err := p.ReadFrame()
			if err != nil {
				return
			}
			if update, isUpdate := f.(*http2.WindowUpdateFrame); !isUpdate || update.StreamID != id {
				continue
			}
			for ; sent < len(text); sent += 16 << 10 {
				_ = p.WriteData(id, false, text[sent:min(len(text), sent+16<<10)])
			}
		}
		p.headers(id, p.encode("grpc-status", "0"), true)
		_, _ = io.Copy(io.Discard, p.Conn)
	})
	k := &keeper{result: result{done: make(chan h2.Status, 1)}}
	must.Get(pool.Start(t.Context(), &h2.Request{Method: "/x"}, append(make([]byte, h2.MessageRoom), "hello"...), k)).Or(t)
	if s := <-k.done; !s.OK() || k.own == nil {
		t.Fatalf("%+v, a buffer: %t", s, k.own != nil)
	}
	if held, _ := budget.Held(); held < size {
		t.Errorf("after the call the budget holds %d bytes of an answer of %d that is in use", held, size)
	}
	k.own.Release()
	if held, waiting := budget.Held(); held != 0 || waiting != 0 {
		t.Errorf("%d bytes are held after it was released, %d wait", held, waiting)
	}
}

// TestLazyPool shows that a pool makes no connection before the first call, and that closing one that made none works.
func TestLazyPool(t *testing.T) {
	t.Parallel()
	dialed := false
	pool := h2.NewPool(context.Background(), h2.PoolConfig{
		Endpoints: []h2.Endpoint{{Address: "core"}}, Connections: 1, DialTimeout: time.Second,
		Dialer: func(context.Context, string) (net.Conn, error) {
			dialed = true
			return nil, errors.New("no")
		},
	})
	pool.Close()
	if dialed {
		t.Error("it dialed")
	}
	if s, _ := call(t, pool); s.Code != codes.Unavailable {
		t.Errorf("after Close: %+v", s)
	}
}

// TestSilentCore shows that a core that answers nothing, pings included, does not keep calls for ever, and one that answers pings does.
func TestSilentCore(t *testing.T) {
	t.Parallel()
	silent := badCore(t, func(p *peer) {
		_ = p.WriteSettings()
		_, _ = io.Copy(io.Discard, p.Conn)
	})
	if got, _ := call(t, silent); got.Code != codes.Unavailable {
		t.Errorf("%+v", got)
	}
	slow := badCore(t, func(p *peer) {
		_ = p.WriteSettings()
		id, _ := p.next()
		for range 3 {
			for {
				f, err := p.ReadFrame()
				if err != nil {
					return
				}
				if ping, ok := f.(*http2.PingFrame); ok && !ping.IsAck() {
					_ = p.WritePing(true, ping.Data)
					break
				}
			}
		}
		p.headers(id, p.encode(":status", "200", "content-type", "application/grpc"), false)
		_ = p.WriteData(id, false, message("hello"))
		p.headers(id, p.encode("grpc-status", "0"), true)
	})
	if got, data := call(t, slow); !got.OK() || string(data) != "hello" {
		t.Errorf("%+v", got)
	}
}
