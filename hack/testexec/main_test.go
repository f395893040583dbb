// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

func TestRun(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]int{"exit 0": 0, "exit 3": 3, "kill -9 $$": 137} {
		file := filepath.Join(t.TempDir(), "costs.tsv")
		if code, _ := run([]string{file, "sh", "-c", script}); code != want {
			t.Errorf("%q: exit code %d, want %d", script, code, want)
		}
		line, err := os.ReadFile(file)
		if err != nil || !regexp.MustCompile(`^/.+/hack/testexec\t\d+\.\d\d\t\d+\.\d\d\n$`).Match(line) {
			t.Errorf("%q: recorded %q: %v", script, line, err)
		}
	}
	for _, args := range [][]string{nil, {"file"}, {filepath.Join(t.TempDir(), "f"), "/nonexistent"}, {"/nonexistent/f", "true"}} {
		if code, err := run(args); code != 2 || err == nil {
			t.Errorf("%q: exit code %d, error %v", args, code, err)
		}
	}
}

// However a test ends, its temporary files are gone; a test whose testexec was killed ends with it.
func TestNothingStays(t *testing.T) {
	parent := t.TempDir()
	t.Setenv("TMPDIR", parent)
	costs := filepath.Join(parent, "costs.tsv")
	for _, end := range []string{"exit 0", "exit 2", "kill -9 $$", "kill -INT $$"} {
		if code, _ := run([]string{costs, "sh", "-c", `mkdir -p "$TMPDIR/a/b" && touch "$TMPDIR/a/b/c" && ` + end}); code == 1 {
			t.Errorf("%s: the files were not made or not removed", end)
		}
	}
	if left, err := filepath.Glob(filepath.Join(parent, "*")); err != nil || len(left) != 1 {
		t.Errorf("left are %q, %v", left, err)
	}

	program := filepath.Join(parent, "testexec")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), program, costs, "sh", "-c", "echo $$ $TMPDIR; while :; do sleep 1; done")
	out := must.Get(cmd.StdoutPipe()).Or(t)
	must.Do(t, cmd.Start())
	var pid int
	var folder string
	must.Get(fmt.Fscan(out, &pid, &folder)).Or(t)
	must.Do(t, cmd.Process.Kill())
	if _, err := io.Copy(io.Discard, out); err != nil { // until nobody has the other end: the test has ended, too
		t.Fatal(err)
	}
	_ = cmd.Wait()
	longAgo := time.Now().Add(-time.Hour)
	must.Do(t, os.Chtimes(folder, longAgo, longAgo))
	if code, err := run([]string{costs, "true"}); code != 0 || err != nil {
		t.Errorf("exit code %d, %v", code, err)
	}
	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Errorf("the folder of process %d, which was killed, is there: %v", pid, err)
	}
}

func TestNothingBeginsLate(t *testing.T) {
	for before, want := range map[string]string{"1": "\t-\t-\n", "99999999999": ".\\d\\d\n", "": ".\\d\\d\n"} {
		t.Setenv("TESTEXEC_BEFORE", before)
		file := filepath.Join(t.TempDir(), "costs.tsv")
		if code, err := run([]string{file, "true"}); code != 0 || err != nil {
			t.Errorf("before %q: exit code %d, error %v", before, code, err)
		}
		line, err := os.ReadFile(file)
		if err != nil || !regexp.MustCompile(want+"$").Match(line) {
			t.Errorf("before %q: recorded %q: %v", before, line, err)
		}
	}
	t.Setenv("TESTEXEC_BEFORE", "noon")
	if code, err := run([]string{filepath.Join(t.TempDir(), "f"), "true"}); code != 2 || err == nil {
		t.Errorf("a time that is none: exit code %d, error %v", code, err)
	}
}
