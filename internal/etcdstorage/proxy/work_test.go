// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/etcdstorage/quota"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// fillKeys stores n keys of the tenant below a prefix, past the proxy.
func fillKeys(tb testing.TB, core *clientv3.Client, prefix string, n int) {
	tb.Helper()
	const together = 100
	for from := 0; from < n; from += together {
		var puts []clientv3.Op
		for i := from; i < min(from+together, n); i++ {
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("/a/%s%07d", prefix, i), ""))
		}
		must.Get(core.Txn(tb.Context()).Then(puts...).Commit()).Or(tb)
	}
}

func repeatOp(n int, op clientv3.Op) []clientv3.Op {
	out := make([]clientv3.Op, n)
	for i := range out {
		out[i] = op
	}
	return out
}

// What the core would do as one piece of work has a bound in keys: 2,000 for what its apply loop does, 10,000 for the
// rest. What API servers send has none, and neither have ranges over few keys, however many keys the tenant has.
func TestOneRequestHasABound(t *testing.T) {
	t.Parallel()
	core := testkit.NewEtcd(t)
	direct := client(t, core.Endpoint)
	fillKeys(t, direct, "many/", 2100)
	fillKeys(t, direct, "few/", 10)
	many := func(opts ...clientv3.OpOption) clientv3.Op {
		return clientv3.OpGet("many/", append(opts, clientv3.WithPrefix())...)
	}
	count, few := many(clientv3.WithCountOnly()), clientv3.OpGet("few/", clientv3.WithPrefix())
	put, get := clientv3.OpPut("k", "v"), clientv3.OpGet("k")
	inside := func(ops ...clientv3.Op) clientv3.Op { return clientv3.OpTxn(nil, nil, ops) }
	of := func(ops ...clientv3.Op) clientv3.Op { return clientv3.OpTxn(nil, ops, nil) }
	compare := clientv3.Compare(clientv3.CreateRevision("many/").WithPrefix(), ">", 0)
	tooMany, tooLarge := rpctypes.ErrorDesc(rpctypes.ErrGRPCTooManyOps), rpctypes.ErrorDesc(rpctypes.ErrGRPCRequestTooLarge)
	for name, c := range map[string]struct {
		op     clientv3.Op
		refuse string // with this text; "" is done
	}{
		"counts and a put":              {of(append(repeatOp(100, count), put)...), tooMany},
		"one count and a put":           {of(count, put), tooMany},
		"a count in the other branch":   {clientv3.OpTxn(nil, []clientv3.Op{put}, []clientv3.Op{count}), tooMany},
		"a count inside":                {of(put, inside(inside(count))), tooMany},
		"reads inside alone":            {of(inside(count)), tooMany}, // the core's apply loop does these, too
		"limit 1 and a put":             {of(many(clientv3.WithLimit(1)), put), tooMany},
		"sorted and a put":              {of(many(clientv3.WithSort(clientv3.SortByValue, clientv3.SortAscend), clientv3.WithLimit(1)), put), tooMany},
		"filtered and a put":            {of(many(clientv3.WithMaxModRev(1)), put), tooMany},
		"a compare of a range":          {clientv3.OpTxn([]clientv3.Cmp{compare}, []clientv3.Op{put}, nil), tooMany},
		"a deletion in a Txn":           {of(clientv3.OpDelete("many/", clientv3.WithPrefix())), tooMany},
		"few keys many times and a put": {of(append(repeatOp(120, inside(repeatOp(3, few)...)), put)...), tooMany},
		"many counts":                   {of(repeatOp(100, count)...), tooMany},
		"a deletion of all":             {clientv3.OpDelete("many/", clientv3.WithPrefix(), clientv3.WithPrevKV()), ""},
		"a deletion of too many":        {clientv3.OpDelete("huge/", clientv3.WithPrefix()), tooLarge},
		"two counts":                    {of(count, count), ""},
		"a list":                        {many(), ""},
		"few keys and a put":            {of(few, put), ""},
		"as an API server": {clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision("k"), "=", 0)},
			[]clientv3.Op{put}, []clientv3.Op{get}), ""},
		"single keys": {of(append(repeatOp(100, get), put)...), ""},
	} {
		if strings.Contains(name, "too many") {
			fillKeys(t, direct, "huge/", 10_100)
		}
		for _, history := range []int64{0, 1 << 30} { // without a count of the keys, and with one
			if c.op.IsDelete() && c.refuse == "" {
				fillKeys(t, direct, "many/", 2100)
			}
			cfg := configure(t, core.Endpoint)
			cfg.HistoryBytes, cfg.InFlight = history, 8
			p := start(t, cfg)
			_, err := p.Client.Do(t.Context(), c.op)
			refused := metric(t, p.Registry, "mooring_etcdstorage_proxy_refused_total", "work")
			switch {
			case c.refuse == "" && (err != nil || refused != 0):
				t.Errorf("%s: %v, %v refused", name, err, refused)
			case c.refuse != "" && (status.Code(err) != codes.InvalidArgument || !strings.Contains(fmt.Sprint(err), c.refuse) || refused != 1):
				t.Errorf("%s: %v, %v refused; want %s", name, err, refused, c.refuse)
			}
			noneInFlight(t, p)
			p.stop()
		}
		if c.op.IsDelete() {
			fillKeys(t, direct, "many/", 2100)
		}
	}
}

// mostKeys is how many keys a call may make the core visit that is done as one; larger ones are refused, or done in
// parts, of which a second may not see the end.
const mostKeys = 10_000

// attack is one request that an attacker repeats, and what it makes the core do each time.
type attack struct {
	op   func(n int64) clientv3.Op
	work quota.Work
	most int64 // calls that there is work for; 0 is any number
}

// attacksOfWork are cheap to send and to answer, and dear to do. The core has keys of the tenant below many/, and below
// del/0/, del/1/ and so on a thousand each.
func attacksOfWork(keys, deletions int64) map[string]attack {
	same := func(key string, opts ...clientv3.OpOption) func(int64) clientv3.Op {
		op := clientv3.OpGet(key, opts...)
		return func(int64) clientv3.Op { return op }
	}
	txn := func(ops ...clientv3.Op) func(int64) clientv3.Op {
		return func(int64) clientv3.Op { return clientv3.OpTxn(nil, ops, nil) }
	}
	prefix, one := clientv3.WithPrefix(), clientv3.WithLimit(1)
	part := clientv3.OpGet("many/0000000", clientv3.WithRange("many/0001900"), clientv3.WithCountOnly())
	compares := make([]clientv3.Cmp, 128)
	for i := range compares {
		compares[i] = clientv3.Compare(clientv3.Version("k"), "=", 0)
	}
	return map[string]attack{
		"get":   {op: same("k"), work: quota.Work{Calls: 1}},
		"count": {op: same("many/", prefix, clientv3.WithCountOnly()), work: quota.Work{Calls: 1, Keys: keys}},
		"count of other ranges": {op: func(n int64) clientv3.Op {
			return clientv3.OpGet("many/", clientv3.WithRange(fmt.Sprintf("many0%d", n)), clientv3.WithCountOnly())
		}, work: quota.Work{Calls: 1, Keys: keys}},
		"limit 1":              {op: same("many/", prefix, one), work: quota.Work{Calls: 1, Keys: keys}},
		"limit 1 and filtered": {op: same("many/", prefix, one, clientv3.WithMaxModRev(1)), work: quota.Work{Calls: 1, Keys: keys, Values: keys}},
		"limit 1 and sorted": {
			op:   same("many/", prefix, one, clientv3.WithSort(clientv3.SortByValue, clientv3.SortDescend)),
			work: quota.Work{Calls: 1, Keys: keys, Values: keys},
		},
		"keys only":              {op: same("many/", prefix, clientv3.WithKeysOnly()), work: quota.Work{Calls: 1, Keys: keys}},
		"a Txn of counts":        {op: txn(part, part, part, part, part), work: quota.Work{Calls: 1, Keys: 5 * 1900}},
		"a Txn of counts inside": {op: txn(clientv3.OpTxn(nil, []clientv3.Op{part, clientv3.OpPut("k", "")}, nil)), work: quota.Work{Calls: 1, Logged: 1, Keys: 1900}},
		"a Txn of too many":      {op: txn(append(repeatOp(100, part), clientv3.OpPut("k", ""))...), work: quota.Work{Calls: 1, Logged: 1, Keys: 100 * 1900}},
		"many compares": {
			op:   func(int64) clientv3.Op { return clientv3.OpTxn(compares, nil, []clientv3.Op{clientv3.OpPut("k", "")}) },
			work: quota.Work{Calls: 1, Logged: 1, Parts: 128},
		},
		"deletions": {op: func(n int64) clientv3.Op { return clientv3.OpDelete(fmt.Sprintf("del/%d/", n%deletions), prefix) },
			work: quota.Work{Calls: 1, Logged: 1, Keys: 1000, Deleted: 1000}, most: deletions},
		"deletions with values": {op: func(n int64) clientv3.Op {
			return clientv3.OpDelete(fmt.Sprintf("del/%d/", n%deletions), prefix, clientv3.WithPrevKV())
		},
			work: quota.Work{Calls: 1, Logged: 1, Keys: 1000, Deleted: 1000}, most: deletions},
	}
}

// Whatever a tenant does as fast as it can, the work that it makes the core do is no more than its budget: counted in
// units by what the core has done, not by what the proxy took for it.
func TestAttacksPayForTheirWork(t *testing.T) {
	t.Parallel()
	const keys, deletions, rate, inFlight = 12_000, 30, 200, 8
	core := testkit.NewEtcd(t)
	direct := client(t, core.Endpoint)
	fillKeys(t, direct, "many/", keys)
	for name, a := range attacksOfWork(keys, deletions) {
		if a.most > 0 {
			for n := range deletions {
				fillKeys(t, direct, fmt.Sprintf("del/%d/", n), 1000)
			}
		}
		cfg := configure(t, core.Endpoint)
		cfg.UnitsPerSecond, cfg.InFlight, cfg.HistoryBytes = rate, inFlight, 1<<30
		p := start(t, cfg)
		testkit.Eventually(t, "the keys to be counted", func() string {
			if metric(t, p.Registry, "mooring_etcdstorage_proxy_keys") < keys {
				return "they are not"
			}
			return ""
		})
		done, elapsed, puts := assault(t, p, a, direct)
		if a.most > 0 {
			done = min(done, a.most)
		}
		units := float64(done) * a.work.Units()
		// A second's worth of each class at once; and what had a place at the core when its price was found out.
		most := rate*(2+elapsed.Seconds()) + inFlight/4*a.work.Units() + 32*1
		t.Logf("%-24s %5d done, %8.0f keys visited a second, %6.0f units a second; the neighbor's put p99 %v",
			name, done, float64(done*a.work.Keys)/elapsed.Seconds(), units/elapsed.Seconds(), puts)
		if done == 0 && a.work.Keys <= mostKeys || units > most {
			t.Errorf("%s: %d done, %.0f units of the core's work in %v, want at most %.0f", name, done, units, elapsed, most)
		}
		p.stop()
	}
}

// Keys that are deleted cost the core as much as others until it is compacted: a range over them is paid for, and a Txn
// that writes may have no more of them. Afterwards they cost nothing.
func TestDeletedKeysArePaidFor(t *testing.T) {
	t.Parallel()
	const keys, rate, inFlight = 12_000, 200, 8
	core := testkit.NewEtcd(t)
	direct := client(t, core.Endpoint)
	fillKeys(t, direct, "gone/", keys)
	cfg := configure(t, core.Endpoint)
	cfg.UnitsPerSecond, cfg.InFlight, cfg.HistoryBytes = rate, inFlight, 1<<30
	p := start(t, cfg)
	has := func(want float64) {
		t.Helper()
		testkit.Eventually(t, "the keys to be counted", func() string {
			if got := metric(t, p.Registry, "mooring_etcdstorage_proxy_keys"); got != want {
				return fmt.Sprint(got)
			}
			return ""
		})
	}
	has(keys)
	must.Get(direct.Delete(t.Context(), "/a/gone/", clientv3.WithPrefix())).Or(t)
	has(0)
	count := clientv3.OpGet("gone/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	txn := func() error {
		_, err := p.Client.Txn(t.Context()).Then(count, clientv3.OpPut("k", "")).Commit()
		return err
	}
	if err := txn(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a Txn that writes looks at %d deleted keys: %v", keys, err)
	}
	a := attack{op: func(int64) clientv3.Op { return count }, work: quota.Work{Calls: 1, Keys: keys}}
	done, elapsed, _ := assault(t, p, a, direct)
	units := float64(done) * a.work.Units()
	if most := rate*(2+elapsed.Seconds()) + inFlight/4*a.work.Units() + 32; done == 0 || units > most {
		t.Errorf("%d done, %.0f units of the core's work in %v, want at most %.0f", done, units, elapsed, most)
	}
	later := must.Get(direct.Put(t.Context(), "/b/k", "")).Or(t)
	must.Get(direct.Compact(t.Context(), later.Header.Revision)).Or(t)
	testkit.Eventually(t, "the compaction to be noticed", func() string { return text(txn()) })
}

// How large a value is that is read nobody knows before. Of those that were let in, none gets to the core while what
// those before it have turned out to need is more than may come at once.
func TestWhatWaitsForASeatPaysForThoseBeforeIt(t *testing.T) {
	t.Parallel()
	const rate, inFlight, size, calls = 200, 2, 1 << 20, 200
	core := testkit.NewEtcd(t)
	must.Get(client(t, core.Endpoint).Put(t.Context(), "/a/large", strings.Repeat("v", size))).Or(t)
	cfg := configure(t, core.Endpoint)
	cfg.UnitsPerSecond, cfg.InFlight = rate, inFlight
	p := start(t, cfg)
	must.Do(t, p.Ready(t.Context()))
	p.knows(t, 1)
	var work sync.WaitGroup
	before, begun := handled(t, core.Endpoint)["Range"], time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	work.Go(func() { // two seconds, and on a busy machine until one is with the core
		defer cancel()
		<-time.After(2 * time.Second)
		for ctx.Err() == nil && handled(t, core.Endpoint)["Range"] == before {
			<-time.After(50 * time.Millisecond)
		}
	})
	kv := raw(t, p.Endpoint)
	for range calls {
		work.Go(func() {
			_, _ = etcdserverpb.NewKVClient(kv).Range(ctx, &etcdserverpb.RangeRequest{Key: []byte("large")})
		})
	}
	work.Wait()
	each := quota.Work{Calls: 1, Read: size}.Units()
	units := (handled(t, core.Endpoint)["Range"] - before) * each
	if most := rate*(2+time.Since(begun).Seconds()) + inFlight*each + calls; units == 0 || units > most {
		t.Errorf("%.0f units of the core's work in %v, want at most %.0f", units, time.Since(begun), most)
	}
}

// assault repeats an attack from 32 goroutines while a neighbor puts, for a second, and until one call that is small
// enough for the core has been answered: on a busy machine a second may be too short for the first.
func assault(t *testing.T, p *served, a attack, neighbor *clientv3.Client) (done int64, elapsed, p99 time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var made, answered atomic.Int64
	var work sync.WaitGroup
	begun := time.Now()
	over := func() bool {
		served := answered.Load() > 0 || a.work.Keys > mostKeys
		return ctx.Err() != nil || served && time.Since(begun) > time.Second
	}
	for range 32 {
		c := client(t, p.Endpoint)
		work.Go(func() {
			for ctx.Err() == nil {
				if _, err := c.Do(ctx, a.op(made.Add(1)-1)); err == nil {
					answered.Add(1)
				}
			}
		})
	}
	var puts []time.Duration
	next := time.NewTicker(10 * time.Millisecond)
	defer next.Stop()
	for first := true; first || !over(); first = false { // on a busy machine the second may be over by now
		<-next.C
		at := time.Now()
		if _, err := neighbor.Put(t.Context(), "/b/k", "v"); err != nil {
			t.Error(err)
		}
		puts = append(puts, time.Since(at))
	}
	cancel()
	work.Wait()
	slices.Sort(puts)
	return answered.Load(), time.Since(begun), puts[len(puts)*99/100]
}

// A watch from a revision in the past pays for all that was written since, by whomever.
func TestWatchesFromThePastPayForTheDistance(t *testing.T) {
	t.Parallel()
	const rate = 100
	core := testkit.NewEtcd(t)
	direct := client(t, core.Endpoint)
	for range 1000 {
		must.Get(direct.Put(t.Context(), "/b/k", "")).Or(t)
	}
	cfg := configure(t, core.Endpoint)
	cfg.UnitsPerSecond = rate
	p := start(t, cfg)
	now := must.Get(p.Client.Get(t.Context(), "k")).Or(t)
	distance := now.Header.Revision - 1
	begun, created := time.Now(), 0
	watch := func(ctx context.Context) {
		watching, end := context.WithCancel(ctx)
		defer end()
		if answer := <-p.Client.Watch(watching, "k", clientv3.WithRev(1), clientv3.WithCreatedNotify()); answer.Created {
			created++
		}
	}
	watch(t.Context()) // on a busy machine a second may be too short for it
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for ctx.Err() == nil {
		watch(ctx)
	}
	each := quota.Work{Revisions: distance}.Units()
	if most := rate*(2+time.Since(begun).Seconds()) + each; created == 0 || float64(created)*each > most {
		t.Errorf("%d watches over %d revisions were let in, %.0f units, want at most %.0f", created, distance, float64(created)*each, most)
	}
}
