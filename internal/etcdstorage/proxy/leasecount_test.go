// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// leaseCore is a core that makes leases, and whose answers about them the test holds back.
type leaseCore struct {
	pb.UnimplementedLeaseServer
	pb.UnimplementedKVServer
	listing chan struct{}                 // told of each request to list the leases
	list    chan int64                    // how many leases the answer has
	refusal atomic.Pointer[status.Status] // of a grant
	grants  atomic.Int64
	space   tenancy.LeaseSpace
}

func newLeaseCore(tb testing.TB) (c *leaseCore, address string) {
	tb.Helper()
	c = &leaseCore{space: tenant(tb, "/a/").Leases, listing: make(chan struct{}, 100), list: make(chan int64, 100)}
	l := must.Get(new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")).Or(tb)
	server := grpc.NewServer()
	pb.RegisterLeaseServer(server, c)
	pb.RegisterKVServer(server, c)
	go func() { _ = server.Serve(l) }()
	tb.Cleanup(server.Stop)
	return c, l.Addr().String()
}

// LeaseLeases lists leases of the tenant below /a/.
func (c *leaseCore) LeaseLeases(ctx context.Context, _ *pb.LeaseLeasesRequest) (*pb.LeaseLeasesResponse, error) {
	c.listing <- struct{}{}
	select {
	case n := <-c.list:
		r := &pb.LeaseLeasesResponse{Header: &pb.ResponseHeader{Revision: 1}}
		for i := range n {
			r.Leases = append(r.Leases, &pb.LeaseStatus{ID: c.space.Core(i + 1)})
		}
		return r, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Range finds nothing.
func (c *leaseCore) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	return &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: 1}}, nil
}

// LeaseGrant grants unless the test has it otherwise.
func (c *leaseCore) LeaseGrant(_ context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	c.grants.Add(1)
	if refusal := c.refusal.Load(); refusal != nil {
		return nil, refusal.Err()
	}
	return &pb.LeaseGrantResponse{Header: &pb.ResponseHeader{Revision: 1}, ID: r.ID, TTL: r.TTL}, nil
}

// LeaseRevoke revokes.
func (c *leaseCore) LeaseRevoke(context.Context, *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	return &pb.LeaseRevokeResponse{Header: &pb.ResponseHeader{Revision: 1}}, nil
}

// A lease can be revoked while leases are being counted, and so can all else be done: the answer is read where the count is read.
func TestRevokingDuringACount(t *testing.T) {
	t.Parallel()
	core, address := newLeaseCore(t)
	cfg := configure(t, address)
	cfg.Leases, cfg.Upstream.Connections = 5, 1
	c := pb.NewLeaseClient(raw(t, start(t, cfg).Endpoint))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	granted := make(chan error, 1)
	go func() {
		_, err := c.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 60, ID: 7})
		granted <- err
	}()
	<-core.listing
	short, end := context.WithTimeout(ctx, patience/4)
	defer end()
	if _, err := c.LeaseRevoke(short, &pb.LeaseRevokeRequest{ID: 1}); err != nil {
		t.Error("revoking while the leases are being counted:", err)
	}
	gaveUp, stop := context.WithTimeout(ctx, 10*time.Millisecond)
	defer stop()
	if _, err := c.LeaseGrant(gaveUp, &pb.LeaseGrantRequest{TTL: 60, ID: 8}); status.Code(err) != codes.DeadlineExceeded {
		t.Error("a second grant, which gives up before the count ends:", err)
	}
	core.list <- 3
	if err := <-granted; err != nil {
		t.Error("the grant that had the leases counted:", err)
	}
}

// A grant whose end is not known counts as granted: else a tenant that gives each up has as many leases as it likes. One that the core refused does
// not count.
func TestGrantsOfUnknownEnd(t *testing.T) {
	t.Parallel()
	core, address := newLeaseCore(t)
	cfg := configure(t, address)
	cfg.Leases = 3
	c := pb.NewLeaseClient(raw(t, start(t, cfg).Endpoint))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	grant := func() codes.Code {
		_, err := c.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 60})
		return status.Code(err)
	}
	core.list <- 0
	core.refusal.Store(status.New(codes.OutOfRange, "etcdserver: too large lease TTL"))
	for range 5 {
		if got := grant(); got != codes.OutOfRange {
			t.Errorf("the core refused, the tenant got %v", got)
		}
	}
	core.refusal.Store(status.New(codes.Unavailable, "etcdserver: request timed out"))
	for range 3 {
		if got := grant(); got != codes.Unavailable {
			t.Errorf("the core did not know, the tenant got %v", got)
		}
	}
	before := core.grants.Load()
	if got := grant(); got != codes.ResourceExhausted || core.grants.Load() != before {
		t.Errorf("after three grants of unknown end a fourth is answered %v", got)
	}
}
