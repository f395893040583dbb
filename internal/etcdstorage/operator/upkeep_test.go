// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

func TestUpkeep(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	member := func(name string, size, inUse int64) CoreMember {
		return CoreMember{URL: "https://" + name, ID: name + "1", Leader: true, IsLeader: name == "l", Size: size * mib, InUse: inUse * mib, Quota: 1000 * mib}
	}
	away := CoreMember{URL: "https://b", Problem: "away"}
	leaderless := CoreMember{URL: "https://c", Size: 900 * mib, Quota: 1000 * mib}
	noQuota := CoreMember{URL: "https://a", Leader: true, Size: 600 * mib, InUse: 200 * mib}
	small := noQuota
	small.Size, small.InUse = 500*mib, 1
	for name, c := range map[string]struct {
		h    Health
		done Defragmented
		want Upkeep
	}{
		"nobody answers":       {h: Health{Problem: "away", Members: []CoreMember{away}}},
		"all in use":           {h: Health{Members: []CoreMember{member("a", 500, 400)}}},
		"half is free":         {h: Health{Members: []CoreMember{member("a", 500, 250)}}, want: Upkeep{Defragment: "https://a"}},
		"a small file":         {h: Health{Members: []CoreMember{member("a", 200, 10)}}},
		"an unknown quota":     {h: Health{Members: []CoreMember{noQuota}}, want: Upkeep{Defragment: "https://a"}},
		"small, unknown quota": {h: Health{Members: []CoreMember{small}}},
		"nearly full":          {h: Health{Members: []CoreMember{member("a", 850, 700)}}, want: Upkeep{Defragment: "https://a"}},
		"full of what is used": {h: Health{Members: []CoreMember{member("a", 1000, 950)}, NoSpace: []string{"a1"}}},
		"the leader last": {
			h: Health{Members: []CoreMember{member("l", 800, 100), member("a", 800, 100)}}, want: Upkeep{Defragment: "https://a"},
		},
		"then the leader": {
			h: Health{Members: []CoreMember{member("l", 800, 100), member("a", 100, 100)}}, want: Upkeep{Defragment: "https://l"},
		},
		"a member is away":   {h: Health{Members: []CoreMember{member("a", 800, 100), away}}},
		"no leader":          {h: Health{Members: []CoreMember{member("a", 800, 100), leaderless}}},
		"corrupt":            {h: Health{Members: []CoreMember{member("a", 800, 100)}, Corrupt: []string{"a1"}}},
		"just done":          {h: Health{Members: []CoreMember{member("a", 800, 100)}}, done: Defragmented{"https://a": epoch().Add(-time.Minute)}},
		"done long ago":      {h: Health{Members: []CoreMember{member("a", 800, 100)}}, done: Defragmented{"https://a": epoch().Add(-time.Hour)}, want: Upkeep{Defragment: "https://a"}},
		"done in the future": {h: Health{Members: []CoreMember{member("a", 800, 100)}}, done: Defragmented{"https://a": epoch().Add(time.Hour)}, want: Upkeep{Defragment: "https://a"}},
		"space again":        {h: Health{Members: []CoreMember{member("a", 300, 200)}, NoSpace: []string{"a1", "b2"}}, done: Defragmented{"https://a": epoch()}, want: Upkeep{Disarm: []string{"a1"}}},
		"an alarm of a member that was not queried": {h: Health{Members: []CoreMember{member("a", 300, 300)}, NoSpace: []string{"b2"}}},
		"first defragment": {
			h: Health{Members: []CoreMember{member("a", 100, 100), member("l", 1000, 100)}, NoSpace: []string{"a1"}}, want: Upkeep{Defragment: "https://l"},
		},
	} {
		c.h.At = epoch()
		if diff := cmp.Diff(c.want, c.h.Upkeep(c.done)); diff != "" {
			t.Errorf("%s (- want, + got):\n%s", name, diff)
		}
	}
	if next := (Health{Members: []CoreMember{member("a", 800, 100)}}).Upkeep(nil); !next.Nothing() {
		t.Errorf("of members that were never asked: %+v", next)
	}
}

// Whatever the members are like, upkeep ends: each member is defragmented once at most, never while another is away, and in the end no alarm
// is left unless a member has no space. In any order of the members the same is done.
func TestUpkeepEnds(t *testing.T) {
	t.Parallel()
	cases.CheckTimes(t, 100, 300, 3000, func(t *rapid.T) {
		const quota = 1000
		h := Health{At: epoch()}
		for i := range rapid.IntRange(1, 5).Draw(t, "members") {
			size := rapid.Int64Range(1, quota).Draw(t, "size")
			h.Members = append(h.Members, CoreMember{
				URL: fmt.Sprintf("https://%d", i), ID: fmt.Sprint(i), Leader: true, IsLeader: i == 0, Size: size, InUse: rapid.Int64Range(0, size).Draw(t, "in use"), Quota: quota,
			})
			if rapid.Bool().Draw(t, "alarm") {
				h.NoSpace = append(h.NoSpace, fmt.Sprint(i))
			}
		}
		done, steps := Defragmented{}, 0
		for ; ; steps++ {
			next := h.Upkeep(done)
			if next.Nothing() {
				break
			}
			if steps > len(h.Members) {
				t.Fatalf("still %+v after %d steps", next, steps)
			}
			if next.Defragment == "" {
				h.NoSpace = nil
				continue
			}
			if len(done) == 0 {
				away := h
				away.Members = append(slices.Clone(h.Members), CoreMember{URL: "https://away", Problem: "away"})
				if other := away.Upkeep(done); !other.Nothing() {
					t.Fatalf("%+v while a member is away", other)
				}
			}
			i := slices.IndexFunc(h.Members, func(m CoreMember) bool { return m.URL == next.Defragment })
			if _, twice := done[next.Defragment]; twice {
				t.Fatalf("%s is defragmented twice", next.Defragment)
			}
			h.Members[i].Size = h.Members[i].InUse
			done[next.Defragment] = h.At
		}
		full := slices.ContainsFunc(h.Members, func(m CoreMember) bool { return m.Size >= quota*roomyPercent/100 })
		if len(h.NoSpace) > 0 && !full {
			t.Fatalf("the alarms %v are left", h.NoSpace)
		}
	})
}
