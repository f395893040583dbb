// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

// Whether a topology is degraded by a note says the note's kind, whatever its words.
func TestNotesDegradeByTheirKind(t *testing.T) {
	t.Parallel()
	const words = "only 2 of 3 reflectors"
	for kind, want := range map[routereflector.NoteKind]string{routereflector.NoteAdvice: reasonNotDegraded, routereflector.NoteTooFew: reasonTooFew} {
		for _, message := range []string{words, "anything else"} {
			o := outcome{plan: routereflector.Plan{Notes: []routereflector.Note{{Kind: routereflector.NoteAdvice, Message: "advice"}, {Kind: kind, Message: message}}}}
			if degraded, reason, _ := degradation(o, true, then()); reason != want || degraded != (want == reasonTooFew) {
				t.Errorf("%s %q: degraded %t, %s", kind, message, degraded, reason)
			}
		}
	}
}

// What Flux and Argo CD make of a topology while something goes on, or is wrong: see TestHeld for what holds a plan back.
func TestGitOpsOfATopology(t *testing.T) {
	t.Parallel()
	const current, busy, failed = "Current Healthy", "InProgress Progressing", "Failed Degraded"
	refused := func(reason routereflector.Reason) outcome {
		return outcome{plan: routereflector.Plan{Refusals: []routereflector.Refusal{{Reason: reason, Message: "why"}}}}
	}
	steps := routereflector.Plan{Steps: []routereflector.Step{promotion("a", "")}}
	waiting := routereflector.Plan{Waiting: "sessions"}
	for name, c := range map[string]struct {
		o    outcome
		want string
	}{
		"nothing to do":                {outcome{}, current},
		"steps":                        {outcome{plan: steps, act: true}, busy},
		"waits for sessions":           {outcome{plan: waiting, act: true}, busy},
		"waits for too long":           {outcome{plan: waiting, act: true, timedOut: true}, failed},
		"a reflector is not Ready":     {outcome{plan: routereflector.Plan{Troubles: []routereflector.Trouble{{Node: "a"}}}}, busy},
		"a write failed":               {outcome{trouble: "refused"}, busy},
		"pods are not read":            {outcome{plan: steps, held: reasonPodsUnread, why: "not yet"}, busy},
		"no node may be a reflector":   {refused(routereflector.ReasonNoReflectors), busy},
		"half of the Nodes are gone":   {refused(routereflector.ReasonNodesVanished), busy},
		"the next step would cut":      {refused(routereflector.ReasonUnsafe), failed},
		"a selector selects no longer": {refused(routereflector.ReasonMatchesNothing), failed},
	} {
		s := &scene{topology: &v1alpha1.RouteReflectorTopology{}, world: routereflector.World{Now: then()}}
		s.topology.Generation, s.topology.Status.ObservedGeneration = 2, 2
		setConditions(&s.topology.Status, s, c.o)
		t.Run(name, func(t *testing.T) { t.Parallel(); expectHealth(t, s.topology, c.want) })
	}
}
