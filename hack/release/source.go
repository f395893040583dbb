// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ingredients are the files and folders that the images are made of.
func ingredients() []string {
	return []string{"go.mod", "go.sum", "api", "cmd", "internal", "hack/release/debian.txt"}
}

// source is a checkout that is as one commit says.
type source struct {
	root, module, version string
	// commit is the whole hash, time what files and images carry as theirs.
	commit string
	time   time.Time
	// licenses are those of the modules that binaries are made of.
	licenses *licenses
}

// about is what an image says of itself.
type about struct {
	source
	binary, description string
}

// platform is what a binary runs on, in Go's words and the images'.
type platform struct{ os, arch string }

// program is a binary that is built.
type program struct {
	platform platform
	content  []byte
	info     *debug.BuildInfo
	// debian is what its image holds alongside it, nil for nothing.
	debian *debianLayer
}

// readSource looks at the checkout in root. It refuses one with changes that no commit names, since the images would carry a commit that they are not
// made of. SOURCE_DATE_EPOCH, in seconds, wins over the commit's time. An error is one sentence.
func readSource(ctx context.Context, root, version string) (source, error) {
	s := source{root: root, version: version}
	head, err := s.output(ctx, "git", "log", "-1", "--format=%H %ct")
	if err != nil {
		return s, noCheckout(root, ", which images are named after", err)
	}
	commit, seconds, _ := strings.Cut(head, " ")
	s.commit = commit
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		seconds = epoch
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil || unix < 0 {
		return s, fmt.Errorf("SOURCE_DATE_EPOCH is %q: set it to seconds since 1970, or unset it for the commit's time", seconds)
	}
	s.time = time.Unix(unix, 0).UTC()
	changes, err := s.output(ctx, "git", append([]string{"status", "--porcelain", "--"}, ingredients()...)...)
	if err != nil {
		return s, fmt.Errorf("looking for changes: %w", err)
	}
	if changes != "" {
		first, _, _ := strings.Cut(changes, "\n")
		return s, fmt.Errorf("what binaries are made of differs from commit %.12s, first in %q: commit or stash all changes", s.commit, first)
	}
	if s.module, err = s.output(ctx, "go", "list", "-m"); err != nil {
		return s, err
	}
	s.licenses, err = findLicenses(ctx, s)
	return s, err
}

// about returns what the image of a binary says of itself.
func (s source) about(ctx context.Context, binary string) (about, error) {
	description, err := s.output(ctx, "go", "list", "-f", "{{.Doc}}", "./cmd/"+binary)
	return about{source: s, binary: binary, description: description}, err
}

// compile builds a binary so that nothing of this machine is in it.
func (s source) compile(ctx context.Context, binary string, p platform) (program, error) {
	dir, err := os.MkdirTemp("", "mooring-release-")
	if err != nil {
		return program{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // what stays is in the system's folder for such things
	into := filepath.Join(dir, binary)
	stamp := s.module + "/internal/platform/buildinfo."
	flags := fmt.Sprintf("-s -w -X %sversion=%s -X %scommit=%s -X %sdate=%s", stamp, s.version, stamp, s.commit, stamp, s.time.Format(time.RFC3339))
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", into, "./cmd/"+binary)
	build.Dir = s.root
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=-mod=readonly", "GOWORK=off")
	if text, err := build.CombinedOutput(); err != nil {
		return program{}, fmt.Errorf("building for %s/%s: %w\n%s", p.os, p.arch, err, text)
	}
	built, err := readProgram(into, p)
	if err != nil {
		return program{}, err
	}
	return built, ordinary(built.info)
}

// readProgram reads a binary that is built.
func readProgram(path string, p platform) (program, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return program{}, err
	}
	return parseProgram(content, p)
}

// parseProgram reads what a binary says of itself.
func parseProgram(content []byte, p platform) (program, error) {
	info, err := buildinfo.Read(bytes.NewReader(content))
	if err != nil {
		return program{}, fmt.Errorf("reading the build information of the binary: %w", err)
	}
	return program{platform: p, content: content, info: info}, nil
}

// ordinary refuses a build with a setting of this machine's that the same commit would not have elsewhere, such as GOEXPERIMENT.
func ordinary(info *debug.BuildInfo) error {
	expected := []string{"-buildmode", "-compiler", "-trimpath", "CGO_ENABLED", "DefaultGODEBUG", "GOARCH", "GOOS", "GOAMD64", "GOARM64"}
	for _, s := range info.Settings {
		if !slices.Contains(expected, s.Key) {
			return fmt.Errorf("go env has %s=%s, with which the image would not be the same elsewhere: unset it", s.Key, s.Value)
		}
	}
	return nil
}

// missingProgramError is the error of a command that is not installed, by its name.
type missingProgramError string

func (m missingProgramError) Error() string {
	return fmt.Sprintf("the program %s is missing: install it, and put its folder into PATH", string(m))
}

// noCheckout is the error of git in a folder that is not a checkout, unless git itself is missing.
func noCheckout(root, why string, err error) error {
	if missing, ok := errors.AsType[missingProgramError](err); ok {
		return missing
	}
	return fmt.Errorf("%s is not a git checkout with a commit%s: %w", root, why, err)
}

// output runs a command in the checkout and returns what it prints. The error holds what it complains of.
func (s source) output(ctx context.Context, name string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, name, args...)
	command.Dir = s.root
	var complaint strings.Builder
	command.Stderr = &complaint
	text, err := command.Output()
	if errors.Is(err, exec.ErrNotFound) {
		return "", missingProgramError(name)
	}
	if err != nil {
		err = errors.New(name + ": " + cmp.Or(strings.Join(strings.Fields(complaint.String()), " "), err.Error()))
	}
	return strings.TrimRight(string(text), "\n"), err
}
