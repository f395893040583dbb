// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// oldFindings is how much longer ago than the rest was read the doctor may have run: it runs less often.
const oldFindings = 3 * time.Minute

// waitsOf is what waits for a person. Nothing waiting is well only if it was read.
func waitsOf(w World, m matcher) List {
	l := List{Key: "waits", Title: "Waits for a person", Problem: w.WaitProblem,
		Columns: []string{"What", "Why", "Reported", "To confirm"}}
	list := slices.Clone(w.Waits)
	slices.SortFunc(list, func(a, b finding.Verdict) int {
		return cmp.Or(
			prose.Natural(a.What, b.What), prose.Natural(a.On, b.On), cmp.Compare(a.Why, b.Why), cmp.Compare(a.Next, b.Next),
			a.ObservedAt.Compare(b.ObservedAt),
		)
	})
	rows := make([]Row, len(list))
	for i, x := range list {
		what, reported := strings.TrimSuffix(x.What+": "+x.On, ": "), Cell{Text: "-"}
		if !x.ObservedAt.IsZero() {
			reported = moment(x.ObservedAt)
		}
		reported.Text = cmp.Or(tidy(x.Stale), reported.Text)
		confirm := Cell{Command: tidy(x.Next), Text: tidy(x.Answer)}
		row := Row{Ill: x.State == finding.Held, Old: x.Stale != "", Cells: append(cells(what, x.Why), reported, confirm)}
		row.trouble.Fault = Fault{What: row.Cells[0].Text + ": " + row.Cells[1].Text, Command: confirm.Command,
			Next: confirm.Text, Since: reported.At}
		if row.Old && reported.At != nil {
			row.trouble.lines = append(row.trouble.lines,
				fmt.Sprintf("reported %s ago: %s", prose.Span(w.now().Sub(*reported.At)), reported.Text))
		}
		if confirm.Text != "" {
			row.trouble.lines = append(row.trouble.lines, confirm.Text)
		}
		row.trouble.lines = append(row.trouble.lines, "to confirm: "+confirm.Command)
		rows[i] = row
	}
	l = m.list(l, "confirmation", rows)
	switch l.State {
	case Absent:
		l.State = Good // somebody looked
	case Good:
		l.State, l.Text = Changing, prose.Plural(l.All, "confirmation")+" not acted on yet"
	case Bad:
		l.Text = prose.Plural(l.Ill, "confirmation") + " awaited"
	case Unread, Changing: // the list says so itself
	}
	return l
}

// doctorOf is what the doctor found, without what it found to be well, which is counted.
func doctorOf(w World, m matcher) List {
	l := List{Key: "doctor", Title: "Doctor", Columns: []string{"Severity", "Check", "What", "Why", "To do"}}
	if w.CheckedAt.IsZero() {
		l.Problem = "the doctor has not run"
		return m.list(l, "finding", nil)
	}
	checked := w.CheckedAt.UTC()
	l.Checked, l.Old = &checked, w.ReadAt.Sub(w.CheckedAt) > oldFindings
	counts := map[finding.Severity]int{}
	unread, aside := 0, 0
	var rows []Row
	for _, f := range w.Findings { // already in their order
		switch {
		case f.Unread && f.Severity == finding.Note:
			aside++
		case f.Unread:
			unread++
		default:
			counts[f.Severity]++
		}
		if f.Severity == finding.OK {
			continue
		}
		ill := f.Severity == finding.Problem || f.Severity == finding.Warning
		row := Row{Ill: ill, Old: l.Old, Cells: cells(string(f.Severity), f.Check, f.What, f.Why, f.Do),
			also: []string{f.Where}}
		c := row.Cells
		row.trouble.Fault = Fault{What: c[0].Text + " " + c[1].Text + ": " + c[2].Text, Command: "kubectl mooring doctor",
			Next: c[4].Text}
		rows = append(rows, row)
	}
	l = m.list(l, "finding", rows)
	l.State = Good
	var parts []string
	for _, part := range []struct {
		count int
		text  string
		state State
	}{
		{counts[finding.Problem], prose.Plural(counts[finding.Problem], "problem"), Bad},
		{counts[finding.Warning], prose.Plural(counts[finding.Warning], "warning"), Bad},
		{unread, fmt.Sprintf("%d not read", unread), Unread},
		{counts[finding.Note], prose.Plural(counts[finding.Note], "note"), Good},
		{aside, fmt.Sprintf("%d not looked at", aside), Absent}, // nothing needs attention, and not all was looked at
	} {
		if part.count == 0 {
			continue
		}
		if parts = append(parts, part.text); l.State == Good {
			l.State = part.state
		}
	}
	l.Text = cmp.Or(strings.Join(parts, ", "), "nothing found")
	l.Summary += fmt.Sprintf(", and %d ok", counts[finding.OK])
	return l
}

// notLookedAt are the doctor's findings about what could not be looked at and needs no attention, each with the command
// that looks.
func notLookedAt(found []finding.Finding) (notes []string) {
	for _, f := range found {
		if f.Unread && f.Severity == finding.Note {
			notes = append(notes, strings.TrimSuffix(f.What+"; "+f.Do, "; "))
		}
	}
	return notes
}
