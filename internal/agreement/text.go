// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package agreement

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// Columns are the names of the columns, the last three only of the wide form.
func Columns() []string {
	return []string{"MACHINE", "DROPLET", "NODE", "CALICO", "REFLECTOR", "VERDICT", "VOLUMES", "SINCE", "WHAT"}
}

// FoldAbove is the number of machines above which those that agree are counted and not named.
const FoldAbove = 50

// Text is the rows for a terminal of that width in columns, 0 for one without end: a line for each machine with its findings below it, indented, and
// a summary. Above [FoldAbove] rows those that agree are counted only.
func Text(rows []Row, now time.Time, width int, paint finding.Paint) string {
	shown, everywhere := rows, common(rows)
	if len(rows) > FoldAbove {
		shown = slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return r.Verdict == finding.Agree })
	}
	const narrow = 6
	var b strings.Builder
	lines := make([]finding.Line, len(shown))
	for i, r := range shown {
		own := slices.DeleteFunc(slices.Clone(r.Findings), func(v finding.Verdict) bool {
			return v.State == finding.Unknown && slices.Contains(everywhere, v.What)
		})
		lines[i] = finding.Line{Cells: r.cells()[:narrow], State: r.Verdict, Verdicts: own}
	}
	if len(shown) > 0 {
		b.WriteString(finding.Table(Columns()[:narrow], lines, 0, now, width, paint))
	}
	for _, what := range everywhere {
		b.WriteString(prose.Wrap("? ", "  ", "of every Node: "+what, width))
	}
	b.WriteString(prose.Wrap("", "", Summary(rows, len(rows)-len(shown)), width))
	return b.String()
}

// Summary is how many machines there are, by verdict; folded of them, which agree, are not shown.
func Summary(rows []Row, folded int) string {
	if len(rows) == 0 {
		return "There are no machines."
	}
	out := prose.Plural(len(rows), "machine") + ": " + Count(rows).String() + "."
	if folded > 0 {
		out += fmt.Sprintf(" %d that agree are not shown; -o wide shows all.", folded)
	}
	return out
}

// common are the unknowns that all Nodes have, if there are several Nodes.
func common(rows []Row) []string {
	nodes := slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return !r.HasNode })
	if len(nodes) < 2 {
		return nil
	}
	var out []string
	for _, f := range nodes[0].Findings {
		same := func(g finding.Verdict) bool { return g.State == finding.Unknown && g.What == f.What }
		if !slices.ContainsFunc(nodes, func(r Row) bool { return !slices.ContainsFunc(r.Findings, same) }) {
			out = append(out, f.What)
		}
	}
	return out
}

// Wide is a row as one line of all columns: since when is that of the first finding with a time.
func (r Row) Wide(now time.Time) []string {
	since := ""
	var what []string
	for _, f := range r.Findings {
		if what = append(what, f.What); f.Since != nil && since == "" {
			since = prose.Span(now.Sub(*f.Since))
		}
	}
	return append(r.cells(), since, strings.Join(what, "; "))
}

func (r Row) cells() []string {
	// What every row would repeat is left out: the kind of the ID, and that a side was not queried.
	short := strings.NewReplacer("droplet ", "", "digitalocean://", "", ", "+notAsked, "", ", "+unknown, " ?", ", ", " ")
	cells := []string{r.Machine, short.Replace(r.Droplet), r.Node, r.CalicoNode, r.Reflector, r.Verdict.String(), r.Volumes}
	for i, c := range cells {
		if cells[i] = prose.Cell(c); cells[i] == nothing {
			cells[i] = "-"
		}
	}
	return cells
}

// Count counts the rows by verdict.
func Count(rows []Row) finding.Counts {
	c := finding.Counts{}
	for _, r := range rows {
		c[r.Verdict]++
	}
	return c
}
