// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// TestHistoryIsKept: whatever revisions are seen whenever, each that was the newest within the kept time can still be read, compactions only go forward,
// and no more than a few moments are remembered.
func TestHistoryIsKept(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		keep := time.Duration(rapid.IntRange(1, 60).Draw(t, "keep")) * time.Minute
		start := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
		now, revision, compacted := start, int64(1), int64(0)
		seen := []operator.Moment{{At: now, Revision: revision}}
		var h operator.History
		for range rapid.IntRange(1, 80).Draw(t, "observations") {
			var at int64
			h, at = h.Observe(now, revision, keep)
			if at != 0 {
				if at <= compacted || at > revision {
					t.Fatalf("compacted at %d after %d, of %d", at, compacted, revision)
				}
				newest := int64(0) // when the kept time began
				for _, m := range seen {
					if !m.At.After(now.Add(-keep)) {
						newest = m.Revision
					}
				}
				if at > newest {
					t.Fatalf("compacted at %d, and %s ago revision %d was the newest", at, keep, newest)
				}
				compacted = at
			}
			if len(h.Moments) > 7 {
				t.Fatalf("%d moments are remembered", len(h.Moments))
			}
			now = now.Add(time.Duration(rapid.IntRange(0, int(keep/time.Second)/4).Draw(t, "seconds")) * time.Second)
			revision += int64(rapid.IntRange(0, 3).Draw(t, "written"))
			seen = append(seen, operator.Moment{At: now, Revision: revision})
		}
	})
}

func TestHistoryCompacts(t *testing.T) {
	t.Parallel()
	const keep = 5 * time.Minute
	start := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	var h operator.History
	var got []int64
	for minute := range 12 {
		var at int64
		h, at = h.Observe(start.Add(time.Duration(minute)*time.Minute), int64(100+10*min(minute, 3)), keep)
		got = append(got, at)
	}
	want := []int64{0, 0, 0, 0, 0, 100, 110, 120, 130, 0, 0, 0} // and nothing while nothing is written
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("compacted at %v, want %v", got, want)
		}
	}
	for name, later := range map[string]struct {
		now      time.Time
		revision int64
	}{
		"the clock was set back": {start.Add(-time.Hour), 500}, "the core was restored": {start.Add(time.Hour), 20},
	} {
		if h, at := h.Observe(later.now, later.revision, keep); at != 0 || len(h.Moments) != 1 || h.Compacted != 0 {
			t.Errorf("%s: compacted at %d, remembered %+v", name, at, h)
		}
	}
}
