// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

// nodename is the environment variable NODENAME of a pod's container calico-node, "" if the API server does not know
// it. Without it calico-node reads a file of its machine (node/pkg/lifecycle/utils, DetermineNodeName).
func nodename(pod *unstructured.Unstructured) string {
	containers, _, _ := unstructured.NestedSlice(pod.Object, "spec", "containers")
	for _, container := range containers {
		object, _ := container.(map[string]any)
		if object["name"] != "calico-node" {
			continue
		}
		variables, _, _ := unstructured.NestedSlice(object, "env")
		for _, variable := range variables {
			if v, _ := variable.(map[string]any); v["name"] == "NODENAME" {
				return valueOf(v, pod)
			}
		}
	}
	return ""
}

// valueOf is the value of an environment variable that is given as it is, or by a field of the pod of which there is
// just one value.
func valueOf(variable map[string]any, pod *unstructured.Unstructured) string {
	value, _, _ := unstructured.NestedString(variable, "value")
	field, _, _ := unstructured.NestedString(variable, "valueFrom", "fieldRef", "fieldPath")
	path := map[string][]string{
		"spec.nodeName": {"spec", "nodeName"}, "status.hostIP": {"status", "hostIP"}, "status.podIP": {"status", "podIP"}, "metadata.name": {"metadata", "name"},
	}[field]
	if path == nil {
		return value
	}
	named, _, _ := unstructured.NestedString(pod.Object, path...)
	return cmp.Or(value, named)
}
