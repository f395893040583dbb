// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// commands renders a command with subcommands: each that does something has a section with its help, as a terminal shows it, and its flags.
func commands(root *cobra.Command) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s# %s: commands and flags\n\n%s\n\nWritten by `make generate` from the commands themselves; do not edit.\n\n", header, root.Name(), preformatted(root.Long))
	b.WriteString("## Flags of all commands\n\n")
	flags(&b, root.PersistentFlags())
	section(&b, root)
	return b.Bytes()
}

func section(b *bytes.Buffer, command *cobra.Command) {
	for _, c := range command.Commands() {
		if !c.IsAvailableCommand() || c.Name() == "help" {
			continue
		}
		if c.Runnable() {
			about := strings.TrimSpace(c.Long)
			if about == "" {
				about = c.Short + "."
			}
			fmt.Fprintf(b, "\n## %s\n\n%s\n", strings.TrimSuffix(c.UseLine(), " [flags]"), preformatted(about))
			if c.HasExample() {
				fmt.Fprintf(b, "\nExamples:\n\n%s\n", preformatted(strings.TrimSpace(strings.ReplaceAll("\n"+c.Example, "\n  ", "\n"))))
			}
			if c.HasAvailableLocalFlags() {
				b.WriteString("\n")
				flags(b, c.LocalNonPersistentFlags())
			}
		}
		section(b, c)
	}
}

// preformatted keeps a text's lines and columns.
func preformatted(text string) string { return "```text\n" + text + "\n```" }

// flags renders flags as a Markdown table, in alphabetical order.
func flags(b *bytes.Buffer, set *pflag.FlagSet) {
	b.WriteString("| flag | default | meaning |\n|---|---|---|\n")
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		def := ""
		if f.DefValue != "" {
			def = "`" + cell(f.DefValue) + "`"
		}
		fmt.Fprintf(b, "| %s | %s | %s |\n", name, def, cell(f.Usage))
	})
}
