// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"fmt"
	"strings"

	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

// drawn is what the drawings show of the topology: the reflectors that will be, joined to each other and to all clients.
func (p Preview) drawn(line func(from, to string) string) []string {
	if p.deep() {
		return p.drawnGroups(line)
	}
	var lines []string
	names := p.staying()
	for i, r := range names {
		lines = append(lines, line("clients", r))
		for _, other := range names[i+1:] {
			lines = append(lines, line(r, other))
		}
	}
	return lines
}

// boxes are the nodes of the drawings that stand for clients: one for each group.
func (p Preview) boxes() []box {
	if !p.deep() {
		return []box{{"clients", prose.Plural(p.clients(), "client")}}
	}
	var out []box
	for _, g := range p.Plan.Groups {
		if g.Clients > 0 {
			out = append(out, box{"clients-" + g.Name, prose.Plural(g.Clients, "client")})
		}
	}
	return out
}

// box is a node of a drawing that stands for clients.
type box struct{ id, label string }

// drawnGroups joins the reflectors of each group to each other, to its clients and to the spines, which are joined to each other.
func (p Preview) drawnGroups(line func(from, to string) string) []string {
	var lines, above []string
	for _, g := range p.Plan.Groups {
		if g.Name == "spine" {
			above = g.Reflectors
		}
	}
	for _, g := range p.Plan.Groups {
		for i, r := range g.Reflectors {
			if g.Clients > 0 {
				lines = append(lines, line("clients-"+g.Name, r))
			}
			for _, other := range g.Reflectors[i+1:] {
				lines = append(lines, line(r, other))
			}
			if g.Name == "spine" {
				continue
			}
			for _, spine := range above {
				lines = append(lines, line(r, spine))
			}
		}
	}
	return lines
}

// DOT is the topology that shall be in the DOT language of Graphviz.
func (p Preview) DOT() string {
	lines := []string{"graph " + quoted(p.World.Topology.Name) + " {"}
	for _, b := range p.boxes() {
		lines = append(lines, fmt.Sprintf("  %s [shape=box, label=%s];", dotID(b.id), quoted(b.label)))
	}
	for _, r := range p.Plan.Reflectors {
		if r.Role != routereflector.RoleLeaving {
			lines = append(lines, fmt.Sprintf("  %s [label=%s];", quoted(r.Node), quoted(strings.TrimSpace(r.Node+" "+r.Zone))))
		}
	}
	lines = append(lines, p.drawn(func(from, to string) string { return fmt.Sprintf("  %s -- %s;", quoted(from), quoted(to)) })...)
	return strings.Join(append(lines, "}"), "\n") + "\n"
}

// dotID is the name of a box in the DOT language.
func dotID(id string) string {
	if strings.Contains(id, "-") {
		return quoted(id)
	}
	return id
}

// quoted is a string of the DOT language.
func quoted(s string) string { return `"` + strings.ReplaceAll(s, `"`, `\"`) + `"` }

// Mermaid is the topology that shall be as a flowchart of Mermaid.
func (p Preview) Mermaid() string {
	ids := map[string]string{}
	lines := []string{"graph TD"}
	for _, b := range p.boxes() {
		ids[b.id] = b.id
		lines = append(lines, fmt.Sprintf("  %s[%s]", b.id, quoted(b.label)))
	}
	for i, r := range p.staying() {
		ids[r] = fmt.Sprintf("r%d", i)
		lines = append(lines, fmt.Sprintf("  %s((%s))", ids[r], quoted(r)))
	}
	lines = append(lines, p.drawn(func(from, to string) string { return fmt.Sprintf("  %s --- %s", ids[from], ids[to]) })...)
	return strings.Join(lines, "\n") + "\n"
}
