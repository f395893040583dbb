// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// List is what waits. Its JSON form is a contract with programs.
type List struct {
	Nodes      []Nodes    `json:"nodes"`
	Machines   []Machines `json:"machines,omitempty"`
	Topologies []Topology `json:"topologies"`
	// Unread says what could not be read.
	Unread []string `json:"unread,omitempty"`
}

// Pending reports whether something waits that nobody has confirmed.
func (l List) Pending() bool {
	return slices.ContainsFunc(l.Nodes, func(n Nodes) bool { return n.ConfirmedUntil.IsZero() }) ||
		slices.ContainsFunc(l.Machines, func(m Machines) bool { return m.ConfirmedUntil.IsZero() }) ||
		slices.ContainsFunc(l.Topologies, func(t Topology) bool { return !t.Confirmed })
}

// Text is what waits for people, in lines of a width. Names in it are anybody's: a terminal gets it through command.Printable.
func (l List) Text(now time.Time, columns int) string {
	if len(l.Nodes)+len(l.Machines)+len(l.Topologies) == 0 && len(l.Unread) == 0 {
		return "nothing waits for a confirmation\n"
	}
	var paragraphs []string
	for _, n := range l.Nodes {
		paragraphs = append(paragraphs, n.text(now, columns))
	}
	for _, m := range l.Machines {
		paragraphs = append(paragraphs, m.text(now, columns))
	}
	for _, t := range l.Topologies {
		paragraphs = append(paragraphs, t.text(columns))
	}
	for _, problem := range l.Unread {
		paragraphs = append(paragraphs, prose.Wrap("note: ", "  ", "not read: "+problem, columns))
	}
	return strings.Join(paragraphs, "\n")
}

// field is a line of a paragraph, with its name in front.
func field(name, text string, columns int) string {
	return prose.Wrap(fmt.Sprintf("  %-12s", name+":"), strings.Repeat(" ", 14), text, columns)
}

// confirmed is until when a confirmation holds, or why it does not; neither without one.
func confirmed(by func(string, time.Time) (time.Time, string), confirmation string, now time.Time) (until time.Time, refused string) {
	if confirmation != "" {
		until, refused = by(confirmation, now)
	}
	if refused != "" {
		until = time.Time{}
	}
	return until, refused
}

// toConfirm is the end of a paragraph: until when it is confirmed, or how to confirm it and what the component does then.
func toConfirm(until time.Time, refused, component, command, then string, columns int) string {
	if !until.IsZero() {
		return field("confirmed", fmt.Sprintf("until %s; %s has yet to act on it", until.UTC().Format(time.RFC3339), component), columns)
	}
	text := ""
	if refused != "" {
		text = field("not valid", refused, columns)
	}
	return text + field("to confirm", command, columns) + field("then", then, columns)
}

// first are the first of count things by name, and how many more there are.
func first(names []string, count int) string {
	text := strings.Join(names, ", ")
	if more := count - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// are is the verb of so many.
func are(count int) string {
	if count == 1 {
		return "is"
	}
	return "are"
}
