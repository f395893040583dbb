// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mooring-dev/mooring/lab/internal/bgp/probe"
)

// shots reads one probe a character, 20 ms apart: a dot arrived, an x is lost.
func shots(text string) []probe.Shot {
	var out []probe.Shot
	for i, c := range text {
		out = append(out, probe.Shot{At: time.Duration(i) * 20 * time.Millisecond, Arrived: c == '.'})
	}
	return out
}

func ms(n int) probe.Milliseconds { return probe.Milliseconds(time.Duration(n) * time.Millisecond) }

func TestMeasure(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, shots string
		want        probe.Loss
		at          probe.Milliseconds
	}{
		{"nothing sent", "", probe.Loss{}, 0},
		{"nothing lost", "....", probe.Loss{Sent: 4}, 0},
		{"single losses are not an outage", ".x.x.x.", probe.Loss{Sent: 7, Lost: 3}, 0},
		{"two in a row are one", "..xx..", probe.Loss{Sent: 6, Lost: 2, Outages: 1, LongestOutage: ms(40)}, ms(40)},
		{"it lasts until the next that arrives", "xxx.", probe.Loss{Sent: 4, Lost: 3, Outages: 1, LongestOutage: ms(60)}, 0},
		{"the longest counts", "xx..xxxx.xx.", probe.Loss{Sent: 12, Lost: 8, Outages: 3, LongestOutage: ms(80)}, ms(80)},
		{"one without an end lasts to the end of all", "..xx", probe.Loss{Sent: 4, Lost: 2, Outages: 1, LongestOutage: ms(160)}, ms(40)},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			loss, at := probe.Measure(shots(test.shots), 200*time.Millisecond)
			if loss != test.want || at != test.at {
				t.Errorf("%s: %+v at %v, want %+v at %v", test.shots, loss, at, test.want, test.at)
			}
		})
	}
}

// report is of three nodes, of which b changed its role; a and c lost a single packet, b more.
func report() probe.Report {
	return probe.Summarize(map[probe.Pair][]probe.Shot{
		{From: "a", To: "b"}: shots("..xxx."), {From: "b", To: "a"}: shots("..xx.."), {From: "a", To: "c"}: shots(".x...."),
		{From: "c", To: "a"}: shots("......"), {From: "b", To: "c"}: shots("......"), {From: "c", To: "b"}: shots("......"),
	}, 20*time.Millisecond, []string{"b", "b"})
}

func TestCollateralIsOfPairsWithoutRoleChange(t *testing.T) {
	t.Parallel()
	r := report()
	if want := (probe.Loss{Sent: 36, Lost: 6, Outages: 2, LongestOutage: ms(60)}); r.All != want {
		t.Errorf("all: %+v, want %+v", r.All, want)
	}
	if want := (probe.Loss{Sent: 12, Lost: 1}); r.Collateral != want {
		t.Errorf("collateral: %+v, want %+v", r.Collateral, want)
	}
	var losers []string
	for _, p := range r.Losers {
		losers = append(losers, p.From+p.To)
	}
	if diff := cmp.Diff([]string{"ab", "ba", "ac"}, losers); diff != "" {
		t.Errorf("losers (-want +got):\n%s", diff)
	}
}

const text = `3 nodes, 6 pairs, a probe every 20ms for 100ms
nodes whose role changed: b

PAIRS        LOST   SENT   OUTAGES   LONGEST
all          6      36     2         60ms
collateral   1      12     0         0s

FROM   TO   LOST   OUTAGES   LONGEST   AT     ROLE CHANGED
a      b    3      1         60ms      40ms   true
b      a    2      1         40ms      40ms   true
a      c    1      0         0s        0s     false
`

func TestText(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := report().WriteText(&out); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(text, out.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
}

// TestIPv6 has one pair in both families: what was sent by IPv6 is in the totals, and is said apart.
func TestIPv6(t *testing.T) {
	t.Parallel()
	r := probe.Summarize(map[probe.Pair][]probe.Shot{
		{From: "a", To: "b"}: shots("..xx.."), {From: "a", To: "b", Family: probe.IPv6}: shots(".xxx.."), {From: "a", To: "c", Family: probe.IPv6}: shots("...x.."),
	}, 20*time.Millisecond, []string{"b"})
	if want := (probe.Loss{Sent: 18, Lost: 6, Outages: 2, LongestOutage: ms(60)}); r.All != want {
		t.Errorf("all: %+v, want %+v", r.All, want)
	}
	want := &probe.Part{All: probe.Loss{Sent: 12, Lost: 4, Outages: 1, LongestOutage: ms(60)}, Collateral: probe.Loss{Sent: 6, Lost: 1}}
	if diff := cmp.Diff(want, r.IPv6); diff != "" {
		t.Errorf("by IPv6 (-want +got):\n%s", diff)
	}
	if report().IPv6 != nil {
		t.Error("a probe without IPv6 says something of it")
	}
	var out strings.Builder
	if err := r.WriteText(&out); err != nil {
		t.Fatal(err)
	}
	const text = `3 nodes, 3 pairs, a probe every 20ms for 100ms
nodes whose role changed: b

PAIRS                LOST   SENT   OUTAGES   LONGEST
all                  6      18     2         60ms
collateral           1      6      0         0s
all by IPv6          4      12     1         60ms
collateral by IPv6   1      6      0         0s

FROM   TO       LOST   OUTAGES   LONGEST   AT     ROLE CHANGED
a      b IPv6   3      1         60ms      20ms   true
a      b        2      1         40ms      40ms   true
a      c IPv6   1      0         0s        0s     false
`
	if diff := cmp.Diff(text, out.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	encoded, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"ipv6":{"all":{"sent":12,`, `{"from":"a","to":"b","family":"IPv6",`} {
		if !strings.Contains(string(encoded), want) {
			t.Errorf("%s is not in %s", want, encoded)
		}
	}
}

// TestJSON holds the names that scripts read.
func TestJSON(t *testing.T) {
	t.Parallel()
	out, err := json.Marshal(report())
	if err != nil {
		t.Fatal(err)
	}
	const head = `{"durationMs":100,"intervalMs":20,"nodes":3,"pairs":6,"changed":["b"],"all":{"sent":36,"lost":6,"outages":2,"longestOutageMs":60},` +
		`"collateral":{"sent":12,"lost":1,"outages":0,"longestOutageMs":0},"losers":[{"from":"a","to":"b","sent":6,"lost":3,"outages":1,` +
		`"longestOutageMs":60,"roleChange":true,"outageAtMs":40},`
	if !strings.HasPrefix(string(out), head) {
		t.Errorf("JSON:\n%s\ndoes not begin with\n%s", out, head)
	}
	var back probe.Report
	if err := json.Unmarshal(out, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(report(), back); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
}

func FuzzMilliseconds(f *testing.F) {
	f.Add("12")
	f.Add("-1")
	f.Add("x")
	f.Fuzz(func(t *testing.T, text string) {
		var m probe.Milliseconds
		if json.Unmarshal([]byte(text), &m) != nil {
			return
		}
		out, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		var back probe.Milliseconds
		if err := json.Unmarshal(out, &back); err != nil || back != m {
			t.Errorf("%q is read as %v and, written as %s, as %v (%v)", text, m, out, back, err)
		}
	})
}
