// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package manifests_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	validatorv3 "github.com/projectcalico/calico/libcalico-go/lib/validator/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/test/objects"
)

// calicoExamples are the examples about Calico's own kinds.
const calicoExamples = "../../docs/examples/calico/*.yaml"

// TestCalicoAcceptsTheExamples has Calico's own validator judge the examples, and a real kube-apiserver with Calico's
// and Mooring's CRDs: each kind is written as crd.projectcalico.org/v1, as calicoctl does.
func TestCalicoAcceptsTheExamples(t *testing.T) {
	t.Parallel()
	c := controlplane.New(t)
	c.InstallCalicoCRDs(t)
	admin := installReflectors(t, c)
	must.Do(t, objects.ConnectTo(t, c).Apply(t.Context(), namespaceObject("calico-system")))
	var kinds []string
	for _, path := range must.Get(filepath.Glob(calicoExamples)).Or(t) {
		for _, u := range objects.Parse(t, path, must.Get(os.ReadFile(path)).Or(t)) {
			kinds = append(kinds, u.GetKind())
			if u.GroupVersionKind().GroupVersion() == calicoNative() {
				text := must.Get(json.Marshal(u)).Or(t)
				object := map[string]any{"Tier": &apiv3.Tier{}, "GlobalNetworkPolicy": &apiv3.GlobalNetworkPolicy{}}[u.GetKind()]
				must.Do(t, yaml.UnmarshalStrict(text, object))
				if err := validatorv3.Validate(object); err != nil {
					t.Errorf("%s: %s %s: %v", path, u.GetKind(), u.GetName(), err)
				}
				u.SetAPIVersion(calicoCRDs().String())
			}
			if err := admin.Create(t.Context(), u, client.FieldValidation("Strict")); err != nil {
				t.Errorf("%s: %s %s: %v", path, u.GetKind(), u.GetName(), err)
			}
		}
	}
	slices.Sort(kinds)
	want := []string{"GlobalNetworkPolicy", "Role", "RoleBinding", "RouteReflectorTopology", "Secret", "Tier"}
	if !slices.Equal(kinds, want) {
		t.Errorf("the examples have %v", kinds)
	}
	// The judge must be able to say no.
	wrong := &apiv3.GlobalNetworkPolicy{}
	wrong.Name, wrong.Spec.Selector = "wrong", "all(("
	if validatorv3.Validate(wrong) == nil {
		t.Error("Calico's validator accepts a selector that is none")
	}
}

func namespaceObject(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("v1")
	u.SetKind("Namespace")
	u.SetName(name)
	return u
}
