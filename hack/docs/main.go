// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Command docs writes docs/reference from the code: the commands and flags of the binaries, the environment variables and the annotations of the cloud component, so
// that the reference cannot differ from it. Run it from the repository's root as `make generate` does.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/internal/docloud/admissionapp"
	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	docloud "github.com/mooring-dev/mooring/internal/docloud/app"
	"github.com/mooring-dev/mooring/internal/etcdstorage/operatorapp"
	"github.com/mooring-dev/mooring/internal/etcdstorage/proxyapp"
	nodesync "github.com/mooring-dev/mooring/internal/nodesync/app"
	"github.com/mooring-dev/mooring/internal/plugin"
	routereflector "github.com/mooring-dev/mooring/internal/routereflector/app"
)

// header begins every page.
const header = "<!-- SPDX-FileCopyrightText: The Mooring Authors -->\n<!-- SPDX-License-Identifier: Apache-2.0 -->\n\n"

func main() {
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, "docs:", err)
		os.Exit(1)
	}
}

// pages returns the content of every page by its file name. root is the repository's.
func pages(root string) (map[string][]byte, error) {
	cloud, err := docloud.NewCommand()
	if err != nil {
		return nil, err
	}
	sync, proxy, reflectors := nodesync.NewCommand(), proxyapp.NewCommand(), routereflector.NewCommand()
	admission, storage := admissionapp.NewCommand(), operatorapp.NewCommand()
	people := plugin.NewCommand(plugin.Builtin()...)
	metrics, err := metricsPage(root)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		sync.Name() + ".md":           page(sync, ""),
		cloud.Name() + ".md":          page(cloud, environment()),
		admission.Name() + ".md":      page(admission, admissionEnvironment()),
		proxy.Name() + ".md":          page(proxy, ""),
		storage.Name() + ".md":        page(storage, ""),
		reflectors.Name() + ".md":     page(reflectors, ""),
		people.Name() + ".md":         commands(people),
		"digitalocean-annotations.md": annotations(annotation.Table()),
		"metrics.md":                  metrics,
	}, nil
}

// run writes the pages into docs/reference.
func run(root string) error {
	all, err := pages(root)
	if err != nil {
		return err
	}
	for name, content := range all {
		if err := os.WriteFile(filepath.Join(root, "docs", "reference", name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// page renders the flags of a command as a Markdown table, in alphabetical order, after whatever else there is to say.
func page(command *cobra.Command, before string) []byte {
	var b bytes.Buffer
	title := "flags"
	if before != "" {
		title = "variables and flags"
	}
	fmt.Fprintf(&b, "%s# %s: %s\n\n%s\n\nWritten by `make generate` from the flags themselves; do not edit.\n\n", header, command.Name(), title, command.Long)
	b.WriteString(before)
	command.InitDefaultHelpFlag()
	flags(&b, command.Flags())
	return b.Bytes()
}

// cell makes a text fit a cell of a table: a bar would end it, and a line break the row.
func cell(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(strings.TrimSpace(text), "|", `\|`), "\n", "<br>")
}

// width is how long lines of text are, where Markdown allows them to end.
const width = 140

// wrap breaks a text into lines; all but the first begin with indent.
func wrap(text, indent string) string {
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case column+1+len(word) > width:
			b.WriteString("\n" + indent)
			column = len(indent)
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}
