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

// DOT is the topologies for Graphviz: dot -Tsvg.
func DOT(maps []Map) string {
	var b strings.Builder
	b.WriteString("graph topologies {\n  node [shape=box, fontname=\"sans-serif\"];\n")
	counts := grouped(maps)
	for mi, m := range maps {
		g := graphOf(m, fmt.Sprintf("t%d", mi), counts)
		fmt.Fprintf(&b, "  subgraph cluster_t%d {\n    label=%s;\n", mi, dotQuote([]string{m.Title()}))
		for gi, group := range m.Groups {
			fmt.Fprintf(&b, "    subgraph cluster_t%dg%d {\n      label=%s;\n", mi, gi, dotQuote([]string{group.heading()}))
			for _, x := range g.boxes {
				if x.group != gi {
					continue
				}
				style := ""
				if x.reflector {
					style = ", shape=ellipse, penwidth=2"
				}
				if !x.well {
					style += ", style=dashed"
				}
				fmt.Fprintf(&b, "      %s [label=%s%s];\n", x.id, dotQuote(x.lines), style)
			}
			b.WriteString("    }\n")
		}
		b.WriteString("  }\n")
		for _, l := range g.lines {
			fmt.Fprintf(&b, "  %s -- %s;\n", l[0], l[1])
		}
	}
	b.WriteString("}\n")
	return b.String()
}

// dotQuote is lines as one quoted string of the DOT language.
func dotQuote(lines []string) string {
	quoted := make([]string, len(lines))
	for i, line := range lines {
		quoted[i] = strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(clean(line))
	}
	return `"` + strings.Join(quoted, `\n`) + `"`
}

// Mermaid is the topologies for Mermaid, as Markdown on GitHub shows it.
func Mermaid(maps []Map) string {
	var b strings.Builder
	b.WriteString("graph TD\n")
	counts := grouped(maps)
	for mi, m := range maps {
		g := graphOf(m, fmt.Sprintf("t%d", mi), counts)
		fmt.Fprintf(&b, "  subgraph t%d[%s]\n", mi, mermaidQuote([]string{m.Title()}))
		for gi, group := range m.Groups {
			fmt.Fprintf(&b, "    subgraph t%dg%d[%s]\n", mi, gi, mermaidQuote([]string{group.heading()}))
			for _, x := range g.boxes {
				if x.group != gi {
					continue
				}
				left, right := "[", "]"
				if x.reflector {
					left, right = "([", "])"
				}
				fmt.Fprintf(&b, "      %s%s%s%s\n", x.id, left, mermaidQuote(x.lines), right)
			}
			b.WriteString("    end\n")
		}
		b.WriteString("  end\n")
		for _, l := range g.lines {
			fmt.Fprintf(&b, "  %s --- %s\n", l[0], l[1])
		}
	}
	return b.String()
}

// mermaidQuote is lines as one quoted label. Mermaid writes what it would read otherwise as #code;.
func mermaidQuote(lines []string) string {
	quoted := make([]string, len(lines))
	for i, line := range lines {
		quoted[i] = strings.NewReplacer(`#`, "#35;", `"`, "#quot;", "<", "#lt;", ">", "#gt;", "&", "#amp;", "`", "#96;").Replace(clean(line))
	}
	return `"` + strings.Join(quoted, "<br>") + `"`
}
