// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package overview_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/ui"
)

// tile is the state of a part.
func tile(p ui.Page, key string) ui.Tile {
	return p.Health[slices.IndexFunc(p.Health, func(t ui.Tile) bool { return t.Key == key })]
}

// tenant makes an EtcdStorage that is Ready, with what else its status has.
func tenant(t *testing.T, c *observe.Cluster, name string, expires time.Time, conditions ...metav1.Condition) {
	t.Helper()
	s := &v1alpha1.EtcdStorage{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.APIVersion, s.Kind = v1alpha1.GroupVersion.String(), "EtcdStorage"
	v1alpha1.SetDefaults(s)
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s)
	if err != nil {
		t.Fatal(err)
	}
	delete(object, "status")
	storages := c.Dynamic.Resource(observe.EtcdStorages())
	made, err := storages.Create(t.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	old := metav1.NewTime(time.Now().Add(-72 * time.Hour))
	s.Status.Conditions = append([]metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Ready"}}, conditions...)
	for i := range s.Status.Conditions {
		s.Status.Conditions[i].LastTransitionTime = old
	}
	s.Status.Certificates = &v1alpha1.CertificateTimes{Serving: &metav1.Time{Time: expires}}
	s.Status.ReadyReplicas, s.Status.ObservedGeneration = s.Spec.Replicas, made.GetGeneration()
	s.Status.Usage = &v1alpha1.Usage{Keys: 1, ObservedAt: old}
	whole, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s)
	if err != nil {
		t.Fatal(err)
	}
	made.Object["status"] = whole["status"]
	if _, err := storages.UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// What an operator observed is not good without the operator, and a tenant that is Ready is not good by that alone.
func TestTenantsAreNotGoodByTheirReadyAlone(t *testing.T) {
	server := controlplane.New(t)
	server.InstallCRDs(t, controlplane.KindIn(t, filepath.Join(testkit.Root(t), "config", "crd", "bases", "etcd.mooring.dev_etcdstorages.yaml")))
	c := clusterOf(t, server)
	year := time.Now().Add(365 * 24 * time.Hour)
	tenant(t, c, "well", year)
	p := seen(t, c)
	if got := tile(p, "tenants"); got.State != ui.Unread || !strings.Contains(got.Text, "there is EtcdStorage well, and nothing that runs it in namespaces ") {
		t.Errorf("counted three days ago, without an operator: %+v", got)
	}
	namespaces(t, c, "mooring-system")
	lease(t, c, "mooring-system", "etcd-storage-operator.etcd.mooring.dev", "a", 0, nil)
	if got := tile(seen(t, c), "tenants"); got.State != ui.Good {
		t.Errorf("with an operator: %+v", got)
	}
	is := func(kind, reason string, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: "because"}
	}
	tenant(t, c, "quota", year, is(v1alpha1.ConditionQuotaExceeded, "BytesExceeded", metav1.ConditionTrue))
	tenant(t, c, "space", year, is(v1alpha1.ConditionCoreHealthy, "NoSpace", metav1.ConditionFalse))
	tenant(t, c, "back", year, is(v1alpha1.ConditionCoreWentBack, "WentBack", metav1.ConditionTrue))
	tenant(t, c, "overcommitted", year, is(v1alpha1.ConditionCoreOvercommitted, "TooMuch", metav1.ConditionTrue))
	tenant(t, c, "expired", time.Now().Add(-time.Hour))
	p = seen(t, c)
	shows(t, p, "tenants", "well", false)
	for name, text := range map[string]string{
		"quota": "BytesExceeded", "space": "NoSpace", "back": "WentBack", "overcommitted": "TooMuch", "expired": "serving: it expired",
	} {
		shows(t, p, "tenants", name, true, text)
	}
}
