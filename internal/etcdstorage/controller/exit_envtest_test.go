// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

// A deletion touches neither data nor what was delivered while a pod is left that could write. A Secret of type kubernetes.io/tls, which may not lose its
// keys, loses their values.
func TestADeletionWaitsForTheLastPod(t *testing.T) {
	t.Parallel()
	cluster := controlplane.Shared(t)
	installKind(t, cluster, nil)
	g := newRig(t, cluster)
	ns, name := g.tenant(), "leaving"
	if err := g.admin.Delete(t.Context(), secretOf(ns, "client", nil)); err != nil {
		t.Fatal(err)
	}
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
	if err := g.admin.Delete(t.Context(), g.get(name)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		g.once(name)
	}
	g.expect(name, "Ready", metav1.ConditionFalse, "Deleting", "1 proxies are still there")
	g.expect(name, v1alpha1.ConditionProxyReady, metav1.ConditionFalse, "Deleting", "0 of 3 proxies are ready")
	if keys := g.keys("/" + name + "/"); len(keys) != 1 || len(g.secret(ns, "client").Data["tls.crt"]) == 0 {
		t.Errorf("it did not wait: %v", keys)
	}
	if err := g.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	g.sync(name)
	s := g.secret(ns, "client")
	if _, kept := s.Data["tls.crt"]; !g.gone(name) || len(g.keys("/"+name+"/")) > 0 || !kept || len(s.Data["tls.crt"])+len(s.Data["tls.key"]) > 0 || s.Annotations[v1alpha1.DeliveredAnnotation] != "" {
		t.Errorf("gone %v, keys %v, Secret %v %v", g.gone(name), g.keys("/"+name+"/"), s.Annotations, s.Data)
	}
}
