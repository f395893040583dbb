// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mooring-dev/mooring/internal/platform/outputs"
)

// Plan is what was decided: values only, of which nothing is done yet.
type Plan[N comparable, S, M any] struct {
	// Needs are what has to be read for a better plan, in the order in which it is read.
	Needs []N
	// Steps are the writes, in their order.
	Steps []S
	// Again says that the plan is made again after its steps, with what came of them: what that is worth is for the
	// next plan to say.
	Again bool
	// Refusals are what is not done until a person or the world changes something. They are reported, and the next
	// round is the next resync.
	Refusals []error
	// Unread is what could not be read: the plan does without, and the round is made again.
	Unread []error
	// Memory is saved before the first step, nil if there is nothing new to remember.
	Memory *M
	// Next is when to look again, 0 for when there is a reason to.
	Next time.Duration
	// Rest and Look are how long nothing starts the next round, and how often it is looked whether one is due early,
	// see [Result].
	Rest, Look time.Duration
	// Due is when something is due by the clock, see [Result].
	Due time.Time
	// Notes are what people have to be told while it holds.
	Notes []Note
}

// Note is something that is told once for as long as it holds. Notes that differ in their message alone are the same.
type Note struct {
	// About is the object that the Event is on.
	About corev1.ObjectReference
	// Type and Reason are those of the Event. Cause tells notes of one reason apart.
	Type, Reason, Cause string
	Message             string
}

// Outcome says in one word what came of a step or a read, and so what happens next.
type Outcome string

// The outcomes.
const (
	// Done: it was made.
	Done Outcome = "done"
	// Conflict: what it was decided on has changed since, nothing was written, and the next round decides again. It
	// is no failure.
	Conflict Outcome = "conflict"
	// Gone: what it was about does not exist any more. It is no failure either.
	Gone Outcome = "gone"
	// Forbidden: a right is missing, or the write was not declared. It is tried again, later each time.
	Forbidden Outcome = "forbidden"
	// RateLimited: it is tried again when the other side allows it.
	RateLimited Outcome = "rate limited"
	// Held: it failed, and the controller remembers when its subject is tried again. The round is not made again for it.
	Held Outcome = "held"
	// Failed: it is tried again, later each time.
	Failed Outcome = "failed"
)

// outcomeError is an error whose outcome is known.
type outcomeError struct {
	error

	outcome Outcome
}

// Unwrap returns the error itself.
func (e *outcomeError) Unwrap() error { return e.error }

// As returns err with its outcome, for errors that only their controller can tell.
func As(outcome Outcome, err error) error { return &outcomeError{err, outcome} }

// OutcomeOf returns what an error says of a write: by [As], or by what the API server responded.
func OutcomeOf(err error) Outcome {
	if known, ok := errors.AsType[*outcomeError](err); ok {
		return known.outcome
	}
	switch {
	case err == nil:
		return Done
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return Conflict
	case apierrors.IsNotFound(err):
		return Gone
	case apierrors.IsForbidden(err), errors.Is(err, outputs.ErrUndeclared):
		return Forbidden
	case apierrors.IsTooManyRequests(err):
		return RateLimited
	}
	return Failed
}
