// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
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
