// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/mooring-dev/mooring/internal/etcdstorage/proxy"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// knows waits until a replica divides the budgets among so many.
func (s *served) knows(tb testing.TB, replicas float64) {
	tb.Helper()
	testkit.Eventually(tb, fmt.Sprint("a replica to know of ", replicas), func() string {
		if got := metric(tb, s.Registry, "mooring_etcdstorage_proxy_replicas"); got != replicas {
			return fmt.Sprint("it knows of ", got)
		}
		return ""
	})
}

// gets makes gets through proxies as fast as they let them, for three seconds, and returns how many of them a second the core
// has had in the last two: what they may have at once is used up in the first, without a pause in which it comes back.
func gets(t *testing.T, core string, proxies ...*served) float64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	first, end := context.WithTimeout(ctx, time.Second)
	defer end()
	var work sync.WaitGroup
	for _, p := range proxies {
		for range 16 {
			work.Go(func() {
				kv := etcdserverpb.NewKVClient(raw(t, p.Endpoint))
				for ctx.Err() == nil {
					_, _ = kv.Range(ctx, &etcdserverpb.RangeRequest{Key: []byte("k")})
				}
			})
		}
	}
	<-first.Done()
	before, begun := handled(t, core)["Range"], time.Now()
	work.Wait()
	return (handled(t, core)["Range"] - before) / time.Since(begun).Seconds()
}

// Two replicas together let the tenant use no more of the core than one: within a tenth. When one leaves the other has the
// whole at once, and when one dies as soon as its record has expired.
func TestReplicasShareOneBudget(t *testing.T) {
	t.Parallel()
	const rate, expiry = 400, 3 * time.Second
	core := testkit.NewEtcd(t)
	cfg := configure(t, core.Endpoint)
	cfg.UnitsPerSecond, cfg.ReplicaExpiry = rate, expiry
	judge := func(what string, got float64) {
		t.Helper()
		t.Logf("%s: %.0f gets a second", what, got)
		if got > 1.1*rate || got < 0.8*rate {
			t.Errorf("%s have given the core %.0f units a second, want %d", what, got, rate)
		}
	}
	first := start(t, cfg)
	first.knows(t, 1)
	judge("one", gets(t, core.Endpoint, first))
	second := start(t, cfg)
	first.knows(t, 2)
	second.knows(t, 2)
	judge("two", gets(t, core.Endpoint, first, second))
	second.stop()
	first.knows(t, 1)

	mortal, die := context.WithCancel(t.Context())
	third := &served{Registry: prometheus.NewRegistry()}
	cfg.Registry = third.Registry
	third.Proxy = must.Get(proxy.New(mortal, cfg)).Or(t)
	first.knows(t, 2)
	die() // without a word
	died := time.Now()
	first.knows(t, 1)
	// The core ends leases twice a second.
	if after := time.Since(died); after > expiry+2*time.Second {
		t.Errorf("the record of a replica that died was there for %v, want at most %v and a moment", after, expiry)
	}
	judge("the one that is left", gets(t, core.Endpoint, first))
}

// The seats at the core are the tenant's, too: its replicas have them together, and one more when one leaves.
func TestReplicasShareSeats(t *testing.T) {
	t.Parallel()
	const seats = 5
	etcd := testkit.NewEtcd(t)
	core := newHeldCore(t, etcd.Endpoint)
	cfg := configure(t, core.Endpoint)
	cfg.InFlight = seats
	first, second := start(t, cfg), start(t, cfg)
	first.knows(t, 2)
	second.knows(t, 2)
	release := core.hold(etcdserverpb.KV_Put_FullMethodName, false)
	defer release()
	var work sync.WaitGroup
	for _, p := range []*served{first, second} {
		kv := etcdserverpb.NewKVClient(raw(t, p.Endpoint))
		for range 3 * seats {
			work.Go(func() { _, _ = kv.Put(t.Context(), &etcdserverpb.PutRequest{Key: []byte("k")}) })
		}
	}
	have := func(want int64) {
		t.Helper()
		testkit.Eventually(t, "the seats to be taken", func() string {
			if got := core.working.Load(); got < want {
				return fmt.Sprint(got, " are")
			}
			return ""
		})
	}
	have(seats)
	if most := core.most.Load(); most > seats {
		t.Errorf("%d requests of two replicas were with the core at one time, want %d", most, seats)
	}
	release()
	work.Wait()
	second.stop()
	first.knows(t, 1)
	release = core.hold(etcdserverpb.KV_Put_FullMethodName, false)
	defer release()
	kv := etcdserverpb.NewKVClient(raw(t, first.Endpoint))
	for range 3 * seats {
		work.Go(func() { _, _ = kv.Put(t.Context(), &etcdserverpb.PutRequest{Key: []byte("k")}) })
	}
	have(seats)
	release()
	work.Wait()
	if most := core.most.Load(); most != seats {
		t.Errorf("%d requests of one replica were with the core at one time, want %d", most, seats)
	}
}

// A replica that cannot know of others has the share that the configuration gives it.
func TestReplicasThatAreConfigured(t *testing.T) {
	t.Parallel()
	const rate = 400
	core := testkit.NewEtcd(t)
	cfg := configure(t, core.Endpoint)
	cfg.UnitsPerSecond, cfg.Replicas, cfg.SystemPrefix = rate, 2, ""
	p := start(t, cfg)
	p.knows(t, 2)
	if got := gets(t, core.Endpoint, p); got > 1.1*rate/2 || got < 0.8*rate/2 {
		t.Errorf("one of two has given the core %.0f units a second, want %d", got, rate/2)
	}
}
