// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// TestKeepAliveEnds shows that a stream of keep-alives ends with the core's connection, even while nothing is asked.
func TestKeepAliveEnds(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var conns []net.Conn
	cfg := configure(t, testkit.NewEtcd(t).Endpoint)
	cfg.Upstream.Dialer = func(ctx context.Context, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			conns = append(conns, c)
		}
		return c, err
	}
	lease := pb.NewLeaseClient(raw(t, start(t, cfg).Endpoint))
	must.Get(lease.LeaseGrant(t.Context(), &pb.LeaseGrantRequest{ID: 7, TTL: 100})).Or(t)
	c := must.Get(lease.LeaseKeepAlive(t.Context())).Or(t)
	must.Do(t, c.Send(&pb.LeaseKeepAliveRequest{ID: 7}))
	if r, err := c.Recv(); err != nil || r.TTL != 100 {
		t.Fatal(r, err)
	}
	mu.Lock()
	for _, conn := range conns {
		_ = conn.Close()
	}
	mu.Unlock()
	ended := make(chan error, 1)
	go func() {
		_, err := c.Recv()
		ended <- err
	}()
	select {
	case err := <-ended:
		if status.Code(err) != codes.Unavailable {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(patience):
		t.Error("it goes on")
	}
}
