// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// written is what pages returns: made once, because commands share flags that the process has once, and so cannot be made by two tests at a time.
var written = sync.OnceValues(func() (map[string][]byte, error) { return pages(filepath.Join("..", "..")) })

// TestPagesAreFresh fails when a flag, a variable or an annotation has changed and its page has not.
func TestPagesAreFresh(t *testing.T) {
	t.Parallel()
	all := must.Get(written()).Or(t)
	for name, content := range all {
		path := filepath.Join("..", "..", "docs", "reference", name)
		have := must.Get(os.ReadFile(path)).Or(t)
		if diff := cmp.Diff(string(content), string(have)); diff != "" {
			t.Errorf("%s is out of date, run make generate (-want +have):\n%s", path, diff)
		}
	}
}

// TestPagesAreAll: what is no longer written, because a kind or a program is gone, does not stay behind.
func TestPagesAreAll(t *testing.T) {
	t.Parallel()
	all, err := written()
	must.Do(t, err)
	folder, seen := filepath.Join("..", "..", "docs", "reference"), 0
	err = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if name == "kubernetes-versions.md" { // hack/matrix writes it, and tests it
			return err
		}
		if _, ok := all[filepath.ToSlash(name)]; !ok {
			t.Errorf("docs/reference/%s is written by nobody: delete it", name)
		}
		seen++
		return err
	})
	if pages := len(all) - 1; err != nil || seen != pages { // one is outside, in docs/adr
		t.Errorf("%d files for %d pages: %v", seen, pages, err)
	}
}

// TestPagesAreTables finds that no text breaks a row, and that nothing of the machine that wrote a page is in it.
func TestPagesAreTables(t *testing.T) {
	t.Parallel()
	all := must.Get(written()).Or(t)
	host := must.Get(os.Hostname()).Or(t)
	for name, content := range all {
		columns := 0
		for number, line := range strings.Split(string(content), "\n") {
			bars := strings.Count(strings.ReplaceAll(line, `\|`, ""), "|")
			switch {
			case !strings.HasPrefix(line, "|"):
				columns = 0
			case columns == 0:
				columns = bars
			case columns != bars:
				t.Errorf("%s:%d has %d bars, its table %d", name, number+1, bars, columns)
			}
			if len(host) > 3 && strings.Contains(line, host) {
				t.Errorf("%s:%d names this machine", name, number+1)
			}
		}
	}
}

// TestEveryVariableIsDocumented compares the tables of variables with the names that the programs read, which are constants in one file of each, and in one
// that both share.
func TestEveryVariableIsDocumented(t *testing.T) {
	t.Parallel()
	for path, table := range map[string][]variable{"app/environment.go": variables(), "admissionapp/options.go": admissionVariables()} {
		variablesOf(t, path, table)
	}
}

func variablesOf(t *testing.T, path string, table []variable) {
	t.Helper()
	var read, documented []string
	for _, one := range []string{path, "defaults/defaults.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", "internal", "docloud", one), nil, 0)
		must.Do(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Names) != 1 || !strings.HasPrefix(strings.ToLower(spec.Names[0].Name), "env") || len(spec.Values) != 1 {
				return true
			}
			if literal, ok := spec.Values[0].(*ast.BasicLit); ok && literal.Kind == token.STRING {
				name := must.Get(strconv.Unquote(literal.Value)).Or(t)
				read = append(read, name)
			}
			return true
		})
	}
	for _, v := range table {
		documented = append(documented, v.name)
	}
	slices.Sort(read)
	slices.Sort(documented)
	if diff := cmp.Diff(read, documented); diff != "" || len(read) == 0 {
		t.Errorf(path+": - read by the program, + documented:\n%s", diff)
	}
}
