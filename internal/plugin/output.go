// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// Format is a value of -o/--output.
type Format string

// The formats every command knows.
const (
	FormatTable Format = "table"
	FormatJSON  Format = "json"
	FormatYAML  Format = "yaml"
)

// The formats that some commands know besides: more columns, and kind/name alone, a line each.
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
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		err = encoder.Encode(v)
	case FormatYAML:
		var data []byte
		if data, err = yaml.Marshal(v); err == nil {
			_, err = w.Write(data)
		}
	case FormatTable, "":
		err = v.Table().write(w)
	}
	if err != nil {
		return fmt.Errorf("printing the result: %w", err)
	}
	return nil
}

func (t Table) write(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, row := range append([][]string{t.Columns}, t.Rows...) {
		cells := make([]string, len(row))
		for i, cell := range row {
			// A cell is one line and one column, whatever a foreign object's text contains.
			if cells[i] = strings.Join(strings.Fields(cell), " "); cells[i] == "" {
				cells[i] = "-"
			}
		}
		if _, err := io.WriteString(tw, strings.Join(cells, "\t")+"\n"); err != nil {
			return err
		}
	}
	return tw.Flush()
}
