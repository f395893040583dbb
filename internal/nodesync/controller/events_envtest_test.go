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
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// newDeployment makes the program's own Deployment.
func newDeployment(t *testing.T, namespace string) *appsv1.Deployment {
	t.Helper()
	labels := map[string]string{"app": "x"}
	deployment := must.Get(controlplane.Shared(t).Client.AppsV1().Deployments(namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: DeploymentName},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		},
	}, metav1.CreateOptions{})).Or(t)
	return deployment
}

// described waits until so many Events are found about an object as `kubectl describe` finds them, by kind, name, namespace and UID.
func described(t *testing.T, namespace string, about runtime.Object, count int) []corev1.Event {
	t.Helper()
	var found []corev1.Event
	testkit.Eventually(t, "the Events", func() string {
		list, err := controlplane.Shared(t).Client.CoreV1().Events(namespace).SearchWithContext(t.Context(), scheme.Scheme, about)
		if err != nil {
			return err.Error()
		}
		if found = list.Items; len(found) != count {
			return fmt.Sprintf("%d Events: %+v", len(found), found)
		}
		return ""
	})
	return found
}

// Without a Deployment the Namespace is what Events are about, in that namespace, since the API server would take one without a namespace in its
// reference in "default" only.
func TestEventsWithoutADeployment(t *testing.T) {
	t.Parallel()
	cluster := controlplane.Shared(t)
	for name, deployment := range map[string]string{"none is there": DeploymentName, "none is named": ""} {
		namespace := newNamespace(t, controlplane.Shared(t).Client)
		e := newKubernetesEvents(t, namespace)
		e.Deployment = deployment
		e.Record(t.Context(), Event{Warning: true, Reason: ReasonHeldByOverlap, Action: "Judge", Note: strings.Repeat("x", longestNote)})
		about := &corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Namespace: namespace, Name: namespace}
		found := described(t, namespace, about, 1)
		if found[0].Type != corev1.EventTypeWarning || found[0].Namespace != namespace {
			t.Errorf("%s: got %+v", name, found[0])
		}
	}
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "x-", Namespace: newNamespace(t, controlplane.Shared(t).Client)}, EventTime: metav1.NewMicroTime(time.Now()),
		ReportingController: "c", ReportingInstance: "i", Action: "a", Reason: "r", Type: corev1.EventTypeNormal,
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: "x"},
	}
	if _, err := cluster.Client.CoreV1().Events(event.Namespace).Create(t.Context(), event, metav1.CreateOptions{}); err == nil {
		t.Error("the API server takes an Event about an object without a namespace anywhere: the reference needs none")
	}
}

// unreachable is a reader of an API server that does not respond at first.
type unreachable struct {
	client.Reader
	failures int
}

func (u *unreachable) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if u.failures > 0 {
		u.failures--
		return errLost
	}
	return u.Reader.Get(ctx, key, object, options...)
}

// An API server that did not respond once is asked again: the Namespace is not what Events are about for ever after.
func TestTheDeploymentIsLookedForAgain(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t, controlplane.Shared(t).Client)
	deployment := newDeployment(t, namespace)
	e := newKubernetesEvents(t, namespace)
	e.Reader = &unreachable{Reader: e.Reader, failures: 1}
	for _, want := range []string{"Namespace", "Deployment", "Deployment"} {
		if got := e.regarding(t.Context()); got.Kind != want {
			t.Errorf("regarding %s, want %s", got.Kind, want)
		}
	}
	if got := e.regarding(t.Context()).UID; got != deployment.UID {
		t.Errorf("UID %s, want %s", got, deployment.UID)
	}
}
