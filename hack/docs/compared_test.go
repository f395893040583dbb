// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// defectsOfReflectors is how many defects of the old route reflector operator are known, B1 to B23 of the facts.
const defectsOfReflectors = 23

// TestReflectorsComparedRestsOnTests: the page that sets the route reflector operator beside the one it succeeds has a row for each known defect, and the last
// cell of each row is made of tests that are there.
func TestReflectorsComparedRestsOnTests(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	page, err := os.ReadFile(filepath.Join(root, "docs", "components", "calico-route-reflector-operator-compared.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([a-z0-9/]+)\\.(Test\\w+)`")
	next, rows := 1, 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if !strings.HasPrefix(line, "| ") || strings.HasSuffix(strings.TrimSpace(line), "| shown by |") {
			continue
		}
		rows++
		if strings.HasPrefix(line, "| B") {
			if want := fmt.Sprintf("B%d", next); strings.TrimSpace(cells[0]) != want || len(cells) != 4 {
				t.Fatalf("want the row %s with four cells: %s", want, line)
			}
			next++
		}
		last := cells[len(cells)-1]
		tests := named.FindAllStringSubmatch(last, -1)
		if rest := strings.TrimSpace(named.ReplaceAllString(last, "")); len(tests) == 0 || rest != "" {
			t.Errorf("%s is shown by nothing, or by more than tests: %q", cells[0], last)
		}
		for _, m := range tests {
			if !hasTest(t, filepath.Join(root, filepath.FromSlash(m[1])), m[2]) {
				t.Errorf("%s: there is no %s in %s", cells[0], m[2], m[1])
			}
		}
	}
	if next != defectsOfReflectors+1 || rows == defectsOfReflectors {
		t.Errorf("there are rows for %d defects, want %d; %d rows in all, want some of the lab as well", next-1, defectsOfReflectors, rows)
	}
}
