// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// leastColumn is how many columns the last one of a line must have to be folded within itself.
const leastColumn = 30

// Fold breaks the lines of a text between words so that each fits into width columns, 0 for as many as there are. What goes on stands where the last column
// of its line begins: behind the last gap of two blanks, else behind the line's number. No word is broken.
func Fold(text string, width int) string {
	if width <= 0 {
		return text
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if utf8.RuneCountInString(line) > width {
			line = folded(line, width)
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// Sentence writes one sentence in lines of the terminal's width. Where it is written to is a person's, so that errors are skipped.
func Sentence(w io.Writer, text string) {
	columns, _ := Terminal(w)
	fmt.Fprint(w, prose.Wrap("", "  ", text, columns))
}

// Paragraph writes text in lines of at most 80 columns: first begins the first line, next the others. Errors are passed over, as by [Sentence].
func Paragraph(w io.Writer, first, next, text string) {
	fmt.Fprint(w, prose.Wrap(first, next, text, 80))
}

// folded breaks one line.
func folded(line string, width int) string {
	lead := len(line) - len(strings.TrimLeft(line, " "))
	start, hang := lead, lead+2
	if number := strings.Index(line, ". "); number > lead && strings.Trim(line[lead:number], "0123456789") == "" {
		start, hang = number+2, number+2
	}
	begun := line[:start]
	if gap := strings.LastIndex(line, "  "); gap > lead {
		start = gap + 2
		begun, hang = line[:start], utf8.RuneCountInString(line[:start])
		if width-hang < leastColumn {
			hang = lead + 4
			begun = strings.TrimRight(begun, " ") + "\n" + strings.Repeat(" ", hang)
		}
	}
	var b strings.Builder
	b.WriteString(begun)
	column := utf8.RuneCountInString(begun[strings.LastIndex(begun, "\n")+1:])
	for i, word := range strings.Fields(line[start:]) {
		length := utf8.RuneCountInString(word)
		if blank := min(i, 1); column+blank+length > width && column > hang {
			b.WriteString("\n" + strings.Repeat(" ", hang))
			column = hang
		} else {
			b.WriteString(strings.Repeat(" ", blank))
			column += blank
		}
		b.WriteString(word)
		column += length
	}
	return b.String()
}
