// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Command compat keeps hack/compat/public.txt: every name that users may have written down somewhere, in manifests, scripts, dashboards or
// alerts. It adds new names and refuses to drop one that is gone, unless hack/compat/removed.txt says so. docs/explanation/api-policy.md
// says what such a name promises.
//
// Run it from the repository's root as `make manifests` does.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const header = `# Every public name, one to a line: written by make manifests, which never takes a line away. A name that goes moves to removed.txt.
`

func main() {
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, "compat:", err)
		os.Exit(1)
	}
}

// run writes the list again, or says which names have vanished.
func run(root string) error {
	listed, removed, now, err := read(root)
	if err != nil {
		return err
	}
	if gone := vanished(listed, removed, now); len(gone) > 0 {
		return fmt.Errorf("public names are gone: put them back, or write each with what takes its place into hack/compat/removed.txt: %s", strings.Join(gone, "; "))
	}
	return os.WriteFile(list(root, "public.txt"), []byte(header+strings.Join(now, "\n")+"\n"), 0o644)
}

func list(root, name string) string { return filepath.Join(root, "hack", "compat", name) }

// read returns the names that are listed, those that were removed with what takes their place, and those that there are now.
func read(root string) (listed []string, removed map[string]string, now []string, err error) {
	content, err := os.ReadFile(list(root, "public.txt"))
	if err != nil && !os.IsNotExist(err) {
		return nil, nil, nil, err
	}
	listed = lines(string(content))
	if content, err = os.ReadFile(list(root, "removed.txt")); err != nil {
		return nil, nil, nil, err
	}
	removed = map[string]string{}
	for _, line := range lines(string(content)) {
		name, instead, found := strings.Cut(line, " -> ")
		if !found { // nothing after the arrow is not an arrow: lines are trimmed
			return nil, nil, nil, fmt.Errorf("removed.txt: %q does not say what takes its place: NAME -> VERSION: what to use instead", line)
		}
		removed[name] = instead
	}
	now, err = surface(root)
	return listed, removed, now, err
}

// lines are those with content.
func lines(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return out
}

// vanished are the listed names that there are no more, but for those whose removal was written down.
func vanished(listed []string, removed map[string]string, now []string) []string {
	return slices.DeleteFunc(slices.Clone(listed), func(name string) bool {
		_, known := removed[name]
		return known || slices.Contains(now, name)
	})
}

// surface is every public name there is, sorted. What is generated is read as it was generated: tests of hack/docs, charts and manifests
// hold it to the code.
func surface(root string) ([]string, error) {
	var all []string
	for _, part := range []func(string) ([]string, error){reference, metrics, kinds, values, source} {
		names, err := part(root)
		if err != nil {
			return nil, err
		}
		if len(names) == 0 {
			return nil, fmt.Errorf("a part of the public names is empty: %d were found before it", len(all))
		}
		all = append(all, names...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}
