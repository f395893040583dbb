// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"sync"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// DeploymentName is the Deployment that Events are about, as the shipped manifests call it.
const DeploymentName = "calico-node-sync"

// KubernetesEvents writes Events about the program's own Deployment, so that `kubectl describe deployment` shows them: the Nodes that they
// tell of are gone. Where there is no such Deployment they are about the Namespace.
//
// Repetitions within minutes become one Event with a count (client-go, tools/events). The related Node keeps those of different machines apart.
type KubernetesEvents struct {
	// Recorder sends them, in the background; what cannot be sent is lost.
	Recorder events.EventRecorder
	// Reader reads the Deployment live, for its UID, without which `kubectl describe` does not find its Events.
	Reader client.Reader
	// Namespace is the program's own. All Events are in it, so that no right is needed elsewhere.
	Namespace string
	// Deployment is the name of the Deployment, "" for none.
	Deployment string
	Log        logr.Logger

	mu     sync.Mutex
	target *corev1.ObjectReference // guarded by mu; nil until it is known for good
}

// Record implements Events.
func (e *KubernetesEvents) Record(ctx context.Context, event Event) {
	var related runtime.Object
	if event.Node != "" {
		related = &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: event.Node}
	}
	e.Recorder.Eventf(e.regarding(ctx), related, event.eventType(), event.Reason, event.Action, "%s", event.Note)
}

// regarding returns what Events are about. It is found out with the first Event, and again with the next one if the API server did not respond.
func (e *KubernetesEvents) regarding(ctx context.Context) *corev1.ObjectReference {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.target != nil {
		return e.target
	}
	if e.Deployment == "" {
		e.target = e.namespace()
		return e.target
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	deployment := &metav1.PartialObjectMetadata{}
	deployment.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	err := e.Reader.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: e.Deployment}, deployment)
	switch {
	case err == nil:
		e.target = &corev1.ObjectReference{
			APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "Deployment", Namespace: e.Namespace, Name: e.Deployment, UID: deployment.UID,
		}
	case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
		e.Log.Info("Writing Events about the Namespace, because the Deployment cannot be read", "namespace", e.Namespace, "deployment", e.Deployment,
			"because", err.Error())
		e.target = e.namespace()
	default:
		return e.namespace()
	}
	return e.target
}

// namespace is the Namespace as what Events are about. The reference names the namespace as its own namespace, too: the API server takes an
// Event about an object without one in "default" and kube-system only (core validation of Events), where the program has no rights and
// nobody would look.
func (e *KubernetesEvents) namespace() *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Namespace: e.Namespace, Name: e.Namespace}
}
