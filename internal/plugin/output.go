// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/platform/screen"
)

// Format is a value of -o/--output.
type Format string

// The formats every command knows.
const (
	FormatTable Format = "table"
	FormatJSON  Format = "json"
	FormatYAML  Format = "yaml"
)

// The formats that some commands have in addition: more columns, and kind/name alone, a line each.
const (
	FormatWide Format = "wide"
	FormatName Format = "name"
)

func formats() []string { return []string{string(FormatTable), string(FormatJSON), string(FormatYAML)} }

// Tabler is a result that can be printed in every format: as JSON and YAML by its json tags, and as a
// table.
type Tabler interface {
	// Table returns the rows for a person, in their final order.
	Table() Table
}

// Table is text in columns. Every row has as many cells as there are columns; an empty cell is printed
// as "-", so that columns can be counted.
type Table struct {
	Columns []string // upper case, as kubectl prints them
	Rows    [][]string
}

// Output is -o/--output; it implements pflag.Value, so that a wrong format is refused before the
// command does anything. The zero value prints tables.
type Output struct {
	format Format
	// known are the formats of a command that has others than [Tabler]'s, its default first; nil for those.
	known []string
}

func (o *Output) formats() []string {
	if o.known != nil {
		return o.known
	}
	return formats()
}

// AddTo gives cmd the flag and its completion.
func (o *Output) AddTo(cmd *cobra.Command) {
	if o.format == "" {
		o.format = Format(o.formats()[0])
	}
	cmd.Flags().VarP(o, "output", "o", "Output format: "+strings.Join(o.formats(), ", ")+".")
	// The only error is a flag that does not exist or has its completion already.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(o.formats(), cobra.ShellCompDirectiveNoFileComp))
}

// String is the format's name.
func (o *Output) String() string { return string(o.format) }

// Type names the value in the help text.
func (*Output) Type() string { return "format" }

// Set accepts the formats that the command knows.
func (o *Output) Set(s string) error {
	if !slices.Contains(o.formats(), s) {
		return fmt.Errorf("use one of %s", strings.Join(o.formats(), ", "))
	}
	o.format = Format(s)
	return nil
}

// Print writes v in the chosen format.
func (o *Output) Print(w io.Writer, v Tabler) error {
	var err error
	switch o.format { //nolint:exhaustive // the formats of single commands are printed by them
	case FormatJSON:
		err = screen.JSON(w, v)
	case FormatYAML:
		err = screen.YAML(w, v)
	case FormatTable, "":
		err = v.Table().write(w)
	}
	if err != nil {
		return fmt.Errorf("printing the result: %w", err)
	}
	return nil
}

// write prints the table, or where it is wider than the terminal a paragraph for each row.
func (t Table) write(w io.Writer) error {
	text := t.text()
	if columns, _ := terminal(w); columns > 0 && widest(text) > columns {
		text = t.paragraphs(columns)
	}
	_, err := io.WriteString(w, text)
	return err
}

// clean is a cell as one line and one column, whatever a foreign object's text contains.
func clean(cell string) string { return cmp.Or(strings.Join(strings.Fields(cell), " "), "-") }

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
			cells[i] = clean(cell)
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
		b.WriteString(prose.Wrap("", "  ", clean(row[0]), columns))
		for i, cell := range row[1:] {
			if text := clean(cell); text != "-" {
				b.WriteString(prose.Wrap(fmt.Sprintf("  %-*s  ", names, t.Columns[i+1]), strings.Repeat(" ", names+4), text, columns))
			}
		}
	}
	return b.String()
}
