// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/mooring-dev/mooring/internal/agreement"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// Columns are the names of the columns, the last three only of the wide form.
func Columns() []string {
	return []string{"CLAIM", "POD", "MACHINE", "DROPLET", "GIB", "STATE", "VERDICT", "VOLUME", "ID", "WHAT"}
}

// narrow is how many columns the table has that is not wide.
const narrow = 7

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
	claim := r.Claim
	if claim == "" {
		claim = "(" + r.Volume + ")"
	}
	cells := []string{claim, pods, r.Machine, droplet, strconv.FormatInt(r.GiB, 10), r.State, r.Verdict.String(), r.Volume, r.ID, strings.Join(what, "; ")}
	for i, c := range cells {
		if c = strings.Join(strings.Fields(c), " "); c == "" {
			c = "-"
		}
		cells[i] = c
	}
	return cells
}

// Text is the report for a terminal of that width in columns, 0 for one without end: a line for each volume with its findings below it, the snapshots that
// nobody owns, and the sums. Nothing is left out.
func (r Report) Text(width int, paint agreement.Paint) string {
	var b strings.Builder
	if len(r.Volumes) > 0 {
		r.table(&b, width, paint)
	}
	for _, s := range r.Snapshots {
		b.WriteString(prose.Wrap("snapshot ", "  ", fmt.Sprintf("%s (%s), %d GiB: %s", s.Name, s.ID, s.GiB, s.Finding.What), width))
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
		counts := agreement.Counts{}
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
		out += fmt.Sprintf(" %s of the account %s not this cluster's.", prose.Plural(r.Totals.Others, "other volume"), map[bool]string{true: "is", false: "are"}[r.Totals.Others == 1])
	}
	return out
}

// table writes the rows below their columns, each with its findings.
func (r Report) table(b *strings.Builder, width int, paint agreement.Paint) {
	lines := [][]string{Columns()[:narrow]}
	for _, v := range r.Volumes {
		lines = append(lines, v.Cells()[:narrow])
	}
	widths := fit(lines, width)
	for at, line := range lines {
		for i, cell := range line[:narrow-1] {
			cell = shorten(cell, widths[i])
			b.WriteString(cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
		}
		if at == 0 {
			b.WriteString(line[narrow-1] + "\n")
			continue
		}
		row := r.Volumes[at-1]
		b.WriteString(paint(line[narrow-1], !row.Verdict.NeedsAttention()) + "\n")
		for _, f := range row.Findings {
			b.WriteString(prose.Wrap("  "+mark(f.Verdict)+" ", "    ", f.What, width))
			if f.Next != "" {
				b.WriteString(prose.Wrap("    next: ", "          ", f.Next, width))
			}
		}
	}
}

// mark is the character before a finding, as in the agreement of machines.
func mark(v agreement.Verdict) string {
	switch v {
	case agreement.Down, agreement.Disagree:
		return "!"
	case agreement.Unknown, agreement.OneSide:
		return "?"
	case agreement.Settling, agreement.Agree:
	}
	return "-"
}

// least is how narrow a column becomes at most.
const least = 7

// fit returns the widths of the columns: those of their cells, of which the widest lose until the line fits.
func fit(lines [][]string, width int) []int {
	widths := make([]int, narrow)
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for width > 0 {
		sum := 2 * (narrow - 1)
		for _, w := range widths {
			sum += w
		}
		widest := slices.Index(widths, slices.Max(widths[:3])) // names can be shortened, numbers cannot
		if sum <= width || widths[widest] <= least {
			break
		}
		widths[widest]--
	}
	return widths
}

// shorten cuts text in the middle, where names of one kind are alike least of all at both ends.
func shorten(text string, width int) string {
	runes := []rune(text)
	if len(runes) <= width {
		return text
	}
	head := (width - 1) / 2
	return string(runes[:head]) + "…" + string(runes[len(runes)-(width-1-head):])
}
