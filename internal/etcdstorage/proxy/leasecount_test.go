// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/testkit"
)

// A lease can be revoked while leases are being counted, and so can all else be done: the answer is read where the count is read.
func TestRevokingDuringACount(t *testing.T) {
	t.Parallel()
	core := newHeldCore(t, testkit.NewEtcd(t).Endpoint)
	release := core.hold(pb.Lease_LeaseLeases_FullMethodName, false)
	cfg := configure(t, core.Endpoint)
	cfg.Leases, cfg.Upstream.Connections = 5, 1
	c := pb.NewLeaseClient(raw(t, start(t, cfg).Endpoint))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	granted := make(chan error, 1)
	go func() {
		_, err := c.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 60, ID: 7})
		granted <- err
	}()
	testkit.Eventually(t, "the leases to be counted", func() string {
		if core.working.Load() == 0 {
			return "not yet"
		}
		return ""
	})
	short, end := context.WithTimeout(ctx, patience/4)
	defer end()
	if _, err := c.LeaseRevoke(short, &pb.LeaseRevokeRequest{ID: 1}); status.Code(err) != codes.NotFound {
		t.Error("revoking while the leases are being counted:", err)
	}
	gaveUp, stop := context.WithTimeout(ctx, 10*time.Millisecond)
	defer stop()
	if _, err := c.LeaseGrant(gaveUp, &pb.LeaseGrantRequest{TTL: 60, ID: 8}); status.Code(err) != codes.DeadlineExceeded {
		t.Error("a second grant, which gives up before the count ends:", err)
	}
	release()
	if err := <-granted; err != nil {
		t.Error("the grant that had the leases counted:", err)
	}
}

// A grant whose end is not known counts as granted: else a tenant that gives each up has as many leases as it likes. One that the core refused does
// not count.
func TestGrantsOfUnknownEnd(t *testing.T) {
	t.Parallel()
	core := newHeldCore(t, testkit.NewEtcd(t).Endpoint)
	cfg := configure(t, core.Endpoint)
	cfg.Leases = 3
	proxy := start(t, cfg)
	c := pb.NewLeaseClient(raw(t, proxy.Endpoint))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	testkit.Eventually(t, "the proxy to have its own lease", func() string { return text(proxy.Ready(ctx)) })
	grant := func() codes.Code {
		_, err := c.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 60})
		return status.Code(err)
	}
	core.refuses(pb.Lease_LeaseGrant_FullMethodName, status.Error(codes.OutOfRange, "etcdserver: too large lease TTL"))()
	for range 5 {
		if got := grant(); got != codes.OutOfRange {
			t.Errorf("the core refused, the tenant got %v", got)
		}
	}
	core.refuses(pb.Lease_LeaseGrant_FullMethodName, status.Error(codes.Unavailable, "etcdserver: request timed out"))()
	for range 3 {
		if got := grant(); got != codes.Unavailable {
			t.Errorf("the core did not know, the tenant got %v", got)
		}
	}
	before := core.begun.Load()
	if got := grant(); got != codes.ResourceExhausted || core.begun.Load() != before {
		t.Errorf("after three grants of unknown end a fourth is answered %v", got)
	}
}
