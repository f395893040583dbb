// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package next

import (
	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/choose"
)

// adoptions are the steps that label reflectors which have the right ID already, be they to stay or not: without the
// label they would be clients of the same ID, which reflectors do not pass on to one another. Those with another ID
// join as everybody does.
func adoptions(w *rr.World) []rr.Step {
	var out []rr.Step
	for _, n := range w.AdoptedNodes() {
		if !n.AdoptedWithID(&w.Topology) {
			continue
		}
		change := NodeStep(&n, choose.WhyAdopted(w, &n), n.Marks(w.Topology.Name))
		out = append(out, rr.Adopt{RoleChange: rr.RoleChange{NodeChange: change, ClusterID: w.Topology.Spec.ClusterID}})
	}
	return out
}

// retirements are the steps that delete the BGPPeers which spec.adopt names.
func retirements(w *rr.World) []rr.Step {
	var out []rr.Step
	for _, p := range w.AdoptedPeers() {
		const why = "spec.adopt names it, and the topology's own BGPPeers give the same sessions"
		out = append(out, rr.RetirePeer{About: rr.AboutPeer(p.Name, p, why), Name: p.Name})
	}
	return out
}
