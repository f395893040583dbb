// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

func start() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

func (j *Journal) one(now time.Time, route string, status int) {
	j.End(Entry{Number: j.Begin(now), Time: now, Route: route, Status: status})
}

func TestCounts(t *testing.T) {
	t.Parallel()
	j := New(0)
	for range 3 {
		j.one(start(), "GET /v2/droplets", 200)
	}
	j.one(start(), "GET /v2/droplets/{droplet_id}", 404)
	j.one(start(), "PUT /v2/load_balancers/{lb_id}", 0)
	stats := j.Stats()
	for prefix, want := range map[string]int{"": 5, "GET ": 4, "GET /v2/droplets": 4, "GET /v2/droplets/": 1, "PUT": 1, "POST": 0} {
		if got := stats.Count(prefix); got != want {
			t.Errorf("%q was counted %d times, not %d", prefix, got, want)
		}
	}
	if stats.Writes() != 1 || stats.Routes["GET /v2/droplets"].Statuses[200] != 3 {
		t.Errorf("stats: %+v", stats)
	}
	if got := j.Entries(Filter{Route: "GET", After: 2}); len(got) != 2 || got[0].Number != 3 {
		t.Errorf("entries after the second: %+v", got)
	}
	j.Reset()
	if stats := j.Stats(); stats.Total != 0 || len(j.Entries(Filter{})) != 0 || j.Number() != 5 {
		t.Errorf("after a reset: %+v", stats)
	}
}

func TestInFlight(t *testing.T) {
	t.Parallel()
	j := New(0)
	a, b := j.Begin(start()), j.Begin(start())
	j.End(Entry{Number: b})
	j.Begin(start())
	j.End(Entry{Number: a})
	if stats := j.Stats(); stats.MaxInFlight != 2 {
		t.Errorf("%d were in flight, not 2", stats.MaxInFlight)
	}
}

func TestOldestEntriesGo(t *testing.T) {
	t.Parallel()
	j := New(3)
	for i := range 5 {
		j.one(start().Add(time.Duration(i)*time.Second), "GET /", 200)
	}
	entries := j.Entries(Filter{})
	if len(entries) != 3 || entries[0].Number != 3 || entries[2].Number != 5 || j.Stats().Total != 5 {
		t.Errorf("entries: %+v", entries)
	}
	none := New(-1)
	none.one(start(), "GET /", 200)
	if len(none.Entries(Filter{})) != 0 || none.Stats().Total != 1 {
		t.Error("a journal that keeps nothing keeps something, or does not count")
	}
}

func TestPeakIsTheBusiestMinute(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		j := New(0)
		now := start()
		var times []time.Time
		for range rapid.IntRange(1, 100).Draw(t, "requests") {
			now = now.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "seconds")) * time.Second)
			times = append(times, now)
			j.one(now, "GET /", 200)
		}
		want := 0
		for i, from := range times {
			n := 0
			for _, at := range times[i:] {
				if at.Before(from.Add(time.Minute)) {
					n++
				}
			}
			want = max(want, n)
		}
		if got := j.Stats().PeakPerMinute; got != want {
			t.Fatalf("the peak is %d, not %d", got, want)
		}
	})
}
