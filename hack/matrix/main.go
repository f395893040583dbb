// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Command matrix runs what stands on a real API server against other minor versions of Kubernetes, and writes
// docs/reference/kubernetes-versions.md from what it saw. Each of them has a kube-VERSION.mod here, from which its kube-apiserver is built.
// On the lab's own version everything runs with every change.
//
//	go run ./hack/matrix [VERSION...]    such as 1.35; without one, all. `make matrix` builds what it needs before
//	go run ./hack/matrix -page           write the page from the results that there are
//	go run ./hack/matrix next            try the newest version of each upstream instead, and write bin/matrix/next.md about what that breaks
//
// Run it from the repository's root. It is not a part of CI: a kube-apiserver takes minutes to build, and the tests of a version a quarter
// of an hour.
package main

import (
	"context"
	"encoding/json"
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
	flag.Parse()
	if err := run(context.Background(), ".", flag.Args(), *pageOnly, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "matrix:", err)
		os.Exit(1)
	}
}

// pageFile and resultsFile are what is written.
func pageFile(root string) string {
	return filepath.Join(root, "docs", "reference", "kubernetes-versions.md")
}
func resultsFile(root string) string { return filepath.Join(root, "hack", "matrix", "results.json") }

// run exercises the versions, one after the other, and keeps what was seen of each as soon as it is done.
func run(ctx context.Context, root string, versions []string, pageOnly bool, out io.Writer) error {
	own, err := versionIn(filepath.Join(root, "lab", "go.mod"))
	if err != nil {
		return err
	}
	if pageOnly {
		results, err := readResults(root)
		if err != nil {
			return err
		}
		return os.WriteFile(pageFile(root), page(own.version, results), 0o644)
	}
	if slices.Equal(versions, []string{next}) {
		return tryNext(ctx, root, upstreams(), nextSteps(), out)
	}
	servers, err := available(root)
	if err != nil {
		return err
	}
	for _, version := range versions {
		if !slices.ContainsFunc(servers, func(s server) bool { return s.minor == version }) {
			return fmt.Errorf("there is no version %s: there are %v, and %s alone, for what upstreams have released since", version, servers, next)
		}
	}
	var failed []string
	for _, s := range servers {
		if len(versions) > 0 && !slices.Contains(versions, s.minor) {
			continue
		}
		path, err := s.build(ctx, root, out)
		if err != nil {
			return err
		}
		result, err := exercise(ctx, root, s, path, out, func(r Result) error { return keep(root, own.version, r) })
		if err != nil {
			return err
		}
		failed = append(failed, result.failures()...)
	}
	if len(failed) > 0 {
		return fmt.Errorf("failed: %s", strings.Join(failed, ", "))
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

// exercise runs all suites on one server. What was seen is kept after each, so that a run that is ended early is not for nothing.
func exercise(ctx context.Context, root string, s server, path string, out io.Writer, keep func(Result) error) (Result, error) {
	commit, err := exec.CommandContext(ctx, "git", "-C", root, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*").Output()
	if err != nil {
		return Result{}, fmt.Errorf("asking git for the commit: %w", err)
	}
	result := Result{Minor: s.minor, Version: s.version, Commit: strings.TrimSpace(string(commit)), Date: time.Now().UTC().Format(time.DateOnly), Suites: map[string]Outcome{}}
	for _, suite := range suites() {
		args := []string{"test", "-tags", "e2e", "-json", "-count=1", "-short", "-timeout=30m", "-p=1"}
		if suite.run != "" {
			args = append(args, "-run="+suite.run)
		}
		command := exec.CommandContext(ctx, "go", append(args, suite.packages...)...)
		command.Dir = root
		command.Env = append(os.Environ(), "CGO_ENABLED=0", "MOORING_KUBE_APISERVER="+path)
		command.Stderr = out
		begun := time.Now()
		stream, testErr := command.Output() // its exit code says no more than the stream
		outcome, err := read(stream, s.version)
		if err != nil {
			return Result{}, fmt.Errorf("%s: %w", suite.id, err)
		}
		if testErr != nil && len(outcome.Failed) == 0 {
			return Result{}, fmt.Errorf("%s: %w, and no test has failed", suite.id, testErr)
		}
		if outcome.Passed+len(outcome.Failed) == 0 {
			return Result{}, fmt.Errorf("%s: not one of its tests ran on kube-apiserver %s; are bin/lab and bin/ built?", suite.id, s.version)
		}
		result.Suites[suite.id] = outcome
		if err := keep(result); err != nil {
			return Result{}, err
		}
		fmt.Fprintf(out, "%s %s: %d passed, failed %v (%s)\n", s.version, suite.id, outcome.Passed, outcome.Failed, time.Since(begun).Round(time.Second))
	}
	return result, nil
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
