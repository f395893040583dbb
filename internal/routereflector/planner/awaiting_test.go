// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
)

// reported is the topology with the first refusal of a plan in its status, as the operator writes it there.
func reported(w rr.World, p rr.Plan) *v1alpha1.RouteReflectorTopology {
	w = remembering(w)
	t := w.Topology.DeepCopy()
	if len(p.Refusals) > 0 {
		r := p.Refusals[0]
		kind, status := v1alpha1.ConditionFrozen, metav1.ConditionTrue
		if slices.Contains([]rr.Reason{rr.ReasonMeshTooLarge, rr.ReasonMeshNotManaged, rr.ReasonNotNeeded}, r.Reason) {
			kind, status = v1alpha1.ConditionAccepted, metav1.ConditionFalse
		}
		t.Status.Conditions = []metav1.Condition{{Type: kind, Status: status, Reason: string(r.Reason), Message: r.Message}}
	}
	return t
}

// What a topology waits for is read from its status, with the word that lets the plan go on and that its message names.
func TestAwaits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		w          rr.World
		reason     rr.Reason
		annotation string
	}{
		"labels that were lost":   {unlabel(labeled(t, 20), 20, "bgp", anybody), rr.ReasonMatchesNothing, v1alpha1.ConfirmAnnotation},
		"most labels":             {unlabel(labeled(t, 20), 11, "bgp", anybody), rr.ReasonMatchesTooFew, v1alpha1.ConfirmAnnotation},
		"Nodes that vanished":     {withoutNodes(labeled(t, 20), firstNames(labeled(t, 20), 12)...), rr.ReasonNodesVanished, v1alpha1.ConfirmAnnotation},
		"a deletion without mesh": {ending(t, 8, v1alpha1.MeshObserve), rr.ReasonMeshNotManaged, v1alpha1.ForceExitAnnotation},
		"nothing to reflect":      {inVain(), rr.ReasonNotNeeded, v1alpha1.ConfirmAnnotation},
		"all is well":             {labeled(t, 20), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := settled(c.w)
			p := MakePlan(w)
			topology := reported(w, p)
			a, waits := rr.Awaits(topology)
			if waits != (c.reason != "") || a.Reason != c.reason || a.Annotation != c.annotation || a.Given {
				t.Fatalf("waits %v: %+v, the refusals are %+v", waits, a, p.Refusals)
			}
			if !waits {
				return
			}
			if p.Refusals[0].Message != a.Why || !strings.HasSuffix(a.Why, "run"+map[bool]string{true: "s"}[strings.Contains(a.Why, "a person who")]+
				" `kubectl mooring confirm topology main "+a.Word+"`, which sets the annotation "+a.Annotation+"="+a.Word) {
				t.Errorf("the word is %s, and the message %s", a.Word, a.Why)
			}
			w.Topology.Annotations = map[string]string{a.Annotation: a.Word}
			if then := MakePlan(w); len(then.Refusals) > 0 && then.Refusals[0].Reason == c.reason {
				t.Errorf("confirmed, and yet %+v", then.Refusals)
			}
			topology.Annotations = w.Topology.Annotations
			if a, waits := rr.Awaits(topology); !waits || !a.Given {
				t.Errorf("confirmed, and not acted on: %v, %+v", waits, a)
			}
		})
	}
	frozen := unlabel(labeled(t, 20), 20, "bgp", anybody)
	topology := reported(frozen, settledPlan(frozen))
	for name, change := range map[string]func(*v1alpha1.RouteReflectorTopology){
		"paused": func(t *v1alpha1.RouteReflectorTopology) {
			t.Status.Conditions[0].Reason = string(rr.ReasonPaused)
		},
		"not frozen":    func(t *v1alpha1.RouteReflectorTopology) { t.Status.Conditions[0].Status = metav1.ConditionFalse },
		"no baseline":   func(t *v1alpha1.RouteReflectorTopology) { t.Status.Baseline = nil },
		"no conditions": func(t *v1alpha1.RouteReflectorTopology) { t.Status.Conditions = nil },
	} {
		other := topology.DeepCopy()
		change(other)
		if a, waits := rr.Awaits(other); waits {
			t.Errorf("%s: %+v", name, a)
		}
	}
}
