// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Command matrix runs what stands on a real API server against other minor versions of Kubernetes, and writes
// docs/reference/kubernetes-versions.md from what it saw. Each of them has a kube-VERSION.mod here, from which its kube-apiserver is built.
// On the lab's own version everything runs with every change.
//
//	go run ./hack/matrix [VERSION...]    such as 1.35; without one, all. `make matrix` builds what it needs before
//	go run ./hack/matrix -suites driver,chart [VERSION...]
//	                                     run these suites (suites.go) alone, and keep the last results of the others
//	go run ./hack/matrix -page           write the page from the results that there are
//	go run ./hack/matrix next            try the newest version of each upstream instead, and write bin/matrix/next.md about what that breaks
//
// Run it from the repository's root. It is not a part of CI: a kube-apiserver takes minutes to build, and the tests of a version a quarter
// of an hour.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	pageOnly := flag.Bool("page", false, "write the page from the results that there are, and run nothing")
	only := flag.String("suites", "", "run only these suites, such as driver,chart, and keep the results of the others")
	flag.Parse()
	wanted := request{versions: flag.Args(), pageOnly: *pageOnly}
	if *only != "" {
		wanted.suites = strings.Split(*only, ",")
	}
	if err := run(context.Background(), ".", wanted, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "matrix:", err)
		os.Exit(1)
	}
}

// pageFile and resultsFile are what is written.
func pageFile(root string) string {
	return filepath.Join(root, "docs", "reference", "kubernetes-versions.md")
}
func resultsFile(root string) string { return filepath.Join(root, "hack", "matrix", "results.json") }

// request is what the command line asks for: versions and suites, all of them if none is named, or the page alone.
type request struct {
	versions, suites []string
	pageOnly         bool
}

// run exercises the versions, one after the other, and keeps what was seen of each as soon as it is done.
func run(ctx context.Context, root string, wanted request, out io.Writer) error {
	own, err := versionIn(filepath.Join(root, "lab", "go.mod"))
	if err != nil {
		return err
	}
	if wanted.pageOnly {
		results, err := readResults(root)
		if err != nil {
			return err
		}
		return os.WriteFile(pageFile(root), page(own.version, results), 0o644)
	}
	if slices.Equal(wanted.versions, []string{next}) {
		if len(wanted.suites) > 0 {
			return errors.New("next runs steps of its own: name no suites")
		}
		return tryNext(ctx, root, upstreams(), nextSteps(), out)
	}
	servers, err := selectServers(root, wanted.versions)
	if err != nil {
		return err
	}
	selected, err := selectSuites(wanted.suites)
	if err != nil {
		return err
	}
	now, err := currentRevision(ctx, root)
	if err != nil {
		return err
	}
	var failed []string
	for _, on := range servers {
		results, err := readResults(root)
		if err != nil {
			return err
		}
		result := begin(results, on, now, len(wanted.suites) == 0)
		err = exercise(ctx, root, on, selected, out, func(s suite, outcome Outcome) error {
			result.add(s.id, outcome, now)
			return keep(root, own.version, result)
		})
		if err != nil {
			return err
		}
		failed = append(failed, result.failures(selected)...)
	}
	if len(failed) > 0 {
		return fmt.Errorf("failed: %s", strings.Join(failed, ", "))
	}
	return nil
}

// exercise runs suites on one server. Each outcome is kept at once, so that a run that is ended early is not for nothing.
func exercise(
	ctx context.Context, root string, on server, all []suite, out io.Writer, keep func(suite, Outcome) error,
) error {
	path, err := on.build(ctx, root, out)
	if err != nil {
		return err
	}
	for _, s := range all {
		outcome, err := s.exercise(ctx, root, on, path, out)
		if err != nil {
			return fmt.Errorf("%s: %w", s.id, err)
		}
		if err := keep(s, outcome); err != nil {
			return err
		}
	}
	return nil
}

// keep puts a result in the place of an earlier one of its version, and writes the page. The others are read again: another run may have
// added to them meanwhile.
func keep(root, own string, result Result) error {
	results, err := readResults(root)
	if err != nil {
		return err
	}
	results = append(slices.DeleteFunc(results, func(r Result) bool { return r.Minor == result.Minor }), result)
	if err := writeResults(root, results); err != nil {
		return err
	}
	return os.WriteFile(pageFile(root), page(own, results), 0o644)
}

// server is a version of kube-apiserver, and the file that it is built from.
type server struct{ minor, version, modfile string }

func (s server) String() string { return s.minor }

var kubernetesVersion = regexp.MustCompile(`(?m)^\s*(?:require )?k8s\.io/kubernetes v(\d+\.\d+)(\.\d+)(?: // indirect)?$`)

// available lists the versions, the newest first.
func available(root string) ([]server, error) {
	files, err := filepath.Glob(filepath.Join(root, "hack", "matrix", "kube-*.mod"))
	if err != nil {
		return nil, err
	}
	var out []server
	for _, file := range files {
		s, err := versionIn(file)
		if err != nil {
			return nil, err
		}
		if filepath.Base(file) != "kube-"+s.minor+".mod" {
			return nil, fmt.Errorf("%s requires Kubernetes %s", file, s.version)
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b server) int { return strings.Compare(b.minor, a.minor) })
	return out, nil
}

// selectServers returns those of these versions, or all.
func selectServers(root string, versions []string) ([]server, error) {
	servers, err := available(root)
	if err != nil {
		return nil, err
	}
	for _, version := range versions {
		if !slices.ContainsFunc(servers, func(s server) bool { return s.minor == version }) {
			const text = "there is no version %s: there are %v, and %s alone, for what upstreams have released since"
			return nil, fmt.Errorf(text, version, servers, next)
		}
	}
	return slices.DeleteFunc(servers, func(s server) bool {
		return len(versions) > 0 && !slices.Contains(versions, s.minor)
	}), nil
}

// currentRevision returns the commit that is checked out, and today. What this program itself writes is not a change to it.
func currentRevision(ctx context.Context, root string) (revision, error) {
	head, err := exec.CommandContext(ctx, "git", "-C", root, "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return revision{}, fmt.Errorf("asking git for the commit: %w", err)
	}
	changes, err := exec.CommandContext(ctx, "git", "-C", root, "status", "--porcelain", "--untracked-files=no", "--",
		".", ":!"+pageFile("."), ":!"+resultsFile(".")).Output()
	if err != nil {
		return revision{}, fmt.Errorf("asking git for changes: %w", err)
	}
	commit := strings.TrimSpace(string(head))
	if len(changes) > 0 {
		commit += "-dirty"
	}
	return revision{commit: commit, date: time.Now().UTC().Format(time.DateOnly)}, nil
}

// versionIn is the version of Kubernetes that a module requires.
func versionIn(modfile string) (server, error) {
	content, err := os.ReadFile(modfile)
	if err != nil {
		return server{}, err
	}
	m := kubernetesVersion.FindStringSubmatch(string(content))
	if m == nil {
		return server{}, fmt.Errorf("%s does not require k8s.io/kubernetes", modfile)
	}
	return server{minor: m[1], version: m[1] + m[2], modfile: modfile}, nil
}

// build returns the absolute path of the kube-apiserver, which it builds if it is not of this version.
func (s server) build(ctx context.Context, root string, out io.Writer) (string, error) {
	path, err := filepath.Abs(filepath.Join(root, "bin", "matrix", "kube-apiserver-"+s.minor))
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	if is, err := exec.CommandContext(ctx, path, "--version").Output(); err == nil && strings.TrimSpace(string(is)) == "Kubernetes v"+s.version {
		return path, nil
	}
	fmt.Fprintf(out, "Building kube-apiserver %s from source: about 5 minutes on two cores that do nothing else\n", s.version)
	const pkg = "k8s.io/component-base/version"
	major, minor, _ := strings.Cut(s.minor, ".")
	flags := fmt.Sprintf("-s -w -X %[1]s.gitVersion=v%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s", pkg, s.version, major, minor)
	command := exec.CommandContext(ctx, "nice", "-n", "19", "go", "build", "-modfile="+s.modfile, "-ldflags", flags, "-o", path, "k8s.io/kubernetes/cmd/kube-apiserver")
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	command.Stdout, command.Stderr = out, out
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("building kube-apiserver %s: %w", s.version, err)
	}
	return path, nil
}

// exercise runs a suite on a server, whose program is at path.
func (s suite) exercise(ctx context.Context, root string, on server, path string, out io.Writer) (Outcome, error) {
	args := []string{"test", "-tags", "e2e", "-json", "-count=1", "-short", "-timeout=30m", "-p=1"}
	if s.run != "" {
		args = append(args, "-run="+s.run)
	}
	command := exec.CommandContext(ctx, "go", append(args, s.packages...)...)
	command.Dir = root
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "MOORING_KUBE_APISERVER="+path)
	command.Stderr = out
	begun := time.Now()
	stream, testErr := command.Output() // its exit code says no more than the stream
	outcome, err := read(stream, on.version)
	if err != nil {
		return Outcome{}, err
	}
	if testErr != nil && len(outcome.Failed) == 0 {
		return Outcome{}, fmt.Errorf("%w, and no test has failed", testErr)
	}
	if outcome.Passed+len(outcome.Failed) == 0 {
		return Outcome{}, fmt.Errorf("not one of its tests ran on kube-apiserver %s; are bin/lab and bin/ built?", on.version)
	}
	took := time.Since(begun).Round(time.Second)
	fmt.Fprintf(out, "%s %s: %d passed, failed %v (%s)\n", on.version, s.id, outcome.Passed, outcome.Failed, took)
	return outcome, nil
}

func readResults(root string) ([]Result, error) {
	content, err := os.ReadFile(resultsFile(root))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []Result
	if err := json.Unmarshal(content, &out); err != nil {
		return nil, fmt.Errorf("%s: %w", resultsFile(root), err)
	}
	return out, nil
}

func writeResults(root string, results []Result) error {
	slices.SortFunc(results, func(a, b Result) int { return strings.Compare(b.Minor, a.Minor) })
	content, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(resultsFile(root), append(content, '\n'), 0o644)
}
