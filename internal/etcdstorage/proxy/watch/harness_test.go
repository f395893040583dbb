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
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/mooring-dev/mooring/internal/etcdstorage/proxy"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/internal/testkit/tenantproxy"
)

// patience is how long an answer may take; on the busiest machine it takes less.
const patience = 20 * time.Second

func TestMain(m *testing.M) { testkit.Main(m) }

// serve runs a proxy for the tenant below /a/ until the test ends and returns its address. Its compact revision is kept in memory, so that it
// makes no revisions of its own.
func serve(tb testing.TB, core string, change ...func(*proxy.Config)) string {
	tb.Helper()
	cfg := must.Get(tenantproxy.Configure(core, "/a/", "a")).Or(tb)
	cfg.SystemPrefix = ""
	for _, c := range change {
		c(&cfg)
	}
	return tenantproxy.Serve(tb, cfg)
}

// side is one of the two places where a script runs: etcd itself, or a tenant of the proxy.
type side struct {
	tb    testing.TB
	name  string
	ctx   context.Context //nolint:containedctx // the test's
	kv    pb.KVClient
	watch pb.WatchClient
	lease pb.LeaseClient
	base  int64 // the store's revision when the script began
}

func connect(tb testing.TB, name, address string) *side {
	tb.Helper()
	conn, err := grpc.NewClient("passthrough:///"+strings.TrimPrefix(address, "http://"),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
	must.Do(tb, err)
	tb.Cleanup(func() { _ = conn.Close() })
	s := &side{tb: tb, name: name, ctx: tb.Context(), kv: pb.NewKVClient(conn), watch: pb.NewWatchClient(conn), lease: pb.NewLeaseClient(conn)}
	s.base = s.revision()
	return s
}

// both returns the two sides, each with an etcd of its own, so that revisions run alike.
func both(tb testing.TB) (direct, proxied *side) {
	tb.Helper()
	return connect(tb, "etcd", testkit.NewEtcd(tb).Endpoint), connect(tb, "proxy", serve(tb, testkit.NewEtcd(tb).Endpoint))
}

func (s *side) within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.ctx, patience)
}

func (s *side) revision() int64 {
	s.tb.Helper()
	ctx, cancel := s.within()
	defer cancel()
	r, err := s.kv.Range(ctx, &pb.RangeRequest{Key: []byte("any"), CountOnly: true})
	if err != nil {
		s.tb.Fatal(s.name, err)
	}
	return r.Header.Revision
}

func (s *side) put(key, value string) int64 {
	s.tb.Helper()
	ctx, cancel := s.within()
	defer cancel()
	r, err := s.kv.Put(ctx, &pb.PutRequest{Key: []byte(key), Value: []byte(value)})
	if err != nil {
		s.tb.Fatal(s.name, err)
	}
	return r.Header.Revision
}

func (s *side) remove(key, end string) {
	s.tb.Helper()
	ctx, cancel := s.within()
	defer cancel()
	if _, err := s.kv.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: []byte(key), RangeEnd: []byte(end)}); err != nil {
		s.tb.Fatal(s.name, err)
	}
}

func (s *side) compact(revision int64) {
	s.tb.Helper()
	ctx, cancel := s.within()
	defer cancel()
	if _, err := s.kv.Compact(ctx, &pb.CompactionRequest{Revision: revision, Physical: true}); err != nil {
		s.tb.Fatal(s.name, err)
	}
}

// stream is a Watch stream of a script; what it receives is written down with revisions counted from the side's base.
type stream struct {
	*side
	c   pb.Watch_WatchClient
	log []string
}

func (s *side) open() *stream {
	s.tb.Helper()
	c, err := s.watch.Watch(s.ctx)
	if err != nil {
		s.tb.Fatal(s.name, err)
	}
	return &stream{side: s, c: c}
}

func (s *stream) send(r *pb.WatchRequest) {
	s.tb.Helper()
	if err := s.c.Send(r); err != nil {
		s.tb.Fatal(s.name, err)
	}
}

// create asks for a watch; a revision given is relative to the base, unless it is not above 0.
func (s *stream) create(r *pb.WatchCreateRequest) {
	s.tb.Helper()
	if r.StartRevision > 0 {
		r.StartRevision += s.base
	}
	s.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}})
}

func (s *stream) cancel(id int64) {
	s.tb.Helper()
	s.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: id}}})
}

func (s *stream) progress() {
	s.tb.Helper()
	s.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
}

// receive returns the next answer.
func (s *stream) receive() *pb.WatchResponse {
	s.tb.Helper()
	type result struct {
		r   *pb.WatchResponse
		err error
	}
	got := make(chan result, 1)
	go func() {
		r, err := s.c.Recv()
		got <- result{r, err}
	}()
	select {
	case r := <-got:
		if r.err != nil {
			s.tb.Fatalf("%s: %v after\n%s", s.name, r.err, strings.Join(s.log, "\n"))
		}
		return r.r
	case <-time.After(patience):
		s.tb.Fatalf("%s: no response after\n%s", s.name, strings.Join(s.log, "\n"))
	}
	return nil
}

// expect writes down the next n answers.
func (s *stream) expect(n int) {
	s.tb.Helper()
	for range n {
		s.log = append(s.log, s.describe(s.receive()))
	}
}

// fence proves that nothing else is to come: a watch of its own, created and fired, brings the next three answers.
func (s *stream) fence() {
	s.tb.Helper()
	s.create(&pb.WatchCreateRequest{Key: []byte("fence"), WatchId: 9999})
	s.expect(1)
	s.put("fence", "")
	s.expect(1)
	s.cancel(9999)
	s.expect(1)
}

// describe writes an answer with all that a client can see but the identity of the cluster, and the revision of the answer to a cancellation,
// which is the store's in etcd and the last one seen in the proxy.
func (s *stream) describe(r *pb.WatchResponse) string {
	var b strings.Builder
	fmt.Fprintf(&b, "watch %d", r.WatchId)
	if r.Header.GetRevision() == 0 {
		b.WriteString(" revision 0")
	} else if !r.Canceled || r.Created {
		fmt.Fprintf(&b, " revision +%d", r.Header.GetRevision()-s.base)
	}
	if r.Header.GetClusterId() == 0 || r.Header.GetMemberId() == 0 || r.Header.GetRaftTerm() == 0 {
		b.WriteString(" with an incomplete header")
	}
	if r.Created {
		b.WriteString(" created")
	}
	if r.Canceled {
		fmt.Fprintf(&b, " canceled %q", r.CancelReason)
	}
	if r.CompactRevision != 0 {
		fmt.Fprintf(&b, " compacted +%d", r.CompactRevision-s.base)
	}
	if r.Fragment {
		b.WriteString(" fragment")
	}
	for _, e := range r.Events {
		fmt.Fprintf(&b, " | %s %s", e.Type, s.version(e.Kv))
		if e.PrevKv != nil {
			fmt.Fprintf(&b, " before %s", s.version(e.PrevKv))
		}
	}
	return b.String()
}

func (s *stream) version(kv *mvccpb.KeyValue) string {
	value := string(kv.Value)
	if len(value) > 20 {
		value = fmt.Sprintf("%d bytes", len(value))
	}
	create := kv.CreateRevision
	if create != 0 {
		create -= s.base
	}
	return fmt.Sprintf("%q=%q@%d.%d.%d", kv.Key, value, create, kv.ModRevision-s.base, kv.Version)
}

// compare runs a script on both sides and compares what they saw.
func compare(t *testing.T, script func(s *stream)) {
	t.Helper()
	direct, proxied := both(t)
	d, p := direct.open(), proxied.open()
	script(d)
	d.fence()
	script(p)
	p.fence()
	for i := range max(len(d.log), len(p.log)) {
		var want, got string
		if i < len(d.log) {
			want = d.log[i]
		}
		if i < len(p.log) {
			got = p.log[i]
		}
		if want != got {
			t.Errorf("answer %d\n etcd:  %s\n proxy: %s", i, want, got)
		}
	}
	if t.Failed() || testing.Verbose() {
		t.Logf("etcd:\n%s", strings.Join(d.log, "\n"))
	}
}
