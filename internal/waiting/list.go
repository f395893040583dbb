// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// List is what waits. Its JSON form is a contract with programs.
type List struct {
	Waits []finding.Verdict `json:"waits"`
	// Unread says what could not be read.
	Unread []string `json:"unread,omitempty"`
}

// Pending reports whether something waits that nobody has confirmed.
func (l List) Pending() bool {
	return slices.ContainsFunc(l.Waits, func(v finding.Verdict) bool { return v.State == finding.Held })
}

// Text is what waits for people, in lines of a width.
func (l List) Text(now time.Time, columns int) string {
	if len(l.Waits) == 0 && len(l.Unread) == 0 {
		return "nothing waits for a confirmation\n"
	}
	var paragraphs []string
	for _, v := range l.Waits {
		paragraphs = append(paragraphs, paragraph(v, now, columns))
	}
	for _, problem := range l.Unread {
		paragraphs = append(paragraphs, prose.Wrap("note: ", "  ", "not read: "+problem, columns))
	}
	return strings.Join(paragraphs, "\n")
}

// paragraph is one thing that waits, a line for each side of it.
func paragraph(v finding.Verdict, now time.Time, columns int) string {
	var b strings.Builder
	b.WriteString(prose.Wrap("", "", v.What, columns))
	field := func(name, text string) {
		if text != "" {
			b.WriteString(prose.Wrap(fmt.Sprintf("  %-12s", name+":"), strings.Repeat(" ", 14), text, columns))
		}
	}
	field("which", v.On)
	field("why", v.Why)
	if !v.ObservedAt.IsZero() {
		reported := prose.Span(now.Sub(v.ObservedAt)) + " ago by " + v.Source + ": " + v.Stale
		field("reported", strings.TrimSuffix(reported, ": "))
	}
	if v.State != finding.Held {
		field("confirmed", strings.TrimLeft(strings.TrimPrefix(v.Answer, "confirmed"), "; "))
		return b.String()
	}
	field("not valid", v.Answer)
	field("to confirm", v.Next)
	field("then", v.Then)
	return b.String()
}
