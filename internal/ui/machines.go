// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/mooring-dev/mooring/internal/agreement"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// Machines is the map: all machines by zone.
type Machines struct {
	// Summary is one sentence.
	Summary string `json:"summary"`
	Counts
	// Grouped reports that there are too many to name all.
	Grouped bool   `json:"grouped"`
	Zones   []Zone `json:"zones"`
	// More counts the zones without a box of their own, "" if there are none.
	More string `json:"more,omitempty"`
}

// Counts are how many machines match the filter, by their verdicts.
type Counts struct {
	Total     int            `json:"total"`
	ByVerdict finding.Counts `json:"byVerdict"`
}

func (c *Counts) add(v finding.State) {
	if c.ByVerdict == nil {
		c.ByVerdict = finding.Counts{}
	}
	c.Total++
	c.ByVerdict[v]++
}

// Zone is the machines of a zone, those first that need attention, otherwise in the order of names.
type Zone struct {
	Name string `json:"name"`
	// raw is the name as it is, by which zones are ordered: two may look the same.
	raw string
	Counts
	Machines []Machine `json:"machines,omitempty"`
	// Heat is the verdict of each machine as a digit, 0 the worst, in the order of names: where there are too many to name
	// all.
	Heat string `json:"heat,omitempty"`
	// Hidden is how many are counted above and not named.
	Hidden int `json:"hidden,omitempty"`
}

// Machine is a tile of the map, and what is shown of it when it is chosen.
type Machine struct {
	Name    string        `json:"name"`
	Verdict finding.State `json:"verdict"`
	// Sides are what each side reports, Findings the reasons for the verdict, worst first.
	Sides    [][2]string       `json:"sides"`
	Findings []finding.Verdict `json:"findings,omitempty"`
}

// Where machines stand whose Node names no zone, and those that have no Node.
const (
	noZone = "no zone"
	noNode = "no Node"
)

// machinesOf is the map.
func machinesOf(w World, m matcher) Machines {
	var out Machines
	matched := map[string][]agreement.Row{}
	for _, r := range w.Machines {
		zone := zoneOf(w, r)
		if m.lets(r, zone) {
			out.add(r.Verdict)
			matched[zone] = append(matched[zone], r)
		}
	}
	out.Grouped = out.Total > MostShown
	out.Summary = out.sentence(len(w.Machines), m)
	shown := chosen(matched)
	var zones []Zone
	for name, rows := range matched {
		z := Zone{Name: tidy(name), raw: name}
		if out.Grouped && out.Total <= MostHeated {
			z.Heat = heat(rows)
		}
		slices.SortFunc(rows, byNeed)
		for _, r := range rows {
			z.add(r.Verdict)
			// Many that are well are counted and not named: a person looks for the others.
			if !shown[r.Machine] || out.Grouped && r.Verdict == finding.Agree && !m.narrows() {
				z.Hidden++
				continue
			}
			z.Machines = append(z.Machines, tile(r))
		}
		zones = append(zones, z)
	}
	out.place(zones)
	return out
}

// lets reports whether a machine is to be shown.
func (m matcher) lets(r agreement.Row, zone string) bool {
	return m.matches(facts{string(r.Verdict), zone, !r.Verdict.NeedsAttention(), machineTexts(r, zone)})
}

// heat is a digit for each machine, in the order of names.
func heat(rows []agreement.Row) string {
	rows = slices.Clone(rows)
	slices.SortFunc(rows, func(a, b agreement.Row) int { return prose.Natural(a.Machine, b.Machine) })
	digits := make([]byte, len(rows))
	for i, r := range rows {
		digits[i] = byte('0' + r.Verdict.Rank())
	}
	return string(digits)
}

// byNeed orders what a person must look at first, then by name.
func byNeed(a, b agreement.Row) int {
	return cmp.Or(cmp.Compare(a.Verdict.Rank(), b.Verdict.Rank()), prose.Natural(a.Machine, b.Machine))
}

// chosen are the machines that may be named: of all zones together as many as a page has.
func chosen(matched map[string][]agreement.Row) map[string]bool {
	var all []agreement.Row
	for _, rows := range matched {
		all = append(all, rows...)
	}
	slices.SortFunc(all, byNeed)
	out := map[string]bool{}
	for _, r := range all[:min(len(all), MostShown)] {
		out[r.Machine] = true
	}
	return out
}

// place keeps as many zones as have a box, those that need attention before others, in the order of names.
func (o *Machines) place(zones []Zone) {
	slices.SortFunc(zones, func(a, b Zone) int {
		return cmp.Or(a.ByVerdict.Worst().Rank()-b.ByVerdict.Worst().Rank(), byZone(a, b))
	})
	if len(zones) > MostZones {
		rest := finding.Counts{}
		machines := 0
		for _, z := range zones[MostZones:] {
			machines += z.Total
			for v, n := range z.ByVerdict {
				rest[v] += n
			}
		}
		o.More = fmt.Sprintf("%s more with %s: %s; filter to see them", prose.Plural(len(zones)-MostZones, "zone"),
			prose.Plural(machines, "machine"), rest)
		zones = zones[:MostZones]
	}
	slices.SortFunc(zones, byZone)
	o.Zones = zones
}

// byZone is the order of names, with those last that are none.
func byZone(a, b Zone) int {
	last := func(z Zone) int { return slices.Index([]string{noZone, noNode}, z.raw) }
	return cmp.Or(cmp.Compare(last(a), last(b)), prose.Natural(a.raw, b.raw))
}

func (o *Machines) sentence(all int, m matcher) string {
	if all == 0 {
		return "There are no machines."
	}
	text := prose.Plural(o.Total, "machine")
	if m.narrows() || m.attention {
		text = fmt.Sprintf("%d of %s", o.Total, prose.Plural(all, "machine"))
	}
	switch {
	case o.Total == 0 && m.attention && !m.narrows():
		return "None of " + prose.Plural(all, "machine") + " needs attention."
	case o.Total == 0:
		return text + " match the filter."
	}
	return text + ": " + o.ByVerdict.String() + "."
}

func zoneOf(w World, r agreement.Row) string {
	if !r.HasNode {
		return noNode
	}
	return cmp.Or(w.Zones[r.Machine], noZone)
}

// machineTexts is what a filter looks at.
func machineTexts(r agreement.Row, zone string) []string {
	texts := []string{r.Machine, zone, r.Droplet, r.Node, r.CalicoNode, r.Reflector, r.Verdict.String()}
	for _, f := range r.Findings {
		texts = append(texts, f.What, f.Next)
	}
	return texts
}

func tile(r agreement.Row) Machine {
	t := Machine{Name: tidy(r.Machine), Verdict: r.Verdict, Sides: [][2]string{
		{"Droplet", tidy(r.Droplet)}, {"Node", tidy(r.Node)}, {"Calico Node", tidy(r.CalicoNode)},
		{"Reflector", tidy(r.Reflector)},
	}}
	for i, f := range r.Findings {
		if i == MostSaid {
			t.Findings = append(t.Findings, finding.Verdict{State: f.State, What: fmt.Sprintf("and %d more", len(r.Findings)-i)})
			break
		}
		t.Findings = append(t.Findings,
			finding.Verdict{State: f.State, What: tidy(f.What), Since: f.Since, Next: tidy(f.Next)})
	}
	return t
}
