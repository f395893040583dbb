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

// volumesOf is the volumes and the snapshots that nobody owns, what disagrees first. Above [agreement.FoldAbove] those
// that agree are counted and not named, unless somebody looks for them.
func volumesOf(w World, m matcher) List {
	l := List{
		Key: "volumes", Title: "Volumes", Problem: w.Volumes.Problem,
		Columns: []string{"Claim", "Pods", "Machine", "Droplet", "GiB", "State", "Verdict", "What", "To do"},
	}
	if !w.Volumes.At.IsZero() {
		at := w.Volumes.At.UTC()
		l.Checked, l.Old = &at, w.ReadAt.Sub(at) > oldVolumes
	}
	all, snapshots := slices.Clone(w.Volumes.Volumes), []volumes.Row{}
	for _, s := range w.Volumes.Snapshots {
		snapshots = append(snapshots, s.Row())
	}
	for _, list := range [][]volumes.Row{all, snapshots} {
		slices.SortFunc(list, func(a, b volumes.Row) int {
			return cmp.Or(a.Verdict.Rank()-b.Verdict.Rank(), slices.CompareFunc(a.Cells(), b.Cells(), prose.Natural))
		})
	}
	counts, folded := finding.Counts{}, 0
	looks := m.narrows() || m.attention
	fold := len(all) > agreement.FoldAbove && !looks
	var rows []Row
	for _, r := range slices.Concat(all, snapshots) {
		counts[r.Verdict]++
		if r.Verdict == finding.Agree && fold {
			folded++
			continue
		}
		rows = append(rows, volumeRow(r, w.Zones[r.Machine]))
	}
	slices.SortStableFunc(rows, func(a, b Row) int { return order(a.Ill) - order(b.Ill) })
	if len(counts) > 0 && l.Problem == "" {
		l.Problem = strings.Join(some(w.Volumes.NotRead), "; ")
	}
	if len(all) > 0 && !looks {
		l.Summary = tidy(w.Volumes.Summary())
	}
	l = m.list(l, "volume", rows)
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

// volumeRow is one volume or snapshot as `kubectl mooring volumes` has it.
func volumeRow(r volumes.Row, zone string) Row {
	all := r.Cells()
	var what, next []string
	var since *time.Time
	for _, f := range r.Findings {
		if what = append(what, f.What); since == nil {
			since = f.Since
		}
		if f.Next != "" {
			next = append(next, f.Next)
		}
	}
	slices.Sort(next)
	texts := append(all[:7:7], strings.Join(what, "; "), strings.Join(slices.Compact(next), "; "))
	// What was not compared is in the tile, once.
	row := Row{Ill: r.Verdict.NeedsAttention() && r.Verdict != finding.OneSide, Cells: cells(texts...), zone: zone,
		also: append(all, next...)}
	row.Cells[0].ID = tidy(r.ID)
	if r.Machine != "" {
		row.Cells[2].Machine = row.Cells[2].Text
	}
	c := row.Cells
	row.trouble = trouble{dated: true, Fault: Fault{
		What: strings.TrimSuffix(c[0].Text+" "+c[6].Text+": "+c[7].Text, ": "), Since: since,
		Command: "kubectl mooring volumes", Next: c[8].Text,
	}}
	return row
}
