// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package watch_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/mooring-dev/mooring/internal/etcdstorage/proxy/watch"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy/wire"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// drawn is a core of several members in memory: what happens next, and which stream is how far behind, is drawn. Nothing happens by itself: after each
// step everything waits, in the time of a bubble.
type drawn struct {
	t       *testing.T
	random  *rand.Rand
	hub     *hub
	tenant  *tenancy.Tenant
	counts  []int      // of the events of each revision, from 1 on; 0 of others' keys
	mu      sync.Mutex // guards streams, which are opened by the hub's goroutines
	streams []*member
	clients []*drawnClient
	noticed int // notices that clients got
}

// member is one stream of the hub, as the member behind it serves it.
type member struct {
	d         *drawn
	ctx       context.Context //nolint:containedctx // as in gRPC
	requests  chan *etcdserverpb.WatchRequest
	responses chan []byte
	retired   chan struct{}
	isRetired bool
	at        int64 // the member has come to this revision
	watches   []*memberWatch
	amid      *memberWatch // of whose response a fragment is still to come
}

// memberWatch is a watch of a stream: the event that comes next is number index of revision next; a response that is under way ends with revision until.
type memberWatch struct {
	id, next, until int64
	index           int
	notices         bool
}

// drawnClient is a stream of the tenant with its watches, by ID from 1 on.
type drawnClient struct {
	*reader
	leave   context.CancelFunc
	send    chan *etcdserverpb.WatchRequest
	watches []*drawnWatch
}

type drawnWatch struct {
	asked   int64 // for this revision on; 0: from now on
	start   int64 // the first revision that it brings
	pieces  bool
	notices bool
	created bool
	over    bool    // canceled
	seen    []int64 // revisions of the events
}

// newDrawn makes a hub on such a core.
func newDrawn(t *testing.T, random *rand.Rand) *drawn {
	t.Helper()
	prefix := must.Get(tenancy.ParsePrefix("/a/")).Or(t)
	d := &drawn{t: t, random: random, tenant: &tenancy.Tenant{Prefix: prefix, Leases: tenancy.DeriveLeaseSpace(prefix)}}
	d.hub = &hub{Hub: watch.New(watch.Config{
		Tenant: d.tenant,
		Open: func(ctx context.Context, _ bool) (watch.CoreStream, error) {
			m := &member{d: d, ctx: ctx, requests: make(chan *etcdserverpb.WatchRequest, 1000), responses: make(chan []byte, 1000), retired: make(chan struct{}), at: 1}
			d.mu.Lock()
			defer d.mu.Unlock()
			d.streams = append(d.streams, m)
			return m, nil
		},
		Compacted: func() int64 { return 0 },
		Load:      func(context.Context) error { return nil },
		Violation: func(err error) error { t.Error("violation:", err); return err },
		Panicked:  func(r any) error { panic(r) },
	})}
	for range 3 + random.IntN(5) {
		d.write()
	}
	return d
}

// Send implements watch.CoreStream.
func (m *member) Send(message []byte) error {
	r := &etcdserverpb.WatchRequest{}
	if err := proto.Unmarshal(message, r); err != nil {
		return err
	}
	m.requests <- r
	return nil
}

// Recv implements watch.CoreStream.
func (m *member) Recv() ([]byte, error) {
	select {
	case message := <-m.responses:
		return message, nil
	case <-m.ctx.Done():
		return nil, m.ctx.Err()
	}
}

// Seen implements watch.CoreStream.
func (m *member) Seen(wire.Header) {}

// Tenant implements watch.CoreStream.
func (m *member) Tenant() *tenancy.Tenant { return m.d.tenant }

// LoggedOut implements watch.CoreStream.
func (m *member) LoggedOut(string) {}

// Retired implements watch.CoreStream.
func (m *member) Retired() <-chan struct{} { return m.retired }

func (m *member) answer(r *etcdserverpb.WatchResponse) {
	r.Header = at(m.at)
	m.responses <- must.Get(proto.Marshal(r)).Or(m.d.t)
}

// serve deals with the next request, if there is one. Progress is told only while no watch of the stream is behind, as in etcd.
func (m *member) serve() {
	if len(m.requests) == 0 {
		return
	}
	switch r := (<-m.requests).RequestUnion.(type) {
	case *etcdserverpb.WatchRequest_CreateRequest:
		w := &memberWatch{id: r.CreateRequest.WatchId, next: r.CreateRequest.StartRevision, notices: r.CreateRequest.ProgressNotify}
		if w.next == 0 {
			w.next = m.at + 1
		}
		m.watches = append(m.watches, w)
		m.answer(&etcdserverpb.WatchResponse{WatchId: w.id, Created: true})
	case *etcdserverpb.WatchRequest_CancelRequest:
		m.watches = slices.DeleteFunc(m.watches, func(w *memberWatch) bool { return w.id == r.CancelRequest.WatchId })
		if m.amid != nil && m.amid.id == r.CancelRequest.WatchId {
			m.amid = nil
		}
		m.answer(&etcdserverpb.WatchResponse{WatchId: r.CancelRequest.WatchId, Canceled: true})
	case *etcdserverpb.WatchRequest_ProgressRequest:
		if m.amid == nil && !slices.ContainsFunc(m.watches, m.isBehind) {
			m.answer(&etcdserverpb.WatchResponse{WatchId: -1})
		}
	}
}

// isBehind reports whether events are left that a watch has not had.
func (m *member) isBehind(w *memberWatch) bool { return m.d.last(w.next, m.at) > 0 }

// notify tells the watches that want it, and have had all there is, how far the member is.
func (m *member) notify() {
	for _, w := range m.watches {
		if w.notices && m.amid == nil && !m.isBehind(w) {
			m.answer(&etcdserverpb.WatchResponse{WatchId: w.id})
		}
	}
}

// last is the last revision from one to another that has events, 0 if none has.
func (d *drawn) last(from, to int64) int64 {
	for r := to; r >= from; r-- {
		if d.counts[r-1] > 0 {
			return r
		}
	}
	return 0
}

// deliver sends some of what a watch has not had, or another fragment of the response that is under way.
func (m *member) deliver(most int) {
	w := m.amid
	if w == nil {
		if len(m.watches) == 0 {
			return
		}
		w = m.watches[m.d.random.IntN(len(m.watches))]
		if w.next > m.at {
			return
		}
		if w.until = m.d.last(w.next, min(m.at, w.next+m.d.random.Int64N(4))); w.until == 0 {
			if m.d.last(w.next, m.at) == 0 {
				w.next = m.at + 1 // all that happened is others'
			} else {
				w.next++
			}
			return
		}
	}
	r := &etcdserverpb.WatchResponse{WatchId: w.id}
	for len(r.Events) < most && w.next <= w.until {
		if w.index == m.d.counts[w.next-1] {
			w.next, w.index = w.next+1, 0
			continue
		}
		w.index++
		r.Events = append(r.Events, &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte("/a/k"), CreateRevision: 1, ModRevision: w.next, Version: 2}})
	}
	if w.next <= w.until && w.index == m.d.counts[w.next-1] {
		w.next, w.index = w.next+1, 0
	}
	m.amid = nil
	if m.d.last(w.next, w.until) > 0 {
		m.amid, r.Fragment = w, true
	} else {
		w.next = w.until + 1
	}
	m.answer(r)
}

func (d *drawn) write() { d.counts = append(d.counts, max(0, d.random.IntN(6)-1)) }

func (d *drawn) head() int64 { return int64(len(d.counts)) }

// live are the streams that the hub still has.
func (d *drawn) live() []*member {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(d.streams), func(m *member) bool { return m.ctx.Err() != nil })
}

// connect opens a stream of the tenant.
func (d *drawn) connect() *drawnClient {
	ctx, cancel := context.WithCancel(d.t.Context())
	stream := d.hub.open(ctx)
	c := &drawnClient{reader: read(stream), leave: cancel, send: make(chan *etcdserverpb.WatchRequest, 1000)}
	go func() {
		for r := range c.send {
			if stream.Send(r) != nil {
				return
			}
		}
	}()
	d.clients = append(d.clients, c)
	return c
}

// progress asks for a progress answer.
func (c *drawnClient) progress() {
	c.send <- &etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_ProgressRequest{ProgressRequest: &etcdserverpb.WatchProgressRequest{}}}
}

// step is one thing that happens.
func (d *drawn) step() {
	live := d.live()
	var m *member
	if len(live) > 0 {
		m = live[d.random.IntN(len(live))]
	}
	switch n := d.random.IntN(25); {
	case n < 4:
		d.write()
	case n == 4 && len(d.clients) < 3:
		d.connect()
	case n < 7 && len(d.clients) > 0:
		d.watch(d.clients[d.random.IntN(len(d.clients))])
	case n == 7 && len(d.clients) > 0:
		d.clients[d.random.IntN(len(d.clients))].progress()
	case n == 8 && len(d.clients) > 0:
		c := d.clients[d.random.IntN(len(d.clients))]
		c.send <- &etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CancelRequest{
			CancelRequest: &etcdserverpb.WatchCancelRequest{WatchId: 1 + d.random.Int64N(int64(2*len(c.watches)+1))},
		}}
	case n == 9:
		time.Sleep(time.Duration(d.random.IntN(300)) * time.Millisecond)
	case m == nil:
	case n == 10 && !m.isRetired:
		m.isRetired = true
		close(m.retired)
	case n < 15:
		if m.at += d.random.Int64N(d.head() - m.at + 1); d.random.IntN(2) == 0 {
			m.notify()
		}
	case n < 20:
		m.serve()
	default:
		m.deliver(1 + d.random.IntN(5))
	}
	synctest.Wait()
}

// watch asks for a watch from now on, from the past or from the future.
func (d *drawn) watch(c *drawnClient) {
	w := &drawnWatch{pieces: d.random.IntN(3) == 0, notices: d.random.IntN(3) == 0}
	if d.random.IntN(4) > 0 {
		w.asked = max(1, d.head()+3-d.random.Int64N(12))
	}
	w.start = w.asked
	c.watches = append(c.watches, w)
	r := on("k")
	r.WatchId, r.StartRevision, r.Fragment, r.ProgressNotify = int64(len(c.watches)), w.start, w.pieces, w.notices
	c.send <- &etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: r}}
}

// settle lets everything come to its end: all members at the last revision, all that is asked for answered.
func (d *drawn) settle() {
	for range 60 {
		for _, m := range d.live() {
			m.at = d.head()
			for m.amid != nil || len(m.requests) > 0 || slices.ContainsFunc(m.watches, m.isBehind) {
				m.serve()
				m.deliver(10)
				synctest.Wait()
			}
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
	}
}

// judge reads what a client got: each watch all its events, once, in order and in whole revisions, and progress of all of them and after all of it.
func (c *drawnClient) judge(d *drawn) (told int) {
	for len(c.all) > 0 {
		a := <-c.all
		if a.WatchId == -1 {
			told++
			for i, w := range c.watches {
				if w.created && !w.over && !slices.Equal(w.seen, w.want(d, a.Header.Revision)) {
					d.t.Errorf("progress %d was told of watch %d, which saw %v", a.Header.Revision, i+1, w.seen)
				}
			}
			continue
		}
		w := c.watches[a.WatchId-1]
		if a.Created {
			if w.created = true; w.start == 0 {
				w.start = a.Header.Revision + 1
			}
			continue
		}
		for _, e := range a.Events {
			w.seen = append(w.seen, e.Kv.ModRevision)
		}
		if a.Canceled && !w.over {
			w.over = true
			continue
		}
		if len(a.Events) == 0 && !w.over {
			d.noticed++
			if !w.notices || a.Header.Revision < w.asked || !slices.Equal(w.seen, w.want(d, a.Header.Revision)) {
				d.t.Errorf("watch %d from %d, which saw %v, was told of %d: it wants notices: %v", a.WatchId, w.start, w.seen, a.Header.Revision, w.notices)
			}
			continue
		}
		if n := len(w.seen); w.over || a.Fragment && !w.pieces || !a.Fragment && !slices.Equal(w.seen, w.want(d, w.seen[n-1])) {
			d.t.Errorf("watch %d from %d saw %v, over: %v", a.WatchId, w.start, w.seen, w.over)
			return told
		}
	}
	for i, w := range c.watches {
		if !w.created || !w.over && !slices.Equal(w.seen, w.want(d, d.head())) {
			d.t.Errorf("watch %d from %d, created: %v, saw %v in the end", i+1, w.start, w.created, w.seen)
		}
	}
	return told
}

// want are the revisions of the events that a watch must have seen when it has come to one.
func (w *drawnWatch) want(d *drawn, to int64) (out []int64) {
	for r := w.start; r <= min(to, d.head()); r++ {
		for range d.counts[r-1] {
			out = append(out, r)
		}
	}
	return out
}

// shared judges what the core has: one watch for each kind of those that there are, on one stream, and none when the tenant's streams have gone.
func (d *drawn) shared() {
	d.t.Helper()
	watches, kinds := 0, map[[2]bool]bool{}
	for _, c := range d.clients {
		for _, w := range c.watches {
			if !w.over {
				watches++
				kinds[[2]bool{w.pieces, w.notices}] = true
			}
		}
	}
	d.has(watches, len(kinds))
	for _, c := range d.clients {
		c.leave()
	}
	d.settle()
	d.has(0, 0)
}

func (d *drawn) has(watches, groups int) {
	d.t.Helper()
	atCore := 0
	for _, m := range d.live() {
		atCore += len(m.watches)
	}
	if s := d.hub.Stats(); s.Watchers != watches || s.Private != 0 || s.Groups != groups || s.CoreStreams > 1+8 || atCore != groups {
		d.t.Errorf("%d watches at the core, want %d of %d: %+v", atCore, groups, watches, s)
	}
}

// TestAnyOrder draws what happens at the core, and how far each of its members is, while watches come and the connections of streams are replaced: no
// stream of the tenant ends, no watch loses an event, sees one twice, out of order or apart from its transaction, progress is told, and not before an
// event, and in the end all share one stream. Time is that of a bubble, and each case is replayed by its number.
func TestAnyOrder(t *testing.T) {
	t.Parallel()
	seed := cases.Seed(t)
	moved, noticed := 0, 0
	for number := range uint64(cases.Number(t, 600, 1000, 20_000)) {
		synctest.Test(t, func(t *testing.T) {
			m, n := anyOrder(t, rand.New(rand.NewPCG(seed, number)))
			moved, noticed = moved+m, noticed+n
		})
		if t.Failed() {
			t.Fatalf("in case %d of seed %d", number, seed)
		}
	}
	t.Logf("%d streams were replaced, %d notices came", moved, noticed)
	if moved == 0 || noticed == 0 {
		t.Error("the test shows nothing")
	}
}

// anyOrder is one case; it returns how many streams were replaced, and how many notices of the core's came to clients.
func anyOrder(t *testing.T, random *rand.Rand) (moved, noticed int) {
	t.Helper()
	d := newDrawn(t, random)
	defer func() {
		d.hub.Close()
		for _, c := range d.clients {
			c.leave()
			close(c.send)
		}
		synctest.Wait()
	}()
	d.watch(d.connect())
	for range 20 + random.IntN(120) {
		d.step()
	}
	for range 4 { // beyond where any watch begins
		d.counts = append(d.counts, 1)
	}
	d.settle()
	for _, c := range d.clients {
		c.progress()
	}
	d.settle()
	for i, c := range d.clients {
		select {
		case err := <-c.err:
			t.Errorf("stream %d ended: %v", i, err)
		default:
		}
		if told := c.judge(d); told == 0 && slices.ContainsFunc(c.watches, func(w *drawnWatch) bool { return !w.over }) {
			t.Errorf("no progress was told on stream %d", i)
		}
	}
	dump := d.hub.Dump()
	if d.shared(); t.Failed() {
		t.Log(strings.Join([]string{dump, fmt.Sprint("events of each revision: ", d.counts)}, "\n"))
	}
	for _, m := range d.streams {
		if m.isRetired {
			moved++
		}
		if m.isRetired && m.ctx.Err() == nil {
			t.Error("a stream goes on that was replaced")
		}
	}
	return moved, d.noticed
}
