// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// module is a module with one program, which go builds with linkcache.
type module struct{ folder, cache string }

func newModule(t *testing.T) module {
	t.Helper()
	m := module{folder: t.TempDir(), cache: filepath.Join(t.TempDir(), "links")}
	must.Do(t, exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(m.folder, "linkcache"), ".").Run())
	m.write(t, "go.mod", "module example\n\ngo 1.26\n")
	m.write(t, "main.go", "package main\n\nfunc main() { println(word) }\n")
	m.write(t, "word.go", "package main\n\nvar word = \"first\"\n")
	return m
}

func (m module) write(t *testing.T, name, content string) {
	t.Helper()
	must.Do(t, os.WriteFile(filepath.Join(m.folder, name), []byte(content), 0o600))
}

// build returns what the program prints, or what the build did.
func (m module) build(t *testing.T, flags ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	toolexec := filepath.Join(m.folder, "linkcache") + " " + m.cache
	args := append([]string{"build", "-toolexec", toolexec, "-o", program}, flags...)
	cmd := exec.CommandContext(t.Context(), "go", append(args, ".")...)
	cmd.Dir = m.folder
	if out, err := cmd.CombinedOutput(); err != nil {
		return string(out)
	}
	out, err := exec.CommandContext(t.Context(), program).CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v", out, err)
	}
	return strings.TrimSpace(string(out))
}

// kept are the programs in the cache.
func (m module) kept(t *testing.T) []string {
	t.Helper()
	return must.Get(filepath.Glob(filepath.Join(m.cache, "*", "*"))).Or(t)
}

func TestALinkIsReused(t *testing.T) {
	t.Parallel()
	m := newModule(t)
	if got := m.build(t); got != "first" {
		t.Fatalf("the program prints %q", got)
	}
	kept := m.kept(t)
	if len(kept) != 1 {
		t.Fatalf("kept are %q", kept)
	}
	// Whoever links would not print this.
	m.write(t, "kept", "#!/bin/sh\necho kept\n")
	must.Do(t, exec.CommandContext(t.Context(), "cp", filepath.Join(m.folder, "kept"), kept[0]).Run())
	if got := m.build(t); got != "kept" {
		t.Errorf("the second build prints %q: it linked", got)
	}
}

func TestWhatChangedIsLinked(t *testing.T) {
	t.Parallel()
	m := newModule(t)
	m.build(t)
	before := m.kept(t)
	m.write(t, "word.go", "package main\n\nvar word = \"second\"\n")
	if got := m.build(t); got != "second" {
		t.Errorf("after a change of the source it prints %q", got)
	}
	if got := m.build(t, "-ldflags=-X=main.word=third"); got != "third" {
		t.Errorf("after a change of the flags it prints %q", got)
	}
	after := m.kept(t)
	if len(after) != 1 || after[0] == before[0] {
		t.Errorf("kept are %q after %q: one program for each package, the last", after, before)
	}
}

func TestFailuresAreTheLinkersOwn(t *testing.T) {
	t.Parallel()
	m := newModule(t)
	m.write(t, "word.go", "package main\n\nimport _ \"unsafe\"\n\nvar word = missing()\n\n"+
		"//go:linkname missing example.missing\nfunc missing() string\n")
	m.write(t, "empty.s", "")
	if got := m.build(t); !strings.Contains(got, "missing") || strings.Contains(got, "linkcache:") {
		t.Errorf("the build says %q", got)
	}
	if kept := m.kept(t); len(kept) > 0 {
		t.Errorf("a failure was kept: %q", kept)
	}
}

func TestACacheThatCannotBeWrittenFailsNoBuild(t *testing.T) {
	t.Parallel()
	m := newModule(t)
	must.Do(t, os.WriteFile(m.cache, nil, 0o600)) // a file where the folder should be
	if got := m.build(t); got != "first" {
		t.Errorf("the build says %q", got)
	}
}

func TestBadCallsAreExplained(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"folder"}} {
		if err := run(args); err == nil || !strings.Contains(err.Error(), "-toolexec") {
			t.Errorf("%q: %v", args, err)
		}
	}
	if err := run([]string{"folder", "/nonexistent/tool"}); err == nil {
		t.Error("a tool that does not exist was run")
	}
}
