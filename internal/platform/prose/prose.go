// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package prose has the few things that all text for people needs: lines of a width, plurals, spans of time, and the order of names. It is pure.
package prose

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Wrap breaks text between words so that each line fits into width columns; 0 is a width without end. The first line begins with first, each
// further one with next. A word that is longer than a line is not broken. Every line ends with a newline. The text is made
// [Printable].
func Wrap(first, next, text string, width int) string {
	var b strings.Builder
	b.WriteString(first)
	column, empty := utf8.RuneCountInString(first), true
	for word := range strings.FieldsSeq(Printable(text)) {
		length := utf8.RuneCountInString(word)
		if !empty && width > 0 && column+1+length > width {
			b.WriteString("\n" + next)
			column, empty = utf8.RuneCountInString(next), true
		}
		if !empty {
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column, empty = column+length, false
	}
	b.WriteByte('\n')
	return b.String()
}

// Plural is a count with its noun in English: "1 note", "2 notes", "2 prefixes", "2 addresses". It does not know irregular nouns.
func Plural[N int | int32 | int64](n N, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "x"), strings.HasSuffix(noun, "s"):
		return fmt.Sprintf("%d %ses", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Choose is one for a count of 1, else many: "is" or "are", "has" or "have".
func Choose(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// Are is a count with its noun and its verb: "1 note is", "2 notes are".
func Are(n int, noun string) string { return Plural(n, noun) + Choose(n, " is", " are") }

// Bytes is a number of bytes in powers of 1024: 512 B, 3.2 MiB.
func Bytes(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	value, units := float64(n)/1024, []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	for len(units) > 1 && value >= 1023.95 { // which would print as 1024.0
		value, units = value/1024, units[1:]
	}
	return fmt.Sprintf("%.1f %s", value, units[0])
}

// Span is a duration in the largest unit of which there are two, as kubectl prints ages: 90s, 36h, 3d. A negative one counts as 0.
func Span(d time.Duration) string {
	d = max(d, 0)
	for _, unit := range []struct {
		of   time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}} {
		if d >= 2*unit.of {
			return fmt.Sprintf("%d%s", d/unit.of, unit.name)
		}
	}
	return fmt.Sprintf("%ds", d/time.Second)
}

// Natural compares names with the numbers in them as numbers, so that node-2 comes before node-10. It is a total order: 0 means equal strings.
func Natural(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		m, n := digits(x), digits(y)
		if m == 0 || n == 0 {
			if x[0] != y[0] {
				return cmp.Compare(x[0], y[0])
			}
			x, y = x[1:], y[1:]
			continue
		}
		p, q := strings.TrimLeft(x[:m], "0"), strings.TrimLeft(y[:n], "0")
		if c := cmp.Or(cmp.Compare(len(p), len(q)), cmp.Compare(p, q)); c != 0 {
			return c
		}
		x, y = x[m:], y[n:]
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(a, b))
}

// digits is how many bytes at the beginning are digits.
func digits(s string) int { return len(s) - len(strings.TrimLeft(s, "0123456789")) }
