// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package design

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
)

// ForeignMarks lists, by node, labels and cluster IDs of nodes that look like the topology's and that its record does
// not have.
func ForeignMarks(w rr.World) []rr.Foreign {
	w = w.Recognized()
	return Foreign(&w, Decide(&w))
}

// Foreign lists what looks like the topology's and is not, by node.
func Foreign(w *rr.World, d Design) []rr.Foreign {
	var out []rr.Foreign
	say := func(n *rr.Node, format string, args ...any) {
		out = append(out, rr.Foreign{Node: n.Name, What: fmt.Sprintf("Node %s has "+format, append([]any{n.Name}, args...)...)})
	}
	for i := range w.Nodes {
		n := &w.Nodes[i]
		switch g := d.groupOfID(n.ClusterID); {
		case n.Usurps(&w.Topology) && n.CalicoLabel:
			what := fmt.Sprintf("annotation %s gives Node %s the label %s=%s, which this program did not write",
				rr.LabelsAnnotation, n.Name, v1alpha1.ReflectorLabel, w.Topology.Name)
			out = append(out, rr.Foreign{Node: n.Name, What: what})
		case n.Usurps(&w.Topology):
			say(n, "label %s=%s, which this program did not write", v1alpha1.ReflectorLabel, w.Topology.Name)
		case g != rr.Nowhere && !w.Exiting() && n.ForeignReflector(&w.Topology) && !n.AdoptedBy(&w.Topology):
			say(n, "cluster ID %s, which is that of group %s, and is not this topology's", n.ClusterID, Title(w, d, g))
		}
	}
	slices.SortFunc(out, func(a, b rr.Foreign) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// groupOfID is the group with a cluster ID, [nowhere] if there is none.
func (d Design) groupOfID(id string) int {
	for _, g := range d.Order() {
		if id != "" && d.IDs[g] == id {
			return g
		}
	}
	return rr.Nowhere
}
