// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package finding

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// Paint colors text about something that is fine (well) or is not. It must not change what is visible.
type Paint func(text string, well bool) string

// Plain paints nothing.
func Plain(text string, _ bool) string { return text }

// Line is an object in a table, the last cell of which is its state, with its verdicts below it.
type Line struct {
	Cells    []string
	State    State
	Verdicts []Verdict
}

// Table is lines below their columns for a terminal of that width, 0 for one without end. As many of the first columns
// as names says have names, which can be shortened.
func Table(columns []string, lines []Line, names int, now time.Time, width int, paint Paint) string {
	var b strings.Builder
	last := len(columns) - 1
	widths := fit(columns, lines, names, width)
	row := func(cells []string) {
		for i, cell := range cells[:last] {
			cell = shorten(cell, widths[i])
			b.WriteString(cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
		}
	}
	row(columns)
	b.WriteString(columns[last] + "\n")
	for _, l := range lines {
		row(l.Cells)
		b.WriteString(paint(l.Cells[last], !l.State.NeedsAttention()) + "\n")
		for _, v := range l.Verdicts {
			b.WriteString(prose.Wrap("  "+v.State.mark()+" ", "    ", v.Text(now), width))
			if v.Next != "" {
				b.WriteString(prose.Wrap("    next: ", "          ", v.Next, width))
			}
		}
	}
	return b.String()
}

// least is how narrow a column becomes at most.
const least = 7

// fit returns the widths of the columns: those of their cells, of which the widest lose until the line fits.
func fit(columns []string, lines []Line, names, width int) []int {
	widths := make([]int, len(columns))
	for i, name := range columns {
		widths[i] = utf8.RuneCountInString(name)
		for _, l := range lines {
			widths[i] = max(widths[i], utf8.RuneCountInString(l.Cells[i]))
		}
	}
	for width > 0 && names > 0 {
		sum := 2 * (len(columns) - 1)
		for _, w := range widths {
			sum += w
		}
		widest := slices.Index(widths, slices.Max(widths[:names]))
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
