// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/nodesync"
)

// leaseNamespace holds the Leases that kubelets renew (k8s.io/api/core/v1 NamespaceNodeLease).
const leaseNamespace = corev1.NamespaceNodeLease

// podMetadataPerPage bounds one answer of a list of pods, of which there may be half a million.
const podMetadataPerPage = 2000

// containerAnnotation is the container ID of a pod's sandbox as Calico's CNI plugin writes it with the kubernetes
// datastore (libcalico-go, lib/backend/k8s/conversion: AnnotationContainerID).
const containerAnnotation = "cni.projectcalico.org/containerID"

// EachPod implements Cluster: it lists metadata alone, page by page, of the pods that the API server says have not finished.
func (k *KubernetesCluster) EachPod(ctx context.Context, visit func(namespace, name string)) error {
	selector := fields.AndSelectors(
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)), fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
	)
	return eachPage(ctx, k.reader, "PodList", podMetadataPerPage, func(page *metav1.PartialObjectMetadataList) {
		for i := range page.Items {
			visit(page.Items[i].Namespace, page.Items[i].Name)
		}
	}, client.MatchingFieldsSelector{Selector: selector})
}

// LookUpPod implements Cluster. Only the API server's own NotFound for this pod counts as gone, and a pod that has finished and is not being deleted:
// until it is, its kubelet may be about to take its sandbox down.
func (k *KubernetesCluster) LookUpPod(ctx context.Context, namespace, name string) nodesync.PodLookup {
	pod := &unstructured.Unstructured{}
	out := nodesync.PodLookup{Namespace: namespace, Name: name, Verdict: nodesync.VerdictAlive}
	err := k.get(ctx, corev1.SchemeGroupVersion.WithKind("Pod"), namespace, name, pod)
	switch phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase"); {
	case err == nil && pod.GetDeletionTimestamp() == nil && (phase == string(corev1.PodSucceeded) || phase == string(corev1.PodFailed)):
		out.Verdict = nodesync.VerdictGone
	case err == nil:
		out.Node, _, _ = unstructured.NestedString(pod.Object, "spec", "nodeName")
		out.Container = pod.GetAnnotations()[containerAnnotation]
	case isNotFound(err, "pods", name):
		out.Verdict = nodesync.VerdictGone
	default:
		out.Verdict, out.Detail = nodesync.VerdictUnknown, err.Error()
	}
	return out
}

// isNotFound tells "there is no such object" from other 404s, such as a proxy's page or a missing API group.
func isNotFound(err error, resource, name string) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Kind == resource && details.Name == name
}

// Heartbeat implements Cluster.
func (k *KubernetesCluster) Heartbeat(ctx context.Context, node string) nodesync.Heartbeat {
	out := nodesync.Heartbeat{Node: node}
	object, lease := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	if err := k.get(ctx, corev1.SchemeGroupVersion.WithKind("Node"), "", node, object); err != nil {
		out.Detail = fmt.Sprintf("reading its Kubernetes Node: %v", err)
		return out
	}
	if err := k.get(ctx, coordinationv1.SchemeGroupVersion.WithKind("Lease"), leaseNamespace, node, lease); err != nil {
		out.Detail = fmt.Sprintf("reading its Lease in namespace %s: %v", leaseNamespace, err)
		return out
	}
	keep, annotated := object.GetAnnotations()[nodesync.KeepAnnotation]
	out.UID, out.Keep = string(object.GetUID()), annotated && keep != "false"
	out.Ready, out.ReadySince = isReady(object)
	text, _, _ := unstructured.NestedString(lease.Object, "spec", "renewTime")
	renewed, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		out.Detail = fmt.Sprintf("its Lease in namespace %s has no renewTime", leaseNamespace)
	}
	out.Renewed = renewed
	return out
}

// isReady reports whether the condition Ready of a Node is True, and since when. A Node that is being deleted is not.
func isReady(node *unstructured.Unstructured) (ready bool, since time.Time) {
	conditions, _, _ := unstructured.NestedSlice(node.Object, "status", "conditions")
	for _, entry := range conditions {
		condition, _ := entry.(map[string]any)
		if condition["type"] == string(corev1.NodeReady) {
			text, _ := condition["lastTransitionTime"].(string)
			since, _ = time.Parse(time.RFC3339, text) // the zero time, if there is none
			return condition["status"] == string(corev1.ConditionTrue) && node.GetDeletionTimestamp() == nil, since
		}
	}
	return false, time.Time{}
}
