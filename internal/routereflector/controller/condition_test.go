// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

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
