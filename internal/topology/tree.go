// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// Tree is the topologies as text for a terminal of that width in columns; 0 is one without end. Names of clients wrap, other lines do not.
func Tree(maps []Map, width int, paint finding.Paint) string {
	var b strings.Builder
	t := tree{out: &b, width: width, paint: paint, grouped: grouped(maps)}
	for i, m := range maps {
		if i > 0 {
			b.WriteByte('\n')
		}
		t.topology(m)
	}
	return b.String()
}

type tree struct {
	out     *strings.Builder
	width   int
	paint   finding.Paint
	grouped bool
}

// branches are what is drawn before a line, and before the lines below it.
func branches(last bool) (here, below string) {
	if last {
		return "└─ ", "   "
	}
	return "├─ ", "│  "
}

func (t tree) line(parts ...string) {
	t.out.WriteString(strings.TrimRight(strings.Join(parts, ""), " ") + "\n")
}

func (t tree) topology(m Map) {
	title := prose.Wrap("", "  ", m.Title(), t.width)
	// The phase is the one word that says how it goes.
	if m.Phase != "" {
		title = strings.Replace(title, ": "+m.Phase, ": "+t.paint(m.Phase, m.Phase == "Ready"), 1)
	}
	t.out.WriteString(title)
	if m.WaitingFor != "" {
		t.out.WriteString(prose.Wrap("waiting for: ", "             ", m.WaitingFor, t.width))
	}
	if len(m.Spares) > 0 {
		t.out.WriteString(prose.Wrap("spares: ", "        ", v1alpha1.DescribeSpares(m.Spares), t.width))
	}
	for i, g := range m.Groups {
		here, below := branches(i == len(m.Groups)-1)
		t.line(here, g.heading())
		t.group(g, below)
	}
}

func (t tree) group(g Group, prefix string) {
	names, zones := 0, 0
	for _, r := range g.Reflectors {
		names, zones = max(names, utf8.RuneCountInString(r.Node)), max(zones, utf8.RuneCountInString(Zone{Name: r.Zone}.label()))
	}
	for i, r := range g.Reflectors {
		here, below := branches(i == len(g.Reflectors)-1 && len(g.Zones) == 0)
		state, well := r.State()
		head := fmt.Sprintf("%s%s* %-*s   %-*s   ", prefix, here, names, r.Node, zones, Zone{Name: r.Zone}.label())
		if t.width == 0 || utf8.RuneCountInString(head+state) <= t.width {
			t.line(head, t.paint(state, well))
			continue
		}
		t.line(head)
		indent := prefix + below + "     "
		for line := range strings.Lines(prose.Wrap(indent, indent, state, t.width)) {
			t.line(indent, t.paint(strings.TrimSpace(strings.TrimPrefix(line, indent)), well))
		}
	}
	for i, z := range g.Zones {
		here, below := branches(i == len(g.Zones)-1)
		head := z.label() + ": " + prose.Plural(len(z.Clients), "client")
		if t.grouped {
			t.line(prefix, here, head)
			continue
		}
		t.out.WriteString(prose.Wrap(prefix+here+head+"   ", prefix+below+"   ", strings.Join(z.Clients, " "), t.width))
	}
}
