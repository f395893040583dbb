// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// A deletion touches neither data nor what was delivered while a pod is left that could write. A Secret of type kubernetes.io/tls, which may
// not lose its keys, loses their values.
func TestADeletionWaitsForTheLastPod(t *testing.T) {
	t.Parallel()
	g := newStage(t, server(t))
	ns, name := g.tenant(), "leaving"
	must.Do(t, g.admin.Delete(t.Context(), secretOf(ns, "client", nil)))
	typed := secretOf(ns, "client", map[string][]byte{"tls.crt": nil, "tls.key": nil})
	typed.Type = corev1.SecretTypeTLS
	g.create(typed)
	g.storage(name, toTenant(ns, ", deletionPolicy: Delete"))
	g.sync(name)
	g.put("/" + name + "/x")
	g.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: g.namespace, Name: "default"}})
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: g.namespace, Name: "last", Labels: map[string]string{v1alpha1.StorageLabel: name}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	g.create(pod)
	g.create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: g.namespace, Name: "anothers", Labels: map[string]string{v1alpha1.StorageLabel: "another"}}, Spec: pod.Spec})
	must.Do(t, g.admin.Delete(t.Context(), g.get(name)))
	for range 3 {
		g.once(name)
	}
	g.expect(name, "Ready", metav1.ConditionFalse, "Deleting", "1 proxies still exist")
	g.expect(name, v1alpha1.ConditionProxyReady, metav1.ConditionFalse, "Deleting", "0 of 3 proxies are ready")
	if keys := g.keys("/" + name + "/"); len(keys) != 1 || len(g.secret(ns, "client").Data["tls.crt"]) == 0 {
		t.Errorf("it did not wait: %v", keys)
	}
	must.Do(t, g.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	g.sync(name)
	s := g.secret(ns, "client")
	if _, kept := s.Data["tls.crt"]; !g.gone(name) || len(g.keys("/"+name+"/")) > 0 || !kept || len(s.Data["tls.crt"])+len(s.Data["tls.key"]) > 0 || s.Annotations[v1alpha1.DeliveredAnnotation] != "" {
		t.Errorf("gone %v, keys %v, Secret %v %v", g.gone(name), g.keys("/"+name+"/"), s.Annotations, s.Data)
	}
}

// Two clusters on one core may have EtcdStorages of one name. The one that never got the prefix is deleted without a trace of the other's
// being lost: its etcd users, its role, its record and its keys stay.
func TestADeletionLeavesTheUsersOfTheOwner(t *testing.T) {
	t.Parallel()
	g := newStage(t, server(t))
	g.enableAuth()
	g.newAuthOperator()
	name := "same-name"
	g.r.Settings.Cluster = "the-other-cluster"
	g.storage(name, "{}")
	g.sync(name)
	user := g.coreUser(name)
	g.put("/" + name + "/x")
	record, keys, users := g.keys(operator.OwnersPrefix+name), g.keys("/"+name+"/"), g.users()
	g.newAuthOperator() // of this cluster, to which the EtcdStorage is a new one
	for _, ref := range operator.Refs(name) {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind))
		o.SetNamespace(g.namespace)
		o.SetName(ref.Name)
		must.Do(t, g.admin.Delete(t.Context(), o))
	}
	g.sync(name)
	g.expect(name, v1alpha1.ConditionConflict, metav1.ConditionTrue, "PrefixTaken", "belongs to tenant "+name)
	g.delete(name)
	if !g.gone(name) || !slices.Equal(g.users(), users) || !slices.Equal(g.keys(operator.OwnersPrefix+name), record) || !slices.Equal(g.keys("/"+name+"/"), keys) {
		t.Errorf("gone %v, users %v of %v, record %v, keys %v", g.gone(name), g.users(), users, g.keys(operator.OwnersPrefix+name), g.keys("/"+name+"/"))
	}
	if _, err := user.Get(t.Context(), "/"+name+"/x"); err != nil {
		t.Errorf("the owner's user: %v", err)
	}
}
