// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bgp "github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	etcd "github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/testkit/gitops"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// An object whose operator is absent is in progress for Flux and Argo CD, however it was created: as a file, by a program
// whose types write a status, or with a status that is not a client's to write. One that an operator of before the default
// has reported on keeps what it reported.
func TestAnObjectWithoutItsOperatorIsInProgress(t *testing.T) {
	t.Parallel()
	topology, tenant := topologies(t), storages(t)
	program := &etcd.EtcdStorage{ObjectMeta: metav1.ObjectMeta{Name: "by-a-program"}}
	etcd.SetDefaults(program)
	claimed := object(t, "claimed", "{}")
	must.Do(t, unstructured.SetNestedMap(claimed.Object, map[string]any{"observedGeneration": int64(1)}, "status"))
	for kind, objects := range map[string][]client.Object{
		"RouteReflectorTopology": {
			object(t, "alone", "{}"), claimed, &bgp.RouteReflectorTopology{ObjectMeta: metav1.ObjectMeta{Name: "by-a-program"}},
		},
		"EtcdStorage": {
			storage(t, "alone", oldSpec), program,
		},
	} {
		c := map[string]client.Client{"RouteReflectorTopology": topology, "EtcdStorage": tenant}[kind]
		for _, o := range objects {
			name := client.ObjectKeyFromObject(o)
			must.Do(t, c.Create(t.Context(), o))
			must.Do(t, c.Get(t.Context(), name, o))
			if got := gitops.Health(t, kind, o); got != "InProgress Progressing" {
				t.Errorf("%s %s is %s without an operator", kind, name.Name, got)
			}
		}
	}
	reported := object(t, "reported", "{}")
	must.Do(t, topology.Create(t.Context(), reported))
	status := map[string]any{"status": map[string]any{"observedGeneration": 1, "conditions": []metav1.Condition{
		{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Ready", ObservedGeneration: 1, LastTransitionTime: metav1.Now()},
	}}}
	patch := must.Get(json.Marshal(status)).Or(t)
	must.Do(t, topology.Status().Patch(t.Context(), reported, client.RawPatch("application/merge-patch+json", patch)))
	if got := gitops.Health(t, "RouteReflectorTopology", reported); got != "Current Healthy" {
		t.Errorf("what an earlier operator has reported is %s", got)
	}
}

// The health script joins what is in Argo CD's ConfigMap already, by the command that its file gives.
func TestTheHealthScriptJoinsArgoCDsSettings(t *testing.T) {
	t.Parallel()
	c := topologies(t)
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "argocd"}}}
	settings := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "argocd-cm", "namespace": "argocd"},
		"data": map[string]any{"url": "https://argocd.example.com"},
	}}
	must.Do(t, c.Create(t.Context(), namespace))
	must.Do(t, c.Create(t.Context(), settings))
	for _, script := range documents(t, "../../docs/examples/gitops/argo-cd-health.yaml") {
		must.Do(t, c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(script), client.FieldOwner("kubectl")))
	}
	must.Do(t, c.Get(t.Context(), client.ObjectKeyFromObject(settings), settings))
	data, _, _ := unstructured.NestedStringMap(settings.Object, "data")
	if len(data) != 3 || data["url"] != "https://argocd.example.com" {
		t.Errorf("the ConfigMap has %v", data)
	}
}
