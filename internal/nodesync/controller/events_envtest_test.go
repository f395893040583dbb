// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// componentPage is the text of the component's page.
func componentPage(t *testing.T) string {
	t.Helper()
	page := must.Get(os.ReadFile(filepath.Join(testkit.Root(t), "docs", "components", "calico-node-sync.md"))).Or(t)
	return string(page)
}

// newKubernetesEvents returns Events that go to the real API server, in a namespace of their own.
func newKubernetesEvents(t *testing.T, namespace string) *KubernetesEvents {
	t.Helper()
	cluster := controlplane.Shared(t)
	reader := must.Get(client.New(cluster.Config, client.Options{Scheme: runtime.NewScheme()})).Or(t)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: cluster.Client.EventsV1()})
	ctx, stop := context.WithCancel(context.Background())
	must.Do(t, broadcaster.StartRecordingToSinkWithContext(ctx))
	t.Cleanup(func() { stop(); broadcaster.Shutdown() })
	return &KubernetesEvents{
		Recorder: broadcaster.NewRecorder(runtime.NewScheme(), "calico-node-sync"), Reader: reader, Namespace: namespace, Deployment: DeploymentName,
		Log: logr.Discard(),
	}
}

// Without a Deployment the Namespace is what Events are about, in that namespace, since the API server would take one without a namespace in its
// reference in "default" only. They are found as `kubectl describe` finds them, by kind, name, namespace and UID.
func TestEventsWithoutADeployment(t *testing.T) {
	t.Parallel()
	cluster := controlplane.Shared(t)
	for name, deployment := range map[string]string{"none is there": DeploymentName, "none is named": ""} {
		namespace := newNamespace(t, cluster.Client)
		e := newKubernetesEvents(t, namespace)
		e.Deployment = deployment
		e.Record(t.Context(), Event{Warning: true, Reason: ReasonHeldByOverlap, Action: "Judge", Note: strings.Repeat("x", longestNote)})
		about := &corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Namespace: namespace, Name: namespace}
		testkit.Eventually(t, "the Event", func() string {
			list, err := cluster.Client.CoreV1().Events(namespace).SearchWithContext(t.Context(), scheme.Scheme, about)
			if err != nil || len(list.Items) != 1 || list.Items[0].Type != corev1.EventTypeWarning {
				return fmt.Sprintf("%s: %v, %+v", name, err, list)
			}
			return ""
		})
	}
}

// An API server that did not respond once is asked again: the Namespace is not what Events are about for ever after.
func TestTheDeploymentIsLookedForAgain(t *testing.T) {
	t.Parallel()
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: DeploymentName, UID: "uid"}}
	failures := 1
	reader := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(deployment).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if failures--; failures >= 0 {
				return errLost
			}
			return c.Get(ctx, key, object, options...)
		},
	}).Build()
	e := &KubernetesEvents{Reader: reader, Namespace: "ns", Deployment: DeploymentName, Log: logr.Discard()}
	for _, want := range []corev1.ObjectReference{
		{APIVersion: "v1", Kind: "Namespace", Namespace: "ns", Name: "ns"},
		{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "ns", Name: DeploymentName, UID: "uid"},
		{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "ns", Name: DeploymentName, UID: "uid"},
	} {
		if got := e.regarding(t.Context()); *got != want {
			t.Errorf("regarding %+v, want %+v", got, want)
		}
	}
}
