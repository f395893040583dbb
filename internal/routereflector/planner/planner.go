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
	"github.com/mooring-dev/mooring/internal/routereflector/design"
	"github.com/mooring-dev/mooring/internal/routereflector/gate"
	"github.com/mooring-dev/mooring/internal/routereflector/health"
	"github.com/mooring-dev/mooring/internal/routereflector/model"
	"github.com/mooring-dev/mooring/internal/routereflector/rank"
	"github.com/mooring-dev/mooring/internal/routereflector/refuse"
)

// MakePlan plans. Nodes are put in order first: what the reachability model gives as examples, and what is said of them,
// follows the order of its speakers.
func MakePlan(w rr.World) rr.Plan {
	w.Nodes = slices.SortedFunc(slices.Values(w.Nodes), func(a, b rr.Node) int { return cmp.Compare(a.Name, b.Name) })
	w = health.Witnessed(w.Recognized())
	w.Topology.Status.Emergency = health.EmergencyStatus(&w)
	is := &w
	d := design.Decide(is)
	p := observed(is, d)
	now := model.Judge(is, model.StateOf(w))
	p.Checks, p.Target = now.Checks, now.Checks
	p.Spares = w.Topology.Status.Spares
	if p.Refusals = refuse.Refusals(&w, d); len(p.Refusals) > 0 {
		p.Reflectors = choose.Reflectors(is, choose.AsTheyAre(is, d))
		p.Groups = choose.Groups(is, p.Reflectors, d)
		return p
	}
	if is.Exiting() {
		p.Standing = nil // while the end is refused, the reflectors stay
	}
	chosen := choose.Choose(is, d)
	w.Topology.Status.Spares, p.Spares = chosen.Spares, chosen.Spares
	for i := range p.Troubles {
		p.Troubles[i].Spare = chosen.CoveredBy(p.Troubles[i].Node)
	}
	p.Reflectors = choose.Reflectors(is, chosen)
	p.Groups = choose.Groups(is, p.Reflectors, d)
	p.Stale, p.Hash = is.Stale(p.Reflectors), choose.Hash(is, chosen)
	if !is.Exiting() {
		p.Peers, p.Notes = design.FinalPeers(is, d), notes(is, p.Clients, chosen)
		if len(chosen.Groups) == 0 {
			p.Refusals = append(p.Refusals,
				rr.Refusal{Reason: rr.ReasonNoReflectors, Message: "no node may be a reflector: " + rank.WhyNobody(is)})
			fallback(is, &p, now)
			return p
		}
	}
	if honest := w.Honest(); len(honest.Nodes) < len(w.Nodes) {
		is = &honest
		now = model.Judge(is, model.StateOf(honest))
	}
	end := check(is, &p, now, chosen)
	p.Groups = choose.Groups(&end, p.Reflectors, d)
	gate.Decide(is, &p)
	return p
}

// observed is a plan that says the observed state, and nothing yet of what is to be done.
func observed(w *rr.World, d design.Design) rr.Plan {
	p := rr.Plan{
		Mode:      d.Mode(),
		Clients:   w.Clients(),
		Record:    w.Topology.Status.Record,
		Foreign:   design.Foreign(w, d),
		Emergency: w.Topology.Status.Emergency,
		Troubles:  health.Troubles(w),
	}
	p.Standing, p.Recheck, p.Lost, p.Isolated = health.StandingWitnesses(w), health.Recheck(
		w), health.LostReflectors(w), health.Isolated(
		w,
	)
	p.Baseline, p.Confirm = health.Believe(w)
	return p
}

// notes are warnings.
func notes(w *rr.World, clients int, chosen choose.Choice) []rr.Note {
	var out []rr.Note
	advise := func(message string) {
		out = append(out, rr.Note{Kind: rr.NoteAdvice, Message: message})
	}
	d := chosen.Design
	most := int(w.Topology.Spec.Sizing.MaxClientsPerReflector)
	if most > 0 && !d.Hierarchical() && clients > most && d.Short == "" {
		advise(fmt.Sprintf("each reflector has %d clients, more than spec.sizing.maxClientsPerReflector (%d); "+
			"with spec.mode Auto and without spec.sizing.perZone groups would divide them", clients, most))
	}
	if d.Short != "" {
		advise(d.Short)
	}
	want := 0
	for _, g := range d.Order() {
		want += d.Size(g)
	}
	if have := len(chosen.Groups) - rank.CountUnwanted(w, chosen.Names()); w.Topology.Spec.Sizing.PerZone == nil &&
		have < want {
		out = append(
			out,
			rr.Note{
				Kind:    rr.NoteTooFew,
				Message: fmt.Sprintf("only %d of %d reflectors: %s", have, want, rank.WhyNobody(w)),
			},
		)
	}
	if w.Adopted() {
		advise("nothing is left that spec.adopt names; take it out of the spec")
	}
	for _, d := range rr.Discords(w.Nodes, w.Peers) {
		advise(d.String())
	}
	if w.Mesh.On && w.Topology.Spec.Mesh == v1alpha1.MeshManage && gate.TooManyRoutes(w) {
		advise("there are more routes than a CalicoNodeStatus can hold, " +
			"so that before the mesh is turned off a sample of clients reports its sessions, not its routes")
	}
	return out
}
