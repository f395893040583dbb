// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/mooring-dev/mooring/internal/etcdstorage/quota"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// TestKeysAreCountedInOneRequest: the core looks at each key once, whatever their number is, and not at all that are left for each page.
func TestKeysAreCountedInOneRequest(t *testing.T) {
	t.Parallel()
	core := testkit.NewEtcdWith(t)
	const keys = 5_000
	fillKeys(t, core.Client, "", keys)
	cfg := configure(t, core.Endpoint)
	cfg.Quota = quota.Limits{Keys: 2 * keys}
	s := start(t, cfg)
	counted(t, s, keys)
	const want = `grpc_server_handled_total{grpc_code="OK",grpc_method="RangeStream",grpc_service="etcdserverpb.KV",grpc_type="server_stream"}`
	if n := testkit.Scrape(t, core.Endpoint, nil)[want]; n != 1 {
		t.Errorf("the core has served %v streams, want 1", n)
	}
}

// TestKeysAreCountedInPages is the same with a core that does not stream, as etcd before 3.7.
func TestKeysAreCountedInPages(t *testing.T) {
	t.Parallel()
	core := testkit.NewEtcdWith(t)
	const keys = 3_000
	fillKeys(t, core.Client, "", keys)
	old := &oldCore{kv: pb.NewKVClient(raw(t, strings.TrimPrefix(core.Endpoint, "http://")))}
	l := must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")).Or(t)
	server := grpc.NewServer()
	pb.RegisterKVServer(server, old)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	cfg := configure(t, l.Addr().String())
	cfg.Quota = quota.Limits{Keys: 2 * keys}
	s := start(t, cfg)
	counted(t, s, keys)
	if got := old.streams.Load(); got != 1 {
		t.Errorf("it tried to stream %d times", got)
	}
}

// oldCore is a core that has no RangeStream.
type oldCore struct {
	pb.UnimplementedKVServer
	kv      pb.KVClient
	streams atomic.Int64
}

// Range implements etcd's KV service.
func (c *oldCore) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	return c.kv.Range(ctx, r)
}

// RangeStream implements etcd's KV service.
func (c *oldCore) RangeStream(r *pb.RangeRequest, s grpc.ServerStreamingServer[pb.RangeStreamResponse]) error {
	c.streams.Add(1)
	return c.UnimplementedKVServer.RangeStream(r, s)
}

// A read that came before the tenant's record was read waits for that, and not for the count of its keys.
func TestReadsDoNotWaitForTheCount(t *testing.T) {
	t.Parallel()
	core := newHeldCore(t, testkit.NewEtcd(t).Endpoint)
	counting := newHeldCore(t, core.Endpoint)
	defer counting.hold(pb.KV_RangeStream_FullMethodName, false)()
	release := core.hold(pb.KV_Range_FullMethodName, false) // which the record is read with
	defer release()
	cfg := configure(t, counting.Endpoint)
	cfg.Quota = quota.Limits{Keys: 10}
	s := start(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	read := make(chan error, 1)
	go func() {
		_, err := pb.NewKVClient(raw(t, s.Endpoint)).Range(ctx, &pb.RangeRequest{Key: []byte("k")})
		read <- err
	}()
	testkit.Eventually(t, "the read to wait, and the count", func() string {
		if metric(t, s.Registry, "mooring_etcdstorage_proxy_requests_in_flight") < 1 || core.begun.Load() < 1 || counting.begun.Load() < 1 {
			return "not yet"
		}
		return ""
	})
	release()
	if err := <-read; err != nil {
		t.Errorf("while the keys are counted: %v", err)
	}
	if got := counting.working.Load(); got != 1 {
		t.Errorf("%d counts are under way, want 1", got)
	}
}

// counted waits until a proxy has counted its tenant's keys: it is ready before.
func counted(tb testing.TB, s *served, keys float64) {
	tb.Helper()
	testkit.Eventually(tb, "the keys to be counted", func() string {
		if got := metric(tb, s.Registry, "mooring_etcdstorage_proxy_keys"); got != keys {
			return fmt.Sprintf("counted %v", got)
		}
		return ""
	})
}
