// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package example_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
	"github.com/mooring-dev/mooring/internal/testkit/laws"
)

// team is a label of namespaces that must be what the annotation of that name says.
const team = "example.com/team"

// World is all that a plan depends on.
type World struct{ Namespaces []corev1.Namespace }

// Label is the one step: it writes the label of a namespace, if that is still what was read.
type Label struct{ Namespace, ResourceVersion, Team string }

func (l Label) String() string { return fmt.Sprintf("labeling namespace %s: %s", l.Namespace, l.Team) }

// Plan is what MakePlan decides: there is nothing more to read, and nothing to remember.
type Plan = reconcile.Plan[reconcile.None, Label, reconcile.None]

// MakePlan decides. It is pure.
func MakePlan(w World) (p Plan) {
	for _, ns := range w.Namespaces {
		if want := ns.Annotations[team]; want != ns.Labels[team] {
			p.Steps = append(p.Steps, Label{ns.Name, ns.ResourceVersion, want})
		}
	}
	return p
}

// New makes the controller.
func New(client kubernetes.Interface) *reconcile.Runner[World, reconcile.None, Label, reconcile.None] {
	return reconcile.New(reconcile.Options[World, reconcile.None, Label, reconcile.None]{
		LoopOptions: reconcile.LoopOptions{Name: "teams", Clock: clock.RealClock{}, Resync: time.Minute, FirstRetry: time.Second, LastRetry: time.Minute},
		Log:         logr.Discard(), Failure: "Namespaces were not labeled, will try again",
		Writes: []outputs.Write{{System: outputs.Kubernetes, Kind: "namespaces", Verbs: []string{"patch"}}},
		Observe: func(ctx context.Context, _ string) (w World, err error) {
			list, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
			if err != nil {
				return w, fmt.Errorf("listing namespaces: %w", err)
			}
			return World{list.Items}, nil
		},
		Plan:    MakePlan,
		Subject: func(l Label) string { return l.Namespace },
		Apply: func(ctx context.Context, _ World, l Label) error {
			body, err := json.Marshal(map[string]any{
				"metadata": map[string]any{"resourceVersion": l.ResourceVersion, "labels": map[string]string{team: l.Team}},
			})
			if err == nil {
				_, err = client.CoreV1().Namespaces().Patch(ctx, l.Namespace, types.MergePatchType, body, metav1.PatchOptions{})
			}
			return err
		},
	})
}

func Example() {
	client := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Annotations: map[string]string{team: "red"}}})
	fmt.Println("wrote:", New(client).Once(context.Background(), reconcile.Only).Wrote)
	shop, err := client.CoreV1().Namespaces().Get(context.Background(), "shop", metav1.GetOptions{})
	fmt.Println(shop.Labels, err)
	// Output:
	// wrote: true
	// map[example.com/team:red] <nil>
}

func TestLaws(t *testing.T) {
	t.Parallel()
	word := rapid.SampledFrom([]string{"red", "blue"})
	laws.Planner[World, Label]{
		Draw: func(t *rapid.T) (w World) {
			for i := range rapid.IntRange(0, 4).Draw(t, "namespaces") {
				meta := metav1.ObjectMeta{Name: fmt.Sprint(i), Annotations: map[string]string{team: word.Draw(t, "wanted")}, Labels: map[string]string{team: word.Draw(t, "is")}}
				w.Namespaces = append(w.Namespaces, corev1.Namespace{ObjectMeta: meta})
			}
			return w
		},
		Plan: func(w World) laws.Plan[World, Label] { return laws.Plan[World, Label]{Steps: MakePlan(w).Steps} },
		Apply: func(w World, l Label) (after World) {
			for _, ns := range w.Namespaces {
				if ns.Name == l.Namespace {
					ns.Labels = map[string]string{team: l.Team}
				}
				after.Namespaces = append(after.Namespaces, ns)
			}
			return after
		},
		Same:   func(a, b World) string { return cmp.Diff(a, b) },
		Rounds: 10, Quiet: 1,
	}.Check(t)
}
