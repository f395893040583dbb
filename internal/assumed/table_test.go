// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package assumed

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// exported returns the names of this package's constants and of its functions without a receiver.
func exported(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, file := range []string{"digitalocean.go", "others.go", "unknown.go"} {
		parsed := must.Get(parser.ParseFile(token.NewFileSet(), file, nil, 0)).Or(t)
		for _, declaration := range parsed.Decls {
			switch d := declaration.(type) {
			case *ast.FuncDecl:
				names = append(names, d.Name.Name)
			case *ast.GenDecl:
				for _, one := range d.Specs {
					if values, isValue := one.(*ast.ValueSpec); isValue {
						for _, name := range values.Names {
							names = append(names, name.Name)
						}
					}
				}
			}
		}
	}
	slices.Sort(names)
	return names
}

// testFiles are the contents of the file of each test of the repository, those of the lab among them, by the test's name.
func testFiles(t *testing.T) map[string]string {
	t.Helper()
	declared, found := regexp.MustCompile(`(?m)^func (Test\w+)\(`), map[string]string{}
	must.Do(t, filepath.WalkDir(testkit.Root(t), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path)
		for _, match := range declared.FindAllSubmatch(content, -1) {
			found[string(match[1])] = string(content)
		}
		return err
	}))
	return found
}

// TestEachConstantHasARow with a meaning, a source, a date and a test that exists; a word that is an element of a list
// names the list. The test of what is not known takes its variants from here.
func TestEachConstantHasARow(t *testing.T) {
	t.Parallel()
	tests := testFiles(t)
	var names []string
	for _, row := range Table() {
		names = append(names, row.Name)
		if row.System == "" || row.Meaning == "" || row.Source == "" || row.Text() == "" {
			t.Errorf("%s: the row is not whole: %+v", row.Name, row)
		}
		if tests[row.Test] == "" {
			t.Errorf("%s: there is no test %q", row.Name, row.Test)
		}
		if row.Unknown && !strings.Contains(tests[row.Test], "range assumed."+row.Name+"()") {
			t.Errorf("%s: %s does not run its variants", row.Name, row.Test)
		}
		if read, err := time.Parse(time.DateOnly, row.Read); err != nil || read.After(time.Now()) {
			t.Errorf("%s was read on %q", row.Name, row.Read)
		}
		for _, list := range Table() {
			if list.Name == row.Source && !slices.Contains(list.Value.([]string), row.Text()) { //nolint:forcetypeassert // a list of words
				t.Errorf("%s is %s, which %s does not contain", row.Name, row.Text(), list.Name)
			}
		}
	}
	slices.Sort(names)
	if want := exported(t); !slices.Equal(names, want) {
		t.Errorf("rows: %v\nwant:  %v", names, want)
	}
}
