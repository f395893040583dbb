// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package estate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// In returns the objects in a state.
func (r Report) In(state State) []Object {
	return slices.DeleteFunc(slices.Clone(r.Objects), func(o Object) bool { return o.State != state })
}

// NeedsAttention reports whether a person has to look: something is left over, or not everything could be judged.
func (r Report) NeedsAttention() bool {
	return len(r.In(Unreferenced)) > 0 || len(r.In(Unknown)) > 0 || len(r.NotRead) > 0
}

// String names an object for people.
func (o Object) String() string {
	if o.Name == "" {
		return o.Kind.String() + " " + o.ID
	}
	return fmt.Sprintf("%s %s (%s)", o.Kind, o.Name, o.ID)
}

// Costs is what an object costs, for people.
func (o Object) Costs() string {
	switch {
	case o.MonthlyCents == nil:
		return "price unknown"
	case *o.MonthlyCents == 0:
		return "free of charge"
	}
	return Dollars(o.MonthlyCents) + " a month"
}

// Text is the report for a terminal of that width in columns, 0 for one without end.
func (r Report) Text(width int) string {
	var b strings.Builder
	for _, part := range []struct {
		state State
		title string
	}{
		{Unreferenced, "Nothing refers to"}, {Unknown, "Unknown"}, {Settling, "New"}, {Referenced, "In use"},
	} {
		objects := r.In(part.state)
		if len(objects) == 0 {
			continue
		}
		b.WriteString(part.title + ":\n")
		for _, o := range objects {
			o.text(&b, width)
		}
		b.WriteString("\n")
	}
	for _, n := range r.NotRead {
		b.WriteString(prose.Wrap("? ", "  ", "unknown: "+n, width))
	}
	b.WriteString(prose.Wrap("", "", r.Summary(), width))
	return b.String()
}

func (o Object) text(b *strings.Builder, width int) {
	const indent = "        "
	line := fmt.Sprintf("%s, %s", o, o.Costs())
	if len(o.ReferencedBy) > 0 {
		line += ": " + strings.Join(o.ReferencedBy, ", ")
	}
	b.WriteString(prose.Wrap("  ", "    ", line, width))
	if o.Why != "" {
		b.WriteString(prose.Wrap("    why:  ", "          ", o.Why, width))
	}
	if o.Next != "" {
		b.WriteString(prose.Wrap("    next: ", indent+"  ", o.Next, width))
	}
}

// Summary is what all costs, in sentences.
func (r Report) Summary() string {
	all, unpriced := sum(r.Objects)
	lost, lostUnpriced := sum(r.In(Unreferenced))
	droplets := prose.Plural(r.Droplets.Nodes, "droplet") + " of Nodes"
	if r.Droplets.Others > 0 {
		droplets += fmt.Sprintf(", and %d with the cluster's tag and without a Node,", r.Droplets.Others)
	}
	out := fmt.Sprintf("%s cost %s a month; %s cost %s.", prose.Plural(len(r.Objects), "object"), Dollars(&all), droplets, Dollars(&r.Droplets.MonthlyCents))
	if n := unpriced + r.Droplets.Unpriced; n > 0 {
		out += fmt.Sprintf(" The price of %d more is unknown.", n)
	}
	if n := len(r.In(Unreferenced)); n > 0 {
		out += fmt.Sprintf(" Nothing refers to %s, which cost %s a month", prose.Plural(n, "object"), Dollars(&lost))
		if lostUnpriced > 0 {
			out += fmt.Sprintf(", and %d of which the price is unknown", lostUnpriced)
		}
		out += "."
	}
	if r.Others > 0 {
		out += fmt.Sprintf(" %s of the account: another cluster's or a person's, not listed.", prose.Plural(r.Others, "load balancer or certificate"))
	}
	return out
}

// Unreferenced counts the load balancers and certificates to which nothing refers, each as far as that is known.
func (w World) Unreferenced() map[Kind]int {
	r := Judge(w)
	counts := map[Kind]int{}
	if w.LoadBalancers.Read && w.Cluster.ID != "" && r.Unjudged == 0 {
		counts[LoadBalancer] = 0
	}
	if w.LoadBalancers.Read && w.Certificates.Read {
		counts[Certificate] = 0
	}
	for _, o := range r.In(Unreferenced) {
		if n, known := counts[o.Kind]; known {
			counts[o.Kind] = n + 1
		}
	}
	return counts
}

// CheckEstate is the name of the doctor's check. It stands in JSON and MUST NOT change.
const CheckEstate = "estate"

// Findings are what the doctor says of the estate.
func (r Report) Findings() []finding.Finding {
	return finding.Make([]finding.Check[Report]{{Name: CheckEstate, Find: findings}}, r)
}

func findings(r Report) []finding.Finding {
	var out []finding.Finding
	for _, o := range r.In(Unreferenced) {
		out = append(out, finding.Warning.Say("nothing refers to %s, %s", o, o.Costs()).At(o.String()).
			Because(o.Why).
			Advise(o.Next))
	}
	for _, o := range r.In(Unknown) {
		out = append(out, finding.Warning.Say("what leads to %s is unknown", o.String()).At(o.String()).AsUnread().
			Because(o.Why).
			Advise(o.Next))
	}
	for _, n := range r.NotRead {
		out = append(out, finding.Warning.Say("not everything at DigitalOcean was judged: %s", n).AsUnread())
	}
	if len(out) == 0 {
		out = append(out, finding.OK.Say("objects at DigitalOcean to which something in the cluster leads: %d", len(r.Objects)))
	}
	return out
}
