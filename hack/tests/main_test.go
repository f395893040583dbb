// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func TestAffects(t *testing.T) {
	t.Parallel()
	const folder = "test/e2e/cloud"
	p := testPackage{folder: folder, deps: []string{folder, "internal/testkit"}}
	source := []byte(`testkit.Binary(t, "digitalocean-cloud-controller-manager"); os.ReadFile("../../../docs/migration/x.md")`)
	commands := map[string][]string{
		"digitalocean-cloud-controller-manager": {"cmd/digitalocean-cloud-controller-manager", "internal/docloud/app"},
		"calico-node-sync":                      {"cmd/calico-node-sync", "internal/nodesync/app"},
		"lab":                                   {"lab", "lab/internal/cli"},
	}
	needed := needs(p, source, commands)
	for file, want := range map[string]bool{
		"internal/docloud/app/app.go":        true,  // a command that it runs
		"internal/docloud/app/app_test.go":   false, // tests matter in their own folder
		"internal/nodesync/app/app.go":       false, // a command that it does not run
		"test/e2e/cloud/story_test.go":       true,
		"test/e2e/story_test.go":             false,
		"internal/testkit/etcd.go":           true,
		"lab/internal/cli/up.go":             true, // every scenario runs in the lab
		"internal/docloud/app/testdata/a.js": true, // a file that may be embedded
		"docs/migration/x.md":                true, // its source names docs
		"charts/mooring/values.yaml":         false,
		"README.md":                          false,
		"go.mod":                             true,
		"lab/go.sum":                         true,
		"Makefile":                           true,
		"hack/tests/list.go":                 true,
		"hack/docs/api.go":                   false,
	} {
		if got := affects([]string{"CHANGELOG.md", file}, folder, needed, source); (got == file) != want || !want && got != "" {
			t.Errorf("%s affects the package: %q, want %t", file, got, want)
		}
	}
}

func TestSplit(t *testing.T) {
	t.Parallel()
	all := []testPackage{{path: "pure", pure: true}, {path: "server", servers: true}, {path: "long", campaign: true}, {path: "controller"}}
	groups := split(".", all)
	if len(groups) != 2 || len(groups[0].packages) != 1 || groups[0].packages[0].path != "controller" || !groups[0].race || groups[1].race {
		t.Errorf("%+v", groups)
	}
}

// What is treated otherwise than the rest is there.
func TestNamedFoldersHaveTests(t *testing.T) {
	t.Parallel()
	for _, folder := range slices.Concat(campaigns(), comparisons()) {
		if found := must.Get(filepath.Glob(filepath.Join("..", "..", folder, "*_test.go"))).Or(t); len(found) == 0 {
			t.Errorf("%s has no tests", folder)
		}
	}
}

func TestWhatDidNotRunIsNamed(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	rest := runner{kind: "e2e", out: &out}.reportLate([]cost{{folder: "a", wall: 1}, {folder: "test/b", late: true}})
	if len(rest) != 1 || rest[0].folder != "a" || !strings.Contains(out.String(), "NOT RUN, since the time of -within was over: test/b.") {
		t.Errorf("%v are left, said: %s", rest, out.String())
	}
}

// What failed and then passed is counted as passed and named; what failed twice, or had a data race, failed.
func TestCount(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	must.Do(t, os.MkdirAll(filepath.Join(root, "bin", "test"), 0o755))
	const stream = `{"Action":"run","Package":"m/a","Test":"TestGood"}
no event
{"Action":"pass","Package":"m/a","Test":"TestGood"}
{"Action":"fail","Package":"m/a","Test":"TestSecond"}
{"Action":"fail","Package":"m/a","Test":"TestBad"}
{"Action":"output","Package":"m/a","Test":"TestRace","Output":"WARNING: DATA RACE\n"}
{"Action":"fail","Package":"m/a","Test":"TestRace"}
{"Action":"skip","Package":"m/a","Test":"TestSkipped"}
{"Action":"fail","Package":"m/a"}
{"Action":"pass","Package":"m/a","Test":"TestSecond"}
{"Action":"fail","Package":"m/a","Test":"TestBad"}
{"Action":"pass","Package":"m/a","Test":"TestRace"}
`
	for file, content := range map[string]string{"e2e.json": stream, "e2e-lab-e2e.json": `{"Action":"pass","Package":"m/b","Test":"TestGood"}`, "unit-race.json": stream} {
		must.Do(t, os.WriteFile(filepath.Join(root, "bin", "test", file), []byte(content), 0o600))
	}
	var out bytes.Buffer
	must.Do(t, (runner{kind: "e2e", root: root, out: &out}).count())
	if want := "3 2\nm/a TestSecond\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestOwn(t *testing.T) {
	t.Parallel()
	folders, servers := own([]string{"example.com/m/b [example.com/m/a.test]", "example.com/m/a_test [example.com/m/a.test]", "example.com/m/b", "fmt"}, "example.com/m/")
	if diff := cmp.Diff([]string{"a", "b"}, folders); diff != "" || servers {
		t.Errorf("servers %t (- want, + got):\n%s", servers, diff)
	}
	if _, servers := own([]string{"go.etcd.io/etcd/server/v3/embed"}, "example.com/m/"); !servers {
		t.Error("etcd's server is not found")
	}
}

func TestParseCosts(t *testing.T) {
	t.Parallel()
	got, err := parseCosts("/m", "/m/a\t1.50\t0.20\n/m/b/c\t3.00\t7.25\n/m/d\t-\t-\n")
	want := []cost{{folder: "b/c", wall: 3, cpu: 7.25}, {folder: "a", wall: 1.5, cpu: 0.2}, {folder: "d", late: true}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(cost{})); diff != "" || err != nil {
		t.Errorf("%v (- want, + got):\n%s", err, diff)
	}
	if _, err := parseCosts("/m", "/m/a\tlong\n"); err == nil {
		t.Error("a line without numbers is accepted")
	}
}

// What took longest the last time begins first; of what never ran, what starts servers, by its number of test files.
func TestSlowestFirst(t *testing.T) {
	t.Parallel()
	servers := []string{"internal/testkit"}
	all := []testPackage{
		{folder: "quick", files: []string{"a", "b", "c"}}, {folder: "new", deps: servers, files: []string{"a"}}, {folder: "large", deps: servers, files: []string{"a", "b"}},
		{folder: "slow"}, {folder: "slowest"},
	}
	slowestFirst(all, map[string]float64{"slow": 2, "slowest": 3})
	var got []string
	for _, p := range all {
		got = append(got, p.folder)
	}
	if diff := cmp.Diff([]string{"slowest", "slow", "large", "new", "quick"}, got); diff != "" {
		t.Error(diff)
	}
}

// The file of costs has a line for control planes, which is not a package.
func TestControlPlanesAreCounted(t *testing.T) {
	t.Parallel()
	r := runner{kind: "unit", root: t.TempDir(), out: &bytes.Buffer{}}
	must.Do(t, r.clean())
	must.Do(t, r.appendCost(planesFolder, 2*time.Second, 3*time.Second))
	must.Do(t, r.report())
	if got := r.last(); len(got) != 1 || got[planesFolder] != 2 {
		t.Errorf("got %v", got)
	}
}
