// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

// planJSON is the JSON form of a plan. Its fields are a contract with programs.
type planJSON struct {
	Topology string `json:"topology"`
	Mode     string `json:"mode"`
	Hash     string `json:"hash"`
	// Groups are the groups of reflectors; clients counts the nodes that take their routes from each.
	Groups     []groupJSON                `json:"groups"`
	Reflectors []routereflector.Reflector `json:"reflectors"`
	BGPPeers   []peerJSON                 `json:"bgpPeers"`
	// Mesh is what the node-to-node mesh is after the last step, On or Off.
	Mesh  string                `json:"mesh"`
	Steps []routereflector.Step `json:"steps"`
	// More says that further steps follow these: a plan lists no more than the first writes to clients.
	More      bool                     `json:"more,omitempty"`
	Waiting   string                   `json:"waiting,omitempty"`
	Refusals  []routereflector.Refusal `json:"refusals,omitempty"`
	Notes     []string                 `json:"notes,omitempty"`
	Simulated []simulatedJSON          `json:"simulated,omitempty"`
	// Checks is the model's verdict on the cluster after the last step.
	Checks routereflector.Checks `json:"checks"`
}

type groupJSON struct {
	// Name is a number or spine; it is left out where there is one group.
	Name       string   `json:"name,omitempty"`
	ClusterID  string   `json:"clusterID"`
	Reflectors []string `json:"reflectors"`
	Clients    int      `json:"clients"`
}

type peerJSON struct {
	Name         string `json:"name"`
	NodeSelector string `json:"nodeSelector"`
	PeerSelector string `json:"peerSelector"`
}

type simulatedJSON struct {
	After  string                `json:"after"`
	Checks routereflector.Checks `json:"checks"`
}

// staying are the names of the reflectors that there will be.
func (p preview) staying() []string {
	out := []string{}
	for _, r := range p.plan.Reflectors {
		if r.Role != routereflector.RoleLeaving {
			out = append(out, r.Node)
		}
	}
	return out
}

// clients counts the nodes that take their routes from the reflectors in the end: whoever becomes one is a client no more.
func (p preview) clients() int {
	out := p.plan.Clients
	for _, r := range p.plan.Reflectors {
		switch r.Role {
		case routereflector.RoleJoining:
			out--
		case routereflector.RoleLeaving:
			out++
		case routereflector.RoleReflector:
		}
	}
	return max(out, 0)
}

// mesh is what the mesh is after the last step.
func (p preview) mesh() string {
	on := p.world.Mesh.On
	for _, s := range p.plan.Steps {
		switch s.Kind {
		case routereflector.MeshOn:
			on = true
		case routereflector.MeshOff:
			on = false
		default:
		}
	}
	if on {
		return "On"
	}
	return "Off"
}

func writeJSON(out io.Writer, p preview) error {
	j := planJSON{
		Topology: p.topology, Mode: string(p.plan.Mode), Hash: p.plan.Hash, Groups: []groupJSON{}, Reflectors: p.plan.Reflectors, BGPPeers: []peerJSON{},
		Mesh: p.mesh(), Steps: p.plan.Steps, More: p.plan.More, Waiting: p.plan.Waiting, Refusals: p.plan.Refusals, Notes: p.plan.Notes, Checks: p.plan.Target,
	}
	if p.deep() {
		for _, g := range p.plan.Groups {
			j.Groups = append(j.Groups, groupJSON{Name: g.Name, ClusterID: g.ClusterID, Reflectors: g.Reflectors, Clients: g.Clients})
		}
	} else if names := p.staying(); len(names) > 0 {
		j.Groups = append(j.Groups, groupJSON{ClusterID: p.world.Topology.Spec.ClusterID, Reflectors: names, Clients: p.clients()})
	}
	if j.Reflectors == nil {
		j.Reflectors = []routereflector.Reflector{}
	}
	if j.Steps == nil {
		j.Steps = []routereflector.Step{}
	}
	for _, peer := range p.plan.Peers {
		j.BGPPeers = append(j.BGPPeers, peerJSON{peer.Name, peer.NodeSelector, peer.PeerSelector})
	}
	if p.simulate {
		for _, s := range p.plan.Simulated {
			j.Simulated = append(j.Simulated, simulatedJSON{After: s.Step.String(), Checks: s.Checks})
		}
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(j)
}

func writeText(out io.Writer, p preview) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Topology %s: %s, %s of %s, mesh %s in the end.\n\n", p.topology, p.plan.Mode, plural(p.clients(), "client"),
		plural(len(p.staying()), "reflector"), strings.ToLower(p.mesh()))
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	if p.deep() {
		fmt.Fprintln(table, "GROUP\tCLUSTER ID\tCLIENTS\tREFLECTORS")
		for _, g := range p.plan.Groups {
			fmt.Fprintf(table, "%s\t%s\t%d\t%s\n", g.Name, g.ClusterID, g.Clients, strings.Join(g.Reflectors, " "))
		}
		fmt.Fprintln(table)
	}
	fmt.Fprintln(table, "REFLECTOR\tZONE\tCLUSTER ID\tROLE\tREASON")
	for _, r := range p.plan.Reflectors {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", r.Node, r.Zone, r.ClusterID, r.Role, r.Reason)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	b.WriteString("\n")
	if len(p.plan.Steps) == 0 {
		b.WriteString("Nothing to do.\n")
	}
	for i, s := range p.plan.Steps {
		fmt.Fprintf(&b, "%d. %s\n", i+1, s)
		if p.simulate {
			fmt.Fprintf(&b, "   then %s\n", verdict(p.plan.Simulated[i].Checks))
		}
	}
	if p.plan.More {
		b.WriteString("More follow when these are done.\n")
	}
	if p.plan.Waiting != "" {
		fmt.Fprintf(&b, "\nThe first step waits: %s.\n", p.plan.Waiting)
	}
	for _, r := range p.plan.Refusals {
		fmt.Fprintf(&b, "\nRefused (%s): %s.\n", r.Reason, r.Message)
	}
	for _, n := range p.plan.Notes {
		fmt.Fprintf(&b, "\nNote: %s.\n", n)
	}
	fmt.Fprintf(&b, "\nNow: %s.\nIn the end: %s.\n", verdict(p.plan.Checks), verdict(p.plan.Target))
	_, err := io.WriteString(out, b.String())
	return err
}

func verdict(c routereflector.Checks) string {
	return fmt.Sprintf("%s without a path, at least %s per client, at most %s per prefix", plural(c.UnreachablePairs, "pair"),
		plural(c.MinSessionsPerClient, "session"), plural(c.MaxPathsPerPrefix, "path"))
}

// drawn is what the drawings show of the topology: the reflectors that will be, joined to each other and to all clients.
func (p preview) drawn(line func(from, to string) string) []string {
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

// deep says that there are groups, and spines between them.
func (p preview) deep() bool { return p.plan.Mode == v1alpha1.ModeHierarchical }

// boxes are the nodes of the drawings that stand for clients: one for each group.
func (p preview) boxes() []box {
	if !p.deep() {
		return []box{{"clients", plural(p.clients(), "client")}}
	}
	var out []box
	for _, g := range p.plan.Groups {
		if g.Clients > 0 {
			out = append(out, box{"clients-" + g.Name, plural(g.Clients, "client")})
		}
	}
	return out
}

// box is a node of a drawing that stands for clients.
type box struct{ id, label string }

// drawnGroups joins the reflectors of each group to each other, to its clients and to the spines, which are joined to each other.
func (p preview) drawnGroups(line func(from, to string) string) []string {
	var lines, above []string
	for _, g := range p.plan.Groups {
		if g.Name == "spine" {
			above = g.Reflectors
		}
	}
	for _, g := range p.plan.Groups {
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

func writeDOT(out io.Writer, p preview) error {
	lines := []string{"graph " + quoted(p.topology) + " {"}
	for _, b := range p.boxes() {
		lines = append(lines, fmt.Sprintf("  %s [shape=box, label=%s];", dotID(b.id), quoted(b.label)))
	}
	for _, r := range p.plan.Reflectors {
		if r.Role != routereflector.RoleLeaving {
			lines = append(lines, fmt.Sprintf("  %s [label=%s];", quoted(r.Node), quoted(strings.TrimSpace(r.Node+" "+r.Zone))))
		}
	}
	lines = append(lines, p.drawn(func(from, to string) string { return fmt.Sprintf("  %s -- %s;", quoted(from), quoted(to)) })...)
	_, err := io.WriteString(out, strings.Join(append(lines, "}"), "\n")+"\n")
	return err
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

func writeMermaid(out io.Writer, p preview) error {
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
	_, err := io.WriteString(out, strings.Join(lines, "\n")+"\n")
	return err
}
