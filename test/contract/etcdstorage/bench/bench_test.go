// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A load is what one of several clients does again and again.
type load struct {
	clients int
	once    func(ctx context.Context, client *clientv3.Client, prefix string, chance *rand.Rand) error
}

// belowSplice is how much less than through a TCP relay a client may have through the proxy, as a part of what it has directly.
const belowSplice = 0.05

const (
	keys    = 1000
	listed  = 500
	fullLen = 1024
)

func get(ctx context.Context, client *clientv3.Client, prefix string, chance *rand.Rand) error {
	_, err := client.Get(ctx, fmt.Sprintf("%skeys/%06d", prefix, chance.IntN(keys)))
	return err
}

func put(ctx context.Context, client *clientv3.Client, prefix string, chance *rand.Rand) error {
	_, err := client.Put(ctx, fmt.Sprintf("%sputs/%06d", prefix, chance.IntN(keys)), strings.Repeat("v", fullLen))
	return err
}

// txn is how an API server creates: it writes unless the key is there, and reads it then.
func txn(ctx context.Context, client *clientv3.Client, prefix string, chance *rand.Rand) error {
	key := fmt.Sprintf("%stxns/%06d", prefix, chance.IntN(100*keys))
	_, err := client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, strings.Repeat("v", fullLen))).Else(clientv3.OpGet(key)).Commit()
	return err
}

func list(ctx context.Context, client *clientv3.Client, prefix string, _ *rand.Rand) error {
	resp, err := client.Get(ctx, prefix+"list/", clientv3.WithPrefix())
	if err == nil && len(resp.Kvs) != listed {
		err = fmt.Errorf("the list has %d of %d keys", len(resp.Kvs), listed)
	}
	return err
}

// BenchmarkProxy prints one row for each kind of load, and the table of all rows at the end.
func BenchmarkProxy(b *testing.B) {
	t := table{columns: "load\ttarget\tfigure\tratio to direct\tgoal\tand"}
	s := newSite(b, false)
	s.fill(b, "keys/", keys)
	s.fill(b, "list/", listed)
	for _, row := range []struct {
		name string
		once func(ctx context.Context, client *clientv3.Client, prefix string, chance *rand.Rand) error
	}{{"get", get}, {"put", put}, {"txn", txn}, {"list", list}} {
		for _, clients := range []int{1, 16, 64} {
			name := fmt.Sprintf("%s-%d", row.name, clients)
			b.Run(name, func(b *testing.B) { throughput(b, &t, s, name, load{clients, row.once}) })
		}
	}
	b.Run("watch-400", func(b *testing.B) { fanOut(b, &t, s, 400) })
	b.Run("memory", func(b *testing.B) { memory(b, &t, s) })
	b.Run("put-fsync-16", func(b *testing.B) { throughput(b, &t, newSite(b, true), "put-fsync-16", load{16, put}) })
	fmt.Fprint(os.Stdout, "\n"+t.String()) // the log of a benchmark that has parts is not shown
}

// result is what one target did in one round.
type result struct {
	perSecond float64
	median    time.Duration
	cpuPerOp  time.Duration
}

// throughput runs a load on each target in turn, several times, and prints the medians.
func throughput(b *testing.B, t *table, s *site, name string, l load) {
	seconds := time.Duration(number(b, "MOORING_BENCH_SECONDS", 2)) * time.Second
	results := make([][]result, len(s.targets))
	for round := range number(b, "MOORING_BENCH_ROUNDS", 3) + 1 {
		s.compact(b)
		for i, target := range s.targets {
			length := seconds
			if round == 0 {
				length /= 4 // connections are made and caches filled
			}
			r := run(b, target, l, length, uint64(round))
			if round > 0 {
				results[i] = append(results[i], r)
			}
		}
	}
	direct, goal := results[0], 0.0
	for i, target := range s.targets {
		ratios, added := make([]float64, len(direct)), make([]time.Duration, len(direct))
		for round, r := range results[i] {
			ratios[round] = r.perSecond / direct[round].perSecond
			added[round] = r.median - direct[round].median
		}
		perSecond, ratio := medianOf(results[i], func(r result) float64 { return r.perSecond }), medianOf(ratios, same[float64])
		cpuPerOp := time.Duration(medianOf(results[i], func(r result) float64 { return float64(r.cpuPerOp) }))
		b.ReportMetric(perSecond, target.name+"/s")
		if i > 0 {
			b.ReportMetric(ratio, target.name+"-ratio")
			b.ReportMetric(float64(cpuPerOp.Microseconds()), target.name+"-cpu-µs")
		}
		text := ""
		switch {
		case target.name == spliced:
			goal = ratio - belowSplice
		case target.name == shipped && goal > 0:
			text = fmt.Sprintf("≥ %.2f", goal)
		}
		t.add(name, target.name, fmt.Sprintf("%.0f/s", perSecond), fmt.Sprintf("%.2f", ratio), text,
			fmt.Sprintf("p50 %v (%+v), CPU %v", time.Duration(medianOf(results[i], func(r result) float64 { return float64(r.median) })).Round(time.Microsecond),
				time.Duration(medianOf(added, func(d time.Duration) float64 { return float64(d) })).Round(time.Microsecond), cpuPerOp))
	}
	b.ReportMetric(0, "ns/op")
}

// run lets the load's clients work for a while.
func run(b *testing.B, target *target, l load, length time.Duration, seed uint64) result {
	b.Helper()
	ctx, cancel := within(b, length+time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	var failure atomic.Pointer[error]
	took := make([][]time.Duration, l.clients)
	began, used := time.Now(), cpu(b, target.pid)
	for n := range l.clients {
		wg.Go(func() {
			chance := rand.New(rand.NewPCG(seed, uint64(n)))
			for time.Since(began) < length {
				before := time.Now()
				if err := l.once(ctx, target.client(n), target.prefix, chance); err != nil {
					failure.Store(&err)
					return
				}
				took[n] = append(took[n], time.Since(before))
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(began)
	if err := failure.Load(); err != nil {
		b.Fatalf("%s: %v", target.name, *err)
	}
	all := slices.Concat(took...)
	slices.Sort(all)
	return result{
		perSecond: float64(len(all)) / elapsed.Seconds(),
		median:    all[len(all)/2],
		cpuPerOp:  (cpu(b, target.pid) - used) / time.Duration(len(all)),
	}
}

func same[T any](v T) T { return v }

// medianOf returns the middle of what of says of each.
func medianOf[T any](all []T, of func(T) float64) float64 {
	values := make([]float64, len(all))
	for i, v := range all {
		values[i] = of(v)
	}
	slices.Sort(values)
	return values[len(values)/2]
}
