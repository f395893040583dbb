// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/mooring-dev/mooring/internal/routereflector/planner"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

// Preview is a plan with what it was made of.
type Preview struct {
	World routereflector.World
	Plan  routereflector.Plan
	// Simulate adds the model's verdict on the state after each step.
	Simulate bool
}

// Of plans for the World.
func Of(w routereflector.World) Preview { return Preview{World: w, Plan: planner.MakePlan(w)} }

// Reported is the preview with what the first step waits for by the operator's own word, where the topology's status speaks of the same
// step: the operator remembers what nodes have said of their sessions, and who looks once finds little of that.
func (p Preview) Reported() Preview {
	said := p.World.Topology.Status.Plan
	if said == nil || said.Hash != p.Plan.Hash || len(said.Steps) == 0 || len(p.Plan.Steps) == 0 {
		return p
	}
	if first := routereflector.Shown(p.Plan.Steps[0]); said.Steps[0].Kind == first.Kind && said.Steps[0].Object == first.Object {
		p.Plan.Waiting = said.WaitingFor
	}
	return p
}

// Document is the JSON form of a plan. Its fields are a contract with programs.
type Document struct {
	Topology string `json:"topology"`
	Mode     string `json:"mode"`
	Hash     string `json:"hash"`
	// Groups are the groups of reflectors; clients counts the nodes that take their routes from each.
	Groups     []groupJSON                `json:"groups"`
	Reflectors []routereflector.Reflector `json:"reflectors"`
	// Spares are the nodes that take the place of lost reflectors, or would.
	Spares   []v1alpha1.Spare `json:"spares,omitempty"`
	BGPPeers []peerJSON       `json:"bgpPeers"`
	// Mesh is what the node-to-node mesh is after the last step, On or Off.
	Mesh  string              `json:"mesh"`
	Steps []v1alpha1.PlanStep `json:"steps"`
	// More reports that further steps follow these: a plan lists no more than the first writes to clients.
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
func (p Preview) staying() []string {
	out := []string{}
	for _, r := range p.Plan.Reflectors {
		if r.Role != routereflector.RoleLeaving {
			out = append(out, r.Node)
		}
	}
	return out
}

// clients counts the nodes that take their routes from the reflectors in the end: anyone who becomes one is a client no more.
func (p Preview) clients() int {
	out := p.Plan.Clients
	for _, r := range p.Plan.Reflectors {
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
func (p Preview) mesh() string {
	on := p.World.Mesh.On
	for _, s := range p.Plan.Steps {
		on = routereflector.Is[routereflector.MeshOn](s) || on && !routereflector.Is[routereflector.MeshOff](s)
	}
	if on {
		return "On"
	}
	return "Off"
}

// Document is the plan for programs.
func (p Preview) Document() Document {
	j := Document{
		Topology: p.World.Topology.Name, Mode: string(p.Plan.Mode), Hash: p.Plan.Hash, Groups: []groupJSON{}, Reflectors: p.Plan.Reflectors, Spares: p.Plan.Spares, BGPPeers: []peerJSON{},
		Mesh: p.mesh(), Steps: []v1alpha1.PlanStep{}, More: p.Plan.More, Waiting: p.Plan.Waiting, Refusals: p.Plan.Refusals, Notes: routereflector.Messages(p.Plan.Notes), Checks: p.Plan.Target,
	}
	if p.deep() {
		for _, g := range p.Plan.Groups {
			j.Groups = append(j.Groups, groupJSON{Name: g.Name, ClusterID: g.ClusterID, Reflectors: g.Reflectors, Clients: g.Clients})
		}
	} else if names := p.staying(); len(names) > 0 {
		j.Groups = append(j.Groups, groupJSON{ClusterID: p.World.Topology.Spec.ClusterID, Reflectors: names, Clients: p.clients()})
	}
	if j.Reflectors == nil {
		j.Reflectors = []routereflector.Reflector{}
	}
	for _, s := range p.Plan.Steps {
		j.Steps = append(j.Steps, routereflector.Shown(s))
	}
	for _, peer := range p.Plan.Peers {
		j.BGPPeers = append(j.BGPPeers, peerJSON{peer.Name, peer.NodeSelector, peer.PeerSelector})
	}
	if p.Simulate {
		for _, s := range p.Plan.Simulated {
			j.Simulated = append(j.Simulated, simulatedJSON{After: s.Step.String(), Checks: s.Checks})
		}
	}
	return j
}

// Text is the plan for people.
func (p Preview) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Topology %s: %s, %s of %s, mesh %s in the end.\n\n", p.World.Topology.Name, p.Plan.Mode, prose.Plural(p.clients(), "client"),
		prose.Plural(len(p.staying()), "reflector"), strings.ToLower(p.mesh()))
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	if p.deep() {
		fmt.Fprintln(table, "GROUP\tCLUSTER ID\tCLIENTS\tREFLECTORS")
		for _, g := range p.Plan.Groups {
			fmt.Fprintf(table, "%s\t%s\t%d\t%s\n", g.Name, g.ClusterID, g.Clients, strings.Join(g.Reflectors, " "))
		}
		fmt.Fprintln(table)
	}
	fmt.Fprintln(table, "REFLECTOR\tZONE\tCLUSTER ID\tROLE\tREASON")
	for _, r := range p.Plan.Reflectors {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", r.Node, r.Zone, r.ClusterID, r.Role, r.Reason)
	}
	_ = table.Flush() // a Builder takes everything
	b.WriteString("\n")
	if len(p.Plan.Spares) > 0 {
		fmt.Fprintf(&b, "Spares: %s.\n\n", v1alpha1.DescribeSpares(p.Plan.Spares))
	}
	if len(p.Plan.Steps) == 0 {
		b.WriteString("Nothing to do.\n")
	}
	for i, s := range p.Plan.Steps {
		fmt.Fprintf(&b, "%d. %s\n", i+1, s)
		if p.Simulate {
			fmt.Fprintf(&b, "   then %s\n", verdict(p.Plan.Simulated[i].Checks))
		}
	}
	if p.Plan.More {
		b.WriteString("More follow when these are done.\n")
	}
	if p.Plan.Waiting != "" {
		fmt.Fprintf(&b, "\nThe first step waits: %s.\n", p.Plan.Waiting)
	}
	for _, r := range p.Plan.Refusals {
		fmt.Fprintf(&b, "\nRefused (%s): %s.\n", r.Reason, r.Message)
	}
	for _, n := range routereflector.Messages(p.Plan.Notes) {
		fmt.Fprintf(&b, "\nNote: %s.\n", n)
	}
	fmt.Fprintf(&b, "\nNow: %s.\nIn the end: %s.\n", verdict(p.Plan.Checks), verdict(p.Plan.Target))
	return b.String()
}

func verdict(c routereflector.Checks) string {
	return fmt.Sprintf("%s without a path, at least %s per client, at most %s per prefix", prose.Plural(c.UnreachablePairs, "pair"),
		prose.Plural(c.MinSessionsPerClient, "session"), prose.Plural(c.MaxPathsPerPrefix, "path"))
}

// deep reports that there are groups, and spines between them.
func (p Preview) deep() bool { return p.Plan.Mode == v1alpha1.ModeHierarchical }
