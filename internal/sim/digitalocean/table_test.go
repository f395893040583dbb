// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// TestTableShowsThePast compares a table with copies of its whole content that were made at the time.
func TestTableShowsThePast(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		lag := time.Duration(rapid.IntRange(0, 10).Draw(t, "lag")) * time.Second
		tested := newTable[int, int](func() time.Duration { return lag }, func() {})
		truth := map[int]int{}
		past := map[int64]map[int]int{}
		now := time.Unix(1000, 0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(1, 4).Draw(t, "seconds")) * time.Second)
			for s := now.Add(-4 * time.Second); s.Before(now); s = s.Add(time.Second) { // what was true until now
				if _, known := past[s.Unix()]; !known {
					past[s.Unix()] = maps.Clone(truth)
				}
			}
			key := rapid.IntRange(1, 5).Draw(t, "key")
			if rapid.Bool().Draw(t, "remove") {
				tested.remove(key, now)
				delete(truth, key)
			} else {
				value := rapid.Int().Draw(t, "value")
				tested.put(key, value, now)
				truth[key] = value
			}
			past[now.Unix()] = maps.Clone(truth)
			compareTable(t, tested, truth, past[now.Add(-lag).Unix()], now.Add(-lag))
		}
		if lag == 0 && len(tested.all) != len(tested.rows) {
			t.Fatalf("%d rows are kept for %d objects", len(tested.all), len(tested.rows))
		}
	})
}

func compareTable(t *rapid.T, tested *table[int, int], truth, past map[int]int, when time.Time) {
	if got := slices.Sorted(tested.values()); !slices.Equal(got, slices.Sorted(maps.Values(truth))) {
		t.Fatalf("now %v, not %v", got, truth)
	}
	if got := slices.Sorted(tested.valuesAt(when)); !slices.Equal(got, slices.Sorted(maps.Values(past))) {
		t.Fatalf("then %v, not %v", got, past)
	}
	for key := 1; key <= 5; key++ {
		got, found := tested.getAt(key, when)
		want, wanted := past[key]
		if found != wanted || got != want {
			t.Fatalf("key %d was %d (%v), not %d (%v)", key, got, found, want, wanted)
		}
	}
}

// TestTableKeepsTheOrderOfCreation: also after changes, and after something is deleted and created again.
func TestTableKeepsTheOrderOfCreation(t *testing.T) {
	t.Parallel()
	tested := newTable[string, string](func() time.Duration { return 0 }, func() {})
	now := time.Unix(0, 0)
	for _, key := range []string{"c", "a", "b"} {
		tested.put(key, key, now)
	}
	tested.put("c", "c2", now)
	tested.remove("a", now)
	tested.put("a", "a2", now)
	if got := slices.Collect(tested.values()); !slices.Equal(got, []string{"c2", "b", "a2"}) {
		t.Errorf("order: %v", got)
	}
}
