// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// affected returns the packages that a change can break: those that link a changed package, run a command that links one, or read a changed file. A
// change of what builds everything, or one that cannot be determined, affects all.
func (r runner) affected(ctx context.Context, all []testPackage) ([]testPackage, error) {
	base, err := r.base(ctx)
	if err != nil || base == "" {
		fmt.Fprintln(r.out, "The change cannot be determined (MOORING_BASE names the commit to compare with): all packages run.")
		return all, nil //nolint:nilerr // a shallow clone has no past, which is not a reason not to test
	}
	changed, err := r.changed(ctx, base)
	if err != nil {
		return nil, err
	}
	commands, err := r.commands(ctx)
	if err != nil {
		return nil, err
	}
	var out []testPackage
	for _, p := range all {
		source, err := r.source(p.folder)
		if err != nil {
			return nil, err
		}
		if why := affects(changed, p.folder, needs(p, source, commands), source); why != "" {
			fmt.Fprintf(r.out, "%s runs: %s changed since %.10s\n", p.folder, why, base)
			out = append(out, p)
		}
	}
	fmt.Fprintf(r.out, "%d of %d packages can be broken by %d changed files\n", len(out), len(all), len(changed))
	return out, nil
}

// base is the commit to compare with: MOORING_BASE, or the newest one that is a day older than HEAD, since each night everything runs.
func (r runner) base(ctx context.Context) (string, error) {
	if base := os.Getenv("MOORING_BASE"); base != "" {
		return base, nil
	}
	at, err := r.output(ctx, ".", "git", "log", "-1", "--format=%ct", "HEAD")
	if err != nil {
		return "", err
	}
	var seconds int64
	if _, err := fmt.Sscan(string(at), &seconds); err != nil {
		return "", err
	}
	base, err := r.output(ctx, ".", "git", "rev-list", "-1", fmt.Sprintf("--before=%d", seconds-24*60*60), "HEAD")
	return strings.TrimSpace(string(base)), err
}

// changed returns the files that differ from a commit, new ones included.
func (r runner) changed(ctx context.Context, base string) ([]string, error) {
	tracked, err := r.output(ctx, ".", "git", "diff", "--name-only", base)
	if err != nil {
		return nil, err
	}
	fresh, err := r.output(ctx, ".", "git", "ls-files", "--others", "--exclude-standard")
	return strings.Fields(string(append(tracked, fresh...))), err
}

// commands returns the folders of this repository that each command links, by the command's name. The lab is one of them.
func (r runner) commands(ctx context.Context) (map[string][]string, error) {
	out := map[string][]string{}
	prefix, err := r.output(ctx, ".", "go", "list", "-m")
	if err != nil {
		return nil, err
	}
	for module, patterns := range map[string]string{".": "./cmd/...", "lab": "."} {
		listed, err := r.output(ctx, module, "go", "list", "-json=ImportPath,Dir,Deps", patterns)
		if err != nil {
			return nil, err
		}
		records, err := decode(listed)
		if err != nil {
			return nil, err
		}
		for _, rec := range records {
			folder, err := filepath.Rel(r.root, rec.Dir)
			if err != nil {
				return nil, err
			}
			deps, _ := own(rec.Deps, strings.TrimSpace(string(prefix))+"/")
			out[path.Base(folder)] = append(deps, folder)
		}
	}
	return out, nil
}

// source returns the Go files of a folder.
func (r runner) source(folder string) ([]byte, error) {
	paths, err := filepath.Glob(filepath.Join(r.root, folder, "*.go"))
	if err != nil {
		return nil, err
	}
	var all bytes.Buffer
	for _, p := range paths {
		content, err := os.ReadFile(p)
		if err != nil {
			return nil, err
		}
		all.Write(content)
	}
	return all.Bytes(), nil
}

// needs returns the folders that a package is built from: what it links, and what the commands link that it names. Each runs on the lab.
func needs(p testPackage, source []byte, commands map[string][]string) []string {
	all := slices.Clone(p.deps)
	for name, deps := range commands {
		if name == "lab" || bytes.Contains(source, []byte(`"`+name+`"`)) || bytes.Contains(source, []byte("/"+name)) {
			all = append(all, deps...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// everything are the files that decide how all is built or run.
var everything = regexp.MustCompile(`^((lab/)?go\.(mod|sum)|go\.tools\.(mod|sum)|Makefile|\.ci/run|hack/(tests|testexec|linkcache)/.*\.go)$`)

// affects returns the first changed file that matters to the package in a folder, or "": a file in a folder that it needs (tests in its own
// alone), or one of a part of the repository, such as docs/ or charts/, that its source names.
func affects(changed []string, folder string, needed []string, source []byte) string {
	for _, file := range changed {
		top, _, nested := strings.Cut(file, "/")
		switch {
		case everything.MatchString(file):
			return file
		case strings.HasSuffix(file, "_test.go"):
			if path.Dir(file) == folder {
				return file
			}
		case strings.HasSuffix(file, ".go"):
			if slices.Contains(needed, path.Dir(file)) {
				return file
			}
		case slices.ContainsFunc(needed, func(folder string) bool { return strings.HasPrefix(file, folder+"/") }):
			return file
		case nested && !slices.Contains([]string{"api", "cmd", "internal", "lab", "test"}, top) && names(source, top):
			return file
		}
	}
	return ""
}

// names reports whether a source mentions a part of the repository as a path or as an element of one.
func names(source []byte, top string) bool {
	return bytes.Contains(source, []byte(`"`+top+`"`)) || bytes.Contains(source, []byte(top+"/"))
}
