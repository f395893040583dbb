// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package ipamcheck

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// Plan is what a repair does about disagreements, one kind after the other in the order of [Meanings], and what it
// leaves to a person. The names of its fields stand in JSON and MUST NOT change.
type Plan struct {
	Repairs   []Repair `json:"repairs"`
	LeftAlone []Left   `json:"leftAlone"`
}

// Repair is one repair: what disagrees, and what is done about it.
type Repair struct {
	Kind Kind   `json:"kind"`
	What string `json:"what"`
	Do   string `json:"do"`

	Of Disagreement `json:"-"`
}

// Left is one disagreement that only a person can end, and how.
type Left struct {
	Kind Kind   `json:"kind"`
	What string `json:"what"`
	Do   string `json:"do"`
}

// Planned returns the plan for disagreements as [Check] or [Confirmed] returns them.
func Planned(found []Disagreement) Plan {
	meanings := map[Kind]Meaning{}
	for _, m := range Meanings() {
		meanings[m.Kind] = m
	}
	plan := Plan{Repairs: []Repair{}, LeftAlone: []Left{}}
	for _, d := range found {
		switch m := meanings[d.Kind]; {
		case m.Repair == "":
			plan.LeftAlone = append(plan.LeftAlone, Left{Kind: d.Kind, What: d.Detail, Do: m.Cure})
		case strings.HasPrefix(d.Host, "virtual:"):
			plan.LeftAlone = append(plan.LeftAlone, Left{Kind: d.Kind, What: d.Detail, Do: "restart calico-kube-controllers, which assigns the addresses of load balancers"})
		default:
			plan.Repairs = append(plan.Repairs, Repair{Kind: d.Kind, What: d.Detail, Do: m.Repair, Of: d})
		}
	}
	return plan
}

// String is the plan for people.
func (p Plan) String() string {
	var b strings.Builder
	kind := Kind("")
	for _, r := range p.Repairs {
		if r.Kind != kind {
			kind = r.Kind
			fmt.Fprintf(&b, "%s: %s\n", r.Kind, r.Do)
		}
		fmt.Fprintf(&b, "  %s\n", r.What)
	}
	kind = ""
	for _, l := range p.LeftAlone {
		if l.Kind != kind {
			kind = l.Kind
			fmt.Fprintf(&b, "%s is left alone: %s\n", l.Kind, l.Do)
		}
		fmt.Fprintf(&b, "  %s\n", l.What)
	}
	fmt.Fprintf(&b, "%s, %d left alone\n", prose.Plural(len(p.Repairs), "repair"), len(p.LeftAlone))
	return b.String()
}

// Same reports whether a disagreement of the same kind about the same thing in the same state is among those that
// were found.
func Same(found []Disagreement, d Disagreement) bool {
	return slices.ContainsFunc(found, func(f Disagreement) bool { return f.Kind == d.Kind && f.Subject == d.Subject && f.Stamp == d.Stamp })
}
