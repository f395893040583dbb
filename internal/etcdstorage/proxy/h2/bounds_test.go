// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package h2_test

import (
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
)

// statuses counts the final statuses that come until the connection ends or enough have come.
func (p *peer) statuses(enough int) map[string]int {
	out := map[string]int{}
	for n := 0; n < enough; {
		f, err := p.ReadFrame()
		if err != nil {
			out["lost"]++
			return out
		}
		if h, ok := f.(*http2.MetaHeadersFrame); ok && h.StreamEnded() {
			for _, field := range h.RegularFields() {
				if field.Name == "grpc-status" {
					out[field.Value]++
					n++
				}
			}
		}
	}
	return out
}

// TestHeldRequests shows that requests that do not end are bounded, in unary and in streaming calls, that it is they that are refused and not their
// connection, and that the room exists again afterwards.
func TestHeldRequests(t *testing.T) {
	t.Parallel()
	whole := message(string(make([]byte, 1<<20)))
	for name, c := range map[string]struct {
		method string
		body   []byte
	}{
		"whole messages without an end": {"/test/echo", whole},
		"partial messages":              {"/test/echo", whole[:len(whole)-1]},
		"partial messages of streams":   {"/test/stream", whole[:len(whole)-1]},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, 1, newCore(t).Address)
			for range 2 {
				p := clientPeer(t, g.Address)
				go func() {
					for id := uint32(1); id < 2*200; id += 2 {
						p.headers(id, p.request(c.method), false)
						for body := c.body; len(body) > 0; {
							n := min(len(body), 16384)
							if p.WriteData(id, false, body[:n]) != nil {
								return
							}
							body = body[n:]
						}
					}
					p.headers(401, p.request("/test/refuse"), true)
				}()
				got := p.statuses(100)
				if got[fmtCode(codes.ResourceExhausted)] < 99 {
					t.Errorf("the answers: %v", got)
				}
				_ = p.Conn.Close()
			}
			conn := dial(t, g.Address)
			request, got := make([]byte, 1<<20), []byte(nil)
			eventually(t, "there is room again", func() bool { return conn.Invoke(t.Context(), "/test/echo", &request, &got) == nil })
		})
	}
}

// TestEmptyMessages shows that messages without bytes count too: a handler that does not receive stops their coming.
func TestEmptyMessages(t *testing.T) {
	t.Parallel()
	g := newGateway(t, 1, newCore(t).Address)
	p := clientPeer(t, g.Address)
	_ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}) // the handler blocks in Send
	p.headers(1, p.request("/test/stream"), false)
	var many []byte
	for len(many) < 16000 {
		many = append(many, message("")...)
	}
	go func() {
		for sent := 0; sent < 64<<20 && p.WriteData(1, false, many) == nil; sent += len(many) {
		}
	}()
	if got := p.answerTo(1); got.reset != http2.ErrCodeFlowControl {
		t.Errorf("64 MiB of empty messages are taken: %+v", got)
	}
}

// TestBadMessageEndsHandler shows that no handler outlives a streaming call that was refused for its message.
func TestBadMessageEndsHandler(t *testing.T) {
	t.Parallel()
	g := newGateway(t, 1, newCore(t).Address)
	p := clientPeer(t, g.Address)
	for id := uint32(1); id < 2*20; id += 2 {
		p.headers(id, p.request("/test/stream"), false)
		_ = p.WriteData(id, false, []byte{1, 0, 0, 0, 0})
		if got := p.answerTo(id); got.trailer["grpc-status"] != fmtCode(codes.Internal) {
			t.Errorf("%+v", got)
		}
	}
	_ = p.Conn.Close()
	eventually(t, "all handlers have returned", func() bool { return g.streaming.Load() == 0 })
}

// TestLastStream shows that a connection that is cut off names the streams that were looked at: grpc-go makes the others again, which a put must
// not be.
func TestLastStream(t *testing.T) {
	t.Parallel()
	g := newGateway(t, 1, newCore(t).Address)
	p := clientPeer(t, g.Address)
	p.headers(5, p.request("/test/hang"), false)
	_ = p.WriteData(5, true, message(""))
	_ = p.WriteData(0, false, []byte("x"))
	for {
		f := must.Get(p.ReadFrame()).Or(t)
		if away, ok := f.(*http2.GoAwayFrame); ok {
			if away.LastStreamID != 5 {
				t.Errorf("the last stream is %d, want 5", away.LastStreamID)
			}
			return
		}
	}
}
