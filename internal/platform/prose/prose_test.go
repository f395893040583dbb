// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package prose_test

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

func TestWrap(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		first, next, text string
		width             int
		want              string
	}{
		{"", "", "", 80, "\n"},
		{"! ", "  ", "one two three", 0, "! one two three\n"},
		{"! ", "  ", "one two three", 9, "! one two\n  three\n"},
		{"! ", "  ", "a-word-that-is-long b", 9, "! a-word-that-is-long\n  b\n"},
		{"é ", "  ", "éé éé", 7, "é éé éé\n"},
	} {
		if got := prose.Wrap(c.first, c.next, c.text, c.width); got != c.want {
			t.Errorf("%q at %d: %q, want %q", c.text, c.width, got, c.want)
		}
	}
}

// No word is lost, and no line is longer than the width unless it is one word.
func TestWrapLosesNothing(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		words := rapid.SliceOf(rapid.StringMatching(`[a-zé]{1,12}`)).Draw(t, "words")
		width := rapid.IntRange(1, 40).Draw(t, "width")
		got := prose.Wrap("> ", "  ", strings.Join(words, " "), width)
		if fields := strings.Fields(strings.TrimPrefix(got, "> ")); !slices.Equal(fields, words) {
			t.Fatalf("%q of %q", fields, words)
		}
		for line := range strings.Lines(got) {
			line = strings.TrimSuffix(line, "\n")
			if utf8.RuneCountInString(line) > width && len(strings.Fields(strings.TrimPrefix(line, "> "))) > 1 {
				t.Fatalf("%q is longer than %d", line, width)
			}
		}
	})
}

func TestPlural(t *testing.T) {
	t.Parallel()
	got := []string{prose.Plural(0, "note"), prose.Plural(int32(1), "note"), prose.Plural(int64(2), "note"), prose.Plural(2, "prefix"), prose.Plural(1, "prefix")}
	if want := []string{"0 notes", "1 note", "2 notes", "2 prefixes", "1 prefix"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestSpan(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 90 * time.Second: "90s", 2 * time.Minute: "2m", 119 * time.Minute: "119m", 2 * time.Hour: "2h", 47 * time.Hour: "47h", 48 * time.Hour: "2d",
	} {
		if got := prose.Span(d); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
}

func TestNatural(t *testing.T) {
	t.Parallel()
	want := []string{"", "1", "02", "2", "10", "node", "node-2", "node-2.a", "node-2.b", "node-10", "node-10a", "x"}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, prose.Natural)
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestNaturalIsATotalOrder(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[0-2ab]{0,5}`)
		a, b, c := name.Draw(t, "a"), name.Draw(t, "b"), name.Draw(t, "c")
		if prose.Natural(a, b) != -prose.Natural(b, a) || (prose.Natural(a, b) == 0) != (a == b) {
			t.Fatalf("%q and %q: %d and %d", a, b, prose.Natural(a, b), prose.Natural(b, a))
		}
		if prose.Natural(a, b) <= 0 && prose.Natural(b, c) <= 0 && prose.Natural(a, c) > 0 {
			t.Fatalf("%q, %q, %q are in a circle", a, b, c)
		}
	})
}

// What others have written cannot steer the terminal.
func TestPrintable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                          "",
		"plain, with\ttab\nand ünï": "plain, with\ttab\nand ünï",
		"\x1b[2J\x07gone":           `\x1b[2J\agone`,
		"right-to-left \u202e":      `right-to-left \u202e`,
		"bytes \xff":                "bytes \uFFFD",
	} {
		if got := prose.Printable(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// A line is printable whoever has written what is on it.
func TestWrapIsPrintable(t *testing.T) {
	t.Parallel()
	if got, want := prose.Wrap("- ", "  ", "a \x1b[2Jb\tc\nd", 0), "- a \\x1b[2Jb c d\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
