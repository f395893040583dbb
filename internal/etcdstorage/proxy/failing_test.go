// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mooring-dev/mooring/internal/etcdstorage/proxy"
	"github.com/mooring-dev/mooring/internal/etcdstorage/quota"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// failing is a call that fails for the tenant, or whose response says little, after the core has worked.
type failing struct {
	call func(ctx context.Context, c *clientv3.Client, n int64)
	// works is what the core does for each call of a method that it receives.
	works map[string]quota.Work
	setup func(*proxy.Config)
	// large is set for what has the seats of large requests.
	large bool
}

const (
	bigKeys     = 320
	bigValue    = 64 << 10
	otherLeases = 1000
)

// failingCalls is the table: every RPC that makes the core read or write, and fails. The tenant has bigKeys of bigValue below big/.
func failingCalls() map[string]failing {
	do := func(op clientv3.Op) func(context.Context, *clientv3.Client, int64) {
		return func(ctx context.Context, c *clientv3.Client, _ int64) { _, _ = c.Do(ctx, op) }
	}
	givenUp := func(op clientv3.Op) func(context.Context, *clientv3.Client, int64) {
		return func(ctx context.Context, c *clientv3.Client, n int64) {
			ctx, cancel := context.WithTimeout(ctx, time.Duration(1+n%40)*time.Millisecond)
			defer cancel()
			_, _ = c.Do(ctx, op)
		}
	}
	logged := quota.Work{Calls: 1, Logged: 1}
	read := quota.Work{Calls: 1, Keys: bigKeys, Read: bigKeys * bigValue}
	scanned := quota.Work{Calls: 1, Keys: bigKeys, Values: bigKeys, Scanned: bigKeys * bigValue}
	compared := scanned
	compared.Logged = 1
	prefix := clientv3.WithPrefix()
	compare := clientv3.Compare(clientv3.CreateRevision("big/").WithPrefix(), ">", 0)
	future := clientv3.OpGet("k", clientv3.WithRev(1<<40))
	return map[string]failing{
		"a list that is given up": {call: givenUp(clientv3.OpGet("big/", prefix)), works: map[string]quota.Work{"Range": read}, large: true},
		"a page that is given up": {
			call: givenUp(clientv3.OpGet("big/", prefix, clientv3.WithLimit(bigKeys))), works: map[string]quota.Work{"Range": read}, large: true,
		},
		"a response that is too large": {
			call: do(clientv3.OpGet("big/", prefix)), works: map[string]quota.Work{"Range": read}, large: true,
			setup: func(cfg *proxy.Config) { cfg.AnswerBytes = 4 << 20 },
		},
		"a filter that nothing passes": {
			call: do(clientv3.OpGet("big/", prefix, clientv3.WithMaxModRev(1))), works: map[string]quota.Work{"Range": scanned}, large: true,
		},
		"a compare of large values, and a future revision": {
			call:  do(clientv3.OpTxn([]clientv3.Cmp{compare}, []clientv3.Op{future, clientv3.OpPut("k", "")}, nil)),
			works: map[string]quota.Work{"Txn": compared}, large: true,
		},
		"a put with a lease that does not exist": {
			call:  do(clientv3.OpPut("k", strings.Repeat("v", bigValue), clientv3.WithLease(77))),
			works: map[string]quota.Work{"Put": {Calls: 1, Logged: 1, Written: bigValue}},
		},
		"a lease that does not exist": {
			call:  func(ctx context.Context, c *clientv3.Client, n int64) { _, _ = c.Revoke(ctx, clientv3.LeaseID(1000+n)) },
			works: map[string]quota.Work{"LeaseRevoke": logged},
		},
		"a list of leases, of which none is the tenant's": {
			call:  func(ctx context.Context, c *clientv3.Client, _ int64) { _, _ = c.Leases(ctx) },
			works: map[string]quota.Work{"LeaseLeases": {Calls: 1, Values: otherLeases}},
		},
		"compactions at the same time": {
			call: func(ctx context.Context, c *clientv3.Client, _ int64) {
				if put, err := c.Put(ctx, "k", ""); err == nil {
					_, _ = c.Compact(ctx, put.Header.Revision)
				}
			},
			works: map[string]quota.Work{"Put": logged, "Txn": logged, "Range": {Calls: 1}},
		},
	}
}

// handled is how many calls the core has received, by their method.
func handled(t *testing.T, core string) map[string]float64 {
	t.Helper()
	if !strings.Contains(core, "://") {
		core = "http://" + core
	}
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, core+"/metrics", nil)).Or(t)
	response, err := http.DefaultClient.Do(request)
	must.Do(t, err)
	defer func() { _ = response.Body.Close() }()
	out := map[string]float64{}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if series, ours := strings.CutPrefix(lines.Text(), `grpc_server_started_total{grpc_method="`); ours {
			method, value, _ := strings.Cut(series, `"`)
			out[method] += must.Get(strconv.ParseFloat(value[strings.LastIndex(value, " ")+1:], 64)).Or(t)
		}
	}
	return out
}

// Whatever fails for a tenant, or tells it little, is paid for by what the core has done: counted at the core.
func TestWhatFailsIsPaidFor(t *testing.T) {
	t.Parallel()
	const rate, inFlight = 1000, 8
	core := testkit.NewEtcd(t)
	direct := client(t, core.Endpoint)
	value := strings.Repeat("v", bigValue)
	for from := 0; from < bigKeys; from += 16 {
		var puts []clientv3.Op
		for i := range 16 {
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("/a/big/%05d", from+i), value))
		}
		must.Get(direct.Txn(t.Context()).Then(puts...).Commit()).Or(t)
	}
	for i := range otherLeases {
		id := int64(1)<<62 + int64(i)
		must.Get(etcdserverpb.NewLeaseClient(direct.ActiveConnection()).LeaseGrant(t.Context(),
			&etcdserverpb.LeaseGrantRequest{TTL: 600, ID: id})).Or(t)
	}
	for name, f := range failingCalls() {
		cfg := configure(t, core.Endpoint)
		cfg.UnitsPerSecond, cfg.InFlight, cfg.HistoryBytes = rate, inFlight, 1<<30
		cfg.Quota = quota.Limits{Keys: 1 << 30} // with one the keys are counted at once
		if f.setup != nil {
			f.setup(&cfg)
		}
		p := start(t, cfg)
		must.Do(t, p.Ready(t.Context())) // once they are counted
		before := handled(t, core.Endpoint)
		elapsed := repeated(t, p, f)
		p.stop()
		units, dearest, calls := 0.0, 0.0, 0.0
		for method, n := range handled(t, core.Endpoint) {
			each := f.works[method].Units()
			units, dearest, calls = units+(n-before[method])*each, max(dearest, each), calls+n-before[method]
		}
		// A second's worth of each class at once; and what had a place at the core when its price was found out.
		seats := inFlight
		if f.large {
			seats = inFlight / 4
		}
		most := rate*(2+elapsed.Seconds()) + float64(seats)*dearest + 32
		t.Logf("%-50s %6.0f calls at the core, %7.0f units of work, at most %.0f", name, calls, units, most)
		if units == 0 || units > most {
			t.Errorf("%s: %.0f units of the core's work in %v, want at most %.0f", name, units, elapsed, most)
		}
	}
}

// repeated makes the call from 32 goroutines for a second, and returns when none is under way.
func repeated(t *testing.T, p *served, f failing) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var made atomic.Int64
	var work sync.WaitGroup
	begun := time.Now()
	for range 32 {
		c := client(t, p.Endpoint)
		work.Go(func() {
			defer func() { _ = c.Close() }() // a proxy that stops waits for its clients
			for ctx.Err() == nil {
				f.call(ctx, c, made.Add(1))
			}
		})
	}
	work.Wait()
	noneInFlight(t, p)
	return time.Since(begun)
}
