// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"runtime"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// never reports that a task is not due again until it is scheduled.
const never = time.Duration(-1)

const nodeOS = "linux"

// reportStatus writes the Node's status if it differs from the desired state, or if it has not been written for long. A Node
// that is not in the cache has been deleted, or has not arrived yet: a check of the cache costs no call and is repeated.
func (f *Fleet) reportStatus(ctx context.Context, m *machine) (time.Duration, error) {
	if !m.isRegistered() {
		return never, nil
	}
	obj, exists, err := f.nodes.GetStore().GetByKey(m.Name)
	if err != nil || !exists {
		return f.cfg.LeaseInterval, err
	}
	m.mu.Lock()
	last, jitter := m.lastReport, m.reportJitter
	m.mu.Unlock()

	now := f.cfg.Clock.Now()
	old := obj.(*corev1.Node)
	desired := f.desiredNode(m, old, now)
	changed := statusDiffers(old, desired)
	if wait := last.Add(f.cfg.StatusInterval + jitter).Sub(now); !changed && wait > 0 {
		return wait, nil
	}
	patch, err := statusPatch(old, desired)
	if err != nil {
		return 0, err
	}
	if patch != nil { // times count in seconds: it is nil if the last report is younger than one
		_, err = f.cfg.Client.CoreV1().Nodes().
			Patch(ctx, m.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	switch {
	case apierrors.IsNotFound(err):
		return f.cfg.LeaseInterval, nil // deleted a moment ago; see above
	case err != nil:
		return 0, fmt.Errorf("reporting status of node %q: %w", m.Name, err)
	}
	// After a start or a change the next report is moved by up to half an interval, so that the machines of a fleet do
	// not report in step; after that the interval is kept exactly.
	jitter = 0
	if changed || last.IsZero() {
		jitter = f.jitter(f.cfg.StatusInterval) - f.cfg.StatusInterval/2
	}
	m.mu.Lock()
	m.lastReport, m.reportJitter = now, jitter
	m.mu.Unlock()
	return f.cfg.StatusInterval + jitter, nil
}

// desiredNode is the Node as its kubelet would have it now. The old Node is not changed.
func (f *Fleet) desiredNode(m *machine, old *corev1.Node, now time.Time) *corev1.Node {
	node := old.DeepCopy()
	metav1.SetMetaDataLabel(&node.ObjectMeta, corev1.LabelOSStable, nodeOS)
	metav1.SetMetaDataLabel(&node.ObjectMeta, corev1.LabelArchStable, runtime.GOARCH)
	setAddresses(m, node)
	status := &node.Status
	if status.Capacity == nil {
		status.Capacity = corev1.ResourceList{}
	}
	if status.Allocatable == nil {
		status.Allocatable = corev1.ResourceList{}
	}
	for name, quantity := range capacity() {
		status.Capacity[name] = quantity
		status.Allocatable[name] = quantity
	}
	status.DaemonEndpoints.KubeletEndpoint.Port = 10250
	status.NodeInfo = corev1.NodeSystemInfo{
		MachineID:               digest("machine", m.Name)[:32],
		SystemUUID:              digest("machine", m.Name)[:32],
		BootID:                  m.bootID,
		KernelVersion:           "6.12.0-mooring",
		OSImage:                 "Mooring simulated machine",
		ContainerRuntimeVersion: "containerd://2.2.0",
		KubeletVersion:          f.cfg.KubeletVersion,
		OperatingSystem:         nodeOS,
		Architecture:            runtime.GOARCH,
	}
	setConditions(status, metav1.NewTime(now))
	return node
}

// capacity is that of every simulated machine.
func capacity() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("4"),
		corev1.ResourceMemory:           resource.MustParse("8Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("80Gi"),
		corev1.ResourcePods:             resource.MustParse("110"),
	}
}

// setAddresses follows kubelet: with an external cloud provider, addresses that are there are somebody else's and stay.
func setAddresses(m *machine, node *corev1.Node) {
	hostname := corev1.NodeAddress{Type: corev1.NodeHostName, Address: m.Name}
	if m.ExternalCloudProvider && m.Address.IsValid() {
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, annotationProvidedIP, m.Address.String())
	} else {
		delete(node.Annotations, annotationProvidedIP)
	}
	if m.ExternalCloudProvider && len(node.Status.Addresses) > 0 {
		return
	}
	if !m.Address.IsValid() {
		node.Status.Addresses = []corev1.NodeAddress{hostname}
		return
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: m.Address.String()}, hostname}
}

// setConditions sets the four conditions of a healthy kubelet, Ready last, and leaves those of others alone.
func setConditions(status *corev1.NodeStatus, now metav1.Time) {
	for _, want := range []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse,
			Reason: "KubeletHasSufficientMemory", Message: "kubelet has sufficient memory available"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse,
			Reason: "KubeletHasNoDiskPressure", Message: "kubelet has no disk pressure"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse,
			Reason: "KubeletHasSufficientPID", Message: "kubelet has sufficient PID available"},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
			Reason: "KubeletReady", Message: "kubelet is posting ready status"},
	} {
		want.LastHeartbeatTime, want.LastTransitionTime = now, now
		if i := conditionIndex(status.Conditions, want.Type); i < 0 {
			status.Conditions = append(status.Conditions, want)
		} else {
			if status.Conditions[i].Status == want.Status {
				want.LastTransitionTime = status.Conditions[i].LastTransitionTime
			}
			status.Conditions[i] = want
		}
	}
}

func conditionIndex(conditions []corev1.NodeCondition, kind corev1.NodeConditionType) int {
	for i := range conditions {
		if conditions[i].Type == kind {
			return i
		}
	}
	return -1
}

// statusDiffers reports whether anything but heartbeat times differs between two Nodes that a status patch can carry.
func statusDiffers(a, b *corev1.Node) bool {
	return !equality.Semantic.DeepEqual(a.Labels, b.Labels) || !equality.Semantic.DeepEqual(a.Annotations, b.Annotations) ||
		!equality.Semantic.DeepEqual(withoutHeartbeats(a.Status), withoutHeartbeats(b.Status))
}

func withoutHeartbeats(status corev1.NodeStatus) corev1.NodeStatus {
	conditions := make([]corev1.NodeCondition, len(status.Conditions))
	for i, condition := range status.Conditions {
		condition.LastHeartbeatTime = metav1.Time{}
		conditions[i] = condition
	}
	status.Conditions = conditions
	return status
}

// statusPatch is the strategic merge patch of metadata and status that leads from one Node to the other; nil if there is
// nothing to patch. Addresses are replaced as a whole: the API declares them to be merged by type, which would keep an
// old address alongside a new one.
func statusPatch(from, to *corev1.Node) ([]byte, error) {
	to = to.DeepCopy()
	to.Spec = from.Spec
	addresses := to.Status.Addresses
	replace := len(from.Status.Addresses) > 0 && !equality.Semantic.DeepEqual(from.Status.Addresses, addresses)
	if replace {
		to.Status.Addresses = from.Status.Addresses
	}
	patch, err := mergePatch(from, to, corev1.Node{})
	if err != nil {
		return nil, fmt.Errorf("comparing two states of node %q: %w", from.Name, err)
	}
	if replace {
		status, _ := patch["status"].(map[string]any)
		if status == nil {
			status = map[string]any{}
		}
		list := []any{map[string]any{"$patch": "replace"}}
		for _, address := range addresses {
			list = append(list, address)
		}
		status["addresses"] = list
		patch["status"] = status
	}
	if len(patch) == 0 {
		return nil, nil
	}
	return json.Marshal(patch)
}

// mergePatch is the strategic merge patch from one object to another of the type of schema, as a map.
func mergePatch(from, to, schema any) (map[string]any, error) {
	before, err := json.Marshal(from)
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(to)
	if err != nil {
		return nil, err
	}
	raw, err := strategicpatch.CreateTwoWayMergePatch(before, after, schema)
	if err != nil {
		return nil, err
	}
	patch := map[string]any{}
	return patch, json.Unmarshal(raw, &patch)
}

// digest is a stable identifier of 64 hexadecimal digits for something with a name.
func digest(kind, name string) string {
	sum := sha256.Sum256([]byte(kind + "/" + name))
	return hex.EncodeToString(sum[:])
}
