// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// root is the repository's.
var root = filepath.Join("..", "..")

// TestThePageIsOfTheResults: the page is what the kept results make, and each version that is built now has results of
// each suite.
func TestThePageIsOfTheResults(t *testing.T) {
	t.Parallel()
	results := must.Get(readResults(root)).Or(t)
	have := must.Get(os.ReadFile(pageFile(root))).Or(t)
	own := must.Get(versionIn(filepath.Join(root, "lab", "go.mod"))).Or(t)
	if diff := cmp.Diff(string(page(own.version, results)), string(have)); diff != "" {
		t.Errorf("run `go run ./hack/matrix -page`: %s", diff)
	}
	servers := must.Get(available(root)).Or(t)
	for _, s := range servers {
		at := slices.IndexFunc(results, func(r Result) bool { return r.Version == s.version })
		if at < 0 {
			t.Errorf("there is no result of %s: run `make matrix VERSIONS=%s`", s.version, s.minor)
			continue
		}
		for _, suite := range suites() {
			if results[at].Suites[suite.id].Passed == 0 {
				t.Errorf("nothing has passed: run `make matrix VERSIONS=%s SUITES=%s`", s.minor, suite.id)
			}
		}
	}
	if len(results) != len(servers) {
		t.Errorf("there are %d results of %d versions", len(results), len(servers))
	}
}

// TestTheChartTakesWhatIsExercised: the chart refuses what is older than the oldest version, and nothing else.
func TestTheChartTakesWhatIsExercised(t *testing.T) {
	t.Parallel()
	servers := must.Get(available(root)).Or(t)
	content := must.Get(os.ReadFile(filepath.Join(root, "charts", "mooring", "Chart.yaml"))).Or(t)
	if want := fmt.Sprintf("\nkubeVersion: %q\n", ">="+servers[len(servers)-1].minor+".0-0"); !strings.Contains(string(content), want) {
		t.Errorf("Chart.yaml lacks %s", want)
	}
}

// TestTheMarkerIsTheTestkits: what this program looks for is what tests log.
func TestTheMarkerIsTheTestkits(t *testing.T) {
	t.Parallel()
	content := must.Get(os.ReadFile(filepath.Join(root, "internal", "testkit", "controlplane", "controlplane.go"))).Or(t)
	if want := fmt.Sprintf("const OnAPIServer = %q\n", marker); !strings.Contains(string(content), want) {
		t.Errorf("internal/testkit/controlplane has no %s", want)
	}
}

// TestRead counts what ran on the version that was meant, and every failure.
func TestRead(t *testing.T) {
	t.Parallel()
	line := func(action, test, output string) string {
		return fmt.Sprintf("{%q:%q,%q:%q,%q:%q,%q:%q}\n", "Action", action, "Package", "a/b", "Test", test, "Output", output)
	}
	on := "    x_test.go:1: " + marker + "v1.35.4\n"
	stream := line("output", "TestOn", on) + line("pass", "TestOn/sub", "") + line("pass", "TestOn", "") +
		line("output", "TestBySub/sub", on) + line("pass", "TestBySub", "") +
		line("pass", "TestPure", "") +
		line("output", "TestOther", "    x_test.go:1: "+marker+"v1.35.40\n") + line("pass", "TestOther", "") +
		line("output", "TestOff", on) + line("skip", "TestOff", "") + line("skip", "TestPureOff", "") +
		line("fail", "TestPureBad", "") + line("output", "TestBad", on) + line("fail", "TestBad/sub", "") + line("fail", "TestBad", "") + line("fail", "", "")
	got := must.Get(read([]byte(stream), "1.35.4")).Or(t)
	if diff := cmp.Diff(Outcome{Passed: 2, Failed: []string{"b.TestBad", "b.TestPureBad"}, Skipped: []string{"b.TestOff"}}, got); diff != "" {
		t.Error(diff)
	}
	if _, err := read([]byte("panic: no JSON\n"), "1.35.4"); err == nil {
		t.Error("it reads what is not an event")
	}
}

// TestPage shows what passed, what failed and what was left out.
func TestPage(t *testing.T) {
	t.Parallel()
	got := string(page("1.36.3", []Result{
		{Minor: "1.34", Version: "1.34.4", Commit: "c", Date: "2026-01-02", Suites: map[string]Outcome{"kinds": {Passed: 7, Failed: []string{"crd.TestRules"}, Skipped: []string{"crd.TestX"}}}},
		{Minor: "1.35", Version: "1.35.4", Commit: "d", Date: "2026-01-03", Suites: map[string]Outcome{"kinds": {Passed: 8}}},
	}))
	for _, want := range []string{
		"| component | exercised | 1.36.3 | 1.35.4 | 1.34.4 |\n|---|---|---|---|---|\n",
		" | all | 8 pass | 7 pass, skipped: crd.TestX, **1 fail**: crd.TestRules |\n", " | all | not run | not run |\n",
		"| *last run* | | with every change | 2026-01-03, at d | 2026-01-02, at c |\n", "  1.36.3: on older servers",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %q:\n%s", want, got)
		}
	}
}

// TestASuiteAlone: the results of the other suites stay, and it names its own commit if that is another one.
func TestASuiteAlone(t *testing.T) {
	t.Parallel()
	old := []Result{{Minor: "1.35", Version: "1.35.4", Commit: "c", Date: "2026-01-02", Suites: map[string]Outcome{
		"kinds": {Passed: 7}, "chart": {Passed: 1},
	}}}
	now := revision{commit: "d", date: "2026-01-03"}
	got := begin(old, server{minor: "1.35", version: "1.35.4"}, now, false)
	got.add("chart", Outcome{Passed: 3, Failed: []string{"charts.TestX"}}, now)
	got.add("kinds", Outcome{Passed: 8}, revision{commit: "c", date: "2026-01-04"})
	text := string(page("1.36.3", []Result{got}))
	for _, want := range []string{
		" | all | 3 pass, **1 fail**: charts.TestX (2026-01-03, at d) |\n", " | all | 8 pass |\n", "| 2026-01-02, at c |\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	for name, begun := range map[string]Result{
		"of all suites":            begin(old, server{minor: "1.35", version: "1.35.4"}, now, true),
		"of another patch release": begin(old, server{minor: "1.35", version: "1.35.5"}, now, false),
	} {
		if begun.Commit != "d" || begun.Date != "2026-01-03" || len(begun.Suites) > 0 {
			t.Errorf("a run %s begins with %+v", name, begun)
		}
	}
}

// TestUnknownSuite names those that there are.
func TestUnknownSuite(t *testing.T) {
	t.Parallel()
	const want = `there is no suite "drivers": there are [kinds `
	err := run(t.Context(), root, request{versions: []string{"1.35"}, suites: []string{"drivers"}}, io.Discard)
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestUnknownVersion names those that there are.
func TestUnknownVersion(t *testing.T) {
	t.Parallel()
	err := run(t.Context(), root, request{versions: []string{"1.2"}}, io.Discard)
	if err == nil || !strings.HasPrefix(err.Error(), "there is no version 1.2: there are [1.") {
		t.Error(err)
	}
}

// TestModulesAreOfOneVersion: all of Kubernetes' own modules in a kube-*.mod are of its version.
func TestModulesAreOfOneVersion(t *testing.T) {
	t.Parallel()
	servers := must.Get(available(root)).Or(t)
	for _, s := range servers {
		content := must.Get(os.ReadFile(s.modfile)).Or(t)
		replaced := 0
		for line := range bytes.Lines(content) {
			if _, to, found := bytes.Cut(line, []byte("=>")); found {
				replaced++
				if fields := strings.Fields(string(to)); len(fields) != 2 || fields[1] != "v0."+strings.TrimPrefix(s.version, "1.") {
					t.Errorf("%s: %s", s.modfile, line)
				}
			}
		}
		if replaced < 30 {
			t.Errorf("%s replaces %d modules", s.modfile, replaced)
		}
	}
}
