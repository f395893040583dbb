// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mooring-dev/mooring/internal/etcdstorage/quota"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// heldCore passes calls on to an etcd. Those of some methods it holds until it may work on them, and it does not notice
// when their callers are gone, as etcd within an apply.
type heldCore struct {
	Endpoint string
	etcd     *grpc.ClientConn
	server   *grpc.Server

	mu      sync.Mutex
	methods string // that are held, with spaces between
	refuse  error  // in place of passing on
	release chan struct{}

	begun, working, most atomic.Int64 // calls that are held, since hold was called
	follows              atomic.Bool  // the proxy watches the tenant's record, after it has read it
}

func newHeldCore(t *testing.T, etcd string) *heldCore {
	t.Helper()
	h := &heldCore{}
	h.etcd = must.Get(grpc.NewClient("passthrough:///"+strings.TrimPrefix(etcd, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(testkit.Bytes{}), grpc.MaxCallRecvMsgSize(1<<30)))).Or(t)
	h.server = grpc.NewServer(grpc.ForceServerCodecV2(testkit.Bytes{}), grpc.UnknownServiceHandler(h.handle))
	l := must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")).Or(t)
	h.Endpoint = l.Addr().String()
	go func() { _ = h.server.Serve(l) }()
	t.Cleanup(func() {
		h.hold("", false)()
		h.server.Stop()
		_ = h.etcd.Close()
	})
	return h
}

// hold holds the calls of methods, with spaces between, until what it returns is called. Then they are passed on or
// refused.
func (h *heldCore) hold(methods string, refuse bool) (release func()) {
	if refuse {
		return h.refuses(methods, status.Error(codes.FailedPrecondition, "held core: refused"))
	}
	return h.refuses(methods, nil)
}

// refuses holds the calls of methods, to refuse them with this error when what it returns is called; nil passes them on
// then.
func (h *heldCore) refuses(methods string, with error) (release func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := make(chan struct{})
	h.methods, h.refuse, h.release = methods, with, held
	h.begun.Store(0)
	h.most.Store(0)
	return sync.OnceFunc(func() { close(held) })
}

func (h *heldCore) holds(method string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(strings.Fields(h.methods), method)
}

func (h *heldCore) handle(_ any, caller grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(caller)
	if !h.holds(method) {
		return h.pass(caller.Context(), method, caller, nil)
	}
	var request []byte
	if err := caller.RecvMsg(&request); err != nil {
		return err
	}
	h.mu.Lock() // only now: a large request takes a while to arrive, and what is held can change
	refuse, release := h.refuse, h.release
	h.mu.Unlock()
	if bytes.Contains(request, []byte("/replicas/")) { // the proxy's own
		return h.pass(caller.Context(), method, caller, &request)
	}
	h.begun.Add(1)
	if n := h.working.Add(1); n > h.most.Load() {
		h.most.Store(n)
	}
	defer h.working.Add(-1)
	<-release
	if refuse != nil {
		return refuse
	}
	return h.pass(context.WithoutCancel(caller.Context()), method, caller, &request)
}

// pass copies both directions; of a call that was held, its one request.
func (h *heldCore) pass(ctx context.Context, method string, caller grpc.ServerStream, request *[]byte) error {
	incoming, _ := metadata.FromIncomingContext(ctx)
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(ctx, metadata.MD{"hasleader": incoming.Get("hasleader")}))
	defer cancel()
	stream, err := h.etcd.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		return err
	}
	go func() {
		defer func() { _ = stream.CloseSend() }()
		if request != nil {
			_ = stream.SendMsg(request)
			return
		}
		for {
			var message []byte
			if err := caller.RecvMsg(&message); err != nil {
				return
			}
			if method == etcdserverpb.Watch_Watch_FullMethodName && bytes.Contains(message, []byte("/compact-revision")) {
				h.follows.Store(true)
			}
			_ = stream.SendMsg(&message)
		}
	}()
	for {
		var message []byte
		if err := stream.RecvMsg(&message); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := caller.SendMsg(&message); err != nil {
			return err
		}
	}
}

// kind is one kind of call.
type kind struct {
	method  string // of the tenant's call
	held    string // of the core's call in which its work is done; method if it is ""
	request func(n int64) proto.Message
	seats   int64
	// work is what one call makes the core do, whether anyone hears of it or not.
	work quota.Work
	// streams is set for those that go on after their first response.
	streams bool
	// answers bounds the bytes of responses; 0 is the usual bound.
	answers int64
}

const (
	endKeys    = 200 // with those that deletes are tried on, few enough for a count of unknown size to be a small request
	endValue   = 8 << 10
	endSeats   = 4
	endTries   = 12
	endDeletes = 2
)

func rangeOf(prefix string) *etcdserverpb.RangeRequest {
	return &etcdserverpb.RangeRequest{Key: []byte(prefix), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(prefix))}
}

// endKinds are all RPCs that need the core, and what makes a difference within one. The tenant has endKeys of endValue below keys/.
func endKinds() map[string]kind {
	of := func(m proto.Message) func(int64) proto.Message { return func(int64) proto.Message { return m } }
	const lists = 1 // of a few
	var revision atomic.Int64
	all := quota.Work{Calls: 1, Keys: endKeys, Values: endKeys, Read: endKeys * endValue}
	logged := quota.Work{Calls: 1, Logged: 1}
	count, filtered, large := rangeOf("keys/"), rangeOf("keys/"), strings.Repeat("v", 64<<10)
	count.CountOnly, filtered.MaxModRevision = true, 1
	page := rangeOf("keys/")
	page.Limit = endKeys
	put := &etcdserverpb.PutRequest{Key: []byte("put"), Value: []byte(large)}
	txn := &etcdserverpb.TxnRequest{Success: []*etcdserverpb.RequestOp{
		{Request: &etcdserverpb.RequestOp_RequestPut{RequestPut: put}}, {Request: &etcdserverpb.RequestOp_RequestRange{RequestRange: count}},
	}}
	future := &etcdserverpb.RangeRequest{Key: []byte("k"), Revision: 1 << 40}
	compare := &etcdserverpb.TxnRequest{
		Compare: []*etcdserverpb.Compare{{
			Result: etcdserverpb.Compare_GREATER, Target: etcdserverpb.Compare_CREATE, Key: page.Key, RangeEnd: page.RangeEnd,
			TargetUnion: &etcdserverpb.Compare_CreateRevision{},
		}},
		Success: []*etcdserverpb.RequestOp{
			{Request: &etcdserverpb.RequestOp_RequestRange{RequestRange: future}}, {Request: &etcdserverpb.RequestOp_RequestPut{RequestPut: &etcdserverpb.PutRequest{Key: []byte("k")}}},
		},
	}
	return map[string]kind{
		"get":       {method: etcdserverpb.KV_Range_FullMethodName, request: of(&etcdserverpb.RangeRequest{Key: []byte("keys/0000001")}), seats: endSeats, work: quota.Work{Calls: 1}},
		"list":      {method: etcdserverpb.KV_Range_FullMethodName, request: of(rangeOf("keys/")), seats: lists, work: all},
		"page":      {method: etcdserverpb.KV_Range_FullMethodName, request: of(page), seats: lists, work: all},
		"count":     {method: etcdserverpb.KV_Range_FullMethodName, request: of(count), seats: endSeats, work: quota.Work{Calls: 1, Keys: endKeys}},
		"too large": {method: etcdserverpb.KV_Range_FullMethodName, request: of(rangeOf("keys/")), seats: lists, work: all, answers: endKeys * endValue / 2},
		"filter":    {method: etcdserverpb.KV_Range_FullMethodName, request: of(filtered), seats: lists, work: quota.Work{Calls: 1, Keys: endKeys, Values: endKeys, Scanned: endKeys * endValue}},
		"stream":    {method: etcdserverpb.KV_RangeStream_FullMethodName, request: of(rangeOf("keys/")), seats: lists, work: quota.Work{Calls: 1, Keys: endKeys, Read: streamed}, streams: true},
		"put":       {method: etcdserverpb.KV_Put_FullMethodName, request: of(put), seats: lists, work: quota.Work{Calls: 1, Logged: 1, Written: 64 << 10}},
		"put to a lost lease": {method: etcdserverpb.KV_Put_FullMethodName, request: of(&etcdserverpb.PutRequest{Key: []byte("put"), Value: []byte(large), Lease: 77}), seats: lists,
			work: quota.Work{Calls: 1, Logged: 1, Written: 64 << 10}},
		"compare of large values, and a future revision": {method: etcdserverpb.KV_Txn_FullMethodName, request: of(compare), seats: lists,
			work: quota.Work{Calls: 1, Logged: 1, Keys: endKeys, Values: endKeys, Scanned: endKeys * endValue}},
		"txn": {method: etcdserverpb.KV_Txn_FullMethodName, request: of(txn), seats: lists, work: quota.Work{Calls: 1, Logged: 1, Written: 64 << 10, Keys: endKeys}},
		"delete": {method: etcdserverpb.KV_DeleteRange_FullMethodName, request: func(n int64) proto.Message {
			r := rangeOf(fmt.Sprintf("gone/%d/", n))
			return &etcdserverpb.DeleteRangeRequest{Key: r.Key, RangeEnd: r.RangeEnd}
		}, seats: lists, work: quota.Work{Calls: 1, Logged: 1, Keys: endDeletes, Deleted: endDeletes}},
		"compact": {method: etcdserverpb.KV_Compact_FullMethodName, held: etcdserverpb.KV_Txn_FullMethodName, request: func(int64) proto.Message {
			return &etcdserverpb.CompactionRequest{Revision: revision.Add(1)}
		}, seats: endSeats, work: quota.Work{Calls: 1}},
		"grant":  {method: etcdserverpb.Lease_LeaseGrant_FullMethodName, request: of(&etcdserverpb.LeaseGrantRequest{TTL: 600}), seats: endSeats, work: logged},
		"revoke": {method: etcdserverpb.Lease_LeaseRevoke_FullMethodName, request: of(&etcdserverpb.LeaseRevokeRequest{ID: 77}), seats: endSeats, work: logged},
		"ttl":    {method: etcdserverpb.Lease_LeaseTimeToLive_FullMethodName, request: of(&etcdserverpb.LeaseTimeToLiveRequest{ID: 77}), seats: endSeats, work: quota.Work{Calls: 1}},
		"leases": {method: etcdserverpb.Lease_LeaseLeases_FullMethodName, request: of(&etcdserverpb.LeaseLeasesRequest{}), seats: lists, work: quota.Work{Calls: 1, Values: endLeases}},
		"status": {method: etcdserverpb.Maintenance_Status_FullMethodName, request: of(&etcdserverpb.StatusRequest{}), seats: endSeats, work: quota.Work{Calls: 1}},
		"alarm":  {method: etcdserverpb.Maintenance_Alarm_FullMethodName, request: of(&etcdserverpb.AlarmRequest{}), held: etcdserverpb.KV_Range_FullMethodName, seats: endSeats, work: quota.Work{Calls: 1}},
		"members": {method: etcdserverpb.Cluster_MemberList_FullMethodName, request: of(&etcdserverpb.MemberListRequest{Linearizable: true}), held: etcdserverpb.KV_Range_FullMethodName, seats: endSeats,
			work: quota.Work{Calls: 1}},
		"auth": {method: etcdserverpb.Auth_AuthStatus_FullMethodName, request: of(&etcdserverpb.AuthStatusRequest{}), held: etcdserverpb.KV_Range_FullMethodName, seats: endSeats, work: quota.Work{Calls: 1}},
	}
}

const (
	streamed  = 1 << 20 // of a RangeStream there is room for as much on the way
	endLeases = 200
)

// once makes a call and returns at its end, or after its first response.
func (k kind) once(ctx context.Context, conn *grpc.ClientConn, n int64, first bool) error {
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, k.method, grpc.MaxCallRecvMsgSize(1<<30), grpc.ForceCodecV2(testkit.Bytes{}))
	if err != nil {
		return err
	}
	request, err := proto.Marshal(k.request(n))
	if err != nil {
		return err
	}
	if err := stream.SendMsg(&request); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	_ = stream.CloseSend()
	var answer []byte
	for {
		if err := stream.RecvMsg(&answer); err != nil || first {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// ways are those in which calls end. Each makes endTries calls, of which the core gets as many as there are seats.
func ways() map[string]func(t *testing.T, w *endScene) {
	return map[string]func(*testing.T, *endScene){
		"answered": func(t *testing.T, w *endScene) {
			t.Helper()
			w.held(false)
			w.begin(t.Context(), w.conn)
			w.full(t)
			w.release()
		},
		"refused by the core": func(t *testing.T, w *endScene) {
			t.Helper()
			w.held(true)
			w.begin(t.Context(), w.conn)
			w.full(t)
			w.release()
		},
		"canceled": func(t *testing.T, w *endScene) {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			w.held(false)
			w.begin(ctx, w.conn)
			w.full(t)
			cancel()
			w.stillFull(t)
		},
		"canceled after its first response": func(t *testing.T, w *endScene) {
			t.Helper()
			w.held(false)
			w.first = true
			w.begin(t.Context(), w.conn)
			w.full(t)
			w.release()
		},
		"past its deadline": func(t *testing.T, w *endScene) {
			t.Helper()
			w.held(false)
			// On a busy machine the first may be over before they are with the core.
			for most := 200 * time.Millisecond; w.core.working.Load() == 0; most *= 2 {
				ctx, cancel := context.WithTimeout(t.Context(), most)
				w.begin(ctx, w.conn)
				w.calls.Wait()
				cancel()
			}
			w.stillFull(t)
		},
		"its connection closed": func(t *testing.T, w *endScene) {
			t.Helper()
			conn := raw(t, w.p.Endpoint)
			w.held(false)
			w.begin(t.Context(), conn)
			w.full(t)
			_ = conn.Close()
			w.stillFull(t)
		},
		"the core gone": func(t *testing.T, w *endScene) {
			t.Helper()
			w.held(false)
			w.begin(t.Context(), w.conn)
			w.full(t)
			go w.core.server.Stop() // it waits for its handlers
			w.calls.Wait()
			w.release()
		},
	}
}

// endScene is a kind of call in one proxy.
type endScene struct {
	kind
	tenant  string // of its own: others would share the seats
	p       *served
	core    *heldCore
	conn    *grpc.ClientConn
	release func()
	first   bool // response is the last that anyone waits for
	calls   sync.WaitGroup
	next    atomic.Int64
}

func (w *endScene) held(refuse bool) {
	method := w.kind.held
	if method == "" {
		method = w.method
	}
	w.release = w.core.hold(method, refuse)
}

func (w *endScene) begin(ctx context.Context, conn *grpc.ClientConn) {
	for range endTries {
		w.calls.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			_ = w.once(ctx, conn, w.next.Add(1), w.first)
		})
	}
}

// full waits until all seats are taken.
func (w *endScene) full(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, "the calls to be with the core", func() string {
		if n := w.core.working.Load(); n < w.seats {
			return fmt.Sprint(n, " are")
		}
		return ""
	})
}

// stillFull reports whether the seats of calls that were given up are taken until the core has done: others do not get to it.
func (w *endScene) stillFull(t *testing.T) {
	t.Helper()
	w.calls.Wait()
	noneInFlight(t, w.p)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	w.begin(ctx, w.conn)
	w.calls.Wait()
	if n := w.core.working.Load(); n == 0 {
		t.Error("none is with the core, so that nothing is tested")
	}
	noneInFlight(t, w.p) // a call that the proxy does not know to be given up would get the seat
	w.release()
}

// Whatever the kind of a call is, and however it ends, no more calls are with the core at one time than there are seats,
// those that were given up included, and what the core has done is paid for before another has the seat.
func TestEveryEndOfEveryCallIsPaidFor(t *testing.T) {
	t.Parallel()
	etcd := testkit.NewEtcd(t)
	var puts []clientv3.Op
	for i := range endKeys {
		puts = append(puts, clientv3.OpPut(fmt.Sprintf("/a/keys/%07d", i), strings.Repeat("v", endValue)))
	}
	for part := range slices.Chunk(puts, 100) {
		must.Get(etcd.Client.Txn(t.Context()).Then(part...).Commit()).Or(t)
	}
	for i := range endLeases {
		must.Get(etcdserverpb.NewLeaseClient(etcd.Client.ActiveConnection()).LeaseGrant(t.Context(),
			&etcdserverpb.LeaseGrantRequest{TTL: 600, ID: int64(1)<<62 + int64(i)})).Or(t)
	}
	for range len(ways()) * 3 * endTries { // compactions need as many revisions
		must.Get(etcd.Client.Put(t.Context(), "/b/k", "")).Or(t)
	}
	for name, k := range endKinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k.everyWay(t, etcd)
		})
	}
}

// everyWay ends calls of one kind in every way. How large a response is the proxy does not know before the first, so a kind
// that has large ones gets a proxy for each way.
func (k kind) everyWay(t *testing.T, etcd *testkit.Etcd) {
	t.Helper()
	scene := &endScene{kind: k, tenant: strings.ToLower(path.Base(t.Name()))}
	for _, way := range slices.Sorted(maps.Keys(ways())) { // "the core gone" is last
		if k.method == etcdserverpb.KV_DeleteRange_FullMethodName {
			for n := range int64(3 * endTries) {
				fillSome(t, etcd.Client, fmt.Sprintf("/a/gone/%d/", scene.next.Load()+n))
			}
		}
		if scene.p == nil || k.work.Keys > 0 {
			scene.open(t, etcd)
		}
		before := scene.p.units(t)
		ways()[way](t, scene)
		scene.calls.Wait()
		noneInFlight(t, scene.p)
		scene.judge(t, way, before)
		scene.first = false
	}
}

// open makes another proxy.
func (w *endScene) open(t *testing.T, etcd *testkit.Etcd) {
	t.Helper()
	if w.p != nil {
		w.p.stop()
	}
	w.core = newHeldCore(t, etcd.Endpoint)
	cfg := configure(t, w.core.Endpoint)
	cfg.TenantName = w.tenant
	cfg.UnitsPerSecond, cfg.InFlight, cfg.Quota, cfg.AnswerBytes = 1e6, endSeats, quota.Limits{Keys: 1 << 30}, w.answers
	w.p = start(t, cfg)
	w.conn = raw(t, w.p.Endpoint)
	must.Do(t, w.p.Ready(t.Context()))
	testkit.Eventually(t, "the proxy to have read its record, which is no call of the tenant", func() string {
		if !w.core.follows.Load() {
			return "it does not watch it yet"
		}
		return ""
	})
	if w.method == etcdserverpb.Lease_LeaseLeases_FullMethodName {
		must.Do(t, w.once(t.Context(), w.conn, 0, false)) // how many there are nobody can know before
	}
}

// judge compares what the core has worked on with what was paid.
func (w *endScene) judge(t *testing.T, name string, before float64) {
	t.Helper()
	testkit.Eventually(t, "the core to have done", func() string {
		if n := w.core.working.Load(); n > 0 {
			return fmt.Sprint(n, " are left")
		}
		return ""
	})
	// A connection to the core that was lost has no seats, since it is not known whether anything is left of the core. And
	// it takes a moment until the core notices that a stream has ended at a chunk, or that a response was too large.
	if most := w.core.most.Load(); most > w.seats && !strings.Contains(name, "gone") && !w.first && w.answers == 0 {
		t.Errorf("%s: %d calls were with the core at one time, want at most %d", name, most, w.seats)
	}
	work := w.work
	if strings.Contains(name, "refused") {
		work = quota.Work{Calls: work.Calls, Logged: work.Logged, Written: work.Written}
	}
	var wrong string
	begun := time.Now()
	testkit.Eventually(t, "the proxy to hear of it", func() string {
		want := float64(w.core.begun.Load()) * work.Units()
		if got := w.p.units(t) - before; got < want*0.99 {
			wrong = fmt.Sprintf("%d calls were with the core, %.1f units of work, of which %.1f were paid for", w.core.begun.Load(), want, got)
			if time.Since(begun) < patience/4 {
				return wrong
			}
			t.Errorf("%s: %s", name, wrong)
		}
		return ""
	})
}

// handled is how many calls the core has received, by their method.
func handled(t *testing.T, core string) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for series, n := range testkit.Scrape(t, core, nil) {
		if rest, ours := strings.CutPrefix(series, `grpc_server_started_total{grpc_method="`); ours {
			method, _, _ := strings.Cut(rest, `"`)
			out[method] += n
		}
	}
	return out
}

// units are those that the tenant has paid.
func (s *served) units(tb testing.TB) float64 {
	tb.Helper()
	return metric(tb, s.Registry, "mooring_etcdstorage_proxy_units_total")
}

// fillSome stores endDeletes keys.
func fillSome(tb testing.TB, core *clientv3.Client, prefix string) {
	tb.Helper()
	var puts []clientv3.Op
	for i := range endDeletes {
		puts = append(puts, clientv3.OpPut(fmt.Sprint(prefix, i), strings.Repeat("v", endValue)))
	}
	must.Get(core.Txn(tb.Context()).Then(puts...).Commit()).Or(tb)
}

// A response that was large is expected to be large again, whatever a tenant varies in the request: such requests have the seat of
// large ones, one after the other.
func TestLargeResponsesAreKnownAgain(t *testing.T) {
	t.Parallel()
	etcd := testkit.NewEtcd(t)
	for i := range 100 { // that a key has on average is little
		must.Get(etcd.Client.Put(t.Context(), fmt.Sprintf("/a/small/%03d", i), "v")).Or(t)
	}
	for i := range 4 {
		must.Get(etcd.Client.Put(t.Context(), fmt.Sprintf("/a/large/%d", i), strings.Repeat("v", 200<<10))).Or(t)
	}
	core := newHeldCore(t, etcd.Endpoint)
	cfg := configure(t, core.Endpoint)
	cfg.UnitsPerSecond, cfg.InFlight, cfg.Quota = 1e6, 8, quota.Limits{Keys: 1 << 30}
	p := start(t, cfg)
	must.Do(t, p.Ready(t.Context()))
	kv := etcdserverpb.NewKVClient(raw(t, p.Endpoint))
	all := rangeOf("large/")
	for name, asks := range map[string]func(n int64) *etcdserverpb.RangeRequest{
		"a key at several revisions": func(n int64) *etcdserverpb.RangeRequest {
			return &etcdserverpb.RangeRequest{Key: []byte("large/3"), Revision: etcd.Revision(t) - n}
		},
		"a page with several bounds": func(n int64) *etcdserverpb.RangeRequest {
			return &etcdserverpb.RangeRequest{Key: all.Key, RangeEnd: all.RangeEnd, Limit: 10, MaxCreateRevision: 1<<40 + n}
		},
	} {
		must.Get(kv.Range(t.Context(), asks(0))).Or(t)
		release := core.hold(etcdserverpb.KV_Range_FullMethodName, false)
		t.Cleanup(release)
		before := metric(t, p.Registry, "mooring_etcdstorage_proxy_waited_total", "queue")
		var calls sync.WaitGroup
		for n := range int64(4) {
			request := asks(n)
			calls.Go(func() { _, _ = kv.Range(t.Context(), request) })
		}
		testkit.Eventually(t, "the others to wait for the first", func() string {
			if n := metric(t, p.Registry, "mooring_etcdstorage_proxy_waited_total", "queue") - before; n < 3 {
				return fmt.Sprintf("%s: %v of 3 wait, %d are with the core", name, n, core.working.Load())
			}
			return ""
		})
		release()
		calls.Wait()
		if most := core.most.Load(); most != 1 {
			t.Errorf("%s: %d were with the core at one time", name, most)
		}
	}
}
