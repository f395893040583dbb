// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package prose

import (
	"cmp"
	"strconv"
	"strings"
	"unicode"
)

// Printable returns text with everything that a terminal would not print as it is in the form of a Go escape, line breaks and tabs excepted. Names and keys
// that others have written may hold sequences that move the cursor or change the title.
func Printable(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if !strings.ContainsFunc(text, unprintable) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if unprintable(r) {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Cell is text as one line and one column of a table, whatever a foreign object's text contains; "-" for none.
func Cell(text string) string { return cmp.Or(strings.Join(strings.Fields(Printable(text)), " "), "-") }

func unprintable(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }
