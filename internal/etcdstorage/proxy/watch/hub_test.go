// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package watch_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/etcdstorage/proxy"
	"github.com/mooring-dev/mooring/internal/etcdstorage/proxy/watch"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// reader reads a client's stream in a goroutine of its own.
type reader struct {
	c   client
	all chan *pb.WatchResponse
	err chan error
}

func read(c client) *reader {
	r := &reader{c: c, all: make(chan *pb.WatchResponse, 10000), err: make(chan error, 1)}
	go func() {
		for {
			a, err := c.Recv()
			if err != nil {
				r.err <- err
				close(r.all)
				return
			}
			r.all <- a
		}
	}()
	return r
}

func (r *reader) next(tb testing.TB) *pb.WatchResponse {
	tb.Helper()
	select {
	case a, ok := <-r.all:
		if ok {
			return a
		}
		tb.Fatal("the stream ended: ", <-r.err)
	case <-time.After(patience):
		tb.Fatal("no response")
	}
	return nil
}

// end waits for the stream's error.
func (r *reader) end(tb testing.TB) error {
	tb.Helper()
	select {
	case err := <-r.err:
		return err
	case <-time.After(patience):
		tb.Fatal("the stream goes on")
	}
	return nil
}

func create(tb testing.TB, c client, r *pb.WatchCreateRequest) {
	tb.Helper()
	must.Do(tb, c.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}}))
}

func progress(tb testing.TB, c client) {
	tb.Helper()
	if err := c.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}); err != nil {
		tb.Fatal(err)
	}
}

// TestProgressOfOthers shows that a watch that catches up holds up nobody else's progress.
func TestProgressOfOthers(t *testing.T) {
	t.Parallel()
	etcd := testkit.NewEtcd(t)
	h := newHub(t, etcd.Endpoint, 4<<10)
	for i := range 200 {
		must.Get(etcd.Client.Put(t.Context(), "/a/k", fmt.Sprint(i, strings.Repeat("x", 8<<10)))).Or(t)
	}
	behind := h.open(t.Context())
	old := on("k")
	old.StartRevision = etcd.Revision(t) - 190
	create(t, behind, old) // and nobody reads it
	quick := read(h.open(t.Context()))
	create(t, quick.c, on("k"))
	quick.next(t)
	for range 5 {
		progress(t, quick.c)
		if a := quick.next(t); a.WatchId != -1 || a.Header.Revision < etcd.Revision(t) {
			t.Errorf("instead of progress came %v", a)
		}
	}
	if s := h.Stats(); s.Private != 1 || s.Slow != 0 {
		t.Errorf("the slow one should be held up on its own stream: %+v", s)
	}
	// It goes on where it was, at its own pace, and loses nothing.
	r := read(behind)
	for next := old.StartRevision; next <= etcd.Revision(t); {
		for _, e := range r.next(t).Events {
			if e.Kv.ModRevision != next {
				t.Fatalf("revision %d came instead of %d", e.Kv.ModRevision, next)
			}
			next++
		}
	}
	testkit.Eventually(t, "it to share", func() string {
		if s := h.Stats(); s.Private != 0 || s.Groups != 1 {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
}

// TestSlowReader shows that a stream whose client does not read ends, and that no other waits for it.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	etcd := testkit.NewEtcd(t)
	h := newHub(t, etcd.Endpoint, 64<<10)
	slow, quick := h.open(t.Context()), read(h.open(t.Context()))
	create(t, slow, on("k"))
	create(t, quick.c, on("k"))
	quick.next(t)
	testkit.Eventually(t, "both to share", func() string {
		if s := h.Stats(); s.Watchers != 2 || s.Private != 0 {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
	for range 40 {
		must.Get(etcd.Client.Put(t.Context(), "/a/k", strings.Repeat("x", 8<<10))).Or(t)
		if a := quick.next(t); len(a.Events) != 1 {
			t.Fatalf("instead of the event came %v", a)
		}
	}
	const want = "etcd-storage-proxy: the watch stream was ended because its client reads too slowly"
	select {
	case <-slow.ended: // though nobody reads it
	case <-time.After(patience):
		t.Fatal("the slow stream goes on")
	}
	if err := slow.err; status.Code(err) != codes.Unavailable || status.Convert(err).Message() != want {
		t.Errorf("the slow stream ended with %v", err)
	}
	if s := h.Stats(); s.Slow != 1 || s.Sessions != 1 {
		t.Errorf("%+v", s)
	}
}

// TestManyHistories opens many streams that want a long history and do not read it: what the hub holds for them is bounded, those that hold
// it up end, and one that reads gets all of it.
func TestManyHistories(t *testing.T) {
	t.Parallel()
	etcd := testkit.NewEtcd(t)
	const size = 256 << 10
	first := etcd.Revision(t) + 1
	for range 20 {
		must.Get(etcd.Client.Put(t.Context(), "/a/k", strings.Repeat("x", size))).Or(t)
	}
	h := newHub(t, etcd.Endpoint, 1<<20, func(c *watch.Config) {
		c.Turns, c.TotalBytes, c.Patience = 4, 4<<20, 200*time.Millisecond
	})
	w := on("k")
	w.StartRevision = first
	var idle []*memoryStream
	for range 30 {
		c := h.open(t.Context())
		idle = append(idle, c)
		create(t, c, w)
	}
	var next, most atomic.Int64
	next.Store(first)
	go func() { // as clients do, it takes up its watch again if it was taken for a slow one, which can be on a busy machine
		for next.Load() < first+20 && t.Context().Err() == nil {
			c := h.open(t.Context())
			again := on("k")
			again.StartRevision = next.Load()
			if c.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: again}}) != nil {
				continue
			}
			for next.Load() < first+20 {
				a, err := c.Recv()
				if err != nil {
					break
				}
				for _, e := range a.Events {
					if !next.CompareAndSwap(e.Kv.ModRevision, e.Kv.ModRevision+1) {
						t.Errorf("revision %d came instead of %d", e.Kv.ModRevision, next.Load())
					}
				}
			}
		}
	}()
	testkit.Eventually(t, "the one that reads to have all", func() string {
		s := h.Stats()
		if s.Private > 4 {
			t.Errorf("more than four at a time: %+v", s)
		}
		most.Store(max(most.Load(), int64(s.Bytes)))
		if next.Load() < first+20 {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
	// Each turn may go beyond the bound by a response of the core, which is up to 2 MiB here.
	if n := most.Load(); n > (4+4*2)<<20 {
		t.Errorf("%d bytes waited", n)
	}
	for _, c := range idle {
		go func() { <-c.responses }() // the first answer
	}
	testkit.Eventually(t, "the others to end", func() string {
		if s := h.Stats(); s.Slow < 10 {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
}

// TestLostCore shows that the end of the connection is the end of every stream, shared or not.
func TestLostCore(t *testing.T) {
	t.Parallel()
	etcd := testkit.NewEtcd(t)
	var dialer cutter
	address := serve(t, etcd.Endpoint, func(c *proxy.Config) { c.Upstream.Dialer = dialer.dial })
	s := connect(t, "proxy", address)
	shared := must.Get(s.watch.Watch(t.Context())).Or(t)
	behind := must.Get(s.watch.Watch(t.Context())).Or(t)
	a, b := read(shared), read(behind)
	create(t, shared, on("k"))
	a.next(t)
	progress(t, shared)
	a.next(t) // only those that share are told
	future := on("k")
	future.StartRevision = s.base + 1000
	create(t, behind, future)
	b.next(t)
	dialer.cut()
	for _, r := range []*reader{a, b} {
		if err := r.end(t); status.Code(err) != codes.Unavailable || !strings.HasPrefix(status.Convert(err).Message(), "etcd-storage-proxy: ") {
			t.Errorf("the stream ended with %v", err)
		}
	}
	testkit.Eventually(t, "watches to work again", func() string {
		again, err := s.watch.Watch(t.Context())
		if err != nil {
			return err.Error()
		}
		if err := again.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: on("k")}}); err != nil {
			return err.Error()
		}
		if _, err := again.Recv(); err != nil {
			return err.Error()
		}
		return ""
	})
}

// TestRefusedRequests shows how streams end whose client sends what cannot be read.
func TestRefusedRequests(t *testing.T) {
	t.Parallel()
	h := newHub(t, testkit.NewEtcd(t).Endpoint, 0)
	for _, bad := range []string{"\xff", "\x0a\x05k", "\x22\x00", "\x0a\x02\x78\x01"} {
		m := h.open(t.Context())
		m.requests <- []byte(bad)
		if err := read(m).end(t); status.Code(err) == codes.OK || status.Code(err) == codes.Unavailable {
			t.Errorf("%q ended the stream with %v", bad, err)
		}
	}
}

// TestThroughTheProxy is TestNothingLostNothingTwice over gRPC at both ends.
func TestThroughTheProxy(t *testing.T) {
	t.Parallel()
	random := cases.Rand(t)
	c := newCampaign(t)
	var dialer cutter
	s := connect(t, "proxy", serve(t, c.etcd.Endpoint, func(c *proxy.Config) { c.Upstream.Dialer = dialer.dial }))
	run(t, c, random, 2*time.Second, func(ctx context.Context) (client, error) { return s.watch.Watch(ctx) }, func() {
		switch random.IntN(8) {
		case 0:
			dialer.cut()
		case 1:
			c.mu.Lock()
			to := max(c.compacted, c.truthTo-random.Int64N(20))
			c.compacted = to
			c.mu.Unlock()
			_, _ = s.kv.Compact(t.Context(), &pb.CompactionRequest{Revision: to})
		}
	}, func() string { return "" })
}

// cutter dials, and cuts what it dialed.
type cutter struct{ hub }

func (c *cutter) dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.conns = append(c.conns, conn)
	}
	return conn, err
}

// TestLeader shows that hasleader reaches the core: a core without a leader ends such streams with its own error, and no others.
func TestLeader(t *testing.T) {
	t.Parallel()
	core := newFakeCore(t)
	s := connect(t, "proxy", serve(t, core.address))
	with := must.Get(s.watch.Watch(metadata.AppendToOutgoingContext(t.Context(), "hasleader", "true"))).Or(t)
	without := must.Get(s.watch.Watch(t.Context())).Or(t)
	a, b := read(with), read(without)
	for _, r := range []*reader{a, b} {
		create(t, r.c, on("k"))
		r.next(t)
	}
	close(core.noLeader)
	if err := a.end(t); status.Code(err) != codes.Unavailable || status.Convert(err).Message() != "etcdserver: no leader" {
		t.Errorf("the stream ended with %v", err)
	}
	progress(t, without)
	if r := b.next(t); r.WatchId != -1 {
		t.Errorf("instead of progress came %v", r)
	}
}
