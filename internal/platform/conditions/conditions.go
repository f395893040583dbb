// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package conditions

import (
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Ready is the type of the summary. It MUST not be changed: `kubectl wait --for=condition=Ready` and
// GitOps tools look for it.
const Ready = "Ready"

// What kstatus, and with it Flux and kpt, asks of a kind besides Ready. They MUST not be changed. Neither is there while nothing
// is to be done; both have the reason and the message of Ready, and never exist together.
const (
	// Reconciling: work is in progress, or waits for something that comes about without a person.
	Reconciling = "Reconciling"
	// Stalled: the work cannot go on until a person does what the message says.
	Stalled = "Stalled"
)

// Reasons that Summarize gives by itself.
const (
	// ReasonReady of Ready=True: the desired state is reached, for the current generation.
	ReasonReady = "Ready"
	// ReasonPending of Ready=Unknown: a condition that Ready depends on has not been reported for this generation.
	ReasonPending = "Pending"
)

// maxMessage bounds messages, in bytes. The API allows 32 KiB; a status is not a log.
const maxMessage = 1024

// Set puts c into list and reports whether list is different now. c needs Type, Status, Reason and
// ObservedGeneration; its LastTransitionTime is ignored: it becomes now (whole seconds, UTC, as the API
// stores it) when the status differs from the one in list, and stays otherwise. Messages above 1 KiB
// are cut.
func Set(list *[]metav1.Condition, c metav1.Condition, now time.Time) (changed bool) {
	c.Message = cut(c.Message)
	c.LastTransitionTime = metav1.NewTime(now.UTC().Truncate(time.Second))
	return meta.SetStatusCondition(list, c)
}

// SetReady puts Ready into list, and next to it what the summary amounts to for kstatus: [Stalled] if Ready is not True for
// one of the reasons in stalls, [Reconciling] if it is not True for another one, and neither if it is True. busy, unless
// nil, is a condition by which work is in progress although Ready is True. It reports whether list is different now.
func SetReady(list *[]metav1.Condition, ready metav1.Condition, busy *metav1.Condition, stalls []string, now time.Time) (changed bool) {
	ready.Type = Ready
	changed = Set(list, ready, now)
	is := map[string]*metav1.Condition{Reconciling: busy}
	if ready.Status != metav1.ConditionTrue {
		is = map[string]*metav1.Condition{Reconciling: &ready}
		if slices.Contains(stalls, ready.Reason) {
			is = map[string]*metav1.Condition{Stalled: &ready}
		}
	}
	for _, kind := range []string{Reconciling, Stalled} {
		c := is[kind]
		if c == nil {
			changed = meta.RemoveStatusCondition(list, kind) || changed
			continue
		}
		changed = Set(list, metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: c.Reason, Message: c.Message,
			ObservedGeneration: ready.ObservedGeneration,
		}, now) || changed
	}
	return changed
}

// IsTrue reports whether list says that the condition is True, and says so of this generation of the
// object.
func IsTrue(list []metav1.Condition, conditionType string, generation int64) bool {
	c := meta.FindStatusCondition(list, conditionType)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == generation
}

// Summarize computes the Ready condition of an object's generation from the conditions named by types,
// most telling first. False outweighs Unknown, Unknown outweighs True; missing and outdated conditions
// count as Unknown. Reason and message are those of the first condition with the decisive status. Give
// the result to [Set]. Without types the object is Ready.
func Summarize(list []metav1.Condition, generation int64, types ...string) metav1.Condition {
	out := metav1.Condition{Type: Ready, Status: metav1.ConditionTrue, ObservedGeneration: generation, Reason: ReasonReady}
	for _, t := range types {
		c := current(list, t, generation)
		if weight(c.Status) <= weight(out.Status) {
			continue
		}
		out.Status, out.Reason, out.Message = c.Status, c.Reason, c.Type+": "+c.Message
		if c.Message == "" {
			out.Message = c.Type + " is " + string(c.Status)
		}
	}
	return out
}

// current is the condition as far as it speaks about generation.
func current(list []metav1.Condition, conditionType string, generation int64) metav1.Condition {
	i := slices.IndexFunc(list, func(c metav1.Condition) bool { return c.Type == conditionType })
	switch {
	case i < 0:
		return metav1.Condition{Type: conditionType, Status: metav1.ConditionUnknown, Reason: ReasonPending, Message: "not reported yet"}
	case list[i].ObservedGeneration != generation:
		return metav1.Condition{Type: conditionType, Status: metav1.ConditionUnknown, Reason: ReasonPending,
			Message: fmt.Sprintf("last reported for generation %d, now at %d", list[i].ObservedGeneration, generation)}
	}
	return list[i]
}

func weight(s metav1.ConditionStatus) int {
	switch s {
	case metav1.ConditionTrue:
		return 0
	case metav1.ConditionFalse:
		return 2
	case metav1.ConditionUnknown:
	}
	return 1
}

// cut shortens s to maxMessage bytes without splitting a character.
func cut(s string) string {
	const ellipsis = "…"
	if len(s) <= maxMessage {
		return s
	}
	end := maxMessage - len(ellipsis)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + ellipsis
}
