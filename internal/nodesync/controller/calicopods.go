// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/nodesync"
)

// CalicoPods implements Cluster. They are found by the label that Calico's manifests and its operator give them.
func (k *KubernetesCluster) CalicoPods(ctx context.Context, node string) ([]nodesync.CalicoPod, error) {
	list := &unstructured.UnstructuredList{}
	running := client.MatchingFields{"spec.nodeName": node, "status.phase": string(corev1.PodRunning)}
	if err := listLive(ctx, k.reader, "PodList", list, running, client.MatchingLabels{"k8s-app": "calico-node"}); err != nil {
		return nil, err
	}
	pods := make([]nodesync.CalicoPod, 0, len(list.Items))
	for i := range list.Items {
		pod := &list.Items[i]
		pods = append(pods, nodesync.CalicoPod{Node: node, Pod: pod.GetNamespace() + "/" + pod.GetName(), Nodename: nodename(pod)})
	}
	return pods, nil
}

// nodename is the environment variable NODENAME of a pod's container calico-node, as it is or by a field of the pod of
// which there is just one value; "" if the API server does not know it. Without it calico-node reads a file of its
// machine (node/pkg/lifecycle/utils, DetermineNodeName).
func nodename(object *unstructured.Unstructured) string {
	var pod corev1.Pod
	if runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &pod) != nil {
		return ""
	}
	for _, container := range pod.Spec.Containers {
		for _, v := range container.Env {
			if container.Name != "calico-node" || v.Name != "NODENAME" {
				continue
			}
			field := ""
			if v.ValueFrom != nil && v.ValueFrom.FieldRef != nil {
				field = v.ValueFrom.FieldRef.FieldPath
			}
			return cmp.Or(v.Value, map[string]string{
				"spec.nodeName": pod.Spec.NodeName, "status.hostIP": pod.Status.HostIP, "status.podIP": pod.Status.PodIP, "metadata.name": pod.Name,
			}[field])
		}
	}
	return ""
}
