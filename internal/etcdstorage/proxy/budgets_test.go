// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mooring-dev/mooring/internal/etcdstorage/proxy"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// refusedBy reports whether an error is the refusal of a budget: it names it and tells when to try again.
func refusedBy(err error, budget string) bool {
	if err == nil {
		return false
	}
	text := err.Error()
	return strings.Contains(text, fmt.Sprintf("etcdserver: too many requests: the tenant's budget %q (--", budget)) && strings.Contains(text, "try again ")
}

// metric sums a metric over the series whose labels contain the given values.
func metric(tb testing.TB, registry *prometheus.Registry, name string, values ...string) (sum float64) {
	tb.Helper()
	families := must.Get(registry.Gather()).Or(tb)
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
	series:
		for _, m := range family.GetMetric() {
			for _, value := range values {
				found := false
				for _, label := range m.GetLabel() {
					found = found || label.GetValue() == value
				}
				if !found {
					continue series
				}
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

// noneInFlight waits until the metric of RPCs that are being answered is 0.
func noneInFlight(tb testing.TB, p *served) {
	tb.Helper()
	testkit.Eventually(tb, "requests_in_flight to be 0", func() string {
		if n := metric(tb, p.Registry, "mooring_etcdstorage_proxy_requests_in_flight"); n != 0 {
			return fmt.Sprint(n, " are in flight")
		}
		return ""
	})
}

// Every RPC that costs the core takes a token of the rate, also those that the proxy answers with a call of its own, and those that begin a stream.
func TestEveryRPCIsPaced(t *testing.T) {
	t.Parallel()
	core := testkit.NewEtcd(t)
	calls := map[string]proto.Message{
		etcdserverpb.KV_Range_FullMethodName:              &etcdserverpb.RangeRequest{Key: []byte("k")},
		etcdserverpb.KV_RangeStream_FullMethodName:        &etcdserverpb.RangeRequest{Key: []byte("k")},
		etcdserverpb.KV_Put_FullMethodName:                &etcdserverpb.PutRequest{Key: []byte("k")},
		etcdserverpb.KV_Txn_FullMethodName:                &etcdserverpb.TxnRequest{},
		etcdserverpb.KV_DeleteRange_FullMethodName:        &etcdserverpb.DeleteRangeRequest{Key: []byte("k")},
		etcdserverpb.KV_Compact_FullMethodName:            &etcdserverpb.CompactionRequest{Revision: 1},
		etcdserverpb.Lease_LeaseGrant_FullMethodName:      &etcdserverpb.LeaseGrantRequest{TTL: 5},
		etcdserverpb.Lease_LeaseRevoke_FullMethodName:     &etcdserverpb.LeaseRevokeRequest{ID: 1},
		etcdserverpb.Lease_LeaseTimeToLive_FullMethodName: &etcdserverpb.LeaseTimeToLiveRequest{ID: 1},
		etcdserverpb.Lease_LeaseLeases_FullMethodName:     &etcdserverpb.LeaseLeasesRequest{},
		etcdserverpb.Lease_LeaseKeepAlive_FullMethodName:  &etcdserverpb.LeaseKeepAliveRequest{ID: 1},
		etcdserverpb.Watch_Watch_FullMethodName: &etcdserverpb.WatchRequest{
			RequestUnion: &etcdserverpb.WatchRequest_CancelRequest{CancelRequest: &etcdserverpb.WatchCancelRequest{WatchId: 1}},
		},
		etcdserverpb.Maintenance_Status_FullMethodName: &etcdserverpb.StatusRequest{},
		etcdserverpb.Maintenance_Alarm_FullMethodName:  &etcdserverpb.AlarmRequest{},
		etcdserverpb.Cluster_MemberList_FullMethodName: &etcdserverpb.MemberListRequest{},
		etcdserverpb.Auth_AuthStatus_FullMethodName:    &etcdserverpb.AuthStatusRequest{},
	}
	for method, request := range calls {
		cfg := configure(t, core.Endpoint)
		cfg.UnitsPerSecond, cfg.InFlight = 0.01, 1
		p := start(t, cfg)
		conn := raw(t, p.Endpoint)
		call := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
			if err != nil {
				return err
			}
			if err := stream.SendMsg(request); err != nil && !errors.Is(err, io.EOF) { // then the answer says why
				return err
			}
			_ = stream.CloseSend()
			return stream.RecvMsg(&etcdserverpb.CompactionResponse{})
		}
		if method == etcdserverpb.Watch_Watch_FullMethodName { // it has no answer
			go func() { _ = call() }()
			testkit.Eventually(t, "the first watch stream", func() string {
				if metric(t, p.Registry, "mooring_etcdstorage_proxy_watch_streams") == 0 {
					return "it has not begun"
				}
				return ""
			})
		} else if err := call(); refusedBy(err, "rate") {
			t.Errorf("%s: the first: %v", method, err)
		}
		if err := call(); !refusedBy(err, "rate") || status.Code(err) != codes.ResourceExhausted {
			t.Errorf("%s: the second: %v", method, err)
		}
		if got := metric(t, p.Registry, "mooring_etcdstorage_proxy_refused_total", "rate"); got != 1 {
			t.Errorf("%s: the metric counts %v refusals", method, got)
		}
		p.stop()
	}
}

// slowCore is a core whose KV service does not respond until it may, and does not notice when a caller is gone, as etcd within an apply.
type slowCore struct {
	etcdserverpb.UnimplementedKVServer
	Endpoint string
	begun    atomic.Int64 // requests that are worked on
	most     atomic.Int64
	release  chan struct{}
}

func newSlowCore(t *testing.T) *slowCore {
	t.Helper()
	s := &slowCore{release: make(chan struct{})}
	l := must.Get(net.Listen("tcp", "127.0.0.1:0")).Or(t)
	s.Endpoint = l.Addr().String()
	server := grpc.NewServer()
	etcdserverpb.RegisterKVServer(server, s)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	return s
}

// Range answers keys that end with "free" at once.
func (s *slowCore) Range(_ context.Context, r *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	if !strings.HasSuffix(string(r.Key), "free") {
		if n := s.begun.Add(1); n > s.most.Load() {
			s.most.Store(n)
		}
		<-s.release
		s.begun.Add(-1)
	}
	return &etcdserverpb.RangeResponse{Header: &etcdserverpb.ResponseHeader{Revision: 1}}, nil
}

// A seat is taken until the core has done with the request, not until the tenant has given it up; and what was given up is not in flight for ever.
func TestSeatsOfRequestsThatWereGivenUp(t *testing.T) {
	t.Parallel()
	core := newSlowCore(t)
	cfg := configure(t, core.Endpoint)
	cfg.SystemPrefix, cfg.InFlight = "", 2
	p := start(t, cfg)
	kv := etcdserverpb.NewKVClient(raw(t, p.Endpoint))
	var work sync.WaitGroup
	for range 30 {
		work.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // on a busy machine the first takes long to arrive
			defer cancel()
			if _, err := kv.Range(ctx, &etcdserverpb.RangeRequest{Key: []byte("slow")}); status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("got %v", err)
			}
		})
	}
	work.Wait()
	noneInFlight(t, p)
	if most := core.most.Load(); most != 2 {
		t.Errorf("%d requests were with the core at one time, want 2", most)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := kv.Range(ctx, &etcdserverpb.RangeRequest{Key: []byte("free")}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("there was a seat while the core worked on two requests: %v", err)
	}
	close(core.release)
	if _, err := kv.Range(t.Context(), &etcdserverpb.RangeRequest{Key: []byte("free")}); err != nil {
		t.Errorf("after the core had done: %v", err)
	}
	noneInFlight(t, p)
}

// Small requests pass while all that the tenant may list at one time is being listed.
func TestListsDoNotHoldSmallRequestsUp(t *testing.T) {
	t.Parallel()
	core := newSlowCore(t)
	cfg := configure(t, core.Endpoint)
	cfg.SystemPrefix, cfg.InFlight = "", 4
	p := start(t, cfg)
	kv := etcdserverpb.NewKVClient(raw(t, p.Endpoint))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var work sync.WaitGroup
	for range 20 {
		work.Go(func() { _, _ = kv.Range(ctx, &etcdserverpb.RangeRequest{Key: []byte("list"), RangeEnd: []byte{0}}) })
	}
	testkit.Eventually(t, "a list to be with the core", func() string {
		if core.begun.Load() == 0 {
			return "there is none"
		}
		return ""
	})
	for range 100 {
		soon, cancel := context.WithTimeout(t.Context(), patience)
		if _, err := kv.Range(soon, &etcdserverpb.RangeRequest{Key: []byte("free")}); err != nil {
			t.Errorf("a small request: %v", err)
		}
		cancel()
	}
	if most := core.most.Load(); most != 1 {
		t.Errorf("%d lists were with the core at one time, want 1 of 4 seats", most)
	}
	cancel()
	work.Wait()
	close(core.release)
}

// What is refused before a handler has it is not in flight for ever.
func TestRefusedMessagesAreNotInFlight(t *testing.T) {
	t.Parallel()
	core := testkit.NewEtcd(t)
	p := start(t, configure(t, core.Endpoint))
	conn := raw(t, p.Endpoint)
	for range 10 {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, etcdserverpb.KV_Range_FullMethodName)
		must.Do(t, err)
		for range 2 { // a unary call has one
			_ = stream.SendMsg(&etcdserverpb.RangeRequest{Key: []byte("k")})
		}
		_ = stream.CloseSend()
		if err := stream.RecvMsg(&etcdserverpb.RangeResponse{}); status.Code(err) != codes.Internal {
			t.Errorf("got %v", err)
		}
		cancel()
	}
	noneInFlight(t, p)
}

// Keep-alives and the messages of watch streams have a rate: in any time there are no more answers than the burst and the rate allow.
func TestRatesOfMessages(t *testing.T) {
	t.Parallel()
	core := testkit.NewEtcd(t)
	cfg := configure(t, core.Endpoint)
	cfg.KeepAlivesPerSecond, cfg.WatchMessagesPerSecond = 20, 20 // the burst is two seconds' worth
	p := start(t, cfg)
	conn := raw(t, p.Endpoint)
	const messages = 60
	begun := time.Now()
	allowed := func(what string, answers int) {
		t.Helper()
		if most := 40 + 20*time.Since(begun).Seconds() + 1; float64(answers) > most {
			t.Errorf("%s: %d answers in %s, want at most %.0f", what, answers, time.Since(begun), most)
		}
	}
	var work sync.WaitGroup
	work.Go(func() {
		stream, err := etcdserverpb.NewLeaseClient(conn).LeaseKeepAlive(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		for n := range messages {
			if err := stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: 1}); err != nil {
				t.Error(err)
			}
			if _, err := stream.Recv(); err != nil {
				t.Error(err)
			}
			allowed("keep-alives", n+1)
		}
	})
	work.Go(func() {
		stream, err := etcdserverpb.NewWatchClient(conn).Watch(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		create := &etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{
			CreateRequest: &etcdserverpb.WatchCreateRequest{Key: []byte("k")},
		}}
		for n := range messages {
			if err := stream.Send(create); err != nil {
				t.Error(err)
			}
			if _, err := stream.Recv(); err != nil {
				t.Error(err)
			}
			allowed("watches", n+1)
		}
	})
	work.Wait()
	if time.Since(begun) > time.Second {
		return // the messages were slower than the rate, so that none had to wait
	}
	for _, limit := range []string{"keep-alives", "watch-messages"} {
		if metric(t, p.Registry, "mooring_etcdstorage_proxy_waited_total", limit) == 0 {
			t.Errorf("none is counted that waited for the budget %s", limit)
		}
	}
}

// A connection may have no more streams open than its bound, all of them together no more than theirs.
func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	core := testkit.NewEtcd(t)
	cfg := configure(t, core.Endpoint)
	cfg.Streams, cfg.StreamsPerConnection = 10, 6
	p := start(t, cfg)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	open := func(conn *grpc.ClientConn) error {
		stream, err := etcdserverpb.NewWatchClient(conn).Watch(ctx)
		if err != nil {
			return err
		}
		_, err = stream.Recv()
		return err
	}
	var byBudget, atTheEnd atomic.Int64
	var work sync.WaitGroup
	for range 3 {
		conn := raw(t, p.Endpoint)
		for range 8 {
			work.Go(func() {
				switch err := open(conn); {
				case refusedBy(err, "streams"):
					byBudget.Add(1)
				case status.Code(err) == codes.Canceled: // it was open, or grpc-go waited for room on the connection
					atTheEnd.Add(1)
				default:
					t.Errorf("got %v", err)
				}
			})
		}
	}
	testkit.Eventually(t, "as many streams as may be, and others refused", func() string {
		if n := metric(t, p.Registry, "mooring_etcdstorage_proxy_watch_streams"); n != 10 || byBudget.Load() == 0 {
			return fmt.Sprint(n, " streams, ", byBudget.Load(), " refused")
		}
		return ""
	})
	end()
	work.Wait()
	if atTheEnd.Load() < 10 {
		t.Errorf("%d were refused, %d were open or waited", byBudget.Load(), atTheEnd.Load())
	}
	noneInFlight(t, p)
}

// countingDialer counts what the core sends.
func countingDialer(cfg *proxy.Config) *atomic.Int64 {
	var bytes atomic.Int64
	cfg.Upstream.Dialer = func(ctx context.Context, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		return countingConn{c, &bytes}, err
	}
	return &bytes
}

type countingConn struct {
	net.Conn
	bytes *atomic.Int64
}

func (c countingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.bytes.Add(int64(n))
	return n, err
}

// fill stores that many MiB.
func fill(tb testing.TB, core string, mebibytes int) {
	tb.Helper()
	direct := client(tb, core)
	for n := range mebibytes {
		must.Get(direct.Put(tb.Context(), fmt.Sprintf("/a/fill/%05d", n), strings.Repeat("v", 1<<20))).Or(tb)
	}
}

// A thousand answers of 20 MiB that nobody reads, streams or not, are no more of the core's work than the budgets let in.
func TestUnreadAnswersStayAtTheCore(t *testing.T) {
	t.Parallel()
	core := testkit.NewEtcd(t)
	fill(t, core.Endpoint, 20)
	for _, method := range []string{etcdserverpb.KV_RangeStream_FullMethodName, etcdserverpb.KV_Range_FullMethodName} {
		cfg := configure(t, core.Endpoint)
		cfg.InFlight, cfg.AnswerBytes = 8, 32<<20
		bytes := countingDialer(&cfg)
		p := start(t, cfg)
		ctx, cancel := context.WithCancel(t.Context())
		conn := raw(t, p.Endpoint)
		for range 1000 {
			stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
			if err == nil {
				err = stream.SendMsg(&etcdserverpb.RangeRequest{Key: []byte("fill/"), RangeEnd: []byte("fill0")})
			}
			if err == nil {
				err = stream.CloseSend()
			}
			must.Do(t, err)
		}
		testkit.Eventually(t, "all requests to have come", func() string {
			if n := metric(t, p.Registry, "mooring_etcdstorage_proxy_requests_in_flight", method); n < 990 {
				return fmt.Sprint(n)
			}
			return ""
		})
		if _, err := p.Client.Put(t.Context(), "small", "request"); err != nil {
			t.Errorf("a small request meanwhile: %v", err)
		}
		if got := bytes.Load(); got > 64<<20 {
			t.Errorf("%s: the core has sent %d MiB, with a budget of 32", method, got>>20)
		}
		cancel()
		noneInFlight(t, p)
		list, err := p.Client.Get(t.Context(), "fill/", clientv3.WithPrefix())
		if err != nil || len(list.Kvs) != 20 {
			t.Errorf("%s: a client that reads: %v", method, err)
		}
		p.stop()
	}
}

// An answer that is larger than the budget passes alone; one that is larger than that is refused in words.
func TestAnswersBeyondTheBudget(t *testing.T) {
	t.Parallel()
	core := testkit.NewEtcd(t)
	fill(t, core.Endpoint, 14)
	cfg := configure(t, core.Endpoint)
	cfg.AnswerBytes = 12 << 20
	p := start(t, cfg)
	var work sync.WaitGroup
	for range 8 {
		work.Go(func() {
			list, err := p.Client.Get(t.Context(), "fill/", clientv3.WithPrefix())
			if err != nil || len(list.Kvs) != 14 || len(list.Kvs[13].Value) != 1<<20 || string(list.Kvs[13].Key) != "fill/00013" {
				t.Errorf("got %v", err)
			}
		})
	}
	work.Wait()
	if metric(t, p.Registry, "mooring_etcdstorage_proxy_waited_total", "answers") == 0 {
		t.Error("eight at one time, and none waited")
	}
	cfg.AnswerBytes = 8 << 20
	_, err := start(t, cfg).Client.Get(t.Context(), "fill/", clientv3.WithPrefix())
	if status.Code(err) != codes.ResourceExhausted && !strings.Contains(fmt.Sprint(err), "read in pages") {
		t.Errorf("got %v", err)
	}
}

// A get of an object pays for the bytes that it has, and not for those that a list might have had. One that was large when
// it was read last pays for all of them beforehand.
func TestObjectsPayForTheirBytes(t *testing.T) {
	t.Parallel()
	cfg := configure(t, testkit.NewEtcd(t).Endpoint)
	cfg.UnitsPerSecond = 1000
	p := start(t, cfg)
	must.Get(p.Client.Put(t.Context(), "large", strings.Repeat("v", 100<<10))).Or(t)
	for n := range 16 { // of which it expects their average at first
		must.Get(p.Client.Put(t.Context(), fmt.Sprint("small", n), strings.Repeat("v", 8<<10))).Or(t)
	}
	for _, row := range []struct {
		key  string
		want float64
	}{{"small0", 1 + 7.0/16}, {"small0", 1 + 7.0/16}, {"large", 1 + 99.0/16}, {"large", 1 + 100.0/16}} {
		before := p.units(t)
		must.Get(p.Client.Get(t.Context(), row.key)).Or(t)
		testkit.Eventually(t, "the price of a get", func() string {
			if got := p.units(t) - before; math.Abs(got-row.want) > 0.1 {
				return fmt.Sprintf("%s: paid %.2f units, want %.2f", row.key, got, row.want)
			}
			return ""
		})
	}
}

// Bytes have a price: what is read, while small requests pass, and what is written.
func TestBytesHaveAPrice(t *testing.T) {
	t.Parallel()
	core := testkit.NewEtcd(t)
	fill(t, core.Endpoint, 4)
	cfg := configure(t, core.Endpoint)
	cfg.UnitsPerSecond = 128 // 2 MiB are read in a second, or 256 KiB are written: less than the slowest machine does
	p := start(t, cfg)
	for range 6 {
		if _, err := p.Client.Get(t.Context(), "fill/", clientv3.WithPrefix()); err != nil && !refusedBy(err, "rate") {
			t.Errorf("got %v", err)
		}
		if _, err := p.Client.Get(t.Context(), "small"); err != nil {
			t.Errorf("a small request after a list: %v", err)
		}
	}
	lists := metric(t, p.Registry, "mooring_etcdstorage_proxy_waited_total", "rate")
	var refused int
	for range 16 {
		var work sync.WaitGroup
		var n atomic.Int64
		for range 4 {
			work.Go(func() {
				if _, err := p.Client.Put(t.Context(), "k", strings.Repeat("v", 1<<20)); refusedBy(err, "rate") {
					n.Add(1)
				} else if err != nil {
					t.Errorf("got %v", err)
				}
			})
		}
		work.Wait()
		if refused += int(n.Load()); refused > 0 {
			break
		}
	}
	if refused == 0 || lists == 0 {
		t.Errorf("%d writes were refused, and lists waited %v times", refused, lists)
	}
}

// A client that reads nothing keeps no room that others wait for: its connection is closed when answers wait for room, and its RangeStreams end.
func TestWhoReadsNothingMakesRoom(t *testing.T) {
	t.Parallel()
	core := testkit.NewEtcd(t)
	fill(t, core.Endpoint, 10)
	cfg := configure(t, core.Endpoint)
	cfg.AnswerBytes, cfg.Look, cfg.InFlight = 12<<20, 300*time.Millisecond, 4
	fromCore := countingDialer(&cfg)
	p := start(t, cfg)
	p.SetReadPatience(300 * time.Millisecond)
	must.Do(t, p.Ready(t.Context()))
	unread := func(method string) grpc.ClientStream {
		stream, err := raw(t, p.Endpoint).NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, method, grpc.MaxCallRecvMsgSize(64<<20))
		if err == nil {
			err = stream.SendMsg(&etcdserverpb.RangeRequest{Key: []byte("fill/"), RangeEnd: []byte("fill0")})
		}
		if err == nil {
			err = stream.CloseSend()
		}
		must.Do(t, err)
		return stream
	}
	for _, method := range []string{etcdserverpb.KV_RangeStream_FullMethodName, etcdserverpb.KV_Range_FullMethodName} {
		before := fromCore.Load()
		stream := unread(method)
		testkit.Eventually(t, "the call to have room for its response", func() string {
			if fromCore.Load()-before < 64<<10 {
				return "nothing has come from the core"
			}
			return ""
		})
		if list, err := p.Client.Get(t.Context(), "fill/", clientv3.WithPrefix()); err != nil || len(list.Kvs) != 10 {
			t.Errorf("a client that reads, alongside %s: %v", method, err)
		}
		var err error
		for err == nil {
			err = stream.RecvMsg(&etcdserverpb.CompactionResponse{})
		}
		if method == etcdserverpb.KV_RangeStream_FullMethodName && status.Code(err) != codes.ResourceExhausted {
			t.Errorf("the stream ended with %v", err)
		}
	}
}
