// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"fmt"
	"regexp"
	"strings"
)

// anything is what stands for anything.
const anything = "…"

var blanks = regexp.MustCompile(`[ \t]+`)

// Compare says in which line an output is not what a page shows; "" is that it is.
func Compare(want, got string) string {
	wanted, found := linesOf(want), linesOf(got)
	// reached holds how many lines of the page can be matched by the lines of the output so far.
	reached := skipped(map[int]bool{0: true}, wanted)
	for i, line := range found {
		next := map[int]bool{}
		for n := range reached {
			if n < len(wanted) && matches(wanted[n], line) {
				next[n+1] = true
			}
			if n > 0 && wanted[n-1] == anything {
				next[n] = true
			}
		}
		if len(next) == 0 {
			return fmt.Sprintf("line %d of the output, %q, is not as the page shows it, %s", i+1, line, expected(reached, wanted))
		}
		reached = skipped(next, wanted)
	}
	if !reached[len(wanted)] {
		return fmt.Sprintf("the output ends where the page shows more, %s", expected(reached, wanted))
	}
	return ""
}

// skipped adds what is reached without a further line: a line that stands for any number stands for none.
func skipped(reached map[int]bool, wanted []string) map[int]bool {
	for n := range len(wanted) {
		if reached[n] && wanted[n] == anything {
			reached[n+1] = true
		}
	}
	return reached
}

// expected is the furthest line of the page that was waited for.
func expected(reached map[int]bool, wanted []string) string {
	furthest := 0
	for n := range reached {
		furthest = max(furthest, n)
	}
	if furthest == len(wanted) {
		return "where nothing follows"
	}
	return fmt.Sprintf("%q", wanted[furthest])
}

// linesOf are the lines of a text with one blank between words and none at their ends.
func linesOf(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		out = append(out, strings.TrimSpace(blanks.ReplaceAllString(line, " ")))
	}
	return out
}

// matches compares one line.
func matches(want, got string) bool {
	if want == anything {
		return true
	}
	parts := strings.Split(want, anything)
	for i, part := range parts {
		parts[i] = regexp.QuoteMeta(part)
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(got)
}
