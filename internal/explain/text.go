// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"strings"
	"unicode/utf8"

	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// The words of the first line.
const (
	wordAttention = "needs attention"
	wordWell      = "nothing needs attention"
)

// leastText is how many columns a text must have alongside its topic, as many as its longest word at least; where there are fewer it stands below.
const leastText = 30

// Text is the explanation for a terminal of that width in columns, 0 for one without end. Lines that need attention begin with an exclamation mark.
func Text(e Explanation, width int, paint finding.Paint) string {
	var b strings.Builder
	word := wordWell
	if e.Attention {
		word = wordAttention
	}
	b.WriteString(e.Kind + " " + strings.TrimPrefix(e.Namespace+"/"+e.Name, "/") + ": " + paint(word, !e.Attention) + "\n")
	for _, s := range e.Sections {
		b.WriteString("\n" + s.Title + "\n")
		topics := 0
		for _, l := range s.Lines {
			topics = max(topics, utf8.RuneCountInString(l.Topic))
		}
		for _, l := range s.Lines {
			l.write(&b, topics, width, paint)
		}
	}
	return b.String()
}

// write writes a line in a section whose longest topic has so many columns.
func (l Line) write(b *strings.Builder, topics, width int, paint finding.Paint) {
	mark := " "
	if l.Attention {
		mark = paint("!", false)
	}
	indent, longest := 4+topics+2, 0
	b.WriteString("  " + mark + " " + l.Topic)
	for word := range strings.FieldsSeq(l.Text) {
		longest = max(longest, utf8.RuneCountInString(word))
	}
	if width > 0 && width-indent < max(leastText, longest) {
		indent = 8
		b.WriteString("\n" + strings.Repeat(" ", indent))
	} else {
		b.WriteString(strings.Repeat(" ", indent-4-utf8.RuneCountInString(l.Topic)))
	}
	blank := strings.Repeat(" ", indent)
	b.WriteString(strings.TrimPrefix(prose.Wrap(blank, blank, l.Text, width), blank))
}
