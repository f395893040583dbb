// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package watch_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mooring-dev/mooring/internal/etcdstorage/proxy/watch"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy/wire"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// scriptedCore is a core whose every answer the test gives, so that the order of things is the test's.
type scriptedCore struct {
	tb      testing.TB
	hub     *hub
	creates chan creation // requests to create, on whatever stream
	logouts chan string
	tenant  *tenancy.Tenant
}

// creation is a request to create, and the stream that it came on: a catch-up stream may be a new one or one that was used before.
type creation struct {
	on *scriptedStream
	id int64
}

type scriptedStream struct {
	core      *scriptedCore
	tb        testing.TB
	ctx       context.Context //nolint:containedctx // as in gRPC
	requests  chan *pb.WatchRequest
	responses chan []byte
	retired   chan struct{}
}

func newScriptedCore(t *testing.T) *scriptedCore {
	t.Helper()
	prefix := must.Get(tenancy.ParsePrefix("/a/")).Or(t)
	c := &scriptedCore{tb: t, hub: &hub{}, creates: make(chan creation, 100), logouts: make(chan string, 100)}
	c.tenant = &tenancy.Tenant{Prefix: prefix, Leases: tenancy.DeriveLeaseSpace(prefix)}
	c.hub.Hub = watch.New(watch.Config{
		Tenant: c.tenant,
		Open: func(ctx context.Context, _ bool) (watch.CoreStream, error) {
			return &scriptedStream{core: c, tb: t, ctx: ctx, requests: make(chan *pb.WatchRequest, 1000), responses: make(chan []byte), retired: make(chan struct{})}, nil
		},
		Compacted: c.hub.compacted.Load,
		Load:      func(context.Context) error { return nil },
		Violation: func(err error) error { t.Error("violation:", err); return err },
		Panicked:  func(r any) error { panic(r) },

		QueueBytes: 1000, // a few messages
	})
	t.Cleanup(c.hub.Close)
	return c
}

// Send implements watch.CoreStream.
func (s *scriptedStream) Send(m []byte) error {
	r := &pb.WatchRequest{}
	if err := proto.Unmarshal(m, r); err != nil {
		return err
	}
	if w := r.GetCreateRequest(); w != nil {
		s.core.creates <- creation{s, w.WatchId}
		return nil
	}
	select {
	case s.requests <- r:
	case <-s.ctx.Done():
	}
	return nil
}

// Seen implements watch.CoreStream.
func (s *scriptedStream) Seen(wire.Header) {}

// Tenant implements watch.CoreStream.
func (s *scriptedStream) Tenant() *tenancy.Tenant { return s.core.tenant }

// LoggedOut implements watch.CoreStream.
func (s *scriptedStream) LoggedOut(message string) { s.core.logouts <- message }

// Retired implements watch.CoreStream.
func (s *scriptedStream) Retired() <-chan struct{} { return s.retired }

// Recv implements watch.CoreStream.
func (s *scriptedStream) Recv() ([]byte, error) {
	select {
	case m := <-s.responses:
		return m, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

// answer sends a message of the core.
func (s *scriptedStream) answer(r *pb.WatchResponse) {
	s.tb.Helper()
	m := must.Get(proto.Marshal(r)).Or(s.tb)
	select {
	case s.responses <- m:
	case <-time.After(patience):
		s.tb.Fatal("nobody reads the stream")
	}
}

// await takes requests up to one of a kind; repeated progress requests do not matter.
func await[T any](s *scriptedStream) *pb.WatchRequest {
	s.tb.Helper()
	deadline := time.After(patience)
	for {
		select {
		case r := <-s.requests:
			if _, ok := r.RequestUnion.(T); ok {
				return r
			}
		case <-deadline:
			s.tb.Fatalf("no %T came; the hub: %s", *new(T), s.core.hub.Dump())
		}
	}
}

func at(revision int64) *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: 1, MemberId: 1, RaftTerm: 1, Revision: revision}
}

// next waits for a request to create.
func (c *scriptedCore) next() creation {
	c.tb.Helper()
	select {
	case w := <-c.creates:
		return w
	case <-time.After(patience):
		c.tb.Fatal("no watch was asked for")
	}
	return creation{}
}

// made answers a request to create.
func (w creation) made(revision int64) (stream *scriptedStream, id int64) {
	w.on.tb.Helper()
	w.on.answer(&pb.WatchResponse{Header: at(revision), WatchId: w.id, Created: true})
	return w.on, w.id
}

// progressed answers the next progress request.
func (s *scriptedStream) progressed(revision int64) {
	s.tb.Helper()
	await[*pb.WatchRequest_ProgressRequest](s)
	s.answer(&pb.WatchResponse{Header: at(revision), WatchId: -1})
}

// canceled answers the next request to cancel.
func (s *scriptedStream) canceled() {
	s.tb.Helper()
	id := await[*pb.WatchRequest_CancelRequest](s).GetCancelRequest().WatchId
	s.answer(&pb.WatchResponse{Header: at(1), WatchId: id, Canceled: true})
}

// events sends one event per revision.
func (s *scriptedStream) events(id int64, fragment bool, revisions ...int64) {
	s.tb.Helper()
	r := &pb.WatchResponse{Header: at(revisions[len(revisions)-1]), WatchId: id, Fragment: fragment}
	for _, n := range revisions {
		r.Events = append(r.Events, &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte("/a/k"), CreateRevision: 1, ModRevision: n, Version: 2}})
	}
	s.answer(r)
}

// sees checks the client's next answers: "created", "progress R", "canceled R", or the revisions of the events.
func sees(tb testing.TB, r *reader, want ...string) {
	tb.Helper()
	for _, w := range want {
		a := r.next(tb)
		got := ""
		switch {
		case a.Created:
			got = "created"
		case a.Canceled:
			got = fmt.Sprint("canceled ", a.CompactRevision)
		case len(a.Events) == 0:
			got = fmt.Sprint("progress ", a.Header.Revision)
		}
		for _, e := range a.Events {
			got += fmt.Sprint(e.Kv.ModRevision, " ")
		}
		if a.Fragment {
			got += "… "
		}
		if got != w {
			tb.Fatalf("came %q, not %q", got, w)
		}
	}
}

// joined brings a watch from revision start on to the group whose feed it returns with the shared stream; it joins at revision.
func (c *scriptedCore) joined(r *reader, w *pb.WatchCreateRequest, start, revision int64) (shared *scriptedStream, id int64) {
	c.tb.Helper()
	w.StartRevision = start
	create(c.tb, r.c, w)
	private, _ := c.next().made(revision)
	private.progressed(revision)
	shared, id = c.next().made(revision)
	private.canceled()
	sees(c.tb, r, "created")
	return shared, id
}

// TestGroupCompacted ends the watches of a group that the core ends for compaction, but not those that were ahead of it.
func TestGroupCompacted(t *testing.T) {
	t.Parallel()
	c := newScriptedCore(t)
	first, second := read(c.hub.open(t.Context())), read(c.hub.open(t.Context()))
	shared, id := c.joined(first, on("k"), 5, 10)
	w := on("k")
	w.StartRevision = 21 // the group is at 10
	create(t, second.c, w)
	private, _ := c.next().made(20)
	private.canceled()
	sees(t, second, "created")
	shared.answer(&pb.WatchResponse{Header: &pb.ResponseHeader{ClusterId: 1, MemberId: 1, RaftTerm: 1}, WatchId: id, Canceled: true, CompactRevision: 21})
	sees(t, first, "canceled 21")
	const want = "etcd-storage-proxy: the core etcd compacted what a shared watch was to bring next, try again"
	if err := second.end(t); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the second stream ended with %v", err)
	}
	shared.canceled()
}

// TestBackPressure does not read a catch-up stream while its session's queue is full, and loses nothing.
func TestBackPressure(t *testing.T) {
	t.Parallel()
	c := newScriptedCore(t)
	slow := c.hub.open(t.Context())
	w := on("k")
	w.StartRevision = 1
	create(t, slow, w)
	private, id := c.next().made(100)
	go func() {
		for n := range int64(50) {
			private.events(id, false, n+1)
		}
	}()
	testkit.Eventually(t, "the stream to be held up", func() string {
		if dump := c.hub.Dump(); !strings.Contains(dump, "blocked true") {
			return dump
		}
		return ""
	})
	r := read(slow)
	sees(t, r, "created")
	for n := range int64(50) {
		sees(t, r, fmt.Sprintf("%d ", n+1))
	}
	if s := c.hub.Stats(); s.Slow != 0 {
		t.Errorf("%+v", s)
	}
}

// TestLogin shows what becomes of a login that ends while streams are open: a new watch is made on a new stream, which logs in again, and the shared
// stream, on which nothing can be made any more, is given up.
func TestLogin(t *testing.T) {
	t.Parallel()
	c := newScriptedCore(t)
	first := read(c.hub.open(t.Context()))
	shared, _ := c.joined(first, on("k"), 5, 10)
	refuse := func(w creation, reason error) {
		t.Helper()
		w.on.answer(&pb.WatchResponse{Header: at(10), WatchId: -1, Created: true, Canceled: true, CancelReason: reason.Error()})
		if got, want := <-c.logouts, rpctypes.ErrorDesc(reason); got != want {
			t.Errorf("the reason given was %q, not %q", got, want)
		}
	}
	second := read(c.hub.open(t.Context()))
	w := on("other")
	w.StartRevision = 11
	create(t, second.c, w)
	before := c.next()
	refuse(before, rpctypes.ErrGRPCInvalidAuthToken)
	after := c.next()
	if after.on == before.on {
		t.Error("the next attempt was on the same stream")
	}
	after.on.answer(&pb.WatchResponse{Header: at(10), WatchId: after.id, Created: true})
	sees(t, second, "created")
	group := c.next()
	if group.on != shared {
		t.Error("the group is not on the shared stream")
	}
	refuse(group, rpctypes.ErrGRPCAuthOldRevision)
	const want = "etcd-storage-proxy: the login to the core etcd ended, try again"
	if err := first.end(t); status.Code(err) != codes.Unavailable || status.Convert(err).Message() != want {
		t.Errorf("the first stream ended with %v", err)
	}
	again, _ := c.next().made(10) // for the second, whose own feed is still good
	if again == shared {
		t.Error("the group is on the stream that was given up")
	}
}
