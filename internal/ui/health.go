// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/internal/agreement"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// State is how a part of the cluster is.
type State string

// The states, worst first.
const (
	// Bad: something in it needs attention.
	Bad State = "bad"
	// Unread: it could not be read, or nothing was compared.
	Unread State = "unread"
	// Changing: something in it is settling, which ends by itself.
	Changing State = "changing"
	// Good: it was read, and nothing needs attention.
	Good State = "good"
	// Absent: the cluster has nothing of the kind.
	Absent State = "absent"
)

// states lists all states, worst first.
func states() []State { return []State{Bad, Unread, Changing, Good, Absent} }

// Tile is the health of one part in a few words.
type Tile struct {
	// Key names the part: machines, or the key of a list.
	Key   string `json:"key"`
	Title string `json:"title"`
	State State  `json:"state"`
	Text  string `json:"text"`
}

// NeedsAttention reports whether any part is bad or could not be read.
func NeedsAttention(health []Tile) bool {
	return slices.ContainsFunc(health, func(t Tile) bool { return t.State == Bad || t.State == Unread })
}

// healthOf is a tile for the machines and for each list but the journal, which is history. The worst come first.
func healthOf(w World, lists []List) []Tile {
	counts := agreement.Count(w.Machines)
	tiles := []Tile{{Key: "machines", Title: "Machines", State: stateOf(counts), Text: cmp.Or(counts.String(), "none")}}
	for _, l := range lists {
		if l.Key == "journal" {
			continue
		}
		t := Tile{Key: l.Key, Title: l.Title, State: Good, Text: fmt.Sprint(l.All)}
		switch {
		case l.Ill > 0:
			t.State, t.Text = Bad, fmt.Sprintf("%d of %d need attention", l.Ill, l.All)
		case l.Problem != "":
			t.State, t.Text = Unread, l.Problem
		case l.All == 0:
			t.State, t.Text = Absent, "none"
		}
		tiles = append(tiles, t)
	}
	slices.SortStableFunc(tiles, func(a, b Tile) int {
		return cmp.Compare(slices.Index(states(), a.State), slices.Index(states(), b.State))
	})
	return tiles
}

// stateOf is the state of machines by the worst verdict among them.
func stateOf(c agreement.Counts) State {
	switch {
	case len(c) == 0:
		return Absent
	case c[agreement.Down]+c[agreement.Disagree] > 0:
		return Bad
	case c[agreement.Unknown]+c[agreement.OneSide] > 0:
		return Unread
	case c[agreement.Settling] > 0:
		return Changing
	}
	return Good
}

// mostNamed is how many machines or rows [Text] names of one part.
const mostNamed = 10

// Text is the health of a page for a terminal of that width in columns, 0 for one without end: the tiles, worst first, and below each what needs attention.
// paint colors a state.
func Text(w World, width int, paint agreement.Paint) string {
	p := View(w, Filter{Attention: true}, "")
	titles := 0
	for _, t := range p.Health {
		titles = max(titles, len(t.Title))
	}
	var out strings.Builder
	for _, t := range p.Health {
		head := t.Title + pad(titles-len(t.Title)) + "  "
		word := pad(len("changing") - len(t.State))
		out.WriteString(head + paint(string(t.State), t.State != Bad && t.State != Unread) + word + "  ")
		out.WriteString(prose.Wrap("", pad(titles+len("  changing  ")), t.Text, max(0, width-titles-len("  changing  "))))
		for _, line := range troubles(w, p, t.Key) {
			out.WriteString(prose.Wrap("  ! ", "    ", line, width))
		}
	}
	for _, n := range p.Notes {
		out.WriteString(prose.Wrap("note: ", "      ", n, width))
	}
	return out.String()
}

func pad(n int) string { return fmt.Sprintf("%*s", max(n, 0), "") }

// troubles are a few sentences about what needs attention in one part.
func troubles(w World, p Page, key string) []string {
	var all []string
	if key == "machines" {
		rows := slices.Clone(w.Machines)
		slices.SortFunc(rows, byNeed)
		for _, r := range rows {
			if r.Verdict.NeedsAttention() && len(r.Findings) > 0 {
				all = append(all, tidy(r.Machine+" "+r.Verdict.String()+": "+r.Findings[0].Text(w.ReadAt)))
			}
		}
	}
	for _, l := range p.Lists {
		if l.Key != key {
			continue
		}
		for _, r := range l.Rows {
			var texts []string
			for _, c := range r.Cells {
				if c.Text != "" && c.Text != "-" {
					texts = append(texts, strings.TrimSpace(c.Text+" "+c.ID))
				}
			}
			all = append(all, strings.Join(texts, ", "))
		}
	}
	if len(all) > mostNamed {
		all = append(all[:mostNamed], fmt.Sprintf("and %d more", len(all)-mostNamed))
	}
	return all
}
