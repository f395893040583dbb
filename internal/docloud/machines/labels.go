// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/mooring-dev/mooring/internal/docloud/instance"
)

// label gives a Node the labels that its droplet's tags ask for, in one patch of our own keys and only if something differs.
//
// It is part of telling a Node's metadata, which Kubernetes' framework asks for before it takes the taint off a new Node, and every
// --node-status-update-frequency of each other one, so that it costs no call to DigitalOcean. The framework's own AdditionalLabels are not used: it
// writes them once, when the Node is new (k8s.io/cloud-provider v0.36, node_controller.go), and nobody would know later whose they are.
//
// A failure stops nothing: a Node without its labels is better than none, and the next look comes.
func (m *Instances) label(ctx context.Context, node *corev1.Node, droplet instance.Droplet) {
	if len(m.config.Labels) == 0 {
		return
	}
	complete := m.snapshot.Latest().tagged && m.guard.accountFits()
	wrote, problems, err := m.writeLabels(ctx, node, instance.LabelWorld{Tags: droplet.Tags, Complete: complete})
	switch {
	case err != nil:
		m.reporter.labels.WithLabelValues(labelsFailed).Inc()
		klog.ErrorS(err, "The labels of a Node were not written, will try again", "node", node.Name, "droplet", droplet.ID)
		return
	case wrote:
		m.reporter.labels.WithLabelValues(labelsWritten).Inc()
	}
	m.reporter.once(node, EventTagNoLabel, strings.Join(problems, "; "))
}

// writeLabels decides and writes, again on the Node as it is now if it has changed since it was read.
func (m *Instances) writeLabels(ctx context.Context, node *corev1.Node, w instance.LabelWorld) (wrote bool, problems []string, err error) {
	const attempts = 4
	m.mu.Lock()
	nodes := m.client.CoreV1().Nodes()
	m.mu.Unlock()
	w.Node = node
	for attempt := 1; ; attempt++ {
		plan := instance.PlanLabels(w, m.config.Labels)
		if !plan.Writes() {
			return false, plan.Problems, nil
		}
		body, err := labelPatch(w.Node, plan)
		if err != nil {
			return false, nil, err
		}
		_, err = nodes.Patch(ctx, node.Name, types.MergePatchType, body, metav1.PatchOptions{})
		switch {
		case err == nil:
			klog.InfoS("Wrote labels of a Node by its droplet's tags", "node", node.Name, "set", plan.Set, "removed", plan.Remove)
			return true, plan.Problems, nil
		case !apierrors.IsConflict(err) || attempt == attempts:
			return false, nil, fmt.Errorf("writing labels of node %s: %w", node.Name, err)
		}
		if w.Node, err = nodes.Get(ctx, node.Name, metav1.GetOptions{}); err != nil {
			return false, nil, fmt.Errorf("reading node %s again: %w", node.Name, err)
		}
		if w.Node.UID != node.UID {
			return false, nil, fmt.Errorf("node %s is another one by now", node.Name)
		}
	}
}

// labelPatch is a merge patch that applies only to the Node that the plan was made for, as it was then.
func labelPatch(node *corev1.Node, plan instance.LabelPlan) ([]byte, error) {
	labels := map[string]any{}
	for key, value := range plan.Set {
		labels[key] = value
	}
	for _, key := range plan.Remove {
		labels[key] = nil
	}
	annotations := map[string]any{instance.LabelsAnnotation: plan.Record}
	if plan.Record == "" {
		annotations[instance.LabelsAnnotation] = nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": node.UID, "resourceVersion": node.ResourceVersion, "labels": labels, "annotations": annotations,
	}})
	if err != nil {
		return nil, fmt.Errorf("encoding labels of node %s: %w", node.Name, err)
	}
	return body, nil
}
