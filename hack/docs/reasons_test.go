// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// writers are the packages that write Events, and how many calls of a recorder each has.
func writers() map[string]int {
	return map[string]int{
		"internal/nodesync/controller": 2, "internal/routereflector/controller": 3, "internal/etcdstorage/controller": 2,
		"internal/docloud/machines": 2, "internal/docloud/balancers": 1, "internal/docloud/firewalls": 2, "internal/docloud/shutdowns": 3,
	}
}

// TestNobodyElseWritesEvents: a package that begins to must be followed above.
func TestNobodyElseWritesEvents(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	eachFile(t, func(folder string, file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				of, _ := s.X.(*ast.Ident)
				notes := of != nil && of.Name == "reconcile" && s.Sel.Name == "Note"
				found["internal/"+folder] = found["internal/"+folder] || notes || slices.Contains([]string{"EventRecorder", "EventRecorderLogger"}, s.Sel.Name)
			}
			return true
		})
	})
	maps.DeleteFunc(found, func(_ string, writes bool) bool { return !writes })
	delete(found, "internal/docloud/app")        // it hands the framework's on to Kubernetes' leader election
	delete(found, "internal/docloud/provider")   // it makes those of the others
	delete(found, "internal/docloud/clustertag") // it is handed one as all others are, and so is the next
	delete(found, "internal/docloud/startuptaint")
	delete(found, "internal/platform/reconcile") // it sends what others note
	if diff := cmp.Diff(slices.Sorted(maps.Keys(writers())), slices.Sorted(maps.Keys(found))); diff != "" {
		t.Errorf("- followed, + with a recorder:\n%s", diff)
	}
}

// TestReasonsAreConstants: the reference has the constants of the groups in reasons.go, so that a reason written as a text would be missing there. Constants
// that nobody uses are found by the linter.
func TestReasonsAreConstants(t *testing.T) {
	t.Parallel()
	seen := 0
	eachFile(t, func(folder string, file *ast.File) {
		if _, writes := writers()["internal/"+folder]; !writes && folder != "docloud/instance" && folder != "etcdstorage/operator" && folder != "routereflector" {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			for _, reason := range reasonsIn(n) {
				seen++
				// Steps of plans have reasons as well, which are sentences.
				if text, ok := reason.(*ast.BasicLit); ok && reasonForm.MatchString(strings.Trim(text.Value, `"`)) {
					t.Errorf("internal/%s: reason %s must be a constant that the reference knows", folder, text.Value)
				}
			}
			return true
		})
	})
	if seen < 30 {
		t.Errorf("only %d reasons were found", seen)
	}
}

// reasonsIn returns the expressions that a node uses as reasons: the fields named so, and the arguments of recorders.
func reasonsIn(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && strings.EqualFold(key.Name, "reason") {
			return []ast.Expr{n.Value}
		}
	case *ast.CallExpr:
		s, ok := n.Fun.(*ast.SelectorExpr)
		at := map[string]int{"Event": 2, "Eventf": 3} // record.EventRecorder, events.EventRecorder
		if ok && at[s.Sel.Name] > 0 && len(n.Args) > at[s.Sel.Name] {
			return n.Args[at[s.Sel.Name] : at[s.Sel.Name]+1]
		}
	}
	return nil
}
