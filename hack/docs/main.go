// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Command docs writes docs/reference from the code: commands and flags, environment variables, metrics, the fields of kinds, conditions, Events, labels and
// annotations, so that the reference cannot differ from it; and the list of decisions in docs/adr from their titles. Run it from the repository's root as `make generate` does.
package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/internal/docloud/admissionapp"
	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	docloud "github.com/mooring-dev/mooring/internal/docloud/app"
	"github.com/mooring-dev/mooring/internal/docloud/csiapp"
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

// pages returns the content of every page by its file name in docs/reference. root is the repository's.
func pages(root string) (map[string][]byte, error) {
	cloud, err := docloud.NewCommand()
	if err != nil {
		return nil, err
	}
	sync, proxy, reflectors := nodesync.NewCommand(), proxyapp.NewCommand(), routereflector.NewCommand()
	admission, storage := admissionapp.NewCommand(), operatorapp.NewCommand()
	volumes := csiapp.NewCommand()
	people := plugin.NewCommand(plugin.Builtin()...)
	out, err := kindPages(root)
	if err != nil {
		return nil, err
	}
	for name, render := range map[string]func(string) ([]byte, error){
		"metrics.md": metricsPage, "marks.md": marksPage, "events.md": eventsPage, "conditions.md": conditionsPage,
		"variables.md": variablesPage, "alerts.md": alertsPage, "assumptions.md": assumptionsPage,
	} {
		if out[name], err = render(root); err != nil {
			return nil, err
		}
	}
	maps.Copy(out, map[string][]byte{
		sync.Name() + ".md":           page(sync, ""),
		cloud.Name() + ".md":          page(cloud, environment()),
		admission.Name() + ".md":      page(admission, admissionEnvironment()),
		proxy.Name() + ".md":          page(proxy, ""),
		volumes.Name() + ".md":        page(volumes, ""),
		storage.Name() + ".md":        page(storage, ""),
		reflectors.Name() + ".md":     page(reflectors, ""),
		people.Name() + ".md":         commands(people),
		"digitalocean-annotations.md": annotations(annotation.Table()),
	})
	out["README.md"] = index(out)
	out["../adr/README.md"], err = decisionsPage(root)
	return out, err
}

// index lists all pages by what stands in their headings.
func index(all map[string][]byte) []byte {
	var b strings.Builder
	b.WriteString(header + "# Reference\n\nAll pages in this folder are generated from the code by `make generate`; do not edit them. " +
		"`make verify` fails if one is out of date.\n\n")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		_, title, _ := strings.Cut(string(all[name]), "\n# ")
		title, _, _ = strings.Cut(title, "\n")
		fmt.Fprintf(&b, "- [%s](%s)\n", title, name)
	}
	return []byte(b.String())
}

// run writes the pages into docs/reference.
func run(root string) error {
	all, err := pages(root)
	if err != nil {
		return err
	}
	for name, content := range all {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, "docs", "reference", name)), 0o755); err != nil {
			return err
		}
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

// escape keeps what Markdown would take for HTML or emphasis as it is written in the code.
func escape(text string) string {
	return strings.NewReplacer("<", "&lt;", "*", `\*`).Replace(text)
}

// prose is a text of the code as a paragraph.
func prose(text string) string { return wrap(escape(text), "") }
