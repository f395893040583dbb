// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/reachability"
)

// Numbers of paths to one prefix from which on they are worth a word: flat topologies have as many as reflectors, hierarchies eight. BIRD holds
// every path of every prefix, and passes all of them on.
const (
	manyPaths    = 16
	tooManyPaths = 100
)

// meshComfort is how many nodes a full mesh is good for (Calico's documentation names about a hundred).
const meshComfort = 100

func (x examined) counted(f routereflector.Family) (up, silent int) {
	for i := range x.Nodes {
		switch n := &x.Nodes[i]; {
		case f.Up[i]:
			up++
		case n.Ready != corev1.ConditionTrue:
			silent++
		}
	}
	return up, silent
}

// reachable asks the model which nodes have no route to which.
func reachable(x examined) []finding.Finding {
	var out []finding.Finding
	for _, f := range x.families {
		up, silent := x.counted(f)
		v := f.Network.Judge(func(i int32) bool { return !f.Up[i] })
		aside := ""
		if silent > 0 {
			aside = fmt.Sprintf("; %s that are not Ready are not counted", prose.Plural(silent, "node"))
		}
		if v.UnreachablePairs == 0 {
			out = append(out, finding.OK.Say("each of %s has a route to every other by %s%s", prose.Plural(up, "node"), f.Name, aside))
			continue
		}
		why, do := x.blackHole(f, v.Examples)
		out = append(out, finding.Problem.Say("%d of %d ways from a node to another have no route by %s, such as %s%s", v.UnreachablePairs, up*(up-1), f.Name, pairs(v.Examples), aside).At(x.concerned(v.Examples)).
			Because(why).
			Advise(do))
	}
	if len(x.families) == 0 {
		look := "annotation " + routereflector.IPv4Annotation + " of the Nodes"
		if x.Etcd {
			look = "spec.bgp of the Calico Nodes"
		}
		severity := finding.Problem
		if x.useless() {
			severity = finding.Note
		}
		out = append(out, severity.Say("no node has a BGP address").
			Because("Calico's BGP is off (vxlan, none), or calico-node has not started anywhere").
			Advise("look at "+look+" and at calico-node's log"))
	}
	return out
}

// concerned is the first topology to which a node of the pairs belongs, as a reflector or as a client; empty for none.
func (x examined) concerned(pairs []reachability.Pair) string {
	for i := range x.Topologies {
		w := routereflector.World{Topology: *x.Topologies[i].DeepCopy()}
		v1alpha1.SetDefaults(&w.Topology)
		for _, p := range pairs {
			for _, name := range []string{p.From, p.To} {
				n := x.Nodes[x.index(name)]
				_, client := w.ClientOf(n)
				if client || n.Labels[v1alpha1.ReflectorLabel] == w.Topology.Name {
					return "RouteReflectorTopology " + w.Topology.Name
				}
			}
		}
	}
	return ""
}

func pairs(all []reachability.Pair) string {
	texts := make([]string, 0, 2)
	for _, p := range all[:min(2, len(all))] {
		texts = append(texts, p.From+" to "+p.To)
	}
	return strings.Join(texts, " and ")
}

// blackHole says why the first of the pairs has no route, and what helps.
func (x examined) blackHole(f routereflector.Family, examples []reachability.Pair) (why, do string) {
	const all = "give every client every reflector of its cluster ID, as a RouteReflectorTopology does"
	if len(examples) == 0 {
		return "", ""
	}
	from, to := x.index(examples[0].From), x.index(examples[0].To)
	for _, i := range []int32{from, to} {
		if n := &x.Nodes[i]; n.ClusterID != "" && f.Network.Sessions(i) == 0 {
			return n.Name + " is a route reflector, which the mesh leaves out, and no BGPPeer gives it a session", "name it in a BGPPeer, or remove its cluster ID"
		}
	}
	for _, i := range []int32{from, to} {
		if name := x.Nodes[i].Name; f.Network.Sessions(i) == 0 {
			if !x.Mesh.On {
				return "the mesh is off, and no BGPPeer gives " + name + " a session", "make the BGPPeer for clients select it, or turn the mesh on"
			}
			return name + " is in the mesh, and the other is not and has no session with it", "give it a BGPPeer to the reflectors: they are not members of the mesh"
		}
	}
	if id, left, right := x.apart(f, from, to); id != "" {
		return fmt.Sprintf("they have no reflector in common: the one has %s, the other %s, all with cluster ID %s, and a reflector takes no route that its own cluster has "+
			"reflected", finding.Few(left), finding.Few(right), id), all
	}
	return "no chain of reflectors leads from the one to the other: a route goes through reflectors only where their sessions and cluster IDs let it", all
}

func (x examined) index(name string) int32 {
	return int32(slices.IndexFunc(x.Nodes, func(n routereflector.Node) bool { return n.Name == name })) //nolint:gosec // there are fewer nodes
}

// apart reports whether two nodes have no reflector in common although all of theirs share one cluster ID.
func (x examined) apart(f routereflector.Family, a, b int32) (id string, left, right []string) {
	for _, r := range x.reflectors {
		ofA, ofB := f.Network.HasSession(a, r), f.Network.HasSession(b, r)
		if !ofA && !ofB {
			continue
		}
		n := &x.Nodes[r]
		if ofA && ofB || id != "" && n.ClusterID != id {
			return "", nil, nil
		}
		id = n.ClusterID
		if ofA {
			left = append(left, n.Name)
		} else {
			right = append(right, n.Name)
		}
	}
	if len(left) == 0 || len(right) == 0 {
		return "", nil, nil
	}
	return id, left, right
}

// paths asks the model how many paths a prefix has.
func paths(x examined) []finding.Finding {
	most := 0
	for _, f := range x.families {
		v := f.Network.Judge(func(i int32) bool { return !f.Up[i] })
		most = max(most, v.MaxPaths, v.ForeignPaths)
	}
	number := fmt.Sprint(most)
	if most >= reachability.MaxPaths {
		number = fmt.Sprintf("%d and more", reachability.MaxPaths)
	}
	if most <= manyPaths {
		return []finding.Finding{finding.OK.Say("a node has at most %s to one prefix", prose.Plural(most, "path"))}
	}
	severity := finding.Warning
	if most > tooManyPaths {
		severity = finding.Problem
	}
	ids := map[string]bool{}
	for _, r := range x.reflectors {
		ids[x.Nodes[r].ClusterID] = true
	}
	return []finding.Finding{severity.Say("by the model a node has up to %s paths to one prefix; there are %s with %s", number, prose.Plural(len(x.reflectors), "reflector"),
		prose.Plural(len(ids), "cluster ID")).
		Because("Calico's BIRD passes every path on, and only a cluster ID that a route has seen stops it: each way through reflectors of different IDs that peer with each " +
			"other is a path of its own, so that their number grows with the factorial of the reflectors, and BIRD's memory and the time to converge with it").
		Advise("let reflectors that peer with each other share one cluster ID, and every client have all of them, as a RouteReflectorTopology does")}
}

// mesh looks at the mesh alongside reflectors, and at one that is large.
func mesh(x examined) []finding.Finding {
	serving := x.serving()
	switch {
	case x.Mesh.On && len(serving) > 0:
		return []finding.Finding{finding.Warning.Say("the node-to-node mesh is on in addition to %s that serve clients (%s)", prose.Plural(len(serving), "reflector"), finding.Few(serving)).
			Because("every node still has a session with every other one, which reflectors should replace; and reflectors are not members of the mesh").
			Advise("when every client's sessions with the reflectors are Established (CalicoNodeStatus, `calicoctl node status`), set nodeToNodeMeshEnabled: false in " +
				"BGPConfiguration default; a RouteReflectorTopology does that in this order")}
	case x.Mesh.On && len(x.Nodes) > meshComfort && x.useless():
		n := len(x.Nodes)
		return []finding.Finding{finding.Note.Say("%d nodes are in a full mesh of %d sessions that carries no route between nodes", n, n*(n-1)/2).
			Because("each calico-node keeps its sessions all the same").
			Advise("set nodeToNodeMeshEnabled: false in BGPConfiguration default, unless you announce Services or peer with routers outside the cluster")}
	case x.Mesh.On && len(x.Nodes) > meshComfort:
		n := len(x.Nodes)
		return []finding.Finding{finding.Warning.Say("%d nodes are in a full mesh: %d sessions", n, n*(n-1)/2).
			Because("each node has a session with every other one, and each change is sent to all of them").
			Advise("route reflectors: `spec: {}` of a RouteReflectorTopology is a start")}
	case x.Mesh.On:
		return []finding.Finding{finding.OK.Say("the node-to-node mesh is on, and no reflector serves clients")}
	}
	return []finding.Finding{finding.OK.Say("the node-to-node mesh is off")}
}

// serving are the reflectors that have a session with a node that is none, in any family.
func (x examined) serving() []string {
	var out []string
	for _, r := range x.reflectors {
		if slices.ContainsFunc(x.families, func(f routereflector.Family) bool {
			for i := range x.Nodes {
				if x.Nodes[i].ClusterID == "" && f.Network.HasSession(int32(i), r) { //nolint:gosec // there are fewer nodes
					return true
				}
			}
			return false
		}) {
			out = append(out, x.Nodes[r].Name)
		}
	}
	return out
}
