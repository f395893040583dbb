// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/platform/finding"
)

// The formats that most commands know, and those of single ones: more columns, and kind/name alone, a line each.
const (
	Text        = "text"
	FormatTable = "table"
	FormatWide  = "wide"
	FormatName  = "name"
	FormatJSON  = "json"
	FormatYAML  = "yaml"
	outputUsage = "Output format: "
)

// Format is -o/--output; it implements pflag.Value, so that a wrong format is refused before the command does anything.
type Format struct {
	value string
	known []string
}

// NewFormat returns the flag of a command that knows these formats, the first of which is its default.
func NewFormat(known ...string) Format { return Format{value: known[0], known: known} }

// AddTo gives cmd the flag and its completion.
func (f *Format) AddTo(cmd *cobra.Command) {
	cmd.Flags().VarP(f, "output", "o", outputUsage+strings.Join(f.known, ", ")+".")
	// The only error is a flag that does not exist or has its completion already.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(f.known, cobra.ShellCompDirectiveNoFileComp))
}

// String is the format's name.
func (f *Format) String() string { return f.value }

// Type names the value in the help text.
func (*Format) Type() string { return "format" }

// Set accepts the formats that the command knows.
func (f *Format) Set(s string) error {
	if !slices.Contains(f.known, s) {
		return fmt.Errorf("use one of %s", strings.Join(f.known, ", "))
	}
	f.value = s
	return nil
}

// Print writes v as JSON or YAML, or else the text, folded to the terminal's width.
func (f *Format) Print(w io.Writer, text string, v any) error {
	columns, _ := Terminal(w)
	return f.Write(w, Fold(text, columns), v)
}

// Show writes v as JSON or YAML, or else the text for a terminal of that many columns, 0 for one without end. The error
// carries the exit code of a command that found what needs attention.
func (f *Format) Show(w io.Writer, v any, attention bool, text func(columns int, paint finding.Paint) string) error {
	columns, colors := Terminal(w)
	paint, shown := finding.Plain, ""
	if colors {
		paint = Paint
	}
	if f.value != FormatJSON && f.value != FormatYAML {
		shown = text(columns, paint)
	}
	if err := f.Write(w, shown, v); err != nil {
		return err
	}
	return command.Attention(attention)
}

// Write writes v as JSON or YAML, or else the text as it is.
func (f *Format) Write(w io.Writer, text string, v any) error {
	var err error
	switch f.value {
	case FormatJSON:
		err = JSON(w, v)
	case FormatYAML:
		err = YAML(w, v)
	default:
		_, err = io.WriteString(w, text)
	}
	if err != nil {
		return fmt.Errorf("printing the result: %w", err)
	}
	return nil
}

// JSON writes v indented, and markup in texts as it is.
func JSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// YAML writes v by its json tags.
func YAML(w io.Writer, v any) error {
	data, err := yaml.Marshal(v)
	if err == nil {
		_, err = w.Write(data)
	}
	return err
}
