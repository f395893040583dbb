// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package topology

import (
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
	title := t.wrapped("", "  ", strings.Fields(m.Title()))
	// The phase is the one word that says how it goes.
	if m.Phase != "" {
		title = strings.Replace(title, ": "+m.Phase, ": "+t.paint(m.Phase, m.Phase == "Ready"), 1)
	}
	t.out.WriteString(title)
	if m.WaitingFor != "" {
		t.out.WriteString(t.wrapped("waiting for: ", "             ", strings.Fields(m.WaitingFor)))
	}
	if len(m.Spares) > 0 {
		t.out.WriteString(t.wrapped("spares: ", "        ", strings.Fields(v1alpha1.DescribeSpares(m.Spares))))
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
		head := prefix + here + "* " + pad(r.Node, names) + "   " + pad(Zone{Name: r.Zone}.label(), zones) + "   "
		if t.width == 0 || utf8.RuneCountInString(head+state) <= t.width {
			t.line(head, t.paint(state, well))
			continue
		}
		t.line(head)
		indent := prefix + below + "     "
		for line := range strings.Lines(t.wrapped(indent, indent, strings.Fields(state))) {
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
		t.out.WriteString(t.wrapped(prefix+here+head+"   ", prefix+below+"   ", z.Clients))
	}
}

// wrapped is words after a first prefix, and on as many further lines as they need after another.
func (t tree) wrapped(first, further string, words []string) string {
	out, line := "", first
	for _, word := range words {
		if t.width > 0 && utf8.RuneCountInString(line)+utf8.RuneCountInString(word) > t.width && line != first && line != further {
			out, line = out+strings.TrimRight(line, " ")+"\n", further
		}
		line += word + " "
	}
	return out + strings.TrimRight(line, " ") + "\n"
}

func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
}
