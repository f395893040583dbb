// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package archtest_test

import (
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/archtest"
)

// sources calls do with every Go file of the checkout, parsed, and its folder.
func sources(t *testing.T, do func(folder, name string, file *ast.File)) {
	t.Helper()
	r := open(t)
	err := filepath.WalkDir(r.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return ignoreGone(err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return ignoreGone(err)
		}
		folder, err := filepath.Rel(r.root, filepath.Dir(path))
		do(folder, filepath.Base(path), file)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestPurePackagesHaveNoGoroutines is why they are tested without the race detector (hack/tests): one goroutine alone cannot race. That they have no
// variables is the linter's to find (gochecknoglobals).
func TestPurePackagesHaveNoGoroutines(t *testing.T) {
	t.Parallel()
	seen := 0
	sources(t, func(folder, name string, file *ast.File) {
		if !archtest.Pure(folder) || strings.HasSuffix(name, "_test.go") {
			return
		}
		seen++
		ast.Inspect(file, func(n ast.Node) bool {
			switch n.(type) {
			case *ast.GoStmt, *ast.ChanType, *ast.SelectStmt:
				t.Errorf("%s/%s starts a goroutine or has a channel: a pure package decides by values alone", folder, name)
			}
			return true
		})
	})
	if seen < 50 {
		t.Fatalf("only %d files of pure packages were read", seen)
	}
}

// TestFoldersHaveOneKindOfTests: a folder whose tests have the tag e2e has no others, so that no test runs twice.
func TestFoldersHaveOneKindOfTests(t *testing.T) {
	t.Parallel()
	kinds := map[string]map[bool]string{}
	sources(t, func(folder, name string, file *ast.File) {
		if !strings.HasSuffix(name, "_test.go") {
			return
		}
		if kinds[folder] == nil {
			kinds[folder] = map[bool]string{}
		}
		kinds[folder][tagged(t, file)] = name
	})
	if len(kinds) < 50 {
		t.Fatalf("only %d folders with tests were read", len(kinds))
	}
	for folder, files := range kinds {
		if len(files) > 1 {
			t.Errorf("%s has tests with the tag e2e (%s) and without (%s): move one kind to a folder of its own", folder, files[true], files[false])
		}
	}
}

// tagged reports whether a file is built only with the tag e2e.
func tagged(t *testing.T, file *ast.File) bool {
	t.Helper()
	for _, group := range file.Comments {
		if group.Pos() > file.Package {
			break
		}
		for _, line := range group.List {
			if !constraint.IsGoBuild(line.Text) {
				continue
			}
			expr, err := constraint.Parse(line.Text)
			if err != nil {
				t.Fatal(err)
			}
			return !expr.Eval(func(tag string) bool { return tag != "e2e" })
		}
	}
	return false
}
