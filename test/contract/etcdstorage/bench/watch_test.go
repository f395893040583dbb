// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package bench

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// fanOut measures how long an event takes from the moment its write begins until each of many watchers of one prefix has it.
func fanOut(b *testing.B, t *table, s *site, watchers int) {
	type quantiles struct{ p50, p99 time.Duration }
	results := make([][]quantiles, len(s.targets))
	for range number(b, "MOORING_BENCH_ROUNDS", 3) {
		for i, target := range s.targets {
			delays := watchRound(b, s, target, watchers)
			results[i] = append(results[i], quantiles{delays[len(delays)/2], delays[len(delays)*99/100]})
		}
	}
	for i, target := range s.targets {
		ratio50, ratio99 := make([]float64, len(results[i])), make([]float64, len(results[i]))
		for round, q := range results[i] {
			ratio50[round] = float64(q.p50) / float64(results[0][round].p50)
			ratio99[round] = float64(q.p99) / float64(results[0][round].p99)
		}
		p50 := time.Duration(medianOf(results[i], func(q quantiles) float64 { return float64(q.p50) })).Round(10 * time.Microsecond)
		p99 := time.Duration(medianOf(results[i], func(q quantiles) float64 { return float64(q.p99) })).Round(10 * time.Microsecond)
		b.ReportMetric(float64(p99.Microseconds()), target.name+"-p99-µs")
		goal := ""
		if target.name == "proxy" {
			goal = "≤ 1.50"
		}
		t.add(fmt.Sprintf("watch-%d", watchers), target.name, "p99 "+p99.String(), fmt.Sprintf("%.2f", medianOf(ratio99, same[float64])), goal,
			fmt.Sprintf("p50 %v (× %.2f)", p50, medianOf(ratio50, same[float64])))
	}
	b.ReportMetric(0, "ns/op")
}

// watchRound opens the watchers on a target, writes 100 times a second for a while, and returns the sorted delays of all events.
func watchRound(b *testing.B, s *site, target *target, watchers int) []time.Duration {
	b.Helper()
	const writes = 200
	ctx, cancel := within(b, time.Minute)
	defer cancel()
	delays := make([][]time.Duration, watchers)
	failures := make(chan error, watchers)
	var ready, wg sync.WaitGroup
	ready.Add(watchers)
	for n := range watchers {
		wg.Go(func() {
			var err error
			if delays[n], err = watch(ctx, target.client(n), target.prefix, writes, ready.Done); err != nil {
				failures <- err
			}
		})
	}
	ready.Wait()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for n := range writes {
		<-ticker.C
		key := fmt.Sprintf("%swatched/%03d", prefix, n)
		must.Get(s.core.Put(ctx, key, strconv.FormatInt(time.Now().UnixNano(), 10))).Or(b)
	}
	wg.Wait()
	select {
	case err := <-failures:
		b.Fatalf("%s: %v", target.name, err)
	default:
	}
	all := slices.Concat(delays...)
	slices.Sort(all)
	return all
}

// watch returns the delay of each of so many events.
func watch(ctx context.Context, client *clientv3.Client, prefix string, events int, created func()) ([]time.Duration, error) {
	var delays []time.Duration
	once := sync.OnceFunc(created)
	defer once()
	for response := range client.Watch(ctx, prefix+"watched/", clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithCreatedNotify()) {
		if err := response.Err(); err != nil {
			return nil, err
		}
		once()
		for _, event := range response.Events {
			began, err := strconv.ParseInt(string(event.Kv.Value), 10, 64)
			if err != nil {
				return nil, fmt.Errorf("an event that nobody wrote: %w", err)
			}
			delays = append(delays, time.Duration(time.Now().UnixNano()-began))
		}
		if len(delays) >= events {
			return delays, nil
		}
	}
	return nil, fmt.Errorf("the watch ended after %d of %d events", len(delays), events)
}

// memory measures what a proxy keeps after 10,000 lists, none of which asks for the same as another.
func memory(b *testing.B, t *table, s *site) {
	lists := number(b, "MOORING_BENCH_LISTS", 10_000)
	for _, target := range s.targets[1:] {
		asked := lists
		if target.name == "grpcproxy" {
			asked = min(lists, 1000) // its cache never forgets within 2,048 answers, and ten times more would not fit this machine
		}
		var wg sync.WaitGroup
		failures := make(chan error, connections)
		before, _ := residentKiB(b, target.pid)
		for c := range connections {
			wg.Go(func() {
				for n := c; n < asked; n += connections {
					_, err := target.client(c).Get(b.Context(), fmt.Sprintf("%slist/0%05d", target.prefix, n%8), clientv3.WithFromKey(),
						clientv3.WithLimit(int64(listed-n%8)), clientv3.WithMinCreateRev(1), clientv3.WithMaxModRev(int64(math.MaxInt64-n)))
					if err != nil {
						failures <- err
						return
					}
				}
			})
		}
		wg.Wait()
		select {
		case err := <-failures:
			b.Fatalf("%s: %v", target.name, err)
		default:
		}
		after, peak := residentKiB(b, target.pid)
		b.ReportMetric(float64(peak)/1024, target.name+"-MiB")
		goal := ""
		if target.name == "proxy" {
			goal = "< 100"
		}
		t.add("memory", target.name, fmt.Sprintf("%d MiB", after/1024), "", goal,
			fmt.Sprintf("after %d distinct lists; %d MiB before, %d MiB at most", asked, before/1024, peak/1024))
	}
	b.ReportMetric(0, "ns/op")
}
