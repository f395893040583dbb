// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"slices"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
)

// report tells people and monitoring what a round did: in Events what was done, once for each machine, and what begins to need a person.
func (r *Reconciler) report(ctx context.Context, plan nodesync.Plan, tried []applied) {
	r.forgetAnnounced(plan)
	r.announceGates(ctx, plan.Refusals)
	r.announceLeftovers(ctx, plan.Refusals)
	r.announcePodLeftovers(ctx, plan)
	r.reportRefusals(plan.Refusals)
	because, done := because(plan), map[nodesync.Subject]int{}
	for _, a := range tried {
		kind, subject := nodesync.Kind(a.Step), a.Step.Subject()
		log, outcome := r.Log.WithValues("step", kind, "host", subject.Host, "node", subject.KubernetesNode), "error"
		switch a.Outcome {
		case reconcile.Done:
			outcome = "done"
			log.Info("Applied step", "did", a.Step.String(), "because", because[subject])
			done[subject]++
			r.announceDone(ctx, a.Step)
		case reconcile.Conflict: // the next round decides again
			outcome = "conflict"
			log.Info("A step no longer applies, will plan again", "wanted", a.Step.String(), "because", a.Err.Error())
		default:
			if errors.Is(a.Err, errJournal) {
				r.Metrics.journalErrors.Inc()
			}
			log.Error(a.Err, "A step failed, will try the machine again later", "wanted", a.Step.String())
			r.announceFailure(ctx, a)
		}
		r.Metrics.steps.WithLabelValues(kind, outcome).Inc()
	}
	r.announceCleaned(ctx, plan, done)
}

// because says why the steps about each subject are planned.
func because(plan nodesync.Plan) map[nodesync.Subject]string {
	out := make(map[nodesync.Subject]string, len(plan.Decisions))
	for _, d := range plan.Decisions {
		out[d.Of] = d.Because
	}
	return out
}

// reportRefusals logs each refusal when it appears, and when it is over. Those that only mean "not a Kubernetes node" or "not yet" are
// for people who ask.
func (r *Reconciler) reportRefusals(refusals []nodesync.Refusal) {
	counts := make(map[nodesync.Gate]int)
	current := make(map[nodesync.Refusal]bool, len(refusals))
	for _, refusal := range refusals {
		counts[refusal.Gate]++
		key := nodesync.Refusal{Of: refusal.Of, Gate: refusal.Gate}
		if slices.Contains([]nodesync.Gate{nodesync.GateMass, nodesync.GateOverlap, nodesync.GateLeftoverGuard}, refusal.Gate) {
			key.Message = refusal.Message // a person acts on what it says, so it is said again when it changes
		}
		if current[key] {
			continue
		}
		current[key] = true
		if !r.refused[key] {
			r.Log.V(verbosity(refusal.Gate)).Info("Left alone", "gate", refusal.Gate, "host", refusal.Of.Host, "because", refusal.Message)
		}
	}
	for key := range r.refused {
		if !current[key] {
			r.Log.V(max(1, verbosity(key.Gate))).Info("No longer held back by this gate", "gate", key.Gate, "host", key.Of.Host)
		}
	}
	r.refused = current
	for _, gate := range nodesync.Gates() {
		r.Metrics.refusals.WithLabelValues(string(gate)).Set(float64(counts[gate]))
	}
}

func verbosity(gate nodesync.Gate) int {
	quiet := []nodesync.Gate{nodesync.GateNoIdentity, nodesync.GateOtherOrchestrator, nodesync.GatePace, nodesync.GateOrphanedConfiguration}
	if slices.Contains(quiet, gate) {
		return 1
	}
	return 0
}
