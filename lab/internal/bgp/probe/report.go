// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Pair is a direction between two nodes, in one address family.
type Pair struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Family is IPv6, or empty for IPv4.
	Family string `json:"family,omitempty"`
}

// IPv6 is the Pair's Family of that name.
const IPv6 = "IPv6"

// Shot is one probe.
type Shot struct {
	// At is when it was sent, since the start.
	At      time.Duration
	Arrived bool
}

// outageProbes is how many lost in a row make an outage.
const outageProbes = 2

// Loss is what became of probes. Times are in milliseconds in JSON.
type Loss struct {
	Sent int `json:"sent"`
	Lost int `json:"lost"`
	// Outages counts runs of two or more lost probes of one pair.
	Outages int `json:"outages"`
	// LongestOutage is from the first lost probe of the longest of them to the next that arrived.
	LongestOutage Milliseconds `json:"longestOutageMs"`
}

// Milliseconds is a duration that is written as a whole number of milliseconds.
type Milliseconds time.Duration

// MarshalJSON implements json.Marshaler.
func (m Milliseconds) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, "%d", time.Duration(m).Milliseconds()), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *Milliseconds) UnmarshalJSON(text []byte) error {
	var n int64
	if _, err := fmt.Sscan(string(text), &n); err != nil {
		return fmt.Errorf("%q is not a number of milliseconds: %w", text, err)
	}
	*m = Milliseconds(time.Duration(n) * time.Millisecond)
	return nil
}

// String is such as 1.25s.
func (m Milliseconds) String() string { return time.Duration(m).Round(time.Millisecond).String() }

// PairLoss is the loss of one pair.
type PairLoss struct {
	Pair
	Loss
	// RoleChange reports that one of the two nodes changed its role as a reflector.
	RoleChange bool `json:"roleChange"`
	// OutageAt is when the longest outage began, since the start.
	OutageAt Milliseconds `json:"outageAtMs"`
}

// Report is what a probe found.
type Report struct {
	Duration Milliseconds `json:"durationMs"`
	Interval Milliseconds `json:"intervalMs"`
	// Nodes and Pairs are counts; Pairs counts directions.
	Nodes int `json:"nodes"`
	Pairs int `json:"pairs"`
	// Changed are the nodes that changed their role, sorted.
	Changed []string `json:"changed"`
	// All is of all pairs, Collateral of those without a node of Changed.
	All        Loss `json:"all"`
	Collateral Loss `json:"collateral"`
	// IPv6 is the part of All and Collateral that was sent by IPv6; nil if nothing was.
	IPv6 *Part `json:"ipv6,omitempty"`
	// Losers are the pairs that lost anything, the longest outages first.
	Losers []PairLoss `json:"losers"`
}

// Part is the loss in one address family.
type Part struct {
	All        Loss `json:"all"`
	Collateral Loss `json:"collateral"`
}

// add adds the loss of other pairs.
func (l *Loss) add(other Loss) {
	l.Sent += other.Sent
	l.Lost += other.Lost
	l.Outages += other.Outages
	l.LongestOutage = max(l.LongestOutage, other.LongestOutage)
}

// Measure says what became of the shots of one pair, which are in the order in which they were sent. end is when the last was, of all pairs.
func Measure(shots []Shot, end time.Duration) (loss Loss, outageAt Milliseconds) {
	loss.Sent = len(shots)
	for i := 0; i < len(shots); {
		if shots[i].Arrived {
			i++
			continue
		}
		first := i
		for i < len(shots) && !shots[i].Arrived {
			i++
		}
		loss.Lost += i - first
		if i-first < outageProbes {
			continue
		}
		until := end
		if i < len(shots) {
			until = shots[i].At
		}
		loss.Outages++
		if length := Milliseconds(until - shots[first].At); length > loss.LongestOutage {
			loss.LongestOutage, outageAt = length, Milliseconds(shots[first].At)
		}
	}
	return loss, outageAt
}

// Summarize makes a report. changed are the nodes that changed their role while the shots were sent.
func Summarize(shots map[Pair][]Shot, interval time.Duration, changed []string) Report {
	changed = append([]string{}, slices.Compact(slices.Sorted(slices.Values(changed)))...) // never null in JSON
	r := Report{Interval: Milliseconds(interval), Pairs: len(shots), Changed: changed, Losers: []PairLoss{}}
	nodes := map[string]bool{}
	var end time.Duration
	for pair, of := range shots {
		nodes[pair.From], nodes[pair.To] = true, true
		if len(of) > 0 {
			end = max(end, of[len(of)-1].At)
		}
	}
	r.Nodes, r.Duration = len(nodes), Milliseconds(end)
	for pair, of := range shots {
		p := PairLoss{Pair: pair, RoleChange: slices.Contains(changed, pair.From) || slices.Contains(changed, pair.To)}
		p.Loss, p.OutageAt = Measure(of, end)
		r.All.add(p.Loss)
		if !p.RoleChange {
			r.Collateral.add(p.Loss)
		}
		if pair.Family == IPv6 {
			r.addIPv6(p)
		}
		if p.Lost > 0 {
			r.Losers = append(r.Losers, p)
		}
	}
	slices.SortFunc(r.Losers, func(a, b PairLoss) int {
		return cmp.Or(cmp.Compare(b.LongestOutage, a.LongestOutage), cmp.Compare(b.Lost, a.Lost), strings.Compare(a.From, b.From), strings.Compare(a.To, b.To), strings.Compare(a.Family, b.Family))
	})
	return r
}

func (r *Report) addIPv6(p PairLoss) {
	if r.IPv6 == nil {
		r.IPv6 = &Part{}
	}
	r.IPv6.All.add(p.Loss)
	if !p.RoleChange {
		r.IPv6.Collateral.add(p.Loss)
	}
}

// shownLosers is how many pairs the text names.
const shownLosers = 10

// WriteText writes the report for people.
func (r Report) WriteText(out io.Writer) error {
	fmt.Fprintf(out, "%d nodes, %d pairs, a probe every %v for %v\n", r.Nodes, r.Pairs, r.Interval, r.Duration)
	changed := "none"
	if len(r.Changed) > 0 {
		changed = strings.Join(r.Changed, ", ")
	}
	fmt.Fprintf(out, "nodes whose role changed: %s\n\n", changed)
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "PAIRS\tLOST\tSENT\tOUTAGES\tLONGEST")
	type line struct {
		name string
		Loss
	}
	lines := []line{{"all", r.All}, {"collateral", r.Collateral}}
	if r.IPv6 != nil {
		lines = append(lines, line{"all by IPv6", r.IPv6.All}, line{"collateral by IPv6", r.IPv6.Collateral})
	}
	for _, line := range lines {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%v\n", line.name, line.Lost, line.Sent, line.Outages, line.LongestOutage)
	}
	if len(r.Losers) > 0 {
		fmt.Fprintln(table, "\nFROM\tTO\tLOST\tOUTAGES\tLONGEST\tAT\tROLE CHANGED")
		for _, p := range r.Losers[:min(len(r.Losers), shownLosers)] {
			fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%v\t%v\t%v\n", p.From, strings.TrimSpace(p.To+" "+p.Family), p.Lost, p.Outages, p.LongestOutage, p.OutageAt, p.RoleChange)
		}
		if more := len(r.Losers) - shownLosers; more > 0 {
			fmt.Fprintf(table, "and %d more\n", more)
		}
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}
