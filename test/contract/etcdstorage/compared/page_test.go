// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package compared

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit"
)

// defects is how many defects of the old controller are known, S1 to S21 of the facts.
const defects = 21

// folders are the packages whose tests the page names.
func folders() map[string]string {
	out := map[string]string{"crd": "test/crd", "isolation": "test/contract/etcdstorage/isolation"}
	for _, name := range []string{"controller", "core", "operator", "operatorapp", "pki", "proxy", "proxyapp"} {
		out[name] = "internal/etcdstorage/" + name
	}
	return out
}

// testsOf are the tests of a package.
func testsOf(t *testing.T, folder string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(testkit.Root(t), filepath.FromSlash(folder), "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no tests: %v", folder, err)
	}
	out := map[string]bool{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				out[f.Name.Name] = true
			}
		}
	}
	return out
}

func TestEachDefectIsShownNotToExist(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(testkit.Root(t), "docs", "components", "etcd-storage-compared.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]map[string]bool{}
	for name, folder := range folders() {
		tests[name] = testsOf(t, folder)
	}
	named := regexp.MustCompile("`([a-z]+)\\.(Test[A-Za-z0-9]+)`")
	next := 1
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if !strings.HasPrefix(line, "| S") {
			continue
		}
		if want := fmt.Sprintf("| S%d", next); cells[0] != want || len(cells) != 4 {
			t.Fatalf("want the row %s with four cells: %s", want, line)
		}
		next++
		all := named.FindAllStringSubmatch(cells[3], -1)
		if rest := strings.Trim(named.ReplaceAllString(cells[3], ""), " |"); len(all) == 0 || rest != "" {
			t.Errorf("%s is shown by nothing, or by more than tests: %q", cells[0], cells[3])
		}
		for _, test := range all {
			if !tests[test[1]][test[2]] {
				t.Errorf("%s: there is no test %s in %s", cells[0], test[2], folders()[test[1]])
			}
		}
	}
	if next != defects+1 {
		t.Errorf("there are %d rows, want %d", next-1, defects)
	}
	for _, test := range named.FindAllStringSubmatch(string(page), -1) {
		if !tests[test[1]][test[2]] {
			t.Errorf("there is no test %s.%s", test[1], test[2])
		}
	}
}
