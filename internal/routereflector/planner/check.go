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
	w.Topology.Status.Record = rr.Recorded(w.Topology.Status.Record, step)
	if w.Topology.Status.Emergency = health.EmergencyStatus(&w); rr.Is[rr.MeshOff](step) {
		w.Topology.Status.Emergency = nil
	}
	return model.In(w, model.StateOf(w).After(step))
}

// fallback plans what remains in an emergency in which no node may be a reflector: the mesh, if it is the topology's to
// switch, and not too large with the Nodes that there were.
func fallback(w *rr.World, p *rr.Plan, now model.Judged) {
	if !health.Emergency(w) && health.Adrift(w) == "" || w.Topology.Spec.Mesh != v1alpha1.MeshManage ||
		health.MeshTooLargeByFar(w) {
		return
	}
	why := "no reflector is running, and no node may become one; the mesh takes over"
	step := rr.MeshOn{About: next.MeshStep(w, why)}
	p.Target = model.Judge(w, now.State.After(step)).Checks
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

// lookout is the World ahead of which a plan looks, with the steps that have been found to lead there.
type lookout struct {
	from   *rr.World
	plan   *rr.Plan
	chosen choose.Choice

	at      rr.World
	now     model.Judged
	clients int // steps that are writes to clients
	asked   int // steps that the model was asked about
}

// check keeps the steps that the model lets pass, up to where it lets none pass, and returns the World after them.
func check(w *rr.World, p *rr.Plan, now model.Judged, chosen choose.Choice) (at rr.World) {
	role := map[string]rr.Reflector{}
	for _, r := range p.Reflectors {
		role[r.Node] = r
	}
	l := lookout{from: w, plan: p, chosen: chosen, at: *w, now: now}
	for {
		stages := next.Stages(&l.at, chosen, role)
		if len(stages) == 0 {
			return l.at
		}
		if refusal := l.advance(stages); refusal != "" {
			if next.Held(&l.at) == "" {
				p.Refusals = append(p.Refusals, rr.Refusal{Reason: rr.ReasonUnsafe, Message: refusal})
			}
			return l.at
		}
		if p.More {
			return l.at
		}
	}
}

// advance takes the steps of the first stage that has one which the model lets pass, and says why not if none has.
func (l *lookout) advance(stages [][]rr.Step) (refusal string) {
	for _, stage := range stages {
		taken := 0
		for _, step := range stage {
			broken := l.take(step)
			if l.plan.More || broken != "" && taken > 0 {
				return ""
			}
			if broken != "" {
				refusal = cmp.Or(refusal, fmt.Sprintf("%s %s is not done: %s", rr.Kind(step), step.What().Object, broken))
				break
			}
			taken++
		}
		if taken > 0 {
			return ""
		}
	}
	return refusal
}

// take adds a step to the plan, unless the model says what it would break, or there are more than a plan lists.
func (l *lookout) take(step rr.Step) (broken string) {
	after, known := l.now, retired(l.now, step)
	l.clients, l.asked = l.clients+rr.Count(rr.OfClient(step)), l.asked+rr.Count(!known)
	if l.clients > maxClientSteps || l.asked > lookahead(len(l.from.Nodes)) {
		l.plan.More = true
		return ""
	}
	if !known {
		after = model.Judge(l.from, afterAll(l.from, l.now.State, step), l.now)
		broken := model.Breaks(l.from, l.now, after, step, l.chosen.Least())
		if broken != "" && !l.from.Abandons() {
			return broken
		}
	}
	l.plan.Steps = append(l.plan.Steps, step)
	l.plan.Simulated = append(l.plan.Simulated, rr.Simulated{Step: step, Checks: after.Checks})
	l.plan.Target, l.now, l.at = after.Checks, after, model.In(l.at, after.State)
	return ""
}

// afterAll is the state after a step, and with the first RetirePeer after all of them: more sessions than those of the
// last state never take a path away, so that what holds when the last one is gone holds at every prefix. An old cluster
// has thousands of them.
func afterAll(w *rr.World, s model.State, step rr.Step) model.State {
	if !rr.Is[rr.RetirePeer](step) {
		return s.After(step)
	}
	for _, p := range w.AdoptedPeers() {
		s = s.After(rr.RetirePeer{Name: p.Name})
	}
	return s
}

// retired says that the judged state lacks the BGPPeer of a RetirePeer already.
func retired(j model.Judged, step rr.Step) bool {
	retire, is := step.(rr.RetirePeer)
	return is && !slices.ContainsFunc(j.Peers, func(p rr.Peer) bool { return p.Name == retire.Name })
}
