// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestThreatsHaveTheirTests: each row of the threat models names tests, and each of these is there.
func TestThreatsHaveTheirTests(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	pages, err := filepath.Glob(filepath.Join(root, "docs", "explanation", "threats-*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("pages %v (%v)", pages, err)
	}
	named := regexp.MustCompile("`([a-z0-9/]+)\\.(Test\\w+)`")
	for _, page := range pages {
		content := must.Get(os.ReadFile(page)).Or(t)
		_, table, found := strings.Cut(string(content), "|---|---|---|\n")
		if !found {
			t.Errorf("%s has no table", page)
		}
		for row := range strings.SplitSeq(strings.TrimSpace(table), "\n") {
			tests := named.FindAllStringSubmatch(row, -1)
			if len(tests) == 0 {
				t.Errorf("%s: no test stands behind %s", page, row)
			}
			for _, m := range tests {
				if !hasTest(t, filepath.Join(root, filepath.FromSlash(m[1])), m[2]) {
					t.Errorf("%s: there is no %s in %s", page, m[2], m[1])
				}
			}
		}
	}
}

// hasTest looks for a test among the test files of a folder.
func hasTest(t *testing.T, folder, name string) bool {
	t.Helper()
	files := must.Get(filepath.Glob(filepath.Join(folder, "*_test.go"))).Or(t)
	for _, file := range files {
		content := must.Get(os.ReadFile(file)).Or(t)
		if strings.Contains(string(content), "\nfunc "+name+"(") {
			return true
		}
	}
	return false
}
