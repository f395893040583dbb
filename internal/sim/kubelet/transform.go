// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// byNode is the pod informer's index by the name of the Node that a pod is bound to.
const byNode = "node"

// newNodeInformer watches all Nodes: a fleet is most of its cluster.
func newNodeInformer(client kubernetes.Interface) cache.SharedIndexInformer {
	informer := coreinformers.NewFilteredNodeInformer(client, 0, cache.Indexers{}, nil)
	setTransform(informer, stripNode)
	return informer
}

// newPodInformer watches the pods that are bound to a Node: one watch however many machines there are.
func newPodInformer(client kubernetes.Interface) cache.SharedIndexInformer {
	bound := func(opts *metav1.ListOptions) {
		opts.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", "").String()
	}
	indexers := cache.Indexers{byNode: func(obj any) ([]string, error) {
		if pod, ok := obj.(*corev1.Pod); ok {
			return []string{pod.Spec.NodeName}, nil
		}
		return nil, nil
	}}
	informer := coreinformers.NewFilteredPodInformer(client, metav1.NamespaceAll, 0, indexers, bound)
	setTransform(informer, stripPod)
	return informer
}

// setTransform sets a transform on an informer that has not been started, where it cannot fail.
func setTransform(informer cache.SharedIndexInformer, transform cache.TransformFunc) {
	if err := informer.SetTransform(transform); err != nil {
		panic(err) // unreachable: only a started informer refuses
	}
}

// stripNode drops what a hollow kubelet neither reads nor writes. A status patch is the difference of two stripped Nodes,
// so that what is dropped here is never touched by it.
func stripNode(obj any) (any, error) {
	if node, ok := obj.(*corev1.Node); ok {
		node.ManagedFields = nil
		node.OwnerReferences = nil
		node.Status.Images = nil
	}
	return obj, nil
}

// stripPod keeps a pod's metadata and status, and of its spec what a kubelet and a CNI plugin need to know: where it
// runs, as whom, and the names, images and ports of its containers.
func stripPod(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	pod.ManagedFields = nil
	pod.OwnerReferences = nil
	delete(pod.Annotations, corev1.LastAppliedConfigAnnotation)
	pod.Spec = corev1.PodSpec{
		NodeName:           pod.Spec.NodeName,
		HostNetwork:        pod.Spec.HostNetwork,
		ServiceAccountName: pod.Spec.ServiceAccountName,
		RestartPolicy:      pod.Spec.RestartPolicy,
		ReadinessGates:     pod.Spec.ReadinessGates,
		InitContainers:     stripContainers(pod.Spec.InitContainers),
		Containers:         stripContainers(pod.Spec.Containers),
	}
	return pod, nil
}

func stripContainers(containers []corev1.Container) []corev1.Container {
	var kept []corev1.Container
	for _, c := range containers {
		kept = append(kept, corev1.Container{Name: c.Name, Image: c.Image, Ports: c.Ports, RestartPolicy: c.RestartPolicy})
	}
	return kept
}
