// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// eventReasons finds the reasons of events in the code: constants named so, whose value is in the form that Kubernetes gives reasons.
func eventReasons(t *testing.T) []string {
	t.Helper()
	named, form := regexp.MustCompile(`^(reason|Reason|Event)[A-Z]`), regexp.MustCompile(`^[A-Z][A-Za-z]+$`)
	found := map[string]bool{}
	for _, folder := range []string{"annotation", "loadbalancer", "machines", "firewalls", "clustertag", "startuptaint", "shutdowns"} {
		files := must.Get(filepath.Glob(filepath.Join("..", "..", "internal", "docloud", folder, "*.go"))).Or(t)
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file := must.Get(parser.ParseFile(token.NewFileSet(), path, nil, 0)).Or(t)
			ast.Inspect(file, func(n ast.Node) bool {
				spec, ok := n.(*ast.ValueSpec)
				if !ok || len(spec.Names) != 1 || len(spec.Values) != 1 || !named.MatchString(spec.Names[0].Name) {
					return true
				}
				if literal, ok := spec.Values[0].(*ast.BasicLit); ok && literal.Kind == token.STRING {
					if value, err := strconv.Unquote(literal.Value); err == nil && form.MatchString(value) {
						found[value] = true
					}
				}
				return true
			})
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// TestEveryEventOfTheCloudIsDocumented compares the tables of events of the component's page with the reasons in the code.
func TestEveryEventOfTheCloudIsDocumented(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(filepath.Join("..", "..", "docs", "components", "digitalocean-cloud-controller-manager.md"))
	must.Do(t, err)
	_, events, ok := strings.Cut(string(content), "\n## Events\n")
	events, _, ends := strings.Cut(events, "\n## ")
	if !ok || !ends {
		t.Fatal("the page has no section Events")
	}
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Z][A-Za-z]+)` \\|").FindAllStringSubmatch(events, -1) {
		documented[m[1]] = true
	}
	if diff := cmp.Diff(eventReasons(t), slices.Sorted(maps.Keys(documented))); diff != "" || len(documented) == 0 {
		t.Errorf("- reasons in the code, + documented:\n%s", diff)
	}
}
