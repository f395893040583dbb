// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"strings"
	"testing"

	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/k8s/resources"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// The labels that make a reflector or a client of a node are those that Calico's own client reads, whatever its
// annotation says, in a Node as in what the informers keep of it; and by no other label of the annotation a node becomes
// eligible.
func TestLabelsOfRolesAreThoseOfCalico(t *testing.T) {
	t.Parallel()
	roles := []string{v1alpha1.ReflectorLabel, v1alpha1.GroupLabel, v1alpha1.ClientLabel, v1alpha1.JoinsLabel}
	keys := rapid.SampledFrom(append([]string{"rack", "node-restriction.kubernetes.io/tier"}, roles...))
	labels := rapid.MapOfN(keys, rapid.SampledFrom([]string{"main", "2", ""}), 0, 4)
	cases.Check(t, func(t *rapid.T) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: labels.Draw(t, "labels")}}
		if rapid.Bool().Draw(t, "annotated") {
			text, err := json.Marshal(labels.Draw(t, "annotation"))
			if err != nil {
				t.Fatal(err)
			}
			spelling := rapid.SampledFrom([]string{`/`, `\/`, `\u002f`, `"`, `:`}).Draw(t, "spelling")
			node.Annotations = map[string]string{
				routereflector.LabelsAnnotation: strings.ReplaceAll(string(text), "/", spelling),
			}
		}
		kv, err := resources.K8sNodeToCalico(node, false)
		if err != nil {
			t.Fatal(err)
		}
		calicos, ok := kv.Value.(*libapiv3.Node)
		if !ok {
			t.Fatalf("it is a %T", kv.Value)
		}
		trimmed, err := trimNode(node)
		if err != nil {
			t.Fatal(err)
		}
		kept, ok := trimmed.(*corev1.Node)
		if !ok {
			t.Fatalf("it is a %T", trimmed)
		}
		for _, n := range []*corev1.Node{node, kept} {
			is := routereflector.NodeFrom(n, 0, routereflector.DefaultASNumber)
			for _, key := range roles {
				want, wanted := calicos.Labels[key]
				if got, has := is.Labels[key]; got != want || has != wanted {
					t.Errorf("%s is %q (%v), for Calico %q (%v)", key, got, has, want, wanted)
				}
			}
			_, own := node.Labels[v1alpha1.ReflectorLabel]
			if _, has := is.Labels[v1alpha1.ReflectorLabel]; is.CalicoLabel != (has && !own) {
				t.Errorf("the label is Calico's alone: %v; %v, %v", is.CalicoLabel, node.Labels, node.Annotations)
			}
			for _, key := range []string{"rack", "node-restriction.kubernetes.io/tier"} {
				if is.Labels[key] != node.Labels[key] {
					t.Errorf("%s is %q, the Node's is %q", key, is.Labels[key], node.Labels[key])
				}
			}
		}
	})
}
