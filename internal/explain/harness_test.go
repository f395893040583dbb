// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/mooring-dev/mooring/internal/explain"
	"github.com/mooring-dev/mooring/internal/platform/finding"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// now is when everything is explained.
var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// golden compares an explanation at 80 and at 200 columns with its files; no line is wider than that, but for a word that is.
func golden(t *testing.T, name string, e explain.Explanation) {
	t.Helper()
	goldenText(t, name, []int{80, 200}, func(width int) string { return explain.Text(e, width, finding.Plain) })
}

// goldenText compares a text at widths with its files.
func goldenText(t *testing.T, name string, widths []int, text func(width int) string) {
	t.Helper()
	for _, width := range widths {
		got := text(width)
		for line := range strings.Lines(got) {
			if line = strings.TrimSuffix(line, "\n"); utf8.RuneCountInString(line) > width || strings.TrimRight(line, " ") != line {
				t.Errorf("%s at %d columns: a line is too wide or ends in blanks: %q", name, width, line)
			}
		}
		path := filepath.Join("testdata", fmt.Sprintf("%s-%d.txt", name, width))
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatalf("%v (run the test with -update to write it)", err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s differs (-want +got), rewrite it with -update if that is meant:\n%s", path, diff)
		}
	}
}

// flat is an explanation as "!topic: text" lines.
func flat(e explain.Explanation) []string {
	var out []string
	for _, s := range e.Sections {
		for _, l := range s.Lines {
			mark := ""
			if l.Attention {
				mark = "!"
			}
			out = append(out, mark+l.Topic+": "+l.Text)
		}
	}
	return out
}

// says demands lines, word for word, and whether the whole needs attention.
func says(t *testing.T, e explain.Explanation, attention bool, want ...string) {
	t.Helper()
	got := flat(e)
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("%q is not in\n%s", line, strings.Join(got, "\n"))
		}
	}
	if e.Attention != attention {
		t.Errorf("attention is %t:\n%s", e.Attention, strings.Join(got, "\n"))
	}
}

// silent demands that no line has the topic.
func silent(t *testing.T, e explain.Explanation, topics ...string) {
	t.Helper()
	for _, line := range flat(e) {
		topic, _, _ := strings.Cut(strings.TrimPrefix(line, "!"), ":")
		if slices.Contains(topics, topic) {
			t.Errorf("nothing should be said of %s: %s", topic, line)
		}
	}
}
