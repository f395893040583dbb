// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package routereflector

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

// Awaiting is what a topology waits for a person to confirm, by its status.
type Awaiting struct {
	// Reason and Why are those of the condition.
	Reason Reason
	Why    string
	// Annotation on the topology with the value Word confirms it.
	Annotation, Word string
	// Given reports that the annotation has that value already, and the operator has yet to act on it.
	Given bool
}

// Awaits returns what a topology waits for a person to confirm. It reads the status, which is the operator's, and no
// Nodes: what the operator waits for is what it has said.
func Awaits(t *v1alpha1.RouteReflectorTopology) (a Awaiting, waits bool) {
	frozen := meta.FindStatusCondition(t.Status.Conditions, v1alpha1.ConditionFrozen)
	accepted := meta.FindStatusCondition(t.Status.Conditions, v1alpha1.ConditionAccepted)
	doubts := []Reason{ReasonNodesVanished, ReasonMatchesNothing, ReasonMatchesTooFew}
	ends := []Reason{ReasonMeshTooLarge, ReasonMeshNotManaged}
	switch {
	case frozen != nil && frozen.Status == metav1.ConditionTrue && t.Status.Baseline != nil &&
		slices.Contains(doubts, Reason(frozen.Reason)):
		a = Awaiting{Reason: Reason(frozen.Reason), Why: frozen.Message}
		a.Annotation, a.Word = v1alpha1.ConfirmAnnotation, ConfirmationWord(t.Status.Baseline)
	case accepted != nil && accepted.Status == metav1.ConditionFalse && t.DeletionTimestamp != nil &&
		slices.Contains(ends, Reason(accepted.Reason)):
		a = Awaiting{Reason: Reason(accepted.Reason), Why: accepted.Message}
		a.Annotation, a.Word = v1alpha1.ForceExitAnnotation, accepted.Reason
	case accepted != nil && accepted.Status == metav1.ConditionFalse && Reason(accepted.Reason) == ReasonNotNeeded:
		a = Awaiting{Reason: ReasonNotNeeded, Why: accepted.Message}
		a.Annotation, a.Word = v1alpha1.ConfirmAnnotation, accepted.Reason
	default:
		return a, false
	}
	a.Given = t.Annotations[a.Annotation] == a.Word
	return a, true
}

// HowToConfirm is the command that confirms what the topology waits for, and the annotation for those who do not have
// it.
func (w *World) HowToConfirm(annotation, word string) string {
	return fmt.Sprintf("`kubectl mooring confirm topology %s %s`, which sets the annotation %s=%s", w.Topology.Name,
		word, annotation, word)
}
