// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/etcdstorage/quota"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// TestRestoredCoreModel restores the core beneath two replicas that writers, readers and reflectors use all the time, in four ways, and overtaken by
// another tenant at once or not. A model judges all that they see; see the methods of model. A restore that lost a
// compaction is noticed, streams from before end, and afterwards the tenant can store as much as its quota allows.
func TestRestoredCoreModel(t *testing.T) {
	t.Parallel()
	for name, flags := range restores() {
		for _, overtaken := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, overtaken %v", name, overtaken), func(t *testing.T) {
				t.Parallel()
				restoreUnderLoad(t, flags, overtaken)
			})
		}
	}
}

// restoreUnderLoad is one case. What the tenant wrote or compacted after the backup is lost.
func restoreUnderLoad(t *testing.T, flags []string, overtaken bool) {
	t.Helper()
	const each, events = 60, 5 // writes of a phase, and events for each reflector
	core := testkit.NewEtcdWith(t)
	cfg := configure(t, core.Endpoint)
	cfg.Quota = quota.Limits{Keys: 20}
	replicas := []*served{start(t, cfg), start(t, cfg)}
	ctx, cancel := context.WithTimeout(t.Context(), 6*patience)
	defer cancel()
	m := newModel(t)
	var actors sync.WaitGroup
	acting, stop := context.WithCancel(ctx)
	defer stop()
	pause := time.Duration(cases.Number(t, 2000, 1, 1)) * time.Microsecond // without one they take most of a processor
	for i, r := range replicas {
		for j, act := range []func(context.Context, *clientv3.Client, *rand.Rand){m.write, m.read} {
			random := rand.New(rand.NewPCG(cases.Seed(t), uint64(2*i+j)))
			actors.Go(func() {
				next := time.NewTicker(pause)
				defer next.Stop()
				for acting.Err() == nil {
					act(acting, r.Client, random)
					<-next.C
				}
			})
		}
		actors.Go(func() { m.reflect(acting, r.Client, m.caches[i]) })
	}
	written := func(what string) {
		progress := func() [3]int64 {
			return [3]int64{m.writes.Load(), m.caches[0].events.Load(), m.caches[1].events.Load()}
		}
		from := progress()
		testkit.Eventually(t, "writes and events "+what, func() string {
			if now := progress(); now[0]-from[0] < each || now[1]-from[1] < events || now[2]-from[2] < events {
				return fmt.Sprint(from, now)
			}
			return ""
		})
	}
	written("before the backup")
	backup := core.Backup(t)
	written("after the backup")
	if overtaken { // it is noticed by what the record has lost
		m.compact(ctx, replicas[0].Client)
	}
	before := must.Get(etcdserverpb.NewLeaseClient(raw(t, replicas[0].Endpoint)).LeaseKeepAlive(ctx)).Or(t)
	core.Restore(t, backup, flags...)
	if overtaken {
		for range 20 * each {
			must.Get(core.Client.Put(ctx, "/other/key", "x")).Or(t)
		}
	}
	written("after the restore")
	m.writing.Lock() // by none from here on
	m.settle(ctx, replicas)
	stop()
	m.writing.Unlock()
	actors.Wait()
	m.fill(ctx, replicas[0].Client, cfg.Quota.Keys)
	if _, err := before.Recv(); status.Code(err) != codes.Unavailable {
		t.Error("a stream from before ended with", err)
	}
	noticed := 0.0
	for _, r := range replicas {
		noticed += metric(t, r.Registry, "mooring_etcdstorage_proxy_core_went_back_total")
	}
	if overtaken && noticed < 1 || noticed > 2 {
		t.Errorf("noticed %v times by two replicas", noticed)
	}
	t.Logf("%d writes, %d lists, %d revisions read again, %d compacted; %d of %d comparisons held",
		m.writes.Load(), m.lists.Load(), m.again.Load(), m.compacted.Load(), m.held.Load(), m.compared.Load())
	if m.again.Load() == 0 || m.compacted.Load() == 0 || m.held.Load() == 0 {
		t.Error("the test shows nothing")
	}
}

// version is a key at a revision.
type version struct {
	key string
	mod int64
}

// model knows what was seen, by whomever and through whichever replica.
type model struct {
	t                                               *testing.T
	writes, lists, again, compacted, compared, held atomic.Int64
	writing                                         sync.RWMutex
	mu                                              sync.Mutex
	newest                                          int64              // the highest revision of a response that has come
	versions                                        map[version]string // "" of a deletion
	states                                          map[int64]string   // lists by their revision
	known                                           []version          // in the order in which they were seen
	caches                                          [2]*cache
}

func newModel(t *testing.T) *model {
	t.Helper()
	return &model{t: t, versions: map[version]string{}, states: map[int64]string{}, caches: [2]*cache{{}, {}}}
}

// before returns the revision that no linearizable response may be below whose request is sent afterwards.
func (m *model) before() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.newest
}

// response judges a linearizable response: the tenant's revision never goes back.
func (m *model) response(before, revision int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if revision < before {
		m.t.Errorf("a response has revision %d, one that came before its request was sent had %d", revision, before)
	}
	m.newest = max(m.newest, revision)
}

// saw judges a version of a key: one revision has one meaning.
func (m *model) saw(kv *mvccpb.KeyValue, value string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := version{string(kv.Key), kv.ModRevision}
	was, known := m.versions[v]
	switch {
	case !known:
		m.versions[v] = value
		m.known = append(m.known, v)
	case was != value:
		m.t.Errorf("%s at revision %d is %q, and was %q", v.key, v.mod, value, was)
	}
}

// state judges a list as of a revision: it is always the same.
func (m *model) state(revision int64, kvs []*mvccpb.KeyValue) {
	got := kvsText(kvs)
	m.mu.Lock()
	defer m.mu.Unlock()
	if was, known := m.states[revision]; known && was != got {
		m.t.Errorf("the list at revision %d is\n%s, and was\n%s", revision, got, was)
	}
	m.states[revision] = got
}

func kvsText(kvs []*mvccpb.KeyValue) string {
	var out strings.Builder
	for _, kv := range kvs {
		fmt.Fprintf(&out, "%s=%s@%d,%d ", kv.Key, kv.Value, kv.CreateRevision, kv.ModRevision)
	}
	return out.String()
}

// any returns something that was seen, old or new.
func (m *model) any(random *rand.Rand) (v version, value string, revision int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.known) == 0 || len(m.states) == 0 {
		return v, "", 0
	}
	v = m.known[len(m.known)-1-int(float64(len(m.known))*random.Float64()*random.Float64())]
	revisions := slices.Sorted(maps.Keys(m.states))
	return v, m.versions[v], revisions[random.IntN(len(revisions))]
}

const keys = "key-"

// write puts, deletes, or compares a version that was seen and puts: if that holds, the key has the value that it was seen with.
func (m *model) write(ctx context.Context, c *clientv3.Client, random *rand.Rand) {
	m.writing.RLock()
	defer m.writing.RUnlock()
	before := m.before()
	key, value := fmt.Sprint(keys, random.IntN(8)), fmt.Sprint(random.Uint64())
	var revision int64
	var err error
	switch random.IntN(4) {
	case 0:
		var r *clientv3.DeleteResponse
		if r, err = c.Delete(ctx, key); err == nil {
			revision = r.Header.Revision
		}
	case 1:
		var r *clientv3.PutResponse
		if r, err = c.Put(ctx, key, value); err == nil {
			revision = r.Header.Revision
		}
	default:
		revision, err = m.compare(ctx, c, random, value)
	}
	if err == nil {
		m.writes.Add(1)
		m.response(before, revision)
	}
}

func (m *model) compare(ctx context.Context, c *clientv3.Client, random *rand.Rand, value string) (revision int64, err error) {
	v, was, _ := m.any(random)
	if was == "" {
		v.key, v.mod = fmt.Sprint(keys, random.IntN(8)), 0
	}
	r, err := c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(v.key), "=", v.mod)).
		Then(clientv3.OpGet(v.key), clientv3.OpPut(v.key, value)).Commit()
	if err != nil {
		return 0, err
	}
	m.compared.Add(1)
	if r.Succeeded {
		m.held.Add(1)
		kvs := r.Responses[0].GetResponseRange().Kvs
		if len(kvs) != min(int(v.mod), 1) || len(kvs) > 0 && (string(kvs[0].Value) != was || kvs[0].ModRevision != v.mod) {
			m.t.Errorf("%s is compared with revision %d, where it was %q, and is %v", v.key, v.mod, was, kvs)
		}
	}
	return r.Header.Revision, nil
}

// read lists, or lists again as of a revision that was shown: the same, or compacted.
func (m *model) read(ctx context.Context, c *clientv3.Client, random *rand.Rand) {
	before := m.before()
	var options []clientv3.OpOption
	_, _, at := m.any(random)
	stale := random.IntN(4) == 0
	switch {
	case stale:
		options = append(options, clientv3.WithSerializable())
	case random.IntN(2) == 0:
		at = 0
	case at > 0:
		options = append(options, clientv3.WithRev(at))
	}
	if stale {
		at = 0
	}
	r, err := c.Get(ctx, keys, append(options, clientv3.WithPrefix())...)
	if errors.Is(err, rpctypes.ErrCompacted) {
		m.compacted.Add(1)
	}
	if err != nil {
		return
	}
	if !stale {
		m.response(before, r.Header.Revision)
	}
	if at == 0 {
		at = r.Header.Revision
		m.lists.Add(1)
	} else {
		m.again.Add(1)
	}
	m.state(at, r.Kvs)
	for _, kv := range r.Kvs {
		m.saw(kv, string(kv.Value))
	}
}

// compact compacts at the newest revision.
func (m *model) compact(ctx context.Context, c *clientv3.Client) {
	r := must.Get(c.Get(ctx, keys, clientv3.WithCountOnly())).Or(m.t)
	must.Get(c.Compact(ctx, r.Header.Revision)).Or(m.t)
}

// cache is what a reflector knows.
type cache struct {
	events   atomic.Int64
	mu       sync.Mutex
	revision int64
	items    map[string]*mvccpb.KeyValue
}

func (c *cache) text() (string, int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var kvs []*mvccpb.KeyValue
	for _, key := range slices.Sorted(maps.Keys(c.items)) {
		kvs = append(kvs, c.items[key])
	}
	return kvsText(kvs), c.revision
}

// reflect lists and watches as Kubernetes' reflectors do: a watch that ends is taken up after the last event that came, and only if that is compacted it lists
// again.
func (m *model) reflect(ctx context.Context, client *clientv3.Client, c *cache) {
	for ctx.Err() == nil {
		before := m.before()
		r, err := client.Get(ctx, keys, clientv3.WithPrefix())
		if err != nil {
			continue
		}
		m.response(before, r.Header.Revision)
		m.state(r.Header.Revision, r.Kvs)
		c.mu.Lock()
		c.revision, c.items = r.Header.Revision, map[string]*mvccpb.KeyValue{}
		for _, kv := range r.Kvs {
			c.items[string(kv.Key)] = kv
		}
		c.mu.Unlock()
		for ctx.Err() == nil && m.watch(ctx, client, c) {
			continue
		}
	}
}

// watch takes up a watch; false if it must list again.
func (m *model) watch(ctx context.Context, client *clientv3.Client, c *cache) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_, from := c.text()
	for answer := range client.Watch(ctx, keys, clientv3.WithPrefix(), clientv3.WithRev(from+1)) {
		if answer.CompactRevision > 0 {
			return false
		}
		if answer.Err() != nil {
			return true
		}
		for _, e := range answer.Events {
			m.event(c, e)
		}
	}
	return true
}

// event judges an event: its revision is after those that came before.
func (m *model) event(c *cache, e *clientv3.Event) {
	c.events.Add(1)
	value := ""
	if e.Type == mvccpb.Event_PUT {
		value = string(e.Kv.Value)
	}
	m.saw(e.Kv, value)
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.Kv.ModRevision < c.revision {
		m.t.Errorf("an event of revision %d after one of %d", e.Kv.ModRevision, c.revision)
	}
	c.revision = e.Kv.ModRevision
	if value == "" {
		delete(c.items, string(e.Kv.Key))
	} else {
		c.items[string(e.Kv.Key)] = e.Kv
	}
}

// settle waits until the reflectors have the last write, and judges their caches: they are the list.
func (m *model) settle(ctx context.Context, replicas []*served) {
	m.t.Helper()
	testkit.Eventually(m.t, "a last write", func() string {
		_, err := replicas[0].Client.Put(ctx, keys+"last", "x")
		return text(err)
	})
	list := must.Get(replicas[1].Client.Get(ctx, keys, clientv3.WithPrefix())).Or(m.t)
	for _, c := range m.caches {
		testkit.Eventually(m.t, "a reflector to come to the last write", func() string {
			if _, revision := c.text(); revision < list.Header.Revision {
				return fmt.Sprint(revision, " of ", list.Header.Revision)
			}
			return ""
		})
		if got, _ := c.text(); got != kvsText(list.Kvs) {
			m.t.Errorf("a reflector has\n%s, and the list is\n%s", got, kvsText(list.Kvs))
		}
	}
}

// fill stores keys until the quota refuses more, which is when there are as many as it allows.
func (m *model) fill(ctx context.Context, c *clientv3.Client, most int64) {
	m.t.Helper()
	more := 0
	testkit.Eventually(m.t, "the quota to be reached", func() string {
		more++
		_, err := c.Put(ctx, fmt.Sprint("more-", more), "x")
		stored := must.Get(c.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithCountOnly())).Or(m.t).Count
		if stored > most {
			m.t.Fatalf("%d keys are stored, want at most %d", stored, most)
		}
		if !errors.Is(err, rpctypes.ErrNoSpace) || stored < most {
			return fmt.Sprint(stored, " keys, ", err)
		}
		return ""
	})
}
