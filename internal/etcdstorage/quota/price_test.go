// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package quota_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/etcdstorage/quota"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

func drawWork(t *rapid.T) quota.Work {
	count := func(name string) int64 { return rapid.Int64Range(0, 1<<40).Draw(t, name) }
	return quota.Work{
		Calls: rapid.IntRange(0, 100).Draw(t, "calls"), Logged: rapid.IntRange(0, 100).Draw(t, "logged"), Parts: rapid.IntRange(0, 4096).Draw(t, "parts"),
		Keys: count("keys"), Values: count("values"), Deleted: count("deleted"), Revisions: count("revisions"), Read: count("read"), Written: count("written"),
	}
}

// A price that is corrected afterwards is the price of all the work, and no count is free.
func TestPriceIsTheWork(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		a, b := drawWork(t), drawWork(t)
		both := quota.Work{
			Calls: a.Calls + b.Calls, Logged: a.Logged + b.Logged, Parts: a.Parts + b.Parts, Keys: a.Keys + b.Keys, Values: a.Values + b.Values,
			Deleted: a.Deleted + b.Deleted, Revisions: a.Revisions + b.Revisions, Read: a.Read + b.Read, Written: a.Written + b.Written,
		}
		if got, want := a.Units()+b.Units(), both.Units(); math.Abs(got-want) > 1e-9*want {
			t.Fatalf("%v and then %v, together %v", a.Units(), b.Units(), want)
		}
	})
	for _, w := range []quota.Work{{Calls: 1}, {Logged: 1}, {Parts: 1}, {Keys: 1}, {Values: 1}, {Deleted: 1}, {Revisions: 1}, {Read: 1}, {Written: 1}} {
		if w.Units() <= 0 {
			t.Errorf("%+v is free", w)
		}
	}
}

// Whatever is asked for, and whenever, what is let in by a time is no more than the rate has brought by then and what may
// come at once: a second's worth of each class, and the one request that may be larger than that. And a request that is
// told to wait is let in then: what large requests owe never holds small ones back longer than half of the rate does.
func TestBudgetHolds(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		rate := rapid.Float64Range(0.5, 1000).Draw(t, "rate")
		burst := max(rate, 1)
		b := quota.NewBudget(rate)
		begin := time.Unix(0, 0)
		now := begin
		largest, used := map[quota.Class]float64{}, 0.0
		for range rapid.IntRange(1, 100).Draw(t, "requests") {
			now = now.Add(time.Duration(rapid.IntRange(0, 2000).Draw(t, "ms")) * time.Millisecond)
			class := rapid.SampledFrom([]quota.Class{quota.Small, quota.Large}).Draw(t, "class")
			units := rapid.Float64Range(0, 3).Draw(t, "bursts") * burst
			wait, ok := b.Take(now, units, class, 0)
			if ok != (wait == 0) {
				t.Fatalf("waits %v, let in %v", wait, ok)
			}
			if !ok {
				if later, _ := quotaAfter(b, now.Add(wait+time.Millisecond), units, class); later > time.Millisecond {
					t.Fatalf("told to wait %v, and then %v", wait, later)
				}
				now = now.Add(wait + time.Millisecond)
				continue
			}
			used += units
			largest[class] = max(largest[class], units)
			most := rate*now.Sub(begin).Seconds() + burst + largest[quota.Small] + burst + largest[quota.Large]
			if used > most*(1+1e-9) {
				t.Fatalf("%v units in %v at %v a second, want at most %v", used, now.Sub(begin), rate, most)
			}
		}
	})
}

// quotaAfter asks a budget without taking anything.
func quotaAfter(b *quota.Budget, now time.Time, units float64, class quota.Class) (time.Duration, bool) {
	return b.Take(now, units, class, -1)
}

func TestSmallRequestsPassLargeOnes(t *testing.T) {
	t.Parallel()
	b := quota.NewBudget(100)
	now := time.Unix(100, 0)
	if wait, ok := b.Take(now, 10_000, quota.Large, 0); !ok {
		t.Fatalf("the first list waits %v", wait)
	}
	if wait, ok := b.Take(now, 1, quota.Large, 10*time.Second); ok {
		t.Errorf("another is let in after %v, at a debt of 100 s", wait)
	}
	let := 0
	for range 1000 { // ten seconds
		now = now.Add(10 * time.Millisecond)
		if _, ok := b.Take(now, 1, quota.Small, 0); ok {
			let++
		}
	}
	if let < 790 || let > 810 {
		t.Errorf("%d small requests in 10 s, want a second's worth at once and seven tenths of 100 a second", let)
	}
	b.Correct(-20_000, quota.Large)
	if wait, ok := b.Take(now, 100, quota.Large, 0); !ok {
		t.Errorf("after all was given back a list waits %v", wait)
	}
}

// Large requests have three tenths of the rate, however little small ones use.
func TestLargeRequestsHaveAShare(t *testing.T) {
	t.Parallel()
	b := quota.NewBudget(100)
	now, let := time.Unix(100, 0), 0
	for range 1000 { // ten seconds
		now = now.Add(10 * time.Millisecond)
		if _, ok := b.Take(now, 1, quota.Large, 0); ok {
			let++
		}
	}
	if let < 325 || let > 335 {
		t.Errorf("%d large requests in 10 s, want 30 at once and 30 a second", let)
	}
}

// What keeps a processor of the core for as long as five gets do is a large request, whichever work that is. What is
// written waits for the disk more than it works.
func TestClassIsByTheTimeOnTheCore(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		work quota.Work
		want quota.Class
	}{
		"get":                {quota.Work{Calls: 1}, quota.Small},
		"get of 32 KiB":      {quota.Work{Calls: 1, Read: 32 << 10}, quota.Small},
		"get of 64 KiB":      {quota.Work{Calls: 1, Read: 64 << 10}, quota.Large},
		"update of 32 KiB":   {quota.Work{Calls: 1, Logged: 1, Parts: 3, Written: 32 << 10}, quota.Small},
		"update of 64 KiB":   {quota.Work{Calls: 1, Logged: 1, Parts: 3, Written: 64 << 10}, quota.Large},
		"page of 500 keys":   {quota.Work{Calls: 1, Keys: 500, Read: 16 << 10}, quota.Small},
		"count of 1000 keys": {quota.Work{Calls: 1, Keys: 1000}, quota.Large},
		"sort of 200 values": {quota.Work{Calls: 1, Keys: 200, Values: 200}, quota.Large},
		"delete of 50 keys":  {quota.Work{Calls: 1, Logged: 1, Deleted: 50}, quota.Large},
		"txn of 20 parts":    {quota.Work{Calls: 1, Parts: 20}, quota.Large},
	} {
		if got := row.work.Class(); got != row.want {
			t.Errorf("%s: class %d, want %d", name, got, row.want)
		}
	}
}
