// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// Columns are the names of the columns, the last three only of the wide form.
func Columns() []string {
	return []string{"CLAIM", "POD", "MACHINE", "DROPLET", "GIB", "STATE", "VERDICT", "VOLUME", "ID", "WHAT"}
}

// narrow is how many columns the table has that is not wide; names can be shortened in the first ones, numbers cannot.
const (
	narrow = 7
	names  = 3
)

// Cells is a row as one line of all columns.
func (r Row) Cells() []string {
	droplet := ""
	if r.Droplet != 0 {
		droplet = strconv.Itoa(r.Droplet)
	}
	pods := strings.Join(r.Pods, ",")
	var what []string
	for _, f := range r.Findings {
		what = append(what, f.What)
	}
	claim := cmp.Or(r.Claim, "("+r.Volume+")")
	if r.State == snapshot {
		claim = "snapshot " + r.Volume
	}
	cells := []string{claim, pods, r.Machine, droplet, strconv.FormatInt(r.GiB, 10), r.State, r.Verdict.String(), r.Volume,
		r.ID, strings.Join(what, "; ")}
	for i, c := range cells {
		cells[i] = prose.Cell(c)
	}
	return cells
}

// Text is the report for a terminal of that width in columns, 0 for one without end: a line for each volume with its
// findings below it, the snapshots that nobody owns, and the sums. Nothing is left out.
func (r Report) Text(now time.Time, width int, paint finding.Paint) string {
	var b strings.Builder
	lines := make([]finding.Line, len(r.Volumes))
	for i, v := range r.Volumes {
		lines[i] = finding.Line{Cells: v.Cells()[:narrow], State: v.Verdict, Verdicts: v.Findings}
	}
	if len(lines) > 0 {
		b.WriteString(finding.Table(Columns()[:narrow], lines, names, now, width, paint))
	}
	for _, s := range r.Snapshots {
		b.WriteString(prose.Wrap("snapshot ", "  ", fmt.Sprintf("%s (%s), %d GiB: %s", s.Name, s.ID, s.GiB, s.Finding.What),
			width))
		b.WriteString(prose.Wrap("    next: ", "          ", s.Finding.Next, width))
	}
	for _, n := range r.NotRead {
		b.WriteString(prose.Wrap("? ", "  ", "not read: "+n, width))
	}
	b.WriteString(prose.Wrap("", "", r.Summary(), width))
	return b.String()
}

// Summary is how many volumes there are, by verdict, and what they cost.
func (r Report) Summary() string {
	out := "There are no volumes of DigitalOcean."
	if len(r.Volumes) > 0 {
		counts := finding.Counts{}
		for _, v := range r.Volumes {
			counts[v.Verdict]++
		}
		out = prose.Plural(len(r.Volumes), "volume") + ": " + counts.String() + "."
	}
	if len(r.Volumes) > 0 || r.Totals.Snapshots != 0 {
		out += fmt.Sprintf(" %d GiB are claimed, %d GiB are not", r.Totals.Claimed, r.Totals.Unclaimed)
		if r.Totals.Snapshots < 0 {
			out += "; snapshots were not read."
		} else {
			out += fmt.Sprintf("; snapshots of them have %d GiB.", r.Totals.Snapshots)
		}
	}
	if r.Totals.Others > 0 {
		out += fmt.Sprintf(" %s of the account %s not this cluster's.", prose.Plural(r.Totals.Others, "other volume"),
			prose.Choose(r.Totals.Others, "is", "are"))
	}
	return out
}
