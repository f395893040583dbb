// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/internal/agreement"
	"github.com/mooring-dev/mooring/internal/platform/finding"
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
	// Empty reports that there is nothing in it to show.
	Empty bool `json:"empty,omitempty"`
}

// NeedsAttention reports whether any part is bad or could not be read.
func NeedsAttention(health []Tile) bool {
	return slices.ContainsFunc(health, func(t Tile) bool { return t.State == Bad || t.State == Unread })
}

// healthOf is a tile for the machines and for each list but the journal, which is history. The worst come first.
func healthOf(w World, lists []List) []Tile {
	counts := agreement.Count(w.Machines)
	tiles := []Tile{{Key: "machines", Title: "Machines", State: stateOf(counts), Text: cmp.Or(counts.String(), "none"),
		Empty: len(counts) == 0}}
	for _, l := range lists {
		if l.Key == "journal" {
			continue
		}
		tiles = append(tiles,
			Tile{Key: l.Key, Title: l.Title, State: l.State, Text: l.Text, Empty: l.All == 0 && l.Problem == ""})
	}
	slices.SortStableFunc(tiles, func(a, b Tile) int {
		return cmp.Compare(slices.Index(states(), a.State), slices.Index(states(), b.State))
	})
	return tiles
}

// stateOf is the state of machines by the worst verdict among them.
func stateOf(c finding.Counts) State {
	if len(c) == 0 {
		return Absent
	}
	return map[finding.State]State{
		finding.Down: Bad, finding.Disagree: Bad, finding.Unknown: Unread, finding.OneSide: Unread,
		finding.Settling: Changing, finding.Agree: Good,
	}[c.Worst()]
}

// mostNamed is how many machines or rows [Text] names of one part.
const mostNamed = 10

// Text is the health of a page for a terminal of that width in columns, 0 for one without end: the tiles, worst first,
// and below each what needs attention. paint colors a state.
func Text(w World, width int, paint finding.Paint) string {
	p := View(w, Filter{Attention: true}, "")
	titles := 0
	for _, t := range p.Health {
		titles = max(titles, len(t.Title))
	}
	var out strings.Builder
	for _, t := range p.Health {
		l, troubles := partOf(w, p.Lists, t.Key)
		head := t.Title + pad(titles-len(t.Title)) + "  "
		word := pad(len("changing") - len(t.State))
		out.WriteString(head + paint(string(t.State), t.State != Bad && t.State != Unread) + word + "  ")
		text := t.Text
		if l.Old {
			text += fmt.Sprintf(" (%s ago)", prose.Span(w.ReadAt.Sub(*l.Checked)))
		}
		out.WriteString(prose.Wrap("", pad(titles+len("  changing  ")), text, max(0, width-titles-len("  changing  "))))
		if l.Problem != "" && l.State != Unread { // else the tile has it
			out.WriteString(prose.Wrap("  ! ", "    ", l.unread(), width))
		}
		for i, is := range troubles {
			if i == mostNamed {
				out.WriteString(fmt.Sprintf("  ! and %d more\n", len(troubles)-i))
				break
			}
			out.WriteString(is.text(w.now(), width))
		}
	}
	for _, n := range p.Notes {
		out.WriteString(prose.Wrap("note: ", "      ", n, width))
	}
	return out.String()
}

func pad(n int) string { return fmt.Sprintf("%*s", max(n, 0), "") }
