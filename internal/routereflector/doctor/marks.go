// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"

	"github.com/mooring-dev/mooring/internal/routereflector/design"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

// asNumbers finds BGPPeers that give a node another AS number than it has, and nodes of an AS of their own that reach each other by the mesh alone.
func asNumbers(x examined) []finding.Finding {
	var out []finding.Finding
	for _, d := range routereflector.Discords(x.Nodes, x.Peers) {
		out = append(out, finding.Problem.Say("%s", d.String()).
			Because("each end of a BGP session checks the other's AS number; and because BIRD has one neighbor for each address, no other session of the two comes up either, of the "+
				"mesh or of another BGPPeer").
			Advise("correct or remove the AS number in the BGPPeer, or give the Node that one"))
	}
	own := map[uint32][]string{}
	for i := range x.Nodes {
		if n := &x.Nodes[i]; n.ForeignAS {
			own[n.AS] = append(own[n.AS], n.Name)
		}
	}
	for as, names := range own {
		if len(names) < 2 || len(x.reflectors) == 0 {
			continue
		}
		slices.Sort(names)
		out = append(out, finding.Warning.Say("%s have AS number %d, which is not the cluster's: %s", prose.Plural(len(names), "node"), as, finding.Few(names)).
			Because("by reflectors they do not reach each other: a route that has left an AS is refused by all others of that AS").
			Advise("let a BGPPeer give them sessions with each other, or take the AS number (annotation "+routereflector.ASNumberAnnotation+") from all but one"))
	}
	switch {
	case len(out) > 0:
	case len(x.Unread) > 0:
		out = append(out, finding.Note.Say("the AS numbers of those nodes and BGPPeers that can be read agree").AsUnread())
	default:
		out = append(out, finding.OK.Say("the AS numbers of nodes and BGPPeers agree"))
	}
	return out
}

// foreignMarks finds labels and cluster IDs of reflectors that no topology's operator wrote.
func foreignMarks(x examined) []finding.Finding {
	if x.NoTopologies != "" {
		return []finding.Finding{finding.Note.Say("it is unknown which labels of reflectors the operator wrote: %s", x.NoTopologies).AsUnread().
			Because("status.record of RouteReflectorTopologies has them").
			Advise("run it with an account that may list routereflectortopologies.bgp.mooring.dev")}
	}
	var out []finding.Finding
	for i := range x.Topologies {
		w := routereflector.World{Topology: *x.Topologies[i].DeepCopy(), Nodes: x.Nodes, Peers: x.Peers, Mesh: x.Mesh}
		v1alpha1.SetDefaults(&w.Topology)
		for j := range x.Topologies {
			if j != i {
				w.Others = append(w.Others, x.Topologies[j])
			}
		}
		for _, f := range design.ForeignMarks(w) {
			out = append(out, finding.Warning.Say("%s", f.What).
				Because("a kubelet can write its own Node; the operator ignores the label, but Calico may give the node sessions because of it").
				Advise(fmt.Sprintf("find out who wrote it, then `kubectl label node %[1]s %[2]s-` and `kubectl annotate node %[1]s %[3]s- %[4]s-`; where a policy "+
					"refuses that, as the operator's page says under Installing", f.Node, v1alpha1.ReflectorLabel, routereflector.ClusterIDAnnotation,
					routereflector.LabelsAnnotation)))
		}
	}
	if len(out) == 0 && len(x.Topologies) > 0 {
		out = append(out, finding.OK.Say("the operator wrote every label of reflectors"))
	}
	return out
}
