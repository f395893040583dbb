// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

// redundancy looks for clients that the loss of one reflector cuts off, and for reflectors that are not Ready.
func redundancy(x examined) []finding.Finding {
	var out []finding.Finding
	for _, r := range x.reflectors {
		if n := &x.Nodes[r]; n.Ready != corev1.ConditionTrue {
			out = append(out, finding.Warning.Say("reflector %s is not Ready", n.Name).
				Because("its BIRD may still serve routes or not; this cannot be seen from here").
				Advise("check the machine, or promote another node before this one is removed"))
		}
	}
	if x.Mesh.On || len(x.reflectors) == 0 {
		return out
	}
	for _, f := range x.families {
		single := x.singles(f)
		for _, reflector := range slices.Sorted(maps.Keys(single)) {
			out = append(out, finding.Warning.Say("%s with %s as the only reflector by %s: %s", prose.Plural(len(single[reflector]), "node"), reflector, f.Name, finding.Few(single[reflector])).
				Because("when it restarts, dies or loses its network, they lose every route that is not their own").
				Advise("give each client two reflectors at least, in different zones"))
		}
	}
	if len(out) == 0 {
		out = append(out, finding.OK.Say("each client has two or more of %s", prose.Plural(len(x.reflectors), "reflector")))
	}
	return out
}

// singles are the clients with one reflector that speaks, by that reflector.
func (x examined) singles(f routereflector.Family) map[string][]string {
	out := map[string][]string{}
	for i := range x.Nodes {
		if !f.Up[i] || x.Nodes[i].ClusterID != "" {
			continue
		}
		var with []string
		for _, r := range x.reflectors {
			if f.Up[r] && f.Network.HasSession(int32(i), r) { //nolint:gosec // there are fewer nodes
				with = append(with, x.Nodes[r].Name)
			}
		}
		if len(with) == 1 {
			out[with[0]] = append(out[with[0]], x.Nodes[i].Name)
		}
	}
	return out
}

// zones reports whether one zone holds all reflectors while nodes are in several.
func zones(x examined) []finding.Finding {
	of := func(n *routereflector.Node) string { return n.Labels[corev1.LabelTopologyZone] }
	all, theirs := map[string]bool{}, map[string]bool{}
	for i := range x.Nodes {
		if zone := of(&x.Nodes[i]); zone != "" {
			all[zone] = true
		}
	}
	for _, r := range x.reflectors {
		theirs[of(&x.Nodes[r])] = true
	}
	if len(x.reflectors) < 2 || len(all) < 2 {
		return nil
	}
	if len(theirs) > 1 {
		return []finding.Finding{finding.OK.Say("the reflectors are in %s of %d", prose.Plural(len(theirs), "zone"), len(all))}
	}
	return []finding.Finding{finding.Warning.Say("all %d reflectors are in zone %q, and nodes are in %d zones", len(x.reflectors), slices.Sorted(maps.Keys(theirs))[0], len(all)).
		Because("with that zone the nodes of all others lose their routes").
		Advise("spread the reflectors, as a RouteReflectorTopology does by default (spec.topologyKeys)")}
}

// clusterIDs finds cluster IDs that Calico or BIRD does not understand.
func clusterIDs(x examined) []finding.Finding {
	var out []finding.Finding
	for i := range x.Nodes {
		n := &x.Nodes[i]
		id, stored := n.Annotations[routereflector.ClusterIDAnnotation], fmt.Sprintf("annotation %s of Node %s", routereflector.ClusterIDAnnotation, n.Name)
		why := "Calico ignores it silently: the node is not a reflector, whatever its labels say, and passes no routes on"
		if x.Etcd {
			id, stored = x.InvalidIDs[n.Name], "spec.bgp.routeReflectorClusterID of Calico Node "+n.Name
			why = "confd writes it into that node's bird.cfg as it is, and BIRD rejects such a file: from then on the node applies no changes"
		}
		if id != "" && n.ClusterID == "" {
			out = append(out, finding.Problem.Say("%s is %q, which is not an IPv4 address", stored, id).
				Because(why).
				Advise("write an address such as 244.0.0.1, or remove it"))
		}
	}
	return out
}

// The BGPPeers of the project that the operator succeeds (its topologies/single.go and multi.go).
const (
	predecessorsMesh    = "rrs-to-rrs"
	predecessorsClients = "peer-to-rrs-"
)

// owners says whose BGPPeers there are, where more than one program may want to have a say.
func owners(x examined) []finding.Finding {
	topologies, old := map[string]bool{}, []string(nil)
	for i := range x.Peers {
		p := &x.Peers[i]
		switch {
		case p.Topology != "":
			topologies[p.Topology] = true
		case p.Name == predecessorsMesh || strings.HasPrefix(p.Name, predecessorsClients):
			old = append(old, p.Name)
		}
	}
	switch {
	case len(old) > 0 && len(topologies) > 0:
		return []finding.Finding{finding.Problem.Say("%s of the former calico-route-reflector-operator (%s) exist in addition to those of topology %s", prose.Plural(len(old), "BGPPeer"), finding.Few(old),
			finding.Few(slices.Collect(maps.Keys(topologies)))).
			Because("if that program still runs, the two conflict over the reflectors, and it deletes BGPPeers that it has not created").
			Advise("scale it to zero; then remove its BGPPeers, one at a time")}
	case len(old) > 0:
		return []finding.Finding{finding.Note.Say("%s are of the former calico-route-reflector-operator: %s", prose.Plural(len(old), "BGPPeer"), finding.Few(old)).
			Because("that program deletes every BGPPeer that it has not created, including those to external routers (its topology multi)").
			Advise("do not add BGPPeers by hand while it runs")}
	}
	return nil
}
