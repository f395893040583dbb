// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/internal/testkit/tenantproxy"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const (
	prefix  = "/history/a-tenant/"
	clients = 8
	keys    = 24
)

// A site is a core with two proxies of one tenant, each behind a relay.
type site struct {
	core    *clientv3.Client
	proxies []*tenantproxy.Binary
	relays  []*tenantproxy.Relay
}

func newSite(t *testing.T) *site {
	t.Helper()
	endpoint, _ := tenantproxy.StartEtcd(t, false)
	s := &site{core: tenantproxy.Dial(t, endpoint)}
	for range 2 {
		proxy := tenantproxy.NewBinary(t, endpoint, prefix, "a-tenant")
		s.proxies = append(s.proxies, proxy)
		s.relays = append(s.relays, tenantproxy.NewRelay(t, proxy.Address))
	}
	for _, proxy := range s.proxies {
		proxy.WaitReady(t)
	}
	return s
}

// client returns a client that knows both proxies and begins with one of them.
func (s *site) client(t *testing.T, first int) *clientv3.Client {
	t.Helper()
	endpoints := []string{s.relays[first%2].Address, s.relays[(first+1)%2].Address}
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 2 * time.Second, Logger: zap.NewNop()})
	must.Do(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// trouble kills a proxy, or cuts connections, until the context ends. It returns how often.
func (s *site) trouble(ctx context.Context, t *testing.T, chance *rand.Rand) (kills, cuts int) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return kills, cuts
		case <-time.After(time.Duration(100+chance.IntN(300)) * time.Millisecond):
		}
		n := chance.IntN(2)
		if chance.IntN(2) == 0 {
			s.relays[n].Cut()
			cuts++
			continue
		}
		s.proxies[n].Kill()
		s.proxies[n].Start(t)
		kills++
	}
	return kills, cuts
}

// A recorder keeps what clients saw.
type recorder struct {
	mu    sync.Mutex
	began time.Time
	ops   []porcupine.Operation
	lost  int
}

func (r *recorder) add(client int, in input, out output, call, ret time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	op := porcupine.Operation{ClientId: client, Input: in, Output: out, Call: call.Sub(r.began).Nanoseconds(), Return: ret.Sub(r.began).Nanoseconds()}
	if out.lost {
		r.lost++
		if in.kind == opGet {
			return // a read that was not answered says nothing
		}
		op.Return = math.MaxInt64 // it may still happen
	}
	r.ops = append(r.ops, op)
}

// work makes one operation after the other until the context ends.
func (r *recorder) work(ctx context.Context, n int, client *clientv3.Client, chance *rand.Rand) {
	last := make([]string, keys)
	for count := 0; ctx.Err() == nil; count++ {
		key := chance.IntN(keys)
		in := input{kind: chance.IntN(4), key: fmt.Sprintf("k%02d", key), value: fmt.Sprintf("%d-%d", n, count), expected: last[key]}
		call := time.Now()
		out := do(client, in)
		r.add(n, in, out, call, time.Now())
		if !out.lost && in.kind == opGet {
			last[key] = out.value
		}
	}
}

// do makes one operation, which is given up after a while.
func do(client *clientv3.Client, in input) output {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var out output
	var err error
	switch in.kind {
	case opGet:
		var resp *clientv3.GetResponse
		if resp, err = client.Get(ctx, in.key); err == nil && len(resp.Kvs) > 0 {
			out.value = string(resp.Kvs[0].Value)
		}
	case opPut:
		_, err = client.Put(ctx, in.key, in.value)
	case opDelete:
		_, err = client.Delete(ctx, in.key)
	default:
		out, err = swap(ctx, client, in)
	}
	out.lost = err != nil
	return out
}

func swap(ctx context.Context, client *clientv3.Client, in input) (output, error) {
	condition := clientv3.Compare(clientv3.Value(in.key), "=", in.expected)
	if in.expected == "" {
		condition = clientv3.Compare(clientv3.ModRevision(in.key), "=", 0)
	}
	resp, err := client.Txn(ctx).If(condition).Then(clientv3.OpPut(in.key, in.value)).Else(clientv3.OpGet(in.key)).Commit()
	if err != nil {
		return output{}, err
	}
	out := output{swapped: resp.Succeeded}
	if kvs := resp.Responses[0].GetResponseRange().GetKvs(); len(kvs) > 0 {
		out.value = string(kvs[0].Value)
	}
	return out, nil
}

// An event is what a watcher sees of one write.
type event struct {
	Type           string
	Key, Value     string
	Revision       int64
	Previous       string
	CreateRevision int64
}

func events(response clientv3.WatchResponse, strip int) []event {
	var out []event
	for _, e := range response.Events {
		seen := event{Type: e.Type.String(), Key: string(e.Kv.Key[strip:]), Value: string(e.Kv.Value), Revision: e.Kv.ModRevision, CreateRevision: e.Kv.CreateRevision}
		if e.PrevKv != nil {
			seen.Previous = string(e.PrevKv.Value)
		}
		out = append(out, seen)
	}
	return out
}

// follow watches everything from a revision on until it has seen the key "end", and watches again after the last revision when a watch ends.
func follow(ctx context.Context, client *clientv3.Client, prefix string, revision int64) ([]event, int, error) {
	var seen []event
	for watches := 1; ; watches++ {
		watch, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
		for response := range client.Watch(watch, prefix, clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithRev(revision)) {
			if response.CompactRevision != 0 {
				cancel()
				return seen, watches, errors.New("what was watched has been compacted")
			}
			for _, e := range events(response, len(prefix)) {
				seen = append(seen, e)
				revision = e.Revision + 1
				if e.Key == "end" {
					cancel()
					return seen, watches, nil
				}
			}
		}
		cancel()
		if err := ctx.Err(); err != nil {
			return seen, watches, fmt.Errorf("after %d events: %w", len(seen), err)
		}
	}
}

// TestFailuresInBetweenLoseAndRepeatNothing lets clients and watchers work while everything between them and the core fails.
func TestFailuresInBetweenLoseAndRepeatNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	start := must.Get(s.core.Get(t.Context(), "any", clientv3.WithCountOnly())).Or(t)
	first := start.Header.Revision + 1
	patience, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var watchers sync.WaitGroup
	seen := make([][]event, 4)
	for n := range seen {
		client := s.client(t, n)
		watchers.Go(func() {
			var watches int
			var err error
			if seen[n], watches, err = follow(patience, client, "", first); err != nil {
				t.Errorf("watcher %d: %v", n, err)
			}
			t.Logf("watcher %d: %d events, %d watches", n, len(seen[n]), watches)
		})
	}
	r := s.work(t)
	must.Get(s.core.Put(t.Context(), prefix+"end", "now")).Or(t)
	watchers.Wait()
	want, _, err := follow(patience, s.core, prefix, first)
	must.Do(t, err)
	for n, got := range seen {
		if !slices.Equal(got, want) {
			t.Errorf("watcher %d saw another history than the core has (- core, + watcher): %.3000s", n, cmp.Diff(want, got))
		}
	}
	switch result := porcupine.CheckOperationsTimeout(model(), r.ops, 2*time.Minute); result {
	case porcupine.Ok:
	case porcupine.Unknown:
		t.Error("whether the history is linearizable could not be found out in two minutes")
	default:
		t.Errorf("the history of %d operations is not linearizable", len(r.ops))
	}
}

// work lets clients work amid trouble for a while.
func (s *site) work(t *testing.T) *recorder {
	t.Helper()
	seed := cases.Seed(t)
	working, stop := context.WithTimeout(t.Context(), time.Duration(cases.Number(t, 8, 8, 60))*time.Second)
	defer stop()
	r := &recorder{began: time.Now()}
	var wg sync.WaitGroup
	for n := range clients {
		client := s.client(t, n)
		wg.Go(func() { r.work(working, n, client, rand.New(rand.NewPCG(seed, uint64(n)))) })
	}
	kills, cuts := s.trouble(working, t, rand.New(rand.NewPCG(seed, clients)))
	wg.Wait()
	t.Logf("%d operations, %d of them without a response; %d kills, %d cuts", len(r.ops), r.lost, kills, cuts)
	if len(r.ops) < 100 || kills == 0 || cuts == 0 {
		t.Error("that is too little to show anything")
	}
	return r
}
