// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/testkit"
)

// constants returns the values of the string constants of a package whose names begin with a word.
func constants(t *testing.T, dir, prefix string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in %s: %v", dir, err)
	}
	var out []string
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, prefix) {
				return true
			}
			if value, ok := spec.Values[0].(*ast.BasicLit); ok && value.Kind == token.STRING {
				text, err := strconv.Unquote(value.Value)
				if err != nil {
					t.Fatal(err)
				}
				out = append(out, text)
			}
			return true
		})
	}
	slices.Sort(out)
	return out
}

// The component's page explains just the reasons, phases and Events that there are: anyone who is woken looks them up there.
func TestPage(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(filepath.Join(testkit.Root(t), "docs", "components", "calico-route-reflector-operator.md"))
	if err != nil {
		t.Fatal(err)
	}
	section := func(heading string) string {
		_, after, found := strings.Cut(string(content), "\n## "+heading+"\n")
		if !found {
			t.Fatalf("there is no section %s", heading)
		}
		before, _, _ := strings.Cut(after, "\n## ")
		return before
	}
	column := func(text string, row *regexp.Regexp) []string {
		var out []string
		for _, m := range row.FindAllStringSubmatch(text, -1) {
			for _, word := range regexp.MustCompile("`([A-Za-z]+)`").FindAllStringSubmatch(m[1], -1) {
				out = append(out, word[1])
			}
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	reasons := slices.Concat(constants(t, ".", "reason"), constants(t, "..", "Reason"))
	slices.Sort(reasons)
	reasons = slices.Compact(reasons)
	if diff := cmp.Diff(reasons, column(section("Conditions and phases"), regexp.MustCompile(`(?m)^\|[^|]*\|([^|]*)\|[^|]*\|$`))); diff != "" {
		t.Errorf("reasons of conditions (- code, + page):\n%s", diff)
	}
	events := []string{eventRecorded}
	for _, step := range []routereflector.Step{
		routereflector.EnsurePeer{}, routereflector.RemovePeer{}, routereflector.Promote{}, routereflector.Demote{},
		routereflector.MeshOn{}, routereflector.MeshOff{}, routereflector.Adopt{}, routereflector.RetirePeer{},
	} {
		events = append(events, told(step))
	}
	slices.Sort(events)
	if diff := cmp.Diff(events, column(section("Events"), regexp.MustCompile(`(?m)^\|([^|]*)\|[^|]*\|[^|]*\|$`))); diff != "" {
		t.Errorf("reasons of Events (- code, + page):\n%s", diff)
	}
	for _, phase := range constants(t, filepath.Join(testkit.Root(t), "api", "bgp", "v1alpha1"), "Phase") {
		if !regexp.MustCompile(`(?m)^\| [A-Za-z, ]*\b` + phase + `\b`).MatchString(section("Conditions and phases")) {
			t.Errorf("the phase %s is not on the page", phase)
		}
	}
	for _, own := range []string{
		v1alpha1.ReflectorLabel, v1alpha1.TopologyLabel, v1alpha1.KeepAnnotation, v1alpha1.MeshAnnotation, routereflector.ClusterIDAnnotation,
		v1alpha1.ConfirmAnnotation, v1alpha1.ForceExitAnnotation,
	} {
		if !strings.Contains(string(content), own) {
			t.Errorf("the page does not name %s", own)
		}
	}
}
