// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Command docs writes docs/reference/<binary>.md from the flags of the binaries, so that the reference cannot differ from the code.
// Run it from the repository's root as `make generate` does.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	nodesync "github.com/mooring-dev/mooring/internal/nodesync/app"
)

func main() {
	if err := run(filepath.Join("docs", "reference")); err != nil {
		fmt.Fprintln(os.Stderr, "docs:", err)
		os.Exit(1)
	}
}

// commands is every binary whose flags have a page.
func commands() []*cobra.Command {
	return []*cobra.Command{nodesync.NewCommand()}
}

// run writes one page for each command into dir.
func run(dir string) error {
	for _, command := range commands() {
		if err := os.WriteFile(filepath.Join(dir, command.Name()+".md"), page(command), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// page renders the flags of a command as a Markdown table, in alphabetical order.
func page(command *cobra.Command) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s: flags\n\n%s\n\nWritten by `make generate` from the flags themselves; do not edit.\n\n", command.Name(), command.Long)
	b.WriteString("| flag | default | meaning |\n|---|---|---|\n")
	command.InitDefaultHelpFlag()
	command.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		def := ""
		if f.DefValue != "" {
			def = "`" + f.DefValue + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, def, strings.ReplaceAll(f.Usage, "|", `\|`))
	})
	return b.Bytes()
}
