// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// What bounds a page.
const (
	// MostShown is how many machines, reflectors, load balancers, tenants or entries are shown by name. Above it machines are counted by zone, and
	// those that disagree have the names.
	MostShown = 200
	// MostZones is how many zones have a box of their own.
	MostZones = 100
	// MostSaid is how many sentences stand beside one thing.
	MostSaid = 8
	// MostRunes is how long a text may be, in characters.
	MostRunes = 300
)

// Filter is what a person asked to see.
type Filter struct {
	// Text is words that must all occur, whatever their case; "" matches everything.
	Text string
	// Attention leaves out what is well.
	Attention bool
}

// Page is what is shown. Its JSON form is between the server and the page's script, which are always of one version.
type Page struct {
	Cluster string    `json:"cluster"`
	ReadAt  time.Time `json:"readAt"`
	// Stale says why what is shown is no longer read, "" while it is.
	Stale string   `json:"stale,omitempty"`
	Notes []string `json:"notes,omitempty"`
	// Health is a tile for each part, worst first, whatever the filter.
	Health   []Tile   `json:"health"`
	Machines Machines `json:"machines"`
	Drawing  Drawing  `json:"drawing"`
	Lists    []List   `json:"lists"`
}

// View is the page of a World for a filter. stale says why the World could not be read again, "" if it could.
func View(w World, filter Filter, stale string) Page {
	m := matcher{words: strings.Fields(strings.ToLower(filter.Text)), attention: filter.Attention}
	p := Page{Cluster: tidy(w.Cluster), ReadAt: w.ReadAt.UTC(), Stale: tidy(stale), Notes: some(w.Notes)}
	p.Machines = machinesOf(w, m)
	p.Drawing = drawingOf(w)
	p.Lists = []List{componentsOf(w, m), reflectorsOf(w, m), balancersOf(w, m), tenantsOf(w, m), journalOf(w, m)}
	p.Health = healthOf(w, p.Lists)
	return p
}

// matcher decides what a filter lets through.
type matcher struct {
	words     []string
	attention bool
}

func (m matcher) matches(well bool, texts ...string) bool {
	if m.attention && well {
		return false
	}
	all := strings.ToLower(strings.Join(texts, "\n"))
	for _, word := range m.words {
		if !strings.Contains(all, word) {
			return false
		}
	}
	return true
}

// tidy is a text on one line, without what is not printed (controls that turn the direction of writing among them), and of bounded length.
func tidy(text string) string {
	var b strings.Builder
	n := 0
	for _, r := range strings.TrimSpace(text) {
		if n++; n > MostRunes {
			b.WriteString("…")
			break
		}
		switch {
		case unicode.IsSpace(r):
			r = ' '
		case !unicode.IsPrint(r):
			r = utf8.RuneError
		}
		b.WriteRune(r)
	}
	return b.String()
}

// some are the first of many texts, and how many more there are.
func some(texts []string) []string {
	var out []string
	for i, text := range texts {
		if i == MostSaid {
			return append(out, fmt.Sprintf("and %d more", len(texts)-i))
		}
		out = append(out, tidy(text))
	}
	return out
}
