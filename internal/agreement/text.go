// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package agreement

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Paint colors text that tells of something that is well, or is not. It must not change what is visible.
type Paint func(text string, well bool) string

// Plain paints nothing.
func Plain(text string, _ bool) string { return text }

// Columns are the names of the columns, the last two only of the wide form.
func Columns() []string {
	return []string{"MACHINE", "DROPLET", "NODE", "CALICO", "REFLECTOR", "VERDICT", "SINCE", "WHAT"}
}

// Text is the rows for a terminal of that width in columns, 0 for one without end: a line for each machine, and below it, indented, what disagrees
// or is not known.
func Text(rows []Row, now time.Time, width int, paint Paint) string {
	const columns = 6
	everywhere := common(rows)
	lines := [][]string{Columns()[:columns]}
	for _, r := range rows {
		lines = append(lines, r.cells()[:columns])
	}
	widths := make([]int, columns)
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for at, line := range lines {
		for i, cell := range line[:columns-1] {
			b.WriteString(cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
		}
		if at == 0 {
			b.WriteString(line[columns-1] + "\n")
			continue
		}
		row := rows[at-1]
		b.WriteString(paint(line[columns-1], row.Verdict == Agree) + "\n")
		for _, d := range row.Disagreements {
			text := d.What
			if since := d.since(now); since != "" {
				text += " (since " + since + ")"
			}
			b.WriteString(wrapped("  ! ", text, width))
		}
		for _, u := range row.Unknowns {
			if !slices.Contains(everywhere, u) {
				b.WriteString(wrapped("  ? ", u, width))
			}
		}
	}
	for _, u := range everywhere {
		b.WriteString(wrapped("? ", "of every Node: "+u, width))
	}
	return b.String()
}

// common are the unknowns that all Nodes have, if there are several.
func common(rows []Row) []string {
	nodes := slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return !r.HasNode })
	if len(nodes) < 2 {
		return nil
	}
	var out []string
	for _, u := range nodes[0].Unknowns {
		if !slices.ContainsFunc(nodes, func(r Row) bool { return !slices.Contains(r.Unknowns, u) }) {
			out = append(out, u)
		}
	}
	return out
}

// Wide is a row as one line of all columns.
func (r Row) Wide(now time.Time) []string {
	var what, since []string
	for _, d := range r.Disagreements {
		what, since = append(what, d.What), append(since, d.since(now))
	}
	return append(r.cells(), oneOf(since), strings.Join(append(what, r.Unknowns...), "; "))
}

// oneOf is the first that says something: the disagreement that a side dates is the one to begin with.
func oneOf(list []string) string {
	for _, s := range list {
		if s != "" {
			return s
		}
	}
	return ""
}

func (r Row) cells() []string {
	// What stands in every row is left out: the kind of the ID, and that nobody asked.
	short := strings.NewReplacer("droplet ", "", "digitalocean://", "", ", "+notAsked, "", ", "+unknown, " ?", ", ", " ")
	cells := []string{r.Machine, short.Replace(r.Droplet), r.Node, r.CalicoNode, r.Reflector, string(r.Verdict)}
	for i, c := range cells {
		if c = strings.Join(strings.Fields(c), " "); c == "" || c == nothing {
			c = "-"
		}
		cells[i] = c
	}
	return cells
}

// since is how long ago, in the largest unit of which there are two; "" if no side says.
func (d Disagreement) since(now time.Time) string {
	if d.Since == nil {
		return ""
	}
	ago := max(now.Sub(*d.Since), 0)
	for _, unit := range []struct {
		of   time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}} {
		if ago >= 2*unit.of {
			return fmt.Sprintf("%d%s", ago/unit.of, unit.name)
		}
	}
	return fmt.Sprintf("%ds", ago/time.Second)
}

// wrapped is text in lines of a width, each further one indented like the first.
func wrapped(first, text string, width int) string {
	var b strings.Builder
	line, empty := first, true
	for word := range strings.FieldsSeq(text) {
		if width > 0 && !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			b.WriteString(line + "\n")
			line, empty = strings.Repeat(" ", len(first)), true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	return b.String() + line + "\n"
}
