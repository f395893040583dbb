// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package h2_test

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/mooring-dev/mooring/internal/etcdstorage/proxy/h2"
)

// TestHungMemberGetsFewCalls shows that calls go to the connection with the fewest unanswered ones: a member of the core that hangs holds one of many that
// come one after the other, and not every second one.
func TestHungMemberGetsFewCalls(t *testing.T) {
	t.Parallel()
	good := newCore(t)
	var connected atomic.Bool
	var calls atomic.Int64 // of the hung member
	hung := listen(t)
	go func() { // it speaks HTTP/2 and answers nothing
		for {
			conn, err := hung.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				preface := make([]byte, len(http2.ClientPreface))
				if _, err := io.ReadFull(conn, preface); err != nil {
					return
				}
				peer := newPeer(t, conn)
				_ = peer.WriteSettings()
				connected.Store(true)
				for {
					switch f, err := peer.ReadFrame(); {
					case err != nil:
						return
					case f.Header().Type == http2.FrameHeaders:
						calls.Add(1)
					}
				}
			}()
		}
	}()
	pool := h2.NewPool(context.Background(), h2.PoolConfig{
		Endpoints:   []h2.Endpoint{{Address: good.Address, Authority: "core"}, {Address: hung.Addr().String(), Authority: "core"}},
		Connections: 2, DialTimeout: 5 * time.Second, KeepAlive: time.Hour,
		Dialer: func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		},
	})
	t.Cleanup(pool.Close)
	start := func() *result {
		r := &result{done: make(chan h2.Status, 1)}
		if _, err := pool.Start(t.Context(), &h2.Request{Method: "/test/echo"}, append(make([]byte, h2.MessageRoom), "hello"...), r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	start()
	eventually(t, "both members to be connected", connected.Load)
	for range 40 {
		before, r := calls.Load(), start()
		eventually(t, "an answer, or a call that hangs", func() bool { return len(r.done) > 0 || calls.Load() > before })
	}
	if hanging := calls.Load(); hanging > 10 {
		t.Errorf("%d of 40 calls hang", hanging)
	}
}
