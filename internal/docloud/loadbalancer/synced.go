// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConditionSynced is the condition of a Service: False while its load balancer is not what the Service asks for, since a
// value is refused or a request failed, with the reason and the words of the Event, and absent otherwise. An Event is
// gone after an hour, and a person without a token of DigitalOcean has nothing else. It MUST not be changed.
const ConditionSynced = "cloud.mooring.dev/LoadBalancerSynced"

// Synced returns the condition [ConditionSynced] that a Service must have at the end of a reconcile, nil for none, and
// whether that is another one than it has. said are the reconcile's Events: a failure that is tried again is news only
// with an Event, and what waits for DigitalOcean leaves the condition as it is.
func Synced(service *corev1.Service, end End, said []Note, now time.Time) (want *metav1.Condition, changed bool) {
	have := meta.FindStatusCondition(service.Status.Conditions, ConditionSynced)
	if end.Refusal == nil {
		return nil, have != nil
	}
	note := failureOf(said)
	if end.Refusal.Kind != People && (end.Refusal.Kind != Retry || note == nil) {
		return have, false
	}
	want = &metav1.Condition{
		Type: ConditionSynced, Status: metav1.ConditionFalse, Reason: ReasonConfig, Message: end.Refusal.Error(),
		ObservedGeneration: service.Generation, LastTransitionTime: metav1.NewTime(now),
	}
	if note != nil {
		want.Reason = note.Reason
	}
	if have != nil && have.Status == want.Status {
		want.LastTransitionTime = have.LastTransitionTime
		changed = have.Reason != want.Reason || have.Message != want.Message || have.ObservedGeneration != want.ObservedGeneration
		return want, changed
	}
	return want, true
}

// failureOf is the first Event about why nothing could be done.
func failureOf(said []Note) *Note {
	at := slices.IndexFunc(said, func(n Note) bool { return n.Kind == corev1.EventTypeWarning && slices.Contains(Failures(), n.Reason) })
	if at < 0 {
		return nil
	}
	return &said[at]
}

// Failures are the reasons of Events about a load balancer that is not what its Service asks for.
func Failures() []string {
	return []string{
		ReasonConfig, ReasonNoNodes, ReasonFailed, ReasonSyncFailed, ReasonForeign, ReasonDoubt, ReasonCertFailed, ReasonNotDeleted,
	}
}
