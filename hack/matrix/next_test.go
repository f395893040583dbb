// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// proxy is a module proxy in a folder (go.dev/ref/mod#goproxy-protocol).
type proxy struct {
	*testing.T
	folder string
}

// release adds a version of a module that has one file.
func (p proxy) release(path, version, gomod, source string) {
	p.Helper()
	var zipped bytes.Buffer
	z := zip.NewWriter(&zipped)
	for name, content := range map[string]string{"go.mod": gomod, "lib.go": source} {
		w := must.Get(z.Create(path + "@" + version + "/" + name)).Or(p)
		must.Get(w.Write([]byte(content))).Or(p)
	}
	must.Do(p, z.Close())
	folder := filepath.Join(p.folder, filepath.FromSlash(path), "@v")
	list, _ := os.ReadFile(filepath.Join(folder, "list")) // there is none before the first release
	put(p.T, folder, map[string]string{
		"list": string(list) + version + "\n", version + ".info": fmt.Sprintf(`{"Version":%q}`, version), version + ".mod": gomod, version + ".zip": zipped.String(),
	})
}

func put(t *testing.T, folder string, files map[string]string) {
	t.Helper()
	// A program that another test starts meanwhile would hold a script open, which could not be run then (ETXTBSY).
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	for name, content := range files {
		path := filepath.Join(folder, filepath.FromSlash(name))
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must.Do(t, os.WriteFile(path, []byte(content), 0o600))
	}
}

// checkout is a repository with two modules that use two upstreams: example.com/core, which pins example.com/core-api, and example.com/other.
func checkout(t *testing.T) (string, proxy, []upstream) {
	t.Helper()
	p := proxy{t, t.TempDir()}
	for _, minor := range []string{"1", "2"} {
		p.release("example.com/core", "v1."+minor+".0", "module example.com/core\n\ngo 1.26\n\nrequire example.com/core-api v0.0.0\n",
			"package core\n\nimport _ \"example.com/core-api\"\n")
		p.release("example.com/core-api", "v0."+minor+".0", "module example.com/core-api\n\ngo 1.26\n", "package api\n\nconst Minor = "+minor+"\n")
	}
	p.release("example.com/core", "v1.3.0-alpha.1", "module example.com/core\n\ngo 1.26\n", "package core\n\nfunc Broken() { nothing }\n")
	p.release("example.com/other", "v1.0.0", "module example.com/other\n\ngo 1.26\n", "package other\n\nfunc Do() {}\n")
	t.Setenv("GOPROXY", "file://"+p.folder)
	t.Setenv("GONOSUMDB", "*")
	t.Setenv("GOFLAGS", "-mod=mod -modcacherw")
	t.Setenv("GOMODCACHE", t.TempDir())
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	root := t.TempDir()
	const requires = "\ngo 1.26\n\nrequire (\n\texample.com/core v1.1.0\n\texample.com/core-api v0.1.0\n\texample.com/other v1.0.0\n)\n\nreplace example.com/core-api => example.com/core-api v0.1.0\n"
	const source = "import (\n\t_ \"example.com/core\"\n\tapi \"example.com/core-api\"\n\t\"example.com/other\"\n)\n\nfunc main() { other.Do(); println(api.Minor) }\n"
	put(t, root, map[string]string{
		".gitignore": "/bin/\n", "go.mod": "module example.com/root\n" + requires, "main.go": "package main\n\n" + source,
		"lab/go.mod": "module example.com/root/lab\n" + requires, "lab/main.go": "package main\n\n" + source,
	})
	for _, folder := range []string{root, filepath.Join(root, "lab")} {
		command := exec.Command("go", "mod", "tidy")
		command.Dir = folder
		if printed, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, printed)
		}
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "-m", "one"}} {
		if printed, err := exec.Command("git", append([]string{"-C", root}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, printed)
		}
	}
	return root, p, []upstream{
		{name: "core", module: "example.com/core", modfile: "lab/go.mod", family: "example.com/core", pins: true},
		{name: "other", module: "example.com/other", modfile: "go.mod"},
	}
}

// steps are those of the two modules; the test succeeds with the second minor version of what core pins.
func steps() []step {
	return append(nextSteps()[:2], step{name: "testing", test: true, script: "test $(cd lab && go run . 2>&1) = 2"})
}

// tried runs tryNext, and returns the report.
func tried(t *testing.T, root string, all []upstream) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := tryNext(t.Context(), root, all, steps(), &out)
	t.Log(out.String())
	left, _ := exec.Command("git", "-C", root, "worktree", "list").Output()
	status, _ := exec.Command("git", "-C", root, "status", "--short").Output()
	if strings.Count(string(left), "\n") != 1 || len(status) > 0 {
		t.Errorf("the copy is left, or the checkout changed:\n%s%s", left, status)
	}
	report, readErr := os.ReadFile(filepath.Join(root, "bin", "matrix", "next.md"))
	if readErr != nil && !errors.Is(readErr, os.ErrNotExist) {
		t.Fatal(readErr)
	}
	return string(report), err
}

func contains(t *testing.T, report string, all ...string) {
	t.Helper()
	for _, want := range all {
		if !strings.Contains(report, want) {
			t.Errorf("the report lacks %q:\n%s", want, report)
		}
	}
}

// TestNext: what is newer is tried with all that moves along with it, and what it breaks is said, by upstream. An alpha is not tried.
func TestNext(t *testing.T) { //nolint:paralleltest // it sets variables
	root, p, all := checkout(t)

	report, err := tried(t, root, all)
	must.Do(t, err)
	contains(t, report, "| core | v1.1.0 | v1.2.0 | good |", "| other | v1.0.0 | v1.0.0 | nothing newer |", "All tests pass with core v1.2.0.")

	p.release("example.com/other", "v1.1.0-rc.0", "module example.com/other\n\ngo 1.26\n", "package other\n")
	report, err = tried(t, root, all)
	if !errors.Is(err, errBreaks) {
		t.Errorf("got %v", err)
	}
	contains(t, report, "| core | v1.1.0 | v1.2.0 | good |", "| other | v1.0.0 | v1.1.0-rc.0 | **building fails** |", "All tests pass with core v1.2.0.",
		"## other v1.1.0-rc.0: building", "undefined: other.Do")
}

// TestNextTests: what builds and fails the tests breaks as well.
func TestNextTests(t *testing.T) { //nolint:paralleltest // it sets variables
	root, p, all := checkout(t)
	p.release("example.com/core", "v1.4.0", "module example.com/core\n\ngo 1.26\n\nrequire example.com/core-api v0.0.0\n", "package core\n\nimport _ \"example.com/core-api\"\n")
	p.release("example.com/core-api", "v0.4.0", "module example.com/core-api\n\ngo 1.26\n", "package api\n\nconst Minor = 4\n")
	report, err := tried(t, root, all)
	if !errors.Is(err, errBreaks) {
		t.Errorf("got %v", err)
	}
	contains(t, report, "| core | v1.1.0 | v1.4.0 | good |", "**testing fails** with core v1.4.0.", "## together: testing")
}

// TestNothingNewer: without anything newer nothing is tried, and the report of an earlier run goes.
func TestNothingNewer(t *testing.T) { //nolint:paralleltest // it sets variables
	root, _, all := checkout(t)
	put(t, root, map[string]string{"bin/matrix/next.md": "old"})
	if report, err := tried(t, root, all[1:]); err != nil || report != "" {
		t.Errorf("got %v, %s", err, report)
	}
	if _, err := tried(t, root, []upstream{{name: "third", module: "example.com/third", modfile: "go.mod"}}); err == nil ||
		!strings.Contains(err.Error(), "go.mod does not require example.com/third: change upstreams() in hack/matrix") {
		t.Errorf("got %v", err)
	}
}

// TestUpstreamsAreUsed: each upstream is required where it is looked for.
func TestUpstreamsAreUsed(t *testing.T) {
	t.Parallel()
	for _, u := range upstreams() {
		file := must.Get(parseModfile(filepath.Join(root, filepath.FromSlash(u.modfile)))).Or(t)
		found := false
		for _, r := range file.Require {
			found = found || r.Mod.Path == u.module
		}
		if !found {
			t.Errorf("%s does not require %s", u.modfile, u.module)
		}
	}
}

// TestTheNightlyIssue: the script keeps one issue with the report, and closes it only when nothing is newer after a whole run. A
// gh of the test's own writes down what it is asked for.
func TestTheNightlyIssue(t *testing.T) {
	t.Parallel()
	script := must.Get(os.ReadFile("issue.sh")).Or(t)
	for name, story := range map[string]struct{ number, report, outcome, want string }{
		"the first report":            {"", "text", "failure", "issue create --title Newer upstreams --body-file bin/matrix/next.md"},
		"another report":              {"7", "text", "success", "issue edit 7 --body-file bin/matrix/next.md"},
		"nothing newer":               {"7", "", "success", "issue close 7 --comment Nothing is newer any more."},
		"nothing newer, no issue":     {"", "", "success", ""},
		"it failed before the report": {"7", "", "failure", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			put(t, folder, map[string]string{
				"hack/matrix/issue.sh": string(script), "path/gh": "#!/bin/sh\n" +
					"if [ \"$2\" = list ]; then printf '%s' \"$NUMBER\"; else echo \"$*\" >> asked; fi\n",
			})
			if story.report != "" {
				put(t, folder, map[string]string{"bin/matrix/next.md": story.report})
			}
			for _, program := range []string{"hack/matrix/issue.sh", "path/gh"} {
				if err := os.Chmod(filepath.Join(folder, program), 0o700); err != nil { //nolint:gosec // it is run
					t.Fatal(err)
				}
			}
			run := exec.CommandContext(t.Context(), filepath.Join(folder, "hack/matrix/issue.sh")) //nolint:gosec // our own
			run.Env = append(os.Environ(), "PATH="+filepath.Join(folder, "path")+":"+os.Getenv("PATH"),
				"NUMBER="+story.number, "OUTCOME="+story.outcome)
			if printed, err := run.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, printed)
			}
			asked, err := os.ReadFile(filepath.Join(folder, "asked"))
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			if got := strings.TrimSpace(string(asked)); got != story.want {
				t.Errorf("gh was asked for %q, want %q", got, story.want)
			}
		})
	}
}
