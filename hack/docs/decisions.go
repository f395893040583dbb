// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// decisionsPage lists docs/adr by number, with the title of each.
func decisionsPage(root string) ([]byte, error) {
	paths, err := filepath.Glob(filepath.Join(root, "docs", "adr", "[0-9]*.md"))
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	b.WriteString(header + "# Decisions\n\nArchitecture decision records, with reasons and consequences ([template](0000-template.md)). " +
		"Generated from their titles by `make generate`; do not edit.\n\n")
	for _, path := range paths { // Glob sorts them
		name := filepath.Base(path)
		if name == "0000-template.md" {
			continue
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		_, title, found := strings.Cut("\n"+string(content), "\n# ")
		title, _, _ = strings.Cut(title, "\n")
		number, words, ok := strings.Cut(title, ". ")
		if !found || !ok || !strings.HasPrefix(strings.TrimLeft(name, "0"), number+"-") {
			return nil, fmt.Errorf("%s: its heading is %q: begin it with the number of its name, as in \"# 7. Title\"", path, title)
		}
		fmt.Fprintf(&b, "%s. [%s](%s)\n", number, words, name)
	}
	return []byte(b.String()), nil
}
