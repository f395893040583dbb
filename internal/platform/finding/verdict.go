// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package finding

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// State is how an object stands, in one word. The values are a contract with programs.
type State string

// The states.
const (
	// Down: it does not work, whatever the sides agree on: a Node is NotReady, or a droplet is off.
	Down State = "down"
	// Disagree: two sides contradict each other, and nothing that is known of is about to end that.
	Disagree State = "disagree"
	// Unknown: a side could not be read, so that it cannot be compared.
	Unknown State = "unknown"
	// Settling: the sides differ, as they do while a machine joins or leaves, and a component is about to end that.
	Settling State = "settling"
	// OneSide: no side but one was queried, so that nothing was compared.
	OneSide State = "one-side"
	// Agree: at least two sides were compared and nothing was found.
	Agree State = "agree"
	// Held: a component does nothing more until a person confirms it. It is compared with nothing, and in no rank.
	Held State = "held"
)

// States lists the states of what is compared, worst first. An object has the worst one of its verdicts.
func States() []State { return []State{Down, Disagree, Unknown, Settling, OneSide, Agree} }

// Rank is the position among [States]: 0 is the worst.
func (s State) Rank() int { return slices.Index(States(), s) }

// NeedsAttention reports whether a person has to look: what is settling ends by itself, and what agrees is fine.
func (s State) NeedsAttention() bool { return s != Settling && s != Agree }

// String is the state for people.
func (s State) String() string { return strings.ReplaceAll(string(s), "-", " ") }

// mark is the character before a verdict: what needs attention has an exclamation mark, what is not known a question
// mark.
func (s State) mark() string {
	switch s {
	case Down, Disagree, Held:
		return "!"
	case Unknown, OneSide:
		return "?"
	case Settling, Agree:
	}
	return "-"
}

// Side reports whether something was read that is judged.
type Side struct {
	// Name is what people call it, where it is listed.
	Name string
	// NotAsked is why the side was not queried, "" if it was. It cannot disagree then, and is not evidence of agreement.
	NotAsked string
	// Problem is why it could not be read, "" if it was.
	Problem string
}

// Read reports whether it was read.
func (s Side) Read() bool { return s.NotAsked == "" && s.Problem == "" }

// Verdict is what is known of an object, by whom, and what is to be done about it. Its JSON form is a contract with
// programs.
type Verdict struct {
	State State `json:"verdict"`
	// On are the objects by name, the first few of many, where What does not say.
	On string `json:"on,omitempty"`
	// What is the case, in one sentence without a period; Why it is.
	What string `json:"what"`
	Why  string `json:"why,omitempty"`
	// Since is since when at least, nil if no side reports it.
	Since *time.Time `json:"since,omitempty"`
	// Source has said so last at ObservedAt, zero where that is read each time; Stale is why that is too long ago.
	Source     string    `json:"source,omitempty"`
	ObservedAt time.Time `json:"observedAt,omitzero"`
	Stale      string    `json:"stale,omitempty"`
	// Next is what happens next and by whom, or what a person can do; "" if nothing is known to help. Then is what
	// follows.
	Next string `json:"next,omitempty"`
	Then string `json:"then,omitempty"`
	// Answer is what became of a person's confirmation, "" without one.
	Answer string `json:"answer,omitempty"`
}

// Text is the verdict with since when, for people.
func (v Verdict) Text(now time.Time) string {
	if v.Since == nil {
		return v.What
	}
	return v.What + " (since " + prose.Span(now.Sub(*v.Since)) + ")"
}

// WorstOf is the worst state of verdicts, or the one given where that is worse, or there are none.
func WorstOf(verdicts []Verdict, otherwise State) State {
	c := Counts{otherwise: 1}
	for _, v := range verdicts {
		c[v.State]++
	}
	return c.Worst()
}

// Counts are objects by their state.
type Counts map[State]int

// Worst is the worst state that occurs, Agree if none does.
func (c Counts) Worst() State {
	for _, s := range States() {
		if c[s] > 0 {
			return s
		}
	}
	return Agree
}

// String lists the states that occur, worst first, such as "1 down, 2 settling, 237 agree".
func (c Counts) String() string {
	var parts []string
	for _, s := range States() {
		if n := c[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	return strings.Join(parts, ", ")
}
