// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package routereflector

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

// reported is the topology with the first refusal of a plan in its status, as the operator writes it there.
func (w World) reported(p Plan) *v1alpha1.RouteReflectorTopology {
	w = w.remembering()
	t := w.Topology.DeepCopy()
	if len(p.Refusals) > 0 {
		r := p.Refusals[0]
		kind, status := v1alpha1.ConditionFrozen, metav1.ConditionTrue
		if r.Reason == ReasonMeshTooLarge || r.Reason == ReasonMeshNotManaged {
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
		w          World
		reason     Reason
		annotation string
	}{
		"labels that were lost":   {labeled(t, 20).unlabel(20, "bgp", anybody), ReasonMatchesNothing, v1alpha1.ConfirmAnnotation},
		"most labels":             {labeled(t, 20).unlabel(11, "bgp", anybody), ReasonMatchesTooFew, v1alpha1.ConfirmAnnotation},
		"Nodes that vanished":     {labeled(t, 20).without(labeled(t, 20).first(12)...), ReasonNodesVanished, v1alpha1.ConfirmAnnotation},
		"a deletion without mesh": {ending(t, 8, v1alpha1.MeshObserve), ReasonMeshNotManaged, v1alpha1.ForceExitAnnotation},
		"all is well":             {labeled(t, 20), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := c.w.settled()
			p := Make(w)
			topology := w.reported(p)
			a, waits := Awaits(topology)
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
			if then := Make(w); len(then.Refusals) > 0 && then.Refusals[0].Reason == c.reason {
				t.Errorf("confirmed, and yet %+v", then.Refusals)
			}
			topology.Annotations = w.Topology.Annotations
			if a, waits := Awaits(topology); !waits || !a.Given {
				t.Errorf("confirmed, and not acted on: %v, %+v", waits, a)
			}
		})
	}
	frozen := labeled(t, 20).unlabel(20, "bgp", anybody)
	topology := frozen.reported(Make(frozen.settled()))
	for name, change := range map[string]func(*v1alpha1.RouteReflectorTopology){
		"paused":        func(t *v1alpha1.RouteReflectorTopology) { t.Status.Conditions[0].Reason = string(ReasonPaused) },
		"not frozen":    func(t *v1alpha1.RouteReflectorTopology) { t.Status.Conditions[0].Status = metav1.ConditionFalse },
		"no baseline":   func(t *v1alpha1.RouteReflectorTopology) { t.Status.Baseline = nil },
		"no conditions": func(t *v1alpha1.RouteReflectorTopology) { t.Status.Conditions = nil },
	} {
		other := topology.DeepCopy()
		change(other)
		if a, waits := Awaits(other); waits {
			t.Errorf("%s: %+v", name, a)
		}
	}
}
