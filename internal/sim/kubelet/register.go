// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// taintUninitialized is what cloud-provider controllers remove once they know the machine.
	taintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"
	// annotationProvidedIP tells a cloud provider which address was given to the kubelet by --node-ip.
	annotationProvidedIP = "alpha.kubernetes.io/provided-node-ip"
	// annotationAttach reports that volumes of the Node are attached by kube-controller-manager.
	annotationAttach = "volumes.kubernetes.io/controller-managed-attach-detach"
)

// register creates the machine's Node or adopts the existing one, and then makes its first heartbeats due. It is done
// once between two starts of a kubelet.
func (f *Fleet) register(ctx context.Context, m *machine) (time.Duration, error) {
	if m.isRegistered() {
		return never, nil
	}
	nodes := f.cfg.Client.CoreV1().Nodes()
	initial := f.initialNode(m)
	_, err := nodes.Create(ctx, initial, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		if err := f.adopt(ctx, initial); err != nil {
			return 0, err
		}
	case err != nil:
		return 0, fmt.Errorf("registering node %q: %w", m.Name, err)
	}
	m.mu.Lock()
	m.registered = true
	m.mu.Unlock()
	f.cfg.Logger.Info("Registered node", "node", m.Name, "adopted", err != nil)
	f.resume(m)
	return never, nil
}

// adopt makes an existing Node this kubelet's own. Only well-known labels and the attach annotation are corrected:
// taints, provider ID and other labels stay as they are, although a new Node would get them.
func (f *Fleet) adopt(ctx context.Context, initial *corev1.Node) error {
	nodes := f.cfg.Client.CoreV1().Nodes()
	existing, err := nodes.Get(ctx, initial.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading existing node %q: %w", initial.Name, err)
	}
	adopted := existing.DeepCopy()
	for _, label := range []string{
		corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable, labelOSBeta, labelArchBeta,
		corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelInstanceTypeStable,
	} {
		if value := initial.Labels[label]; value != "" {
			metav1.SetMetaDataLabel(&adopted.ObjectMeta, label, value)
		}
	}
	metav1.SetMetaDataAnnotation(&adopted.ObjectMeta, annotationAttach, initial.Annotations[annotationAttach])
	patch, err := statusPatch(existing, adopted)
	if err != nil || patch == nil {
		return err
	}
	_, err = nodes.Patch(ctx, initial.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("adopting node %q: %w", initial.Name, err)
	}
	return nil
}

const (
	labelOSBeta   = "beta.kubernetes.io/os"
	labelArchBeta = "beta.kubernetes.io/arch"
)

// initialNode is the Node as the kubelet of the machine creates it.
func (f *Fleet) initialNode(m *machine) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: m.Name,
			Labels: map[string]string{
				corev1.LabelHostname:   m.Name,
				corev1.LabelOSStable:   nodeOS,
				corev1.LabelArchStable: runtime.GOARCH,
				labelOSBeta:            nodeOS,
				labelArchBeta:          runtime.GOARCH,
			},
			Annotations: map[string]string{annotationAttach: "true"},
		},
		Spec: corev1.NodeSpec{ProviderID: m.ProviderID, Taints: slices.Clone(m.Taints)},
	}
	if m.ExternalCloudProvider {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: taintUninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule})
	} else if m.Zone != "" {
		node.Labels[corev1.LabelTopologyZone] = m.Zone
	}
	maps.Copy(node.Labels, m.Labels)
	return f.desiredNode(m, node, f.cfg.Clock.Now())
}
