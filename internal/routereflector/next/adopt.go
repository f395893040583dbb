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
		step := NodeStep(rr.Adopt, &n, choose.WhyAdopted(w, &n))
		step.NodeLabels = n.Ungrouped()
		out = append(out, step)
	}
	return out
}

// retirements are the steps that delete the BGPPeers which spec.adopt names.
func retirements(w *rr.World) []rr.Step {
	var out []rr.Step
	for _, p := range w.AdoptedPeers() {
		out = append(out, rr.Step{
			Kind: rr.RetirePeer, Object: "BGPPeer/" + p.Name, Peer: p, UID: p.UID, ResourceVersion: p.ResourceVersion,
			Reason: "spec.adopt names it, and the topology's own BGPPeers give the same sessions",
		})
	}
	return out
}
