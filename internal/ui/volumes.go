// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/internal/agreement"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/volumes"
)

// Volumes is what `kubectl mooring volumes` reports, of some time ago.
type Volumes struct {
	volumes.Report
	// At is when it was read, the zero time if it was not; Problem says why not.
	At      time.Time
	Problem string
}

// oldVolumes is how much longer ago than the rest the volumes may have been read: they are read less often.
const oldVolumes = 5 * time.Minute

// volumesOf is the volumes and the snapshots that nobody owns, what disagrees first. Above [agreement.FoldAbove] those that agree are counted and not named,
// unless somebody looks for them.
func volumesOf(w World, m matcher) List {
	l := List{
		Key: "volumes", Title: "Volumes", Problem: w.Volumes.Problem, Columns: []string{"Claim", "Pods", "Machine", "Droplet", "GiB", "State", "Verdict", "What", "To do"},
	}
	if !w.Volumes.At.IsZero() {
		at := w.Volumes.At.UTC()
		l.Checked, l.Old = &at, w.ReadAt.Sub(at) > oldVolumes
	}
	rows := slices.Clone(w.Volumes.Volumes)
	slices.SortFunc(rows, func(a, b volumes.Row) int {
		return cmp.Or(a.Verdict.Rank()-b.Verdict.Rank(), slices.CompareFunc(a.Cells(), b.Cells(), prose.Natural))
	})
	counts, folded := finding.Counts{}, 0
	looks := m.narrows() || m.attention
	fold := len(rows) > agreement.FoldAbove && !looks
	var lines []line
	for _, r := range rows {
		counts[r.Verdict]++
		if r.Verdict == finding.Agree && fold {
			folded++
			continue
		}
		lines = append(lines, volumeLine(r, w.Zones[r.Machine]))
	}
	snapshots := slices.Clone(w.Volumes.Snapshots)
	slices.SortFunc(snapshots, func(a, b volumes.SnapshotRow) int {
		return cmp.Or(prose.Natural(a.Name, b.Name), strings.Compare(a.ID, b.ID))
	})
	for _, s := range snapshots {
		counts[s.Verdict]++
		row := Row{Ill: s.Verdict.NeedsAttention(), Cells: cells("snapshot "+s.Name, "", "", "", fmt.Sprint(s.GiB), "snapshot", s.Verdict.String(), s.Finding.What, s.Finding.Next)}
		row.Cells[0].ID = tidy(s.ID)
		lines = append(lines, line{row: row.ofVolume(), texts: []string{s.Name, s.ID, s.Finding.What}})
	}
	slices.SortStableFunc(lines, func(a, b line) int { return order(a.row.Ill) - order(b.row.Ill) })
	if len(counts) > 0 && l.Problem == "" {
		l.Problem = strings.Join(some(w.Volumes.NotRead), "; ")
	}
	if len(rows) > 0 && !looks {
		l.Summary = tidy(w.Volumes.Summary())
	}
	l = m.list(l, "volume", lines)
	if l.All += folded; folded > 0 {
		l.More = strings.TrimPrefix(l.More+fmt.Sprintf("; %d that agree are not named: filter to see them", folded), "; ")
	}
	return l.judgedBy(counts)
}

// judgedBy is the list with the state of its worst verdict, if it has any. What could not be read is not well.
func (l List) judgedBy(counts finding.Counts) List {
	if len(counts) == 0 {
		return l
	}
	if l.State, l.Text = stateOf(counts), counts.String(); l.Problem != "" && l.State != Bad {
		l.State, l.Text = Unread, l.Text+"; "+l.Problem
	}
	return l
}

// order is what needs attention first.
func order(ill bool) int {
	if ill {
		return 0
	}
	return 1
}

// volumeLine is one volume as `kubectl mooring volumes` has it.
func volumeLine(r volumes.Row, zone string) line {
	all := r.Cells()
	var what, next []string
	for _, f := range r.Findings {
		what = append(what, f.What)
		if f.Next != "" {
			next = append(next, f.Next)
		}
	}
	slices.Sort(next)
	// What was not compared is in the tile, once.
	row := Row{Ill: r.Verdict.NeedsAttention() && r.Verdict != finding.OneSide, Cells: cells(append(all[:7:7], strings.Join(what, "; "), strings.Join(slices.Compact(next), "; "))...)}
	row.Cells[0].ID = tidy(r.ID)
	if r.Machine != "" {
		row.Cells[2].Machine = row.Cells[2].Text
	}
	return line{row: row.ofVolume(), texts: append(all, strings.Join(next, "\n")), zone: zone}
}

// ofVolume is the row with what is told of a volume or a snapshot.
func (r Row) ofVolume() Row {
	c := r.Cells
	r.trouble.Fault = Fault{What: strings.TrimSuffix(c[0].Text+" "+c[6].Text+": "+c[7].Text, ": "), Command: "kubectl mooring volumes", Next: c[8].Text}
	return r
}
