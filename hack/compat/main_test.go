// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// TestNoPublicNameVanishes compares the list with what there is.
func TestNoPublicNameVanishes(t *testing.T) {
	t.Parallel()
	listed, removed, now, err := read(filepath.Join("..", ".."))
	must.Do(t, err)
	for _, name := range vanished(listed, removed, now) {
		t.Errorf("%s is gone: put it back, or write it with what takes its place into removed.txt", name)
	}
	for name := range removed {
		if slices.Contains(now, name) {
			t.Errorf("removed.txt says that %s is gone, and it is there", name)
		}
	}
	for _, name := range now {
		if !slices.Contains(listed, name) {
			t.Errorf("%s is new: run `make manifests`", name)
		}
	}
	// Nothing of a part means that the part is not found any more, as after a change of a page's form.
	for part, least := range map[string]int{
		"annotation ": 40, "chart value ": 250, "command ": 10, "constant ": 45, "field ": 180, "flag ": 250, "kind ": 6, "metric ": 80, "reason ": 120, "value of field ": 10, "variable ": 25,
	} {
		is := len(slices.DeleteFunc(slices.Clone(now), func(name string) bool { return !strings.HasPrefix(name, part) }))
		if is < least {
			t.Errorf("%d names begin with %q, want %d at least", is, part, least)
		}
	}
}

// tree is a small repository.
func tree(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range map[string]string{
		"cmd/kubectl-mooring/main.go":                "package main",
		"docs/reference/kubectl-mooring.md":          "## Flags of all commands\n| `-n`, `--namespace` | | x |\n## kubectl mooring look at THAT\n| `--deep` | | x |\n| `DEPTH_1` | | x |\n",
		"docs/reference/digitalocean-annotations.md": "| `a.example/b-c` | x |\n",
		"docs/components/a.md":                       "| `mooring_a_put_together{b}` | x |\n",
		"config/crd/bases/a.yaml": `
metadata: {name: as.example}
spec:
  names: {kind: A, plural: as, shortNames: [short]}
  versions:
  - {name: v0, served: false, schema: {openAPIV3Schema: {type: object, properties: {old: {type: string}}}}}
  - name: v1
    served: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {many: {type: array, items: {type: object, properties: {one: {type: string, enum: [x]}}}}, any: {additionalProperties: {type: object, properties: {b: {x-kubernetes-int-or-string: true}}}}}}
`,
		"charts/mooring/values.schema.json":            `{"properties": {"a": {"$ref": "#/definitions/d"}}, "definitions": {"d": {"properties": {"b": {"enum": ["", "x"]}, "c": {"items": {"properties": {"d": {}}}}}}}}`,
		"api/a/v1/constants.go":                        "package v1\nconst (\n\tLabel = \"a.example/label\"\n\tlocal = \"not public\"\n)\n",
		"internal/a/a.go":                              "package a\nconst (\n\treasonGood = \"Good\"\n\treasonText = \"not a reason\"\n\tother = \"Other\"\n\tm = \"mooring_a_total\"\n)\n",
		"internal/a/a_test.go":                         "package a\nconst m = \"mooring_test_total\"\n",
		"internal/sim/a.go":                            "package sim\nconst m = \"mooring_sim_total\"\n",
		"internal/routereflector/controller/report.go": "package controller\nconst eventTold = \"Told\"\nfunc untold() string { return \"Untold\" }\n",
		"hack/compat/removed.txt":                      "# nothing yet\n",
	} {
		write(t, filepath.Join(root, name), content)
	}
	return root
}

func write(t *testing.T, path, content string) {
	t.Helper()
	must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.Do(t, os.WriteFile(path, []byte(content), 0o600))
}

func listOf(t *testing.T, root string) []string {
	t.Helper()
	content := must.Get(os.ReadFile(list(root, "public.txt"))).Or(t)
	return lines(string(content))
}

func TestSurface(t *testing.T) {
	t.Parallel()
	root := tree(t)
	must.Do(t, run(root))
	want := []string{
		"annotation a.example/b-c", "chart value a", "chart value a.b", "chart value a.c", "chart value a.c[].d", "command kubectl mooring look at",
		"constant api/a/v1 Label a.example/label", "field as.example/v1 spec object", "field as.example/v1 spec.any ", "field as.example/v1 spec.any{}.b int-or-string",
		"field as.example/v1 spec.many array", "field as.example/v1 spec.many[].one string", "flag kubectl mooring look at --deep", "flag kubectl-mooring --namespace",
		"kind as.example short", "kind as.example/v1 A", "metric mooring_a_put_together", "metric mooring_a_total", "reason a Good", "reason routereflector Told",
		`value of chart value a.b ""`, `value of chart value a.b "x"`, `value of field as.example/v1 spec.many[].one "x"`, "variable kubectl mooring look at DEPTH_1",
	}
	for i := range want {
		want[i] = strings.TrimSpace(want[i])
	}
	if diff := cmp.Diff(want, listOf(t, root)); diff != "" {
		t.Error(diff)
	}
}

// TestRemoval takes a flag away: that is refused until it is written down, and then the list forgets it.
func TestRemoval(t *testing.T) {
	t.Parallel()
	root := tree(t)
	must.Do(t, run(root))
	before := listOf(t, root)
	write(t, filepath.Join(root, "docs/reference/kubectl-mooring.md"), "## kubectl mooring look at THAT\n| `-n`, `--name` | | x |\n| `--deep` | | x |\n| `DEPTH_1` | | x |\n")
	const name = "flag kubectl-mooring --namespace"
	want := "public names are gone: put them back, or write each with what takes its place into hack/compat/removed.txt: " + name
	for range 2 {
		if err := run(root); err == nil || err.Error() != want {
			t.Fatalf("%v, want %s", err, want)
		}
		if diff := cmp.Diff(before, listOf(t, root)); diff != "" {
			t.Fatal(diff)
		}
	}
	for _, half := range []string{name, name + " -> "} {
		write(t, list(root, "removed.txt"), half+"\n")
		if err := run(root); err == nil || !strings.Contains(err.Error(), "does not say what takes its place: NAME -> VERSION: what to use instead") {
			t.Errorf("%q: %v", half, err)
		}
	}
	write(t, list(root, "removed.txt"), name+" -> v0.9.0: --name\n")
	must.Do(t, run(root))
	if after := listOf(t, root); slices.Contains(after, name) || !slices.Contains(after, "flag kubectl mooring look at --name") {
		t.Error(after)
	}
}

// TestEmptyPart: a part of which nothing is found stops everything, since then all of its names would seem to be gone, or never to have been.
func TestEmptyPart(t *testing.T) {
	t.Parallel()
	root := tree(t)
	write(t, filepath.Join(root, "docs/components/a.md"), "no table\n")
	if err := run(root); err == nil || !strings.Contains(err.Error(), "a part of the public names is empty") {
		t.Error(err)
	}
}
