// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/routereflector/birdtemplates"
)

// ErrNoCalicoNode says that a cluster has no DaemonSet calico-node.
var ErrNoCalicoNode = errors.New("no namespace has a DaemonSet calico-node")

// calicoNode is the name of Calico's DaemonSet.
const calicoNode = "calico-node"

// CalicoNode reads Calico's DaemonSet. byOperator reports that Calico's operator manages it.
func (c *Cluster) CalicoNode(ctx context.Context) (set *appsv1.DaemonSet, byOperator bool, err error) {
	list, err := c.Typed.AppsV1().DaemonSets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + calicoNode})
	if err != nil {
		return nil, false, fmt.Errorf("looking for the DaemonSet %s: %w", calicoNode, err)
	}
	switch len(list.Items) {
	case 0:
		return nil, false, ErrNoCalicoNode
	case 1:
	default:
		return nil, false, fmt.Errorf("the namespaces %s and %s each have a DaemonSet %s", list.Items[0].Namespace, list.Items[1].Namespace, calicoNode)
	}
	set = &list.Items[0]
	for _, owner := range set.OwnerReferences {
		byOperator = byOperator || strings.HasPrefix(owner.APIVersion, "operator.tigera.io/")
	}
	return set, byOperator, nil
}

// BIRDTemplates reads the templates that calico-node's pods read from a ConfigMap, and what tells which of them do.
func (c *Cluster) BIRDTemplates(ctx context.Context) (birdtemplates.Installation, error) {
	set, _, err := c.CalicoNode(ctx)
	if err != nil {
		return birdtemplates.Installation{}, err
	}
	out := birdtemplates.Installation{Namespace: set.Namespace}
	stored, err := c.Typed.CoreV1().ConfigMaps(set.Namespace).Get(ctx, birdtemplates.ConfigMap, metav1.GetOptions{})
	switch {
	case err == nil:
		out.Data, out.Changed = stored.Data, dataChanged(stored)
		if out.Data == nil {
			out.Data = map[string]string{}
		}
	case !apierrors.IsNotFound(err):
		return birdtemplates.Installation{}, fmt.Errorf("reading the ConfigMap %s: %w", out.Name(), err)
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return birdtemplates.Installation{}, fmt.Errorf("reading the selector of the DaemonSet %s: %w", calicoNode, err)
	}
	ofSet := metav1.ListOptions{LabelSelector: selector.String()}
	pods, err := All[corev1.Pod](ctx, "the pods of "+calicoNode, c.Typed.CoreV1().Pods(set.Namespace).List, ofSet)
	for _, p := range pods {
		if p.DeletionTimestamp == nil && p.Spec.NodeName != "" {
			out.Pods = append(out.Pods, birdtemplates.Pod{Node: p.Spec.NodeName, Created: p.CreationTimestamp.Time, Mounts: templateMounts(p)})
		}
	}
	return out, err
}

// dataChanged is when the data of a ConfigMap was last written, by its managed fields, or else when it was created.
func dataChanged(m *corev1.ConfigMap) time.Time {
	changed := m.CreationTimestamp.Time
	for _, f := range m.ManagedFields {
		if f.Time != nil && f.FieldsV1 != nil && strings.Contains(f.FieldsV1.GetRawString(), `"f:data"`) && f.Time.After(changed) {
			changed = f.Time.Time
		}
	}
	return changed
}

// templateMounts are the paths at which calico-node's container mounts the ConfigMap with templates.
func templateMounts(p *corev1.Pod) (paths []string) {
	volumes := map[string]bool{}
	for _, v := range p.Spec.Volumes {
		if v.ConfigMap != nil && v.ConfigMap.Name == birdtemplates.ConfigMap {
			volumes[v.Name] = true
		}
	}
	for _, container := range p.Spec.Containers {
		for _, m := range container.VolumeMounts {
			if container.Name == calicoNode && volumes[m.Name] {
				paths = append(paths, strings.TrimSuffix(m.MountPath, "/"))
			}
		}
	}
	return paths
}
