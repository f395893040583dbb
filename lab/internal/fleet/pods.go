// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/lab/internal/machines"
)

// Namespace is where the lab's own pods are; SamplePod is the value of their label "app".
const (
	Namespace = "lab"
	SamplePod = "sample"
	// taintUninitialized is on the Node of a kubelet with --cloud-provider=external until a cloud controller manager has been there.
	taintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"
)

// furnish creates the pods of machines whose Nodes exist, and reports whether everything is up: Nodes Ready, calico-nodes settled and the lab's
// pods running, as far as the machines can.
func (f *fleet) furnish(ctx context.Context, list machines.List) (up bool, err error) {
	nodes, err := f.api.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: OwnerLabel + "=true"})
	if err != nil {
		return false, fmt.Errorf("listing nodes: %w", err)
	}
	byName := make(map[string]corev1.Node, len(nodes.Items))
	for _, node := range nodes.Items {
		byName[node.Name] = node
	}
	pods, err := f.api.CoreV1().Pods(Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + SamplePod})
	if err != nil {
		return false, fmt.Errorf("listing pods: %w", err)
	}
	running := map[string]bool{} // by name, for every pod that exists
	for _, pod := range pods.Items {
		running[pod.Name] = pod.Status.Phase == corev1.PodRunning
	}
	up = true
	for _, machine := range list.Machines {
		if machine.State == machines.Off || machine.Real {
			continue
		}
		node, registered := byName[machine.Name]
		machineUp := registered && f.isUp(machine, node)
		if registered {
			podsUp, err := f.furnishOne(ctx, machine.Name, running)
			if err != nil {
				return false, err
			}
			machineUp = machineUp && podsUp
		}
		up = up && (machineUp || !expected(machine))
	}
	return up, nil
}

// furnishOne creates the pods of one machine and reports whether they run, if they can.
func (f *fleet) furnishOne(ctx context.Context, machine string, running map[string]bool) (up bool, err error) {
	up = true
	for i := range f.podsPerNode {
		name := fmt.Sprintf("%s-%s-%d", SamplePod, machine, i+1)
		isRunning, exists := running[name]
		if !isRunning && f.members[machine].calico.hasNetwork() {
			up = false
		}
		if exists {
			continue
		}
		if err := f.createPod(ctx, name, machine); err != nil {
			return false, err
		}
	}
	return up, nil
}

// expected reports whether a machine is waited for: not one that is silent, or that waits itself for a cloud controller manager which does not run
// here.
func expected(machine machines.Machine) bool {
	return machine.State == machines.Running && (!machine.ExternalCloudProvider || machine.Droplet != 0)
}

// isUp reports whether a registered machine is ready, apart from its pods.
func (f *fleet) isUp(machine machines.Machine, node corev1.Node) bool {
	return IsUp(machine, node, f.uninitialized) && f.members[machine.Name].calico.settled()
}

// IsUp reports whether the Node of a machine is Ready and, with a cloud and unless it may be uninitialized, initialized.
func IsUp(machine machines.Machine, node corev1.Node, uninitialized bool) bool {
	return isReady(node) && (machine.Droplet == 0 || uninitialized || isInitialized(node))
}

// isInitialized reports whether the cloud controller manager has been there.
func isInitialized(node corev1.Node) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Key == taintUninitialized {
			return false
		}
	}
	return node.Spec.ProviderID != ""
}

func isReady(node corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// createPod creates a pod that is bound from the start, as a static cluster without a scheduler has them.
func (f *fleet) createPod(ctx context.Context, name, machine string) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace, Labels: map[string]string{"app": SamplePod, OwnerLabel: "true"}},
		Spec: corev1.PodSpec{
			NodeName:                     machine,
			ServiceAccountName:           SamplePod,
			AutomountServiceAccountToken: new(bool),
			Containers:                   []corev1.Container{{Name: "sample", Image: "mooring-lab/sample"}},
		},
	}
	_, err := f.api.CoreV1().Pods(Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating pod %s: %w", name, err)
	}
	return nil
}
