// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// compared are the pages that set a component alongside the project that it replaces: the least number of rows that are shown by tests, and,
// where the project's known defects are numbered, their letter and how many there are.
func compared() map[string]struct {
	rows    int
	letter  string
	defects int
} {
	type page = struct {
		rows    int
		letter  string
		defects int
	}
	return map[string]page{
		"calico-route-reflector-operator-compared.md": {rows: 24, letter: "B", defects: 23},
		"etcd-storage-compared.md":                    {rows: 21, letter: "S", defects: 21},
		"calico-node-sync-compared.md":                {rows: 17},
		"cloud-differences.md":                        {rows: 50},
		"digitalocean-csi-driver-compared.md":         {rows: 18, letter: "V", defects: 18},
	}
}

// TestComparisonsRestOnTests: the last cell of each row of a table that says "shown by" names tests that exist, and no defect lacks its row.
func TestComparisonsRestOnTests(t *testing.T) {
	t.Parallel()
	for page, want := range compared() {
		if rows := shownRows(t, page); rows < want.rows {
			t.Errorf("%s has %d rows that are shown by tests, want %d at least", page, rows, want.rows)
		}
		next := 1
		for line := range strings.Lines(component(t, page)) {
			if want.letter == "" || !strings.HasPrefix(line, "| "+want.letter) {
				continue
			}
			if row := fmt.Sprintf("| %s%d |", want.letter, next); !strings.HasPrefix(line, row) {
				t.Fatalf("%s: want the row %s: %s", page, row, line)
			}
			next++
		}
		if next != want.defects+1 {
			t.Errorf("%s has rows for %d defects, want %d", page, next-1, want.defects)
		}
	}
}

func component(t *testing.T, page string) string {
	t.Helper()
	content := must.Get(os.ReadFile(filepath.Join("..", "..", "docs", "components", page))).Or(t)
	return string(content)
}

// shownRows checks the tables of a page whose last column is "shown by", and counts their rows.
func shownRows(t *testing.T, page string) int {
	t.Helper()
	named := regexp.MustCompile("`([a-z0-9/]+)\\.(Test\\w+)`")
	rows, columns := 0, 0
	for line := range strings.Lines(component(t, page)) {
		line = strings.TrimSpace(line)
		cells := strings.Split(strings.Trim(line, "|"), " | ")
		switch {
		case !strings.HasPrefix(line, "|"):
			columns = 0
		case strings.HasSuffix(strings.ToLower(line), "| shown by |"):
			columns = len(cells)
		case columns == 0 || strings.HasPrefix(line, "|---"):
		default:
			rows++
			last := cells[len(cells)-1]
			tests := named.FindAllStringSubmatch(last, -1)
			if rest := strings.TrimSpace(named.ReplaceAllString(last, "")); len(tests) == 0 || rest != "" || len(cells) != columns {
				t.Errorf("%s: %s has %d cells of %d, or is shown by nothing, or by more than tests: %q", page, cells[0], len(cells), columns, last)
			}
			for _, m := range tests {
				if !hasTest(t, filepath.Join("..", "..", filepath.FromSlash(m[1])), m[2]) {
					t.Errorf("%s: %s: there is no %s in %s", page, cells[0], m[2], m[1])
				}
			}
		}
	}
	return rows
}

// TestNamedTestsExist: wherever a page of docs names a test with its package, it is there.
func TestNamedTestsExist(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	named := regexp.MustCompile("`([a-z0-9]+/[a-z0-9/]+)\\.(Test\\w+)`")
	seen := 0
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".md") {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range named.FindAllStringSubmatch(string(content), -1) {
			seen++
			if !hasTest(t, filepath.Join(root, filepath.FromSlash(m[1])), m[2]) {
				t.Errorf("%s: there is no %s in %s", path, m[2], m[1])
			}
		}
		return nil
	})
	if err != nil || seen == 0 {
		t.Fatalf("%d tests are named: %v", seen, err)
	}
}
