// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// Bounds of the walk through the planner of route reflectors: how many functions a reader enters who follows one plan to its end, and how often that leads
// back to a file that was left.
const (
	mostStops   = 40
	mostReturns = 15
)

// stop is a row of the walk.
type stop struct{ function, file string }

var walkRow = regexp.MustCompile(`(?m)^\| +\d+ \| (\w+) \| ([\w/]+\.go) \|`)

// walk reads the rows of a page.
func walk(t *testing.T, page string) []stop {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var out []stop
	for _, m := range walkRow.FindAllStringSubmatch(string(text), -1) {
		out = append(out, stop{m[1], m[2]})
	}
	return out
}

// returns counts the stops in files that were left before.
func returns(stops []stop) int {
	count, left := 0, map[string]bool{}
	for i, s := range stops {
		if i == 0 || s.file == stops[i-1].file {
			continue
		}
		left[stops[i-1].file] = true
		if left[s.file] {
			count++
		}
	}
	return count
}

// mentions are the names in the bodies of the functions of a name in a file; nil where there is no such function.
func mentions(t *testing.T, path, function string) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]bool
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Name.Name != function {
			continue
		}
		if out == nil {
			out = map[string]bool{}
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				out[id.Name] = true
			}
			return true
		})
	}
	return out
}

// The walk that the page describes is one through the code as it is, and short.
func TestTheWalkThroughThePlanner(t *testing.T) {
	t.Parallel()
	stops := walk(t, filepath.Join("..", "..", "docs", "explanation", "route-reflector-planner.md"))
	t.Logf("%d stops, %d returns", len(stops), returns(stops))
	if len(stops) < mostStops/2 || len(stops) > mostStops || returns(stops) > mostReturns {
		t.Errorf("the walk has %d stops and %d returns, where %d and %d are the most", len(stops), returns(stops), mostStops, mostReturns)
	}
	reached := map[string]bool{"Make": true}
	for _, s := range stops {
		names := mentions(t, filepath.Join("..", "routereflector", s.file), s.function)
		if names == nil {
			t.Errorf("%s has no function %s", s.file, s.function)
		}
		if !reached[s.function] {
			t.Errorf("no stop before %s (%s) names it", s.function, s.file)
		}
		for name := range names {
			reached[name] = true
		}
	}
}

func TestReturnsOfAWalk(t *testing.T) {
	t.Parallel()
	if got := returns([]stop{{"A", "a.go"}, {"B", "a.go"}, {"C", "b.go"}, {"D", "a.go"}, {"E", "c.go"}, {"F", "b.go"}}); got != 2 {
		t.Errorf("%d returns, want 2", got)
	}
}
