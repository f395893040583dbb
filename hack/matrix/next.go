// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

// next is the argument that tries what upstreams have released since.
const next = "next"

// upstream is what is tried at its newest version: modules that have one version and move together.
type upstream struct {
	// name is for people; module is the one that says the version, in the file modfile.
	name, module, modfile string
	// family is what the paths of the modules begin with that move along with it.
	family string
	// pins reports that the module requires others of its family at v0.0.0, which a module that requires it must
	// replace (k8s.io/kubernetes).
	pins bool
}

// upstreams are those whose releases may break Mooring.
func upstreams() []upstream {
	return []upstream{
		{name: "Kubernetes", module: "k8s.io/kubernetes", modfile: "lab/go.mod", family: "k8s.io/", pins: true},
		{name: "controller-runtime", module: "sigs.k8s.io/controller-runtime", modfile: "go.mod"},
		{name: "etcd", module: "go.etcd.io/etcd/client/v3", modfile: "go.mod", family: "go.etcd.io/etcd/"},
		{name: "CSI", module: "github.com/container-storage-interface/spec", modfile: "go.mod"},
		{name: "godo", module: "github.com/digitalocean/godo", modfile: "go.mod"},
		{name: "containerd", module: "github.com/containerd/containerd/v2", modfile: "go.containerd.mod"},
	}
}

// trial is what became of one upstream.
type trial struct {
	upstream
	used, newest string
	// problem is what a step of it printed, "" if all succeeded; step is the one that failed.
	step, problem string
}

func (t trial) isNewer() bool { return semver.Compare(t.newest, t.used) > 0 }

// outcome is how the trial went, in a word or two.
func (t trial) outcome() string {
	switch {
	case !t.isNewer():
		return "nothing newer"
	case t.step != "":
		return "**" + t.step + " fails**"
	default:
		return "good"
	}
}

// errBreaks is returned when something newer does not work.
var errBreaks = errors.New("what is newer breaks something; the report says what")

// tryNext tries the newest version of each upstream that the module proxy has, each alone and then all together, in
// copies of the last commit, and writes bin/matrix/next.md. Without anything newer it runs nothing, and removes the
// report of an earlier run.
func tryNext(ctx context.Context, root string, all []upstream, steps []step, out io.Writer) error {
	var trials []trial
	for _, u := range all {
		t, err := u.look(ctx, root)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: %s is used, %s is the newest\n", t.name, t.used, t.newest)
		trials = append(trials, t)
	}
	report := filepath.Join(root, "bin", "matrix", "next.md")
	if err := os.Remove(report); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if !slices.ContainsFunc(trials, trial.isNewer) {
		fmt.Fprintln(out, "Nothing is newer than what is used")
		return nil
	}
	good, together, err := attemptAll(ctx, root, trials, steps, out)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(report), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(report, nextReport(trials, good, together), 0o644); err != nil {
		return err
	}
	fmt.Fprintf(out, "The report is %s\n", report)
	if together.step != "" || slices.ContainsFunc(trials, func(t trial) bool { return t.step != "" }) {
		return errBreaks
	}
	return nil
}

// attemptAll fills in what became of each upstream that has something newer, and returns those that are good alone, and
// what became of them together.
func attemptAll(
	ctx context.Context, root string, trials []trial, steps []step, out io.Writer,
) (good []trial, together trial, err error) {
	for i := range trials {
		if !trials[i].isNewer() {
			continue
		}
		// The tests run once, with all that is newer: they take long, and what one of them alone breaks shows when it
		// is built.
		if trials[i].step, trials[i].problem, err = attempt(ctx, root, trials[i:i+1], untested(steps), out); err != nil {
			return nil, together, err
		}
		if trials[i].step == "" {
			good = append(good, trials[i])
		}
	}
	if len(good) > 0 {
		together.step, together.problem, err = attempt(ctx, root, good, steps, out)
	}
	return good, together, err
}

// look finds which version is used and which is the newest.
func (u upstream) look(ctx context.Context, root string) (trial, error) {
	t := trial{upstream: u}
	file, err := parseModfile(filepath.Join(root, u.modfile))
	if err != nil {
		return t, err
	}
	for _, r := range file.Require {
		if r.Mod.Path == u.module {
			t.used = r.Mod.Version
		}
	}
	if t.used == "" {
		return t, fmt.Errorf("%s does not require %s: change upstreams() in hack/matrix", u.modfile, u.module)
	}
	printed, err := goCommand(ctx, root, "list", "-m", "-versions", "-json", u.module)
	if err != nil {
		return t, fmt.Errorf("asking for the versions of %s: %w", u.module, err)
	}
	var listed struct{ Versions []string }
	if err := json.Unmarshal(printed, &listed); err != nil {
		return t, fmt.Errorf("reading the versions of %s: %w", u.module, err)
	}
	t.newest = newest(append(listed.Versions, t.used))
	return t, nil
}

// newest is the highest version that is a release or a candidate for one: an alpha or a beta may still change.
func newest(versions []string) string {
	versions = slices.DeleteFunc(slices.Clone(versions), func(v string) bool {
		pre := semver.Prerelease(v)
		return pre != "" && !strings.HasPrefix(pre, "-rc") && !module.IsPseudoVersion(v)
	})
	return slices.MaxFunc(versions, semver.Compare)
}

// attempt makes the steps in a copy of the last commit in which the upstreams are at their newest version. It returns
// the step that failed and what that printed; an error is one of the copy itself.
func attempt(
	ctx context.Context, root string, trials []trial, steps []step, out io.Writer,
) (failed, problem string, err error) {
	folder := filepath.Join(root, "bin", "matrix", next)
	if err := removeCopy(ctx, root, folder); err != nil {
		return "", "", err
	}
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return "", "", err
	}
	add := exec.CommandContext(ctx, "git", "-C", root, "worktree", "add", "--detach", "--quiet", folder, "HEAD")
	if printed, err := add.CombinedOutput(); err != nil {
		return "", "", fmt.Errorf("copying the last commit: %w: %s", err, printed)
	}
	defer func() { err = errors.Join(err, removeCopy(context.WithoutCancel(ctx), root, folder)) }()
	for _, t := range trials {
		fmt.Fprintf(out, "Trying %s %s\n", t.name, t.newest)
		if err := t.require(ctx, folder); err != nil {
			return "", "", err
		}
	}
	for _, s := range steps {
		if s.only != "" && !slices.ContainsFunc(trials, func(t trial) bool { return t.modfile == s.only }) {
			continue
		}
		command := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", s.script) //nolint:gosec // constants
		command.Dir = folder
		command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
		if printed, err := command.CombinedOutput(); err != nil {
			return s.name, string(printed) + err.Error(), ctx.Err()
		}
	}
	return "", "", nil
}

// removeCopy removes the copy of a run, be it one that was killed.
func removeCopy(ctx context.Context, root, folder string) error {
	if _, err := os.Stat(folder); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	remove := exec.CommandContext(ctx, "git", "-C", root, "worktree", "remove", "--force", folder)
	if printed, err := remove.CombinedOutput(); err != nil {
		return fmt.Errorf("removing %s: %w: %s", folder, err, printed)
	}
	return nil
}

// require writes the newest version into all module files of a copy that use what moves together.
func (t trial) require(ctx context.Context, folder string) error {
	var pinned []string
	if t.pins {
		var err error
		if pinned, err = pinnedBy(ctx, folder, module.Version{Path: t.module, Version: t.newest}); err != nil {
			return err
		}
	}
	for _, name := range []string{"go.mod", "lab/go.mod", "go.containerd.mod"} {
		path := filepath.Join(folder, filepath.FromSlash(name))
		file, err := parseModfile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := t.rewrite(file, pinned); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		file.Cleanup()
		content, err := file.Format()
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// rewrite sets the versions in one file. A family has its minor and patch version in common: k8s.io/api v0.37.2 goes
// with k8s.io/kubernetes v1.37.2.
func (t trial) rewrite(file *modfile.File, pinned []string) error {
	_, used, _ := strings.Cut(t.used, ".")
	_, newest, _ := strings.Cut(t.newest, ".")
	moved := func(mod module.Version) string {
		major, rest, _ := strings.Cut(mod.Version, ".")
		if rest == used && (mod.Path == t.module || t.family != "" && strings.HasPrefix(mod.Path, t.family)) {
			return major + "." + newest
		}
		return ""
	}
	for _, r := range slices.Clone(file.Require) {
		if version := moved(r.Mod); version != "" {
			if err := file.AddRequire(r.Mod.Path, version); err != nil {
				return err
			}
		}
	}
	replaces := false
	for _, r := range slices.Clone(file.Replace) {
		if version := moved(r.New); version != "" {
			replaces = true
			if err := file.AddReplace(r.Old.Path, r.Old.Version, r.New.Path, version); err != nil {
				return err
			}
		}
	}
	for _, path := range pinned {
		if !replaces {
			break
		}
		if err := file.AddReplace(path, "", path, "v0."+newest); err != nil {
			return err
		}
	}
	return nil
}

// pinnedBy lists the modules that a module requires at v0.0.0.
func pinnedBy(ctx context.Context, folder string, mod module.Version) ([]string, error) {
	printed, err := goCommand(ctx, folder, "mod", "download", "-json", mod.String())
	if err != nil {
		return nil, fmt.Errorf("downloading %s: %w", mod, err)
	}
	var downloaded struct{ GoMod string }
	if err := json.Unmarshal(printed, &downloaded); err != nil {
		return nil, fmt.Errorf("reading where %s is: %w", mod, err)
	}
	file, err := parseModfile(downloaded.GoMod)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, r := range file.Require {
		if r.Mod.Version == "v0.0.0" {
			out = append(out, r.Mod.Path)
		}
	}
	return out, nil
}

func parseModfile(path string) (*modfile.File, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return modfile.Parse(path, content, nil)
}

// goCommand returns what a command of Go prints.
func goCommand(ctx context.Context, folder string, args ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = folder
	var problem bytes.Buffer
	command.Stderr = &problem
	printed, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, strings.TrimSpace(problem.String()))
	}
	return printed, nil
}

// step is one of what is done with a copy.
type step struct {
	name, script string
	// only names the module file that must have changed for the step to say anything; "" for any.
	only string
	// test reports that it takes too long for each upstream alone.
	test bool
}

// nextSteps are what must succeed with newer versions.
func nextSteps() []step {
	return []step{
		{name: "resolving", script: "go mod tidy && cd lab && go mod tidy"},
		{name: "building", script: "go build ./... && cd lab && go build ./..."},
		{name: "building tests", script: "go list -tags e2e -export -test ./... >/dev/null && " +
			"cd lab && go list -tags e2e -export -test ./... >/dev/null"},
		{
			name: "building containerd", only: "go.containerd.mod",
			script: `mkdir -p bin/alone && cp go.containerd.mod bin/alone/go.mod && (cd bin/alone && go mod tidy) && ` +
				`cp bin/alone/go.mod go.containerd.mod && cp bin/alone/go.sum go.containerd.sum && ` +
				`go build -modfile=go.containerd.mod -tags 'no_btrfs no_devmapper' -o bin/ ` +
				`$(grep -oE '[^[:space:]]+/containerd/v2/cmd/[^[:space:]]+' go.containerd.mod)`,
		},
		{name: "testing", script: "make test", test: true},
	}
}

func untested(steps []step) []step {
	return slices.DeleteFunc(slices.Clone(steps), func(s step) bool { return s.test })
}

// mostLines is how many lines of what a failed step printed are in the report: errors come last.
const mostLines = 60

// nextReport is a page in Markdown.
func nextReport(trials, good []trial, together trial) []byte {
	var b bytes.Buffer
	b.WriteString("| upstream | used | newest | alone |\n|---|---|---|---|\n")
	for _, t := range trials {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", t.name, t.used, t.newest, t.outcome())
	}
	var names []string
	for _, t := range good {
		names = append(names, t.name+" "+t.newest)
	}
	switch {
	case len(good) == 0:
	case together.step == "":
		fmt.Fprintf(&b, "\nAll tests pass with %s.\n", strings.Join(names, ", "))
	default:
		fmt.Fprintf(&b, "\n**%s fails** with %s.\n", together.step, strings.Join(names, ", "))
	}
	for _, t := range append(slices.Clone(trials), together) {
		if t.problem == "" {
			continue
		}
		title := t.name + " " + t.newest
		if t.name == "" {
			title = "together"
		}
		lines := strings.Split(strings.TrimSpace(t.problem), "\n")
		lines = lines[max(0, len(lines)-mostLines):]
		fmt.Fprintf(&b, "\n## %s: %s\n\n```\n%s\n```\n", title, t.step, strings.Join(lines, "\n"))
	}
	return b.Bytes()
}
