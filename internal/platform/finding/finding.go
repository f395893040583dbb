// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package finding has the types for what is wrong, waits or is unknown (ADR 40): a Verdict on an object with its State,
// the Finding of a doctor with its severity, a Side that was read or not, a Component as it runs, and an Event.
// It is pure, so that what decides may use it.
package finding

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// Severity is how much a finding matters. The values stand in JSON and MUST NOT change.
type Severity string

// The severities.
const (
	// OK is as it should be.
	OK Severity = "ok"
	// Note is worth knowing; nothing needs to be done.
	Note Severity = "note"
	// Warning works for now, or leaves something undone: it fails with the next change, or the next machine that dies.
	Warning Severity = "warning"
	// Problem does harm now, or keeps a component from working safely.
	Problem Severity = "problem"
)

// rank orders severities, the worst first.
func (s Severity) rank() int { return slices.Index([]Severity{Problem, Warning, Note, OK}, s) }

// Finding is one thing that was found out. The names of its fields stand in JSON and MUST NOT change.
type Finding struct {
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	// Where is the object, as a person calls it, where What alone does not say; empty for none.
	Where string `json:"where,omitempty"`
	// What is the case, in one sentence.
	What string `json:"what"`
	// Why it matters, and what to Do about it; empty where nothing needs to be done.
	Why string `json:"why,omitempty"`
	Do  string `json:"do,omitempty"`
	// Unread reports that a side could not be read: nothing is known to be wrong there, and nothing to be well.
	Unread bool `json:"unread,omitempty"`
}

// Say is a finding of the severity: what is the case.
func (s Severity) Say(format string, args ...any) Finding {
	return Finding{Severity: s, What: fmt.Sprintf(format, args...)}
}

// At is the finding with the object that it is about.
func (f Finding) At(where string) Finding {
	f.Where = where
	return f
}

// AsUnread is the finding about what could not be read.
func (f Finding) AsUnread() Finding {
	f.Unread = true
	return f
}

// Because is the finding with why it matters.
func (f Finding) Because(why string) Finding {
	f.Why = why
	return f
}

// Advise is the finding with what to do about it.
func (f Finding) Advise(do string) Finding {
	f.Do = do
	return f
}

// NotRead are the findings about sides that could not be read.
func NotRead(sides []Side) (out []Finding) {
	for _, s := range sides {
		out = append(out, NotLookedAt(s.Name, s.Problem))
	}
	return out
}

// NotLookedAt is the finding about a side that could not be read.
func NotLookedAt(side, problem string) Finding {
	return Warning.Say("not read: %s: %s", side, problem).At(side).AsUnread().
		Because("problems there are not found").
		Advise("request the right to read it, or ask a person who has it")
}

// Check looks at evidence from one side.
type Check[Evidence any] struct {
	Name string
	// Find returns findings without the name of the check.
	Find func(Evidence) []Finding
}

// Make makes every check. The worst findings come first, then the order of the checks holds; equal evidence gives equal findings.
func Make[Evidence any](checks []Check[Evidence], e Evidence) []Finding {
	var all []Finding
	order := map[string]int{}
	for i, c := range checks {
		order[c.Name] = i
		for _, f := range c.Find(e) {
			f.Check = c.Name
			all = append(all, f)
		}
	}
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Severity.rank(), b.Severity.rank()), cmp.Compare(order[a.Check], order[b.Check]), cmp.Compare(a.What, b.What))
	})
	return all
}

// Merge is several doctors' findings as one list: the worst come first, and among those each doctor's stay together, in their order.
func Merge(doctors ...[]Finding) []Finding {
	all := slices.Concat(doctors...)
	slices.SortStableFunc(all, func(a, b Finding) int { return cmp.Compare(a.Severity.rank(), b.Severity.rank()) })
	return all
}

// Worst is the worst severity among findings, OK if there are none.
func Worst(findings []Finding) Severity {
	worst := OK
	for _, f := range findings {
		if f.Severity.rank() < worst.rank() {
			worst = f.Severity
		}
	}
	return worst
}

// Text is the findings for people, in their order, each with what, why and what to do, and how many there are in one line at
// the end. It is for a terminal with that many columns, 0 for one without end: what is longer goes on below itself. A word
// that is longer than a line, such as a path, is left whole.
func Text(findings []Finding, columns int) string {
	var b strings.Builder
	count := map[Severity]int{}
	for _, f := range findings {
		count[f.Severity]++
		label := string(f.Severity)
		if f.Severity == Problem {
			label = "PROBLEM"
		}
		line(&b, fmt.Sprintf("%-8s ", label), f.Check+": "+f.What, columns)
		if f.Why != "" {
			line(&b, "         why: ", f.Why, columns)
		}
		if f.Do != "" {
			line(&b, "         do:  ", f.Do, columns)
		}
	}
	fmt.Fprintf(&b, "%s, %s, %s, %d ok\n", prose.Plural(count[Problem], "problem"), prose.Plural(count[Warning], "warning"), prose.Plural(count[Note], "note"), count[OK])
	return b.String()
}

// line writes text behind its head, and what does not fit below the text.
func line(b *strings.Builder, head, text string, columns int) {
	indent := utf8.RuneCountInString(head)
	if columns <= indent {
		columns = 0
	}
	b.WriteString(prose.Wrap(head, strings.Repeat(" ", indent), text, columns))
}

// Few are the first five of many names, sorted, each once, and how many more there are.
func Few(all []string) string { return Some(all, 5) }

// Some are the first of many names, sorted, each once, and how many more there are.
func Some(all []string, most int) string {
	return First(slices.Compact(slices.Sorted(slices.Values(all))), most)
}

// First are the first of names, and how many more there are.
func First(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
