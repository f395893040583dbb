// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/choose"
	"github.com/mooring-dev/mooring/internal/routereflector/health"
	"github.com/mooring-dev/mooring/internal/routereflector/model"
	"github.com/mooring-dev/mooring/internal/routereflector/next"
)

// After is the World once a step has been carried out and everything has settled, as callers that look ahead see it.
func After(w rr.World, step rr.Step) rr.World {
	w = w.Recognized()
	if n, exists := w.Node(step.Node); exists {
		step.UID = cmp.Or(step.UID, n.UID)
	}
	w.Topology.Status.Record = rr.Recorded(w.Topology.Status.Record, step, w.Topology)
	if w.Topology.Status.Emergency = health.EmergencyStatus(&w); step.Kind == rr.MeshOff {
		w.Topology.Status.Emergency = nil
	}
	return model.In(w, model.StateOf(w).After(step, w.Topology))
}

// fallback plans what remains in an emergency in which no node may be a reflector: the mesh, if it is the topology's to
// switch, and not too large with the Nodes that there were.
func fallback(w *rr.World, p *rr.Plan, now model.Judged) {
	if !health.Emergency(w) && health.Adrift(w) == "" || w.Topology.Spec.Mesh != v1alpha1.MeshManage ||
		health.MeshTooLargeByFar(w) {
		return
	}
	step := next.MeshStep(w, rr.MeshOn, "no reflector is running, and no node may become one; the mesh takes over")
	p.Target = model.Judge(w, now.State.After(step, w.Topology)).Checks
	p.Steps, p.Simulated, p.AtOnce = []rr.Step{step}, []rr.Simulated{{Step: step, Checks: p.Target}}, 1
}

// maxClientSteps is how many writes to clients a plan lists: of those that come after them it lists none. Later plans do,
// as it is carried out.
const maxClientSteps = 8

// lookahead is about how many writes of all kinds a plan lists, each of which the model is asked about. That costs a look at
// all nodes, so that there are fewer of them in a large cluster: the work of a plan grows with the nodes, and not with the
// nodes times the groups.
func lookahead(nodes int) int {
	const most, least, looks = 40, 8, 600_000
	return min(most, max(least, looks/max(nodes, 1)))
}

// check keeps the steps that the model lets pass, up to the first that it does not, and returns the World after them.
func check(w *rr.World, p *rr.Plan, now model.Judged, chosen choose.Choice) (at rr.World) {
	role := map[string]rr.Reflector{}
	for _, r := range p.Reflectors {
		role[r.Node] = r
	}
	clients, asked, limit := 0, 0, lookahead(len(w.Nodes))
	for at = *w; ; {
		stage := next.Steps(&at, chosen, role)
		if len(stage) == 0 {
			return at
		}
		for _, step := range stage {
			after, known := now, retired(now, step)
			clients, asked = clients+rr.Count(step.OfClient()), asked+rr.Count(!known)
			if clients > maxClientSteps || asked > limit {
				p.More = true
				return at
			}
			if !known {
				after = model.Judge(w, afterAll(w, now.State, step), now)
				if broken := model.Breaks(w, now, after, step, chosen.Least()); broken != "" && !w.Abandons() {
					why := fmt.Sprintf("%s %s is not done: %s", step.Kind, step.Object, broken)
					p.Refusals = append(p.Refusals, rr.Refusal{Reason: rr.ReasonUnsafe, Message: why})
					return at
				}
			}
			p.Steps = append(p.Steps, step)
			p.Simulated = append(p.Simulated, rr.Simulated{Step: step, Checks: after.Checks})
			p.Target, now, at = after.Checks, after, model.In(at, after.State)
		}
	}
}

// afterAll is the state after a step, and with the first RetirePeer after all of them: more sessions than those of the
// last state never take a path away, so that what holds when the last one is gone holds at every prefix. An old cluster
// has thousands of them.
func afterAll(w *rr.World, s model.State, step rr.Step) model.State {
	if step.Kind != rr.RetirePeer {
		return s.After(step, w.Topology)
	}
	for _, p := range w.AdoptedPeers() {
		s = s.After(rr.Step{Kind: rr.RetirePeer, Peer: p}, w.Topology)
	}
	return s
}

// retired says that the judged state lacks the BGPPeer of a RetirePeer already.
func retired(j model.Judged, step rr.Step) bool {
	return step.Kind == rr.RetirePeer &&
		!slices.ContainsFunc(j.Peers, func(p rr.Peer) bool { return p.Name == step.Peer.Name })
}
