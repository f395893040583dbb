// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"strings"

	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// shown is how many names of clients stand in one box of a graph before "and n more".
const shown = 12

// graph is what Graphviz and Mermaid are given: boxes with an ID each, and lines between them.
type graph struct {
	boxes []box
	lines [][2]string
}

type box struct {
	id    string
	lines []string
	// group numbers the frame that the box is in.
	group     int
	reflector bool
	well      bool
}

// graphOf is one topology as boxes; prefix makes its IDs its own.
func graphOf(m Map, prefix string, counts bool) graph {
	var out graph
	ids := make([][]string, len(m.Groups)) // of reflectors, by group
	for gi, g := range m.Groups {
		for _, r := range g.Reflectors {
			state, well := r.State()
			id := fmt.Sprintf("%sr%d", prefix, len(out.boxes))
			ids[gi] = append(ids[gi], id)
			out.boxes = append(out.boxes, box{id: id, lines: []string{r.Node, Zone{Name: r.Zone}.label(), state}, group: gi, reflector: true, well: well})
		}
	}
	for gi, g := range m.Groups {
		for _, z := range g.Zones {
			id := fmt.Sprintf("%sc%d", prefix, len(out.boxes))
			out.boxes = append(out.boxes, box{id: id, lines: z.text(counts), group: gi, well: true})
			for _, r := range ids[gi] {
				out.lines = append(out.lines, [2]string{r, id})
			}
		}
		for i, a := range ids[gi] {
			for _, b := range ids[gi][i+1:] {
				out.lines = append(out.lines, [2]string{a, b})
			}
			if gi > 0 && m.Groups[0].Name == spine {
				for _, s := range ids[0] {
					out.lines = append(out.lines, [2]string{s, a})
				}
			}
		}
	}
	return out
}

// text is a zone's box: how many, and who.
func (z Zone) text(counts bool) []string {
	lines := []string{z.label() + ": " + prose.Plural(len(z.Clients), "client")}
	if counts {
		return lines
	}
	names := z.Clients[:min(shown, len(z.Clients))]
	for len(names) > 0 {
		n := min(4, len(names))
		lines, names = append(lines, strings.Join(names[:n], " ")), names[n:]
	}
	if more := len(z.Clients) - shown; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return lines
}

// language is how a graph is written. A frame has an indentation, an ID and a label.
type language struct {
	head, end, tail string
	frame           func(indent, id, label string) string
	box             func(box) string
	line            string
}

// write writes the topologies.
func (l language) write(maps []Map) string {
	var b strings.Builder
	b.WriteString(l.head)
	counts := grouped(maps)
	for mi, m := range maps {
		id := fmt.Sprintf("t%d", mi)
		g := graphOf(m, id, counts)
		b.WriteString(l.frame("  ", id, m.Title()))
		for gi, group := range m.Groups {
			b.WriteString(l.frame("    ", fmt.Sprintf("%sg%d", id, gi), group.heading()))
			for _, x := range g.boxes {
				if x.group == gi {
					b.WriteString("      " + l.box(x) + "\n")
				}
			}
			b.WriteString("    " + l.end + "\n")
		}
		b.WriteString("  " + l.end + "\n")
		for _, ends := range g.lines {
			fmt.Fprintf(&b, l.line, ends[0], ends[1])
		}
	}
	return b.String() + l.tail
}

// DOT is the topologies for Graphviz: dot -Tsvg.
func DOT(maps []Map) string {
	return language{
		head: "graph topologies {\n  node [shape=box, fontname=\"sans-serif\"];\n", end: "}", tail: "}\n", line: "  %s -- %s;\n",
		frame: func(indent, id, label string) string {
			return fmt.Sprintf("%[1]ssubgraph cluster_%[2]s {\n%[1]s  label=%[3]s;\n", indent, id, dotQuote([]string{label}))
		},
		box: func(x box) string {
			style := map[bool]string{true: ", shape=ellipse, penwidth=2"}[x.reflector] + map[bool]string{false: ", style=dashed"}[x.well]
			return fmt.Sprintf("%s [label=%s%s];", x.id, dotQuote(x.lines), style)
		},
	}.write(maps)
}

// dotQuote is lines as one quoted string of the DOT language.
func dotQuote(lines []string) string {
	return quoted(lines, `\n`, strings.NewReplacer(`\`, `\\`, `"`, `\"`))
}

// Mermaid is the topologies for Mermaid, as Markdown on GitHub shows it.
func Mermaid(maps []Map) string {
	return language{
		head: "graph TD\n", end: "end", line: "  %s --- %s\n",
		frame: func(indent, id, label string) string {
			return fmt.Sprintf("%ssubgraph %s[%s]\n", indent, id, mermaidQuote([]string{label}))
		},
		box: func(x box) string {
			if x.reflector {
				return x.id + "([" + mermaidQuote(x.lines) + "])"
			}
			return x.id + "[" + mermaidQuote(x.lines) + "]"
		},
	}.write(maps)
}

// mermaidQuote is lines as one quoted label. Mermaid writes what it would read otherwise as #code;.
func mermaidQuote(lines []string) string {
	return quoted(lines, "<br>", strings.NewReplacer(`#`, "#35;", `"`, "#quot;", "<", "#lt;", ">", "#gt;", "&", "#amp;", "`", "#96;"))
}

// quoted is lines as one string in quotation marks.
func quoted(lines []string, newline string, escape *strings.Replacer) string {
	out := make([]string, len(lines))
	for i, line := range lines {
		out[i] = escape.Replace(clean(line))
	}
	return `"` + strings.Join(out, newline) + `"`
}
