// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// mostMethods is how many methods a type of a planner may have: a reader must be able to hold it in mind.
const mostMethods = 40

// methodsOf counts the methods of each type of a package's files, but for those of tests.
func methodsOf(t *testing.T, folder string) map[string]int {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no files in %s: %v", folder, err)
	}
	out := map[string]int{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv == nil {
				continue
			}
			of := f.Recv.List[0].Type
			if star, ok := of.(*ast.StarExpr); ok {
				of = star.X
			}
			if name, ok := of.(*ast.Ident); ok {
				out[name.Name]++
			}
		}
	}
	return out
}

// The planner of route reflectors once had 193 methods on one type. Its stages are types now (pipeline.go).
func TestTypesOfThePlannerAreSmall(t *testing.T) {
	t.Parallel()
	all := methodsOf(t, filepath.Join("..", "routereflector"))
	for name, count := range all {
		if count > mostMethods {
			t.Errorf("internal/routereflector: %s has %d methods, more than %d: give some to another stage", name, count, mostMethods)
		}
	}
	if all["World"] == 0 || all["checks"] == 0 {
		t.Errorf("no methods were counted: %v", all)
	}
}
