// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mooring-dev/mooring/internal/platform/finding"
)

// What bounds a page.
const (
	// MostShown is how many machines, reflectors, load balancers, tenants or entries are shown by name. Above it machines are counted by zone, and
	// those that disagree have the names.
	MostShown = 200
	// MostHeated is how many machines are drawn as squares without names where there are too many to name all. Above it a bar has each zone's shares.
	MostHeated = 20_000
	// MostZones is how many zones have a box of their own.
	MostZones = 100
	// MostSaid is how many sentences stand alongside one thing.
	MostSaid = 8
	// MostRunes is how long a text may be, in characters.
	MostRunes = 300
)

// Filter is what a person asked to see.
type Filter struct {
	// Text is words that must all occur, whatever their case; "" matches everything. "zone:a" is the zone a, or one whose name ends in -a.
	// "state:down" is a verdict of machines (notready is down) or, of other things, bad or good.
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
	// Wrong is what is wrong now, whatever the filter.
	Wrong Wrong `json:"wrong"`
	// Health is a tile for each part, worst first, whatever the filter.
	Health   []Tile   `json:"health"`
	Machines Machines `json:"machines"`
	Drawing  Drawing  `json:"drawing"`
	Lists    []List   `json:"lists"`
}

// View is the page of a World for a filter. stale says why the World could not be read again, "" if it could.
func View(w World, filter Filter, stale string) Page {
	m := parse(filter)
	p := Page{Cluster: tidy(w.Cluster), ReadAt: w.ReadAt.UTC(), Stale: tidy(stale), Notes: some(slices.Concat(w.Notes, notLookedAt(w.Findings)))}
	p.Machines = machinesOf(w, m)
	p.Drawing = drawingOf(w)
	p.Lists = listsOf(w, m)
	p.Health = healthOf(w, p.Lists)
	p.Wrong = wrongOf(w, p.Health, listsOf(w, matcher{attention: true}))
	return p
}

func listsOf(w World, m matcher) []List {
	return []List{waitsOf(w, m), doctorOf(w, m), componentsOf(w, m), reflectorsOf(w, m), balancersOf(w, m), volumesOf(w, m), tenantsOf(w, m), journalOf(w, m)}
}

// matcher decides what a filter lets through.
type matcher struct {
	words       []string
	state, zone string // "" for any
	attention   bool
}

func parse(filter Filter) matcher {
	m := matcher{attention: filter.Attention}
	for word := range strings.FieldsSeq(strings.ToLower(filter.Text)) {
		key, value, _ := strings.Cut(word, ":")
		switch {
		case key == "state" && value != "":
			m.state = value
		case key == "zone" && value != "":
			m.zone = value
		default:
			m.words = append(m.words, word)
		}
	}
	return m
}

// narrows reports that the person looks for something, so that names are wanted.
func (m matcher) narrows() bool { return len(m.words) > 0 || m.state != "" || m.zone != "" }

// facts are what a filter looks at.
type facts struct {
	// state is the verdict of a machine, bad or good of all else; zone is "" for what stands in none.
	state, zone string
	well        bool
	texts       []string
}

func (m matcher) matches(f facts) bool {
	zone := strings.ToLower(f.zone)
	switch {
	case m.attention && f.well,
		m.state != "" && m.state != f.state && (m.state != "notready" || f.state != string(finding.Down)),
		m.zone != "" && zone != m.zone && !strings.HasSuffix(zone, "-"+m.zone):
		return false
	}
	all := strings.ToLower(strings.Join(f.texts, "\n"))
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
