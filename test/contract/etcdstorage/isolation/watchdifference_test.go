// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/mooring-dev/mooring/internal/testkit/attacks"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// settledKey is watched by every stream from the beginning, by the watch settledWatch, and counts there alone: other watches see it too, but
// whether they see the last write of it before they are canceled is a matter of luck, with etcd as well.
const (
	settledKey   = "settled"
	settledWatch = 1000
)

// A watching is one watch stream and what came back on it, by watch.
type watching struct {
	stream grpc.BidiStreamingClient[pb.WatchRequest, pb.WatchResponse]

	mu sync.Mutex
	// control are the answers to requests, without events, of each watch in their order: etcd finds out alongside what else it does that a watch
	// begins before what was compacted.
	control map[int64][]string
	answers int
	// last is the watch that was made last.
	last int64
	// settled is the revision of the last event of settledKey.
	settled int64
	// events are those of each watch in their order, whatever messages they came in.
	events map[int64][]string
	err    error
}

func watchOn(ctx context.Context, t *testing.T, conn *grpc.ClientConn) *watching {
	t.Helper()
	stream := must.Get(pb.NewWatchClient(conn).Watch(ctx)).Or(t)
	w := &watching{stream: stream, events: map[int64][]string{}, control: map[int64][]string{}}
	go w.receive()
	return w
}

func (w *watching) receive() {
	for {
		response, err := w.stream.Recv()
		w.mu.Lock()
		if err != nil {
			w.err = err
			w.mu.Unlock()
			return
		}
		if response.Created || response.Canceled {
			if response.Created {
				w.answers++
				w.last = response.WatchId
			}
			w.control[response.WatchId] = append(w.control[response.WatchId], fmt.Sprintf("created %v, canceled %v, compact revision %d, reason %q",
				response.Created, response.Canceled, response.CompactRevision, response.CancelReason))
		}
		for _, e := range response.Events {
			if string(e.Kv.Key) == settledKey {
				if response.WatchId != settledWatch {
					continue
				}
				w.settled = e.Kv.ModRevision
			}
			text := fmt.Sprintf("%v %q = %q (version %d, created %d, modified %d, lease %d)",
				e.Type, e.Kv.Key, e.Kv.Value, e.Kv.Version, e.Kv.CreateRevision, e.Kv.ModRevision, e.Kv.Lease)
			if e.PrevKv != nil {
				text += fmt.Sprintf(", before: %q of %d", e.PrevKv.Value, e.PrevKv.ModRevision)
			}
			w.events[response.WatchId] = append(w.events[response.WatchId], text)
		}
		w.mu.Unlock()
	}
}

// settle waits until the stream has had the event of this revision of settledKey. Watches that began with the present have had those of all
// earlier revisions then as well: the events of one write come on a stream before those of the next.
func (w *watching) settle(t *testing.T, name string, revision int64) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		w.mu.Lock()
		settled, err := w.settled, w.err
		w.mu.Unlock()
		if settled >= revision {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: no event of revision %d, the last one was of %d (%v)", name, revision, settled, err)
		}
		<-time.After(time.Millisecond)
	}
}

// state is everything that came back, in words, and the number of watches that were answered.
func (w *watching) state() (control, events map[int64][]string, answers int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	copied := func(of map[int64][]string) map[int64][]string {
		out := map[int64][]string{}
		for id, all := range of {
			out[id] = slices.Clone(all)
		}
		return out
	}
	return copied(w.control), copied(w.events), w.answers, w.err
}

// TestWatchesAreThoseOfAnEtcdOfItsOwn opens the same watches on both, makes the same writes, and compares what comes back.
func TestWatchesAreThoseOfAnEtcdOfItsOwn(t *testing.T) {
	t.Parallel()
	seed := cases.Seed(t)
	p := newPair(t)
	// Enough history that watches may begin in it.
	words := &attacks.Words{Own: attacks.OwnKeys(), Hostile: [][]byte{{}, {0}, {0xff}, []byte("a\xff")}, Leases: []int64{1, 2, 3}}
	p.write(t, words, seed, 0, 200)
	for round := range uint64(cases.Number(t, 4, 12, 120)) {
		p.watchRound(t, words, seed, round)
	}
}

// write makes some of the KV requests with these numbers on both.
func (p *pair) write(t *testing.T, words *attacks.Words, seed, from, to uint64) {
	t.Helper()
	for n := from; n < to; n++ {
		request := attacks.NewGenerator(words, seed, n).KV()
		if from > 200 && request.Method == pb.KV_Compact_FullMethodName {
			continue // whether a watch that begins in the past is faster than a compaction is a matter of luck
		}
		if s, ok := kindOf(request); ok {
			if difference := p.compare(t.Context(), request, s); difference != "" {
				t.Errorf("request %d: %s", n, difference)
			}
		}
	}
}

// settle waits until both streams have had everything that was written.
func (p *pair) settle(t *testing.T, direct, proxied *watching) {
	t.Helper()
	var revision int64
	for _, conn := range []*grpc.ClientConn{p.direct, p.proxied} {
		resp := must.Get(pb.NewKVClient(conn).Put(t.Context(), &pb.PutRequest{Key: []byte(settledKey)})).Or(t)
		revision = resp.Header.Revision
	}
	direct.settle(t, "etcd", revision)
	proxied.settle(t, "proxied", revision)
}

func (p *pair) watchRound(t *testing.T, words *attacks.Words, seed, round uint64) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p.write(t, words, seed, 13*round, 13*round+13)
	current := must.Get(p.directCore.Get(ctx, "any")).Or(t)
	words.Revision = current.Header.Revision - 20
	direct, proxied := watchOn(ctx, t, p.direct), watchOn(ctx, t, p.proxied)
	base := 1_000_000 * (round + 1)
	sent := []*pb.WatchRequest{{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte(settledKey), WatchId: settledWatch}}}}
	p.send(t, direct, proxied, sent[0])
	inPast := map[int64]bool{}
	for n := range uint64(30) {
		request := attacks.NewGenerator(words, seed, base+n).Watch()
		if !plain(request) {
			continue
		}
		create := request.GetCreateRequest()
		if create != nil && create.StartRevision > current.Header.Revision && n%4 > 0 {
			create.StartRevision = 1 + create.StartRevision%current.Header.Revision
		}
		if create == nil && (inPast[request.GetCancelRequest().GetWatchId()] || request.GetCancelRequest().GetWatchId() == settledWatch) {
			continue // how much of the past it has had by now is a matter of luck
		}
		requests := []*pb.WatchRequest{request}
		if request.GetCreateRequest() == nil {
			requests = append(requests, refusedWatch()) // to cancel what there is not has no response, and requests are taken in order
		}
		sent = append(sent, requests...)
		p.send(t, direct, proxied, requests...)
		same(t, round, sent, direct, proxied)
		if create != nil && create.StartRevision != 0 {
			direct.mu.Lock()
			inPast[direct.last] = true
			direct.mu.Unlock()
		}
		p.write(t, words, seed, base+1000+10*n, base+1000+10*n+n%4)
		p.settle(t, direct, proxied)
	}
	p.settle(t, direct, proxied)
	same(t, round, sent, direct, proxied)
}

// send sends requests on both streams.
func (p *pair) send(t *testing.T, direct, proxied *watching, requests ...*pb.WatchRequest) {
	t.Helper()
	for _, w := range []*watching{direct, proxied} {
		for _, r := range requests {
			must.Do(t, w.stream.Send(proto.CloneOf(r)))
		}
	}
}

// refusedWatch is a request that is always answered and never watches.
func refusedWatch() *pb.WatchRequest {
	return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte("fence"), StartRevision: -1}}}
}

// plain reports that the answer depends on nothing but the store: progress comes when it comes, and only after what was asked before.
func plain(request *pb.WatchRequest) bool {
	if request.GetProgressRequest() != nil || request.RequestUnion == nil {
		return false
	}
	create := request.GetCreateRequest()
	return create == nil || (!create.ProgressNotify && !(create.WatchId != 0 && wrongTwice(create)))
}

// wrongTwice reports that a request is refused whatever its ID is. If the ID is taken, too, etcd names the other reason and the proxy the ID.
func wrongTwice(create *pb.WatchCreateRequest) bool {
	end := string(create.RangeEnd)
	return create.StartRevision < 0 || (end != "" && end != "\x00" && end <= string(create.Key))
}

// same waits until both streams have brought the same.
func same(t *testing.T, round uint64, sent []*pb.WatchRequest, direct, proxied *watching) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		wantControl, wantEvents, answers, wantErr := direct.state()
		gotControl, gotEvents, _, gotErr := proxied.state()
		difference := gocmp.Diff(wantControl, gotControl) + gocmp.Diff(wantEvents, gotEvents)
		answered := answers >= creates(sent)
		if difference == "" && answered && (wantErr == nil) == (gotErr == nil) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("round %d: the proxied stream differs (- etcd, + proxied; ends: %v, %v; %d answers):\n%s\nafter %v",
				round, wantErr, gotErr, answers, difference, sent)
		}
		<-time.After(2 * time.Millisecond)
	}
}

// creates counts the requests that are always answered.
func creates(sent []*pb.WatchRequest) int {
	n := 0
	for _, request := range sent {
		if request.GetCreateRequest() != nil {
			n++
		}
	}
	return n
}
