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
