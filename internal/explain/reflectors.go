// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/internal/routereflector/rank"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/doctor"
	"github.com/mooring-dev/mooring/internal/topology"
)

// Reflectors is what the route reflectors' operator would do now, topology by topology.
type Reflectors struct {
	finding.Side
	// Absent reports that the cluster does not have the kind of topologies: then there is nothing to say.
	Absent     bool
	Topologies []Topology
	// Unkept is why what the operator has reported may be old, "" while it works.
	Unkept string
}

// Topology is the plan of one topology.
type Topology struct {
	// World is what the plan was made of, and Plan what came of it.
	World routereflector.World
	Plan  routereflector.Plan
	// Seen is what its status and the Nodes show of it.
	Seen topology.Map
	// Node is the machine's name in the World, which is Calico's.
	Node string
	// Unread are sentences about objects of Calico's that could not be read. PodsUncounted says why workloads were not counted, "" if they were.
	Unread        []string
	PodsUncounted string
}

func (r Reflectors) sections() []Section {
	s := Section{Title: "Route reflectors"}
	if r.Absent {
		return nil
	}
	if !s.told(r.Side, "plan") {
		return []Section{s}
	}
	if len(r.Topologies) == 0 {
		s.say("plan", "there is no RouteReflectorTopology")
		return []Section{s}
	}
	var out []Section
	for _, t := range r.Topologies {
		out = append(out, t.section(r.Unkept))
	}
	return out
}

// section is what one topology's plan says of the node.
func (t Topology) section(unkept string) Section {
	s := Section{Title: "Route reflectors: topology " + t.World.Topology.Name}
	at := slices.IndexFunc(t.World.Nodes, func(n routereflector.Node) bool { return n.Name == t.Node })
	if at < 0 {
		s.say("role", "none: there is no such node")
		return s
	}
	n := t.World.Nodes[at]
	role := slices.IndexFunc(t.Plan.Reflectors, func(r routereflector.Reflector) bool { return r.Node == n.Name })
	group, client := t.World.ClientOf(n)
	if role >= 0 {
		t.reflector(&s, n, t.Plan.Reflectors[role])
	} else {
		t.noReflector(&s, n)
	}
	if n.Labels[v1alpha1.ReflectorLabel] != t.World.Topology.Name { // a reflector has its routes from its clients and from the others
		t.client(&s, n, group, client)
	}
	t.standing(&s, n)
	if !t.steps(&s, n) && role < 0 && !client {
		return s // the rest is about others
	}
	t.state(&s, unkept)
	return s
}

// reflector returns which role the plan has for the node, and why.
func (t Topology) reflector(s *Section, n routereflector.Node, r routereflector.Reflector) {
	what := fmt.Sprintf("of group %s", r.Group)
	if r.Group == t.World.Topology.Name {
		what = "of the only group"
	}
	if r.Zone != "" {
		what += ", in zone " + r.Zone
	}
	what += ", cluster ID " + cmp.Or(r.ClusterID, "none")
	switch r.Role {
	case routereflector.RoleReflector:
		s.sayIf(rank.Fitness(t.World, n) != "", "role", "reflector %s: %s", what, r.Reason)
	case routereflector.RoleJoining:
		s.heed("role", "it will become a reflector %s: %s", what, r.Reason)
	case routereflector.RoleLeaving:
		s.heed("role", "it will no longer be a reflector %s: %s", what, r.Reason)
	}
}

// found are the doctor's findings about the topology: by its status, and by the routes that its BGPPeers give.
func (t Topology) found() []finding.Finding {
	e := doctor.Evidence{
		Nodes: t.World.Nodes, Peers: t.World.Peers, Mesh: t.World.Mesh,
		Topologies: []v1alpha1.RouteReflectorTopology{t.World.Topology},
	}
	all := finding.Merge(topology.Findings([]topology.Map{t.Seen}, t.World.Now), doctor.Findings(e))
	return slices.DeleteFunc(all, func(f finding.Finding) bool { return f.Where != topology.Where(t.World.Topology.Name) })
}

// noReflector says why the node is none.
func (t Topology) noReflector(s *Section, n routereflector.Node) {
	if why := rank.Fitness(t.World, n); why != "" {
		s.say("role", "not a reflector, and it may not be one: %s", why)
		return
	}
	var chosen []string
	for _, r := range t.Plan.Reflectors {
		if r.Role != routereflector.RoleLeaving {
			chosen = append(chosen, r.Node)
		}
	}
	if len(chosen) == 0 {
		s.say("role", "not a reflector; it may be one, and no node is chosen")
		return
	}
	s.say("role", "not a reflector; it may be one, and there are enough others: %s", finding.First(chosen, mostNamed))
}

// client says from whom the node takes its routes.
func (t Topology) client(s *Section, n routereflector.Node, group string, client bool) {
	switch {
	case !client && !n.IPv4.IsValid() && !n.IPv6.IsValid():
		s.say("client", "no: calico-node has given it no BGP address")
		return
	case !client:
		s.say("client", "no: spec.clientSelector does not select it, or it does not run this cluster's BGP")
		return
	case group == "":
		s.say("client", "of no group yet")
		return
	}
	text := "of group " + group
	if group == t.World.Topology.Name {
		text = "of the only group"
	}
	for _, g := range t.Plan.Groups {
		if g.Name == group && len(g.Reflectors) > 0 {
			text += ", cluster ID " + g.ClusterID + ", whose desired reflectors are " + finding.First(g.Reflectors, mostNamed)
		}
	}
	s.say("client", "%s", text)
	if joins := n.Labels[v1alpha1.JoinsLabel]; joins != "" {
		s.heed("client", "it moves to group %s (label %s)", joins, v1alpha1.JoinsLabel)
	}
}

// standing says what people have said of the node.
func (t Topology) standing(s *Section, n routereflector.Node) {
	_, keep := n.Annotations[v1alpha1.KeepAnnotation]
	if n.Unschedulable {
		after := "so that it does not become a reflector, and an existing one is demoted when another can replace it"
		if keep {
			after = "and annotation " + v1alpha1.KeepAnnotation + " keeps a reflector anyway"
		}
		s.say("cordoned", "yes, %s", after)
	} else if keep {
		s.say("keep", "annotation %s: a reflector stays one as long as it is suitable", v1alpha1.KeepAnnotation)
	}
	if t.PodsUncounted != "" {
		s.say("workloads", "not counted, so that all nodes count as free of them: %s", t.PodsUncounted)
	} else if n.Workloads > 0 {
		s.say("workloads", "pods on it that no DaemonSet made: %d", n.Workloads)
	}
}

// steps says what is pending of the node, and whether anything is.
func (t Topology) steps(s *Section, n routereflector.Node) bool {
	pending := false
	for i, step := range t.Plan.Steps {
		if step.Node() != n.Name {
			continue
		}
		pending = true
		s.heed("pending", "step %d of %d, %s: %s", i+1, len(t.Plan.Steps), routereflector.Kind(step), step.What().Reason)
	}
	if plan := t.World.Topology.Status.Plan; pending && plan != nil && plan.WaitingFor != "" {
		s.heed("waits", "%s", plan.WaitingFor)
	}
	return pending
}

// state says how it stands with the topology as a whole.
func (t Topology) state(s *Section, unkept string) {
	status := t.World.Topology.Status
	for _, r := range t.Plan.Refusals {
		s.sayIf(r.Reason != routereflector.ReasonPaused, "held back", "%s (%s)", r.Message, r.Reason)
	}
	for _, f := range t.found() {
		// What the plan refuses is in a condition as well.
		same := slices.ContainsFunc(t.Plan.Refusals, func(r routereflector.Refusal) bool { return strings.Contains(f.What, r.Message) })
		if !same {
			s.heed("found", "%s", strings.TrimPrefix(f.What, f.Where+": "))
			s.say("next", "%s", f.Do)
		}
	}
	if others := len(t.Plan.Steps); others > 0 {
		s.say("topology", "steps to be done: %d, rollout mode %s", others, t.World.Topology.Spec.Rollout.Mode)
	}
	for _, u := range t.Unread {
		s.heed("not read", "%s", u)
	}
	s.unkept(unkept)
	if status.Phase != "" {
		s.say("topology", "%s, as its operator says", status.Phase)
	}
}
