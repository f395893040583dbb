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
				_ = newPeer(t, conn).WriteSettings()
				connected.Store(true)
				_, _ = io.Copy(io.Discard, conn)
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
	hanging := 0
	for range 40 {
		select {
		case s := <-start().done:
			if !s.OK() {
				hanging++
			}
		case <-time.After(200 * time.Millisecond): // on a busy machine a good answer may take as long: it is counted all the same
			hanging++
		}
	}
	if hanging > 10 {
		t.Errorf("%d of 40 calls hang", hanging)
	}
}
