// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"slices"

	"github.com/go-logr/logr"

	"github.com/mooring-dev/mooring/internal/nodesync"
)

// report tells people and monitoring what a round did.
func (r *Reconciler) report(ctx context.Context, log logr.Logger, plan nodesync.Plan, tried []applied) {
	r.announce(ctx, plan, tried)
	r.reportRefusals(log, plan.Refusals)
	because := because(plan)
	for _, a := range tried {
		kind, subject := nodesync.Kind(a.Step), a.Step.Subject()
		entry := log.WithValues("step", kind, "host", subject.Host, "node", subject.KubernetesNode)
		switch {
		case a.Err == nil:
			r.Metrics.steps.WithLabelValues(kind, "done").Inc()
			entry.Info("Applied step", "did", a.Step.String(), "because", because[subject])
		case settled(a.Err):
			r.Metrics.steps.WithLabelValues(kind, "conflict").Inc()
			entry.Info("A step no longer applies, will plan again", "wanted", a.Step.String(), "because", a.Err.Error())
		default:
			r.Metrics.steps.WithLabelValues(kind, "error").Inc()
			if errors.Is(a.Err, errJournal) {
				r.Metrics.journalErrors.Inc()
			}
			entry.Error(a.Err, "A step failed, will try the machine again later", "wanted", a.Step.String())
		}
	}
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
func (r *Reconciler) reportRefusals(log logr.Logger, refusals []nodesync.Refusal) {
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
			log.V(verbosity(refusal.Gate)).Info("Left alone", "gate", refusal.Gate, "host", refusal.Of.Host, "because", refusal.Message)
		}
	}
	for key := range r.refused {
		if !current[key] {
			log.V(max(1, verbosity(key.Gate))).Info("No longer held back by this gate", "gate", key.Gate, "host", key.Of.Host)
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
