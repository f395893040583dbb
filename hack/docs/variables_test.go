// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEveryVariableThatCodeReadsIsDocumented finds the names that are looked up in the environment: as the one argument of what looks up, and as
// constants whose names or packages say that they are such names.
func TestEveryVariableThatCodeReadsIsDocumented(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^[A-Z][A-Z0-9]+(_[A-Z0-9]+)*$`)
	lookups := []string{"Getenv", "LookupEnv", "getenv", "lookup", "get"}
	cloud := []string{"docloud/app", "docloud/admissionapp", "docloud/defaults"} // TestEveryVariableIsDocumented has these
	found := map[string]bool{}
	note := func(folder string, e ast.Expr) {
		if literal, ok := e.(*ast.BasicLit); ok {
			if name, err := strconv.Unquote(literal.Value); err == nil && form.MatchString(name) && !slices.Contains(cloud, folder) {
				found["internal/"+folder+" "+name] = true
			}
		}
	}
	eachFile(t, func(folder string, file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				name := ""
				switch fun := n.Fun.(type) {
				case *ast.Ident:
					name = fun.Name
				case *ast.SelectorExpr:
					name = fun.Sel.Name
				}
				if len(n.Args) == 1 && slices.Contains(lookups, name) {
					note(folder, n.Args[0])
				}
			case *ast.ValueSpec:
				if len(n.Values) == 1 && (strings.HasPrefix(strings.ToLower(n.Names[0].Name), "env") || folder == "routereflector/predecessor") {
					note(folder, n.Values[0])
				}
			}
			return true
		})
	})
	documented := map[string]bool{}
	for _, g := range variableGroups() {
		for _, v := range g.all {
			documented[g.folder+" "+v.name] = true
			if v.meaning == "" {
				t.Errorf("%s has no meaning", v.name)
			}
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(documented)), slices.Sorted(maps.Keys(found))); diff != "" {
		t.Errorf("- documented, + looked up:\n%s", diff)
	}
}
