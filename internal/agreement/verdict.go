// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package agreement

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Verdict is the state of a machine in one word. The values are a contract with programs.
type Verdict string

// The verdicts, worst first. A machine has the worst one of its findings.
const (
	// Down: the machine does not work, whatever the sides agree on: its Node is NotReady, or its droplet is off.
	Down Verdict = "down"
	// Disagree: two sides contradict each other, and nothing that is known of is about to end that.
	Disagree Verdict = "disagree"
	// Unknown: a side could not be read, so that it cannot be compared.
	Unknown Verdict = "unknown"
	// Settling: the sides differ, as they do while a machine joins or leaves, and a component is about to end that.
	Settling Verdict = "settling"
	// OneSide: no side but one was queried, so that nothing was compared.
	OneSide Verdict = "one-side"
	// Agree: at least two sides were compared and nothing was found.
	Agree Verdict = "agree"
)

// Verdicts lists all verdicts, worst first.
func Verdicts() []Verdict { return []Verdict{Down, Disagree, Unknown, Settling, OneSide, Agree} }

// Rank is the position among [Verdicts]: 0 is the worst.
func (v Verdict) Rank() int { return slices.Index(Verdicts(), v) }

// NeedsAttention reports whether a person has to look: what is settling ends by itself, and what agrees is fine.
func (v Verdict) NeedsAttention() bool { return v != Settling && v != Agree }

// String is the verdict for people.
func (v Verdict) String() string { return strings.ReplaceAll(string(v), "-", " ") }

// Finding is one reason for a verdict. Its JSON form is a contract with programs.
type Finding struct {
	Verdict Verdict `json:"verdict"`
	// What is one sentence without a period.
	What string `json:"what"`
	// Since is since when at least, nil if no side reports it.
	Since *time.Time `json:"since,omitempty"`
	// Next is what happens next and by whom, or what a person can do; "" if nothing is known to help.
	Next string `json:"next,omitempty"`
}

// Counts are machines by verdict.
type Counts map[Verdict]int

// Count counts the rows by verdict.
func Count(rows []Row) Counts {
	c := Counts{}
	for _, r := range rows {
		c[r.Verdict]++
	}
	return c
}

// String lists the verdicts that occur, worst first, such as "1 down, 2 settling, 237 agree".
func (c Counts) String() string {
	var parts []string
	for _, v := range Verdicts() {
		if n := c[v]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, v))
		}
	}
	return strings.Join(parts, ", ")
}
