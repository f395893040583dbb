// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/mooring-dev/mooring/internal/platform/eventsign"
)

// An Event in a Service's namespace is believed if a key on the cloud controller manager's Lease has signed it, and
// that Lease is in a namespace of ours.
func TestASignedEventIsBelieved(t *testing.T) {
	t.Parallel()
	signer, err := eventsign.New()
	if err != nil {
		t.Fatal(err)
	}
	lease := func(namespace string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cloudLease, Annotations: signer.Publish(nil)}}
	}
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web.1"}, Source: corev1.EventSource{Component: "service-controller"},
		InvolvedObject: corev1.ObjectReference{Kind: "Service", Namespace: "shop", Name: "web"}, Message: "words",
	}
	client := fake.NewClientset()
	signed, err := signer.Client(client).CoreV1().Events("").CreateWithEventNamespaceWithContext(t.Context(), event)
	if err != nil {
		t.Fatal(err)
	}
	copied := signed.DeepCopy()
	copied.Message = "other words"
	for name, test := range map[string]struct {
		lease *coordinationv1.Lease
		event *corev1.Event
		want  Trust
	}{
		"signed":                   {lease(metav1.NamespaceSystem), signed, Verified},
		"not signed":               {lease(metav1.NamespaceSystem), event, unverified},
		"a copy":                   {lease(metav1.NamespaceSystem), copied, unverified},
		"a key in their namespace": {lease("shop"), signed, unverified},
	} {
		c := &Cluster{Typed: fake.NewClientset(test.lease), Namespaces: defaultNamespaces()}
		if got := c.TrustIn(test.event, c.EventKeys(t.Context())); got != test.want {
			t.Errorf("%s: trust %d, want %d", name, got, test.want)
		}
	}
}
