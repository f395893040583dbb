// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// Table is text in columns. Every row has as many cells as there are columns; an empty cell is printed
// as "-", so that columns can be counted.
type Table struct {
	Columns []string // upper case, as kubectl prints them
	Rows    [][]string
}

// Text is the table in lines for a terminal of that many columns, 0 for as many as there are, or where it is wider a paragraph for each row.
func (t Table) Text(columns int) string {
	text := t.text()
	if columns > 0 && widest(text) > columns {
		text = t.paragraphs(columns)
	}
	return text
}

// widest is the length of the longest line, in characters.
func widest(text string) int {
	most := 0
	for line := range strings.Lines(text) {
		most = max(most, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")))
	}
	return most
}

// text is the table in columns.
func (t Table) text() string {
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	for _, row := range append([][]string{t.Columns}, t.Rows...) {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = prose.Cell(cell)
		}
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	_ = tw.Flush() // a strings.Builder takes everything
	return b.String()
}

// paragraphs are the rows one below the other: the first cell, and below it the others by the names of their columns. What is empty is left out.
func (t Table) paragraphs(columns int) string {
	names := 0
	for _, name := range t.Columns {
		names = max(names, len(name))
	}
	var b strings.Builder
	for _, row := range t.Rows {
		b.WriteString(prose.Wrap("", "  ", prose.Cell(row[0]), columns))
		for i, cell := range row[1:] {
			if text := prose.Cell(cell); text != "-" {
				b.WriteString(prose.Wrap(fmt.Sprintf("  %-*s  ", names, t.Columns[i+1]), strings.Repeat(" ", names+4), text, columns))
			}
		}
	}
	return b.String()
}
