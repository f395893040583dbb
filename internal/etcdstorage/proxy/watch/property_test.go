// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package watch_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// event is what a watcher must see of a change.
type event struct {
	revision        int64
	remove          bool
	key, value, old string
}

// since leaves out what etcd may have compacted.
func (e event) since(compacted int64) event {
	if compacted > 0 {
		e.old = ""
	}
	return e
}

func eventOf(e *mvccpb.Event, strip string, previous bool) event {
	out := event{
		revision: e.Kv.ModRevision, remove: e.Type == mvccpb.Event_DELETE, key: strings.TrimPrefix(string(e.Kv.Key), strip), value: fmt.Sprintf("%.9s %d", e.Kv.Value, len(e.Kv.Value)),
	}
	if previous && e.PrevKv != nil {
		out.old = fmt.Sprint(e.PrevKv.ModRevision)
	}
	return out
}

// campaign is a core with writers, and what really happened there.
type campaign struct {
	t     *testing.T
	etcd  *testkit.Etcd
	first int64 // the first revision of interest

	mu        sync.Mutex
	truth     []event
	truthTo   int64 // truth is complete up to here
	compacted int64
}

func newCampaign(t *testing.T) *campaign {
	t.Helper()
	c := &campaign{t: t, etcd: testkit.NewEtcd(t)}
	c.first = c.etcd.Revision(t) + 1
	follow := c.etcd.Client.Watch(t.Context(), "/a/", clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithRev(c.first))
	go func() {
		for r := range follow {
			c.mu.Lock()
			for _, e := range r.Events {
				c.truth = append(c.truth, eventOf(e, "/a/", true))
				c.truthTo = e.Kv.ModRevision
			}
			c.mu.Unlock()
		}
	}()
	return c
}

// mark writes an event that every range of the watchers holds, and returns its revision once truth is complete up to there.
func (c *campaign) mark() (revision int64) {
	c.t.Helper()
	var ops []clientv3.Op
	for _, k := range lastKeys {
		ops = append(ops, clientv3.OpPut("/a/"+k, "last"))
	}
	testkit.Eventually(c.t, "the mark to be written", func() string {
		r, err := c.etcd.Client.Txn(c.t.Context()).Then(ops...).Commit()
		if err != nil {
			return err.Error()
		}
		revision = r.Header.Revision
		return ""
	})
	testkit.Eventually(c.t, "what really happened", func() string {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.truthTo < revision {
			return "not complete"
		}
		return ""
	})
	return revision
}

// The key space is small, so that keys change often. Each range that watchers choose holds one of lastKeys.
var (
	keys      = []string{"a/1", "a/2", "a/3", "b/1", "b/2", "c"}
	lastKeys  = []string{"a/1", "b/1", "c"}
	keyRanges = [][2]string{
		{"a/", "a0"}, {"a/", "a0"}, {"a/", "a0"}, {"", "\x00"}, {"b/", "c"}, {"a/1", ""}, {"c", ""}, {"b/1", "\x00"},
	}
)

// write makes random changes, of the tenant's keys and of others', until until ends. None is given up halfway: it would happen some time later, and
// perhaps to another test that has the core next.
func (c *campaign) write(ctx, until context.Context, random *rand.Rand, size int, pause func() time.Duration) {
	for until.Err() == nil {
		var ops []clientv3.Op
		for _, i := range random.Perm(len(keys))[:random.IntN(4)] {
			if random.IntN(4) == 0 {
				ops = append(ops, clientv3.OpDelete("/a/"+keys[i]))
			} else {
				ops = append(ops, clientv3.OpPut("/a/"+keys[i], strconv.Itoa(random.Int())+strings.Repeat("x", random.IntN(size+1))))
			}
		}
		if random.IntN(2) == 0 || len(ops) == 0 {
			ops = append(ops, clientv3.OpPut("/b/"+keys[0], ""))
		}
		// etcd on a busy machine does not know in time whether it has written; truth does.
		if _, err := c.etcd.Client.Txn(ctx).Then(ops...).Commit(); err != nil && !errors.Is(err, rpctypes.ErrTimeout) && ctx.Err() == nil {
			c.t.Error(err)
		}
		select {
		case <-time.After(pause()):
		case <-until.Done():
		}
	}
}

// wish is one watch that a client wants, over all its streams.
type wish struct {
	request *pb.WatchCreateRequest

	next    int64 // it must have seen all events before; 0 while it began nowhere
	began   int64
	seen    []event
	partial []event // of a response whose last fragment has not come
	told    []told
	over    bool // compacted
}

// told is a progress answer: how many events had been seen when it came.
type told struct {
	revision int64
	seen     int
}

// player is a client with some watches that takes them up again on another stream when one ends.
type player struct {
	c      *campaign
	random *rand.Rand
	open   func(ctx context.Context) (client, error)
	slow   bool
	wishes []*wish
	ends   map[string]int
}

func (p *player) newWish() *wish {
	r := keyRanges[p.random.IntN(len(keyRanges))]
	w := &wish{request: &pb.WatchCreateRequest{Key: []byte(r[0]), RangeEnd: []byte(r[1]), PrevKv: p.random.IntN(2) == 0, Fragment: p.random.IntN(4) == 0}}
	if p.random.IntN(5) == 0 {
		w.request.Filters = append(w.request.Filters, pb.WatchCreateRequest_FilterType(p.random.IntN(2)))
	}
	switch now := p.c.etcd.Revision(p.c.t); p.random.IntN(4) {
	case 0: // now
	case 1:
		w.request.StartRevision = now + 1 + p.random.Int64N(20)
	case 2:
		w.request.StartRevision = now + 1
	default:
		p.c.mu.Lock()
		first := max(p.c.first, p.c.compacted)
		p.c.mu.Unlock()
		w.request.StartRevision = first + p.random.Int64N(max(now-first, 1))
	}
	w.began, w.next = w.request.StartRevision, w.request.StartRevision
	return w
}

// play runs streams until every watch has come to the revision that last gives, or is over.
func (p *player) play(ctx context.Context, last func() int64) error {
	p.ends = map[string]int{}
	for ctx.Err() == nil {
		inner, cancel := context.WithCancel(ctx)
		done, err := p.stream(inner, last)
		cancel()
		if done {
			return nil
		}
		if status.Code(err) != codes.Unavailable && ctx.Err() == nil {
			return fmt.Errorf("a stream ended with %w", err)
		}
		p.ends[status.Convert(err).Message()]++
	}
	return fmt.Errorf("not all watches came to the end: %s", p.pending(last()))
}

func (p *player) pending(last int64) string {
	var out []string
	for _, w := range p.wishes {
		if !w.over && w.next <= last {
			out = append(out, fmt.Sprintf("watch %v is before %d, the last is %d, it saw %d", w.request, w.next, last, len(w.seen)))
		}
	}
	return strings.Join(out, "; ")
}

func (p *player) stream(ctx context.Context, last func() int64) (done bool, err error) {
	c, err := p.open(ctx)
	if err != nil {
		return false, err
	}
	live := map[int64]*wish{}
	for i, w := range p.wishes {
		if w.over {
			continue
		}
		r := &pb.WatchCreateRequest{
			Key: w.request.Key, RangeEnd: w.request.RangeEnd, PrevKv: w.request.PrevKv, Fragment: w.request.Fragment, Filters: w.request.Filters,
			StartRevision: w.next, WatchId: int64(i + 1),
		}
		w.partial = nil
		if err := c.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}}); err != nil {
			return false, ended(c)
		}
		for live[r.WatchId] == nil {
			a, err := c.Recv()
			if err != nil {
				return false, err
			}
			if a.Created && !a.Canceled {
				live[a.WatchId] = p.wishes[a.WatchId-1]
				if w.next == 0 {
					w.next, w.began = a.Header.Revision+1, a.Header.Revision+1
				}
				continue
			}
			if err := p.take(live, a); err != nil {
				return false, err
			}
		}
	}
	cancels := make(chan int64, len(p.wishes))
	for id, w := range live {
		if w.over {
			cancels <- id
		}
	}
	go send(ctx, c, cancels)
	for {
		if p.pending(last()) == "" {
			return true, nil
		}
		a, err := c.Recv()
		if err != nil {
			return false, err
		}
		before := live[a.WatchId]
		if err := p.take(live, a); err != nil {
			return false, err
		}
		if before != nil && before.over && live[a.WatchId] != nil {
			cancels <- a.WatchId
		}
		if p.slow {
			select {
			case <-time.After(time.Duration(p.random.IntN(4)) * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
}

// ended returns how a stream ended on which nothing can be sent any more. What it still brings is asked for again on the next.
func ended(c client) error {
	for {
		if _, err := c.Recv(); err != nil {
			return err
		}
	}
}

// send sends progress requests all the time, and cancels the watches that are over, or no progress would be told on the stream.
func send(ctx context.Context, c client, cancels <-chan int64) {
	for {
		r := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}
		select {
		case <-time.After(7 * time.Millisecond):
		case <-ctx.Done():
			return
		case id := <-cancels:
			r = &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: id}}}
		}
		if c.Send(r) != nil {
			return
		}
	}
}

// take notes an answer.
func (p *player) take(live map[int64]*wish, a *pb.WatchResponse) error {
	if a.WatchId == -1 {
		if a.Canceled || a.Created {
			return fmt.Errorf("refused: %v", a)
		}
		for _, w := range live {
			if w.over {
				return errors.New("progress was told although a watch is over")
			}
			w.told = append(w.told, told{a.Header.Revision, len(w.seen)})
			w.next = max(w.next, a.Header.Revision+1)
		}
		return nil
	}
	w := live[a.WatchId]
	if w == nil {
		return fmt.Errorf("an answer for a watch that does not exist: %v", a)
	}
	if a.Canceled {
		if w.over {
			delete(live, a.WatchId)
			return nil
		}
		if a.CompactRevision == 0 || a.CompactRevision <= w.next {
			return fmt.Errorf("canceled though it wants only what is from %d on: %v", w.next, a)
		}
		w.over = true
		return nil
	}
	for _, e := range a.Events {
		w.partial = append(w.partial, eventOf(e, "", w.request.PrevKv))
	}
	if a.Fragment || len(w.partial) == 0 {
		return nil
	}
	if len(w.seen) > 0 && w.partial[0].revision <= w.seen[len(w.seen)-1].revision {
		return fmt.Errorf("revision %d came after %d", w.partial[0].revision, w.seen[len(w.seen)-1].revision)
	}
	w.seen = append(w.seen, w.partial...)
	w.next = w.partial[len(w.partial)-1].revision + 1
	w.partial = nil
	return nil
}

// judge compares what a watch saw with what happened, as far as the watch was told that it has come: to the last event it saw, or the last progress.
// What happened later was perhaps on its way when its client had enough and went. Truth must be complete up to there.
func (c *campaign) judge(w *wish) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var want []event
	from, to := w.began, w.next-1
	if len(w.seen) > 0 {
		from = min(from, w.seen[0].revision) // a watch from now on may bring what came just before its Created answer
	}
	for _, e := range c.truth {
		if e.revision < from || e.revision > to || !inRange(e.key, string(w.request.Key), string(w.request.RangeEnd)) {
			continue
		}
		if slices.Contains(w.request.Filters, pb.WatchCreateRequest_NOPUT) && !e.remove ||
			slices.Contains(w.request.Filters, pb.WatchCreateRequest_NODELETE) && e.remove {
			continue
		}
		if !w.request.PrevKv || c.compacted > 0 {
			e.old = "" // whether a compacted version is still there is a matter of time
		}
		want = append(want, e)
	}
	for i := range max(len(want), len(w.seen)) {
		switch {
		case i >= len(want):
			return fmt.Errorf("event %d %+v never happened, or before %d (%v)", i, w.seen[i], from, w.request)
		case i >= len(w.seen):
			return fmt.Errorf("event %d %+v was lost (%v)", i, want[i], w.request)
		case want[i] != w.seen[i].since(c.compacted):
			return fmt.Errorf("event %d is %+v, not %+v (%v)", i, w.seen[i], want[i], w.request)
		}
	}
	for i, p := range w.told {
		if n := len(want); p.seen < n && want[p.seen].revision <= p.revision {
			return fmt.Errorf("progress %d was told before event %+v", p.revision, want[p.seen])
		}
		if i > 0 && p.revision < w.told[i-1].revision {
			return fmt.Errorf("progress went back from %d to %d", w.told[i-1].revision, p.revision)
		}
		if p.seen > 0 && w.seen[p.seen-1].revision > p.revision {
			return fmt.Errorf("progress %d was told after the event %+v", p.revision, w.seen[p.seen-1])
		}
	}
	return nil
}

func inRange(key, from, end string) bool {
	if from == "" {
		from = "\x00"
	}
	switch end {
	case "":
		return key == from
	case "\x00":
		return key >= from
	}
	return key >= from && key < end
}

// TestNothingLostNothingTwice has random writers and many random watchers, fast and slow, that come at any time, while the core compacts and its
// connections are cut or replaced, through a hub with a small queue. No watch may lose an event, see one twice, out of order or apart from its transaction,
// or be told of progress before an event.
func TestNothingLostNothingTwice(t *testing.T) {
	t.Parallel()
	for i := range 2 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			random := cases.Rand(t) // what happens differs from run to run all the same: much is a matter of time
			c := newCampaign(t)
			h := newHub(t, c.etcd.Endpoint, 64<<10)
			run(t, c, random, 2*time.Second, func(ctx context.Context) (client, error) { return h.open(ctx), nil }, func() {
				switch random.IntN(5) {
				case 0:
					h.cut()
				case 1:
					c.mu.Lock()
					c.compacted = max(c.compacted, c.truthTo-random.Int64N(20))
					to := c.compacted
					c.mu.Unlock()
					_, _ = c.etcd.Client.Compact(t.Context(), to)
				case 2:
					c.mu.Lock()
					to := max(c.compacted, c.truthTo-random.Int64N(20))
					c.compacted = to
					c.mu.Unlock()
					h.compacted.Store(max(h.compacted.Load(), to))
				case 3:
					h.retire()
				}
			}, h.Dump)
			t.Logf("%+v", h.Stats())
		})
	}
}

// run lets writers and players go for a while, with disturbances, and judges the players.
func run(t *testing.T, c *campaign, random *rand.Rand, length time.Duration, open func(context.Context) (client, error), disturb func(), dump func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), length+2*patience)
	defer cancel()
	writing, stop := context.WithTimeout(ctx, length)
	defer stop()
	var writers, playing sync.WaitGroup
	for range 3 {
		r := rand.New(rand.NewPCG(random.Uint64(), 1)) //nolint:gosec // a test's
		writers.Go(func() {
			c.write(ctx, writing, r, 2000, func() time.Duration { return time.Duration(r.IntN(3000)) * time.Microsecond })
		})
	}
	var last atomic.Int64
	last.Store(1 << 62)
	var mu sync.Mutex
	var players []*player
	for writing.Err() == nil {
		p := &player{c: c, random: rand.New(rand.NewPCG(random.Uint64(), 2)), slow: random.IntN(3) == 0, open: open} //nolint:gosec // a test's
		for range 1 + p.random.IntN(4) {
			p.wishes = append(p.wishes, p.newWish())
		}
		mu.Lock()
		players = append(players, p)
		mu.Unlock()
		playing.Go(func() {
			if err := p.play(ctx, last.Load); err != nil {
				t.Error(err)
			}
		})
		disturb()
		select {
		case <-time.After(time.Duration(random.IntN(80)) * time.Millisecond):
		case <-writing.Done():
		}
	}
	writers.Wait()
	last.Store(c.mark())
	watchdog := time.AfterFunc(patience, func() { t.Log("still at it:\n" + dump()) })
	over := make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() { // a watch from the next revision on withholds progress until there is one, as in etcd
		for i := 0; ; i++ {
			select {
			case <-over:
				return
			case <-time.After(20 * time.Millisecond):
				key := "/b/other"
				if i < 2*len(lastKeys) { // clients go amid events; those that are left must come to the end without any
					key = "/a/" + lastKeys[i%len(lastKeys)]
				}
				_, _ = c.etcd.Client.Put(ctx, key, "late")
			}
		}
	})
	playing.Wait()
	close(over)
	others.Wait()
	watchdog.Stop()
	c.mark() // beyond all that anybody was told
	seen, tellings, compacted, ends := 0, 0, 0, map[string]int{}
	for _, p := range players {
		for _, w := range p.wishes {
			if err := c.judge(w); err != nil {
				t.Error(err)
			}
			seen += len(w.seen)
			tellings += len(w.told)
			if w.over {
				compacted++
			}
		}
		for k, n := range p.ends {
			ends[k] += n
		}
	}
	t.Logf("%d clients saw %d events of %d, %d tellings of progress; %d watches compacted; ends %v", len(players), seen, len(c.truth), tellings, compacted, ends)
	const enough = 10 // clients of which some ask for progress, by chance; on a busy machine there are fewer
	if seen == 0 || tellings == 0 && len(players) >= enough {
		t.Error("nothing was seen: the test shows nothing")
	}
}
