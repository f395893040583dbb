// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"encoding/json"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// isTerminal reports whether a pod has ended for good, by its phase.
func isTerminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// runningStatus is the status of a pod whose containers all run and are ready.
func runningStatus(pod *corev1.Pod, host netip.Addr, addresses []netip.Addr, now metav1.Time) corev1.PodStatus {
	status := *pod.Status.DeepCopy()
	status.ObservedGeneration = pod.Generation
	status.Phase = corev1.PodRunning
	if host.IsValid() {
		status.HostIP = host.String()
		status.HostIPs = []corev1.HostIP{{IP: host.String()}}
	}
	if len(addresses) > 0 && addresses[0].IsValid() {
		status.PodIP, status.PodIPs = addresses[0].String(), nil
		for _, address := range addresses {
			status.PodIPs = append(status.PodIPs, corev1.PodIP{IP: address.String()})
		}
	}
	if status.StartTime == nil {
		status.StartTime = &now
	}
	status.InitContainerStatuses = nil
	for _, c := range pod.Spec.InitContainers {
		sidecar := c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		status.InitContainerStatuses = append(status.InitContainerStatuses, containerStatus(pod, c, sidecar, *status.StartTime, now))
	}
	status.ContainerStatuses = nil
	for _, c := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, containerStatus(pod, c, true, *status.StartTime, now))
	}
	setPodCondition(&status, corev1.PodReadyToStartContainers, corev1.ConditionTrue, "", pod.Generation, now)
	setPodCondition(&status, corev1.PodInitialized, corev1.ConditionTrue, "", pod.Generation, now)
	setPodCondition(&status, corev1.ContainersReady, corev1.ConditionTrue, "", pod.Generation, now)
	setReady(&status, pod, now)
	setPodCondition(&status, corev1.PodScheduled, corev1.ConditionTrue, "", pod.Generation, now)
	return status
}

// gatedStatus is the status of a pod that runs already, after its readiness gates may have changed.
func gatedStatus(pod *corev1.Pod, now metav1.Time) corev1.PodStatus {
	status := *pod.Status.DeepCopy()
	setReady(&status, pod, now)
	return status
}

func setReady(status *corev1.PodStatus, pod *corev1.Pod, now metav1.Time) {
	ready, reason := corev1.ConditionTrue, ""
	if !readinessGatesOpen(pod) {
		ready, reason = corev1.ConditionFalse, "ReadinessGatesNotReady"
	}
	setPodCondition(status, corev1.PodReady, ready, reason, pod.Generation, now)
}

// finalStatus is the status of a pod all of whose containers have ended well when they were told to.
func finalStatus(pod *corev1.Pod, now metav1.Time) corev1.PodStatus {
	status := *pod.Status.DeepCopy()
	status.ObservedGeneration = pod.Generation
	status.Phase = corev1.PodSucceeded
	for i := range status.ContainerStatuses {
		c := &status.ContainerStatuses[i]
		started := now
		if c.State.Running != nil {
			started = c.State.Running.StartedAt
		}
		notStarted := false
		c.Ready, c.Started = false, &notStarted
		c.State = completed(c.ContainerID, started, now)
	}
	setPodCondition(&status, corev1.PodReadyToStartContainers, corev1.ConditionFalse, "", pod.Generation, now)
	setPodCondition(&status, corev1.ContainersReady, corev1.ConditionFalse, "PodCompleted", pod.Generation, now)
	setPodCondition(&status, corev1.PodReady, corev1.ConditionFalse, "PodCompleted", pod.Generation, now)
	return status
}

// containerStatus is that of a container that runs, or of an init container that has done its work.
func containerStatus(pod *corev1.Pod, c corev1.Container, runs bool, since, now metav1.Time) corev1.ContainerStatus {
	id := "containerd://" + digest("container", string(pod.UID)+"/"+c.Name)
	status := corev1.ContainerStatus{
		Name: c.Name, Image: c.Image, ImageID: "sha256:" + digest("image", c.Image),
		ContainerID: id, Ready: true, Started: &runs,
	}
	if runs {
		status.State.Running = &corev1.ContainerStateRunning{StartedAt: since}
	} else {
		status.State = completed(id, since, now)
	}
	return status
}

func completed(id string, since, now metav1.Time) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		Reason: "Completed", StartedAt: since, FinishedAt: now, ContainerID: id,
	}}
}

// readinessGatesOpen reports whether every condition that the pod asks for in addition to its containers' is true.
func readinessGatesOpen(pod *corev1.Pod) bool {
	for _, gate := range pod.Spec.ReadinessGates {
		i := podConditionIndex(pod.Status.Conditions, gate.ConditionType)
		if i < 0 || pod.Status.Conditions[i].Status != corev1.ConditionTrue {
			return false
		}
	}
	return true
}

// setPodCondition sets one condition as kubelet does: its transition time changes with its status only, and it says which generation of the pod it is
// about.
func setPodCondition(status *corev1.PodStatus, kind corev1.PodConditionType, value corev1.ConditionStatus, reason string,
	generation int64, now metav1.Time,
) {
	want := corev1.PodCondition{
		Type: kind, Status: value, Reason: reason, LastTransitionTime: now, ObservedGeneration: generation,
	}
	i := podConditionIndex(status.Conditions, kind)
	if i < 0 {
		status.Conditions = append(status.Conditions, want)
		return
	}
	if status.Conditions[i].Status == value {
		want.LastTransitionTime = status.Conditions[i].LastTransitionTime
	}
	status.Conditions[i] = want
}

func podConditionIndex(conditions []corev1.PodCondition, kind corev1.PodConditionType) int {
	for i := range conditions {
		if conditions[i].Type == kind {
			return i
		}
	}
	return -1
}

// podStatusPatch is the patch that gives exactly this pod, by UID, a status; nil if it has that status.
func podStatusPatch(pod *corev1.Pod, status corev1.PodStatus) ([]byte, error) {
	from, to := &corev1.Pod{Status: pod.Status}, &corev1.Pod{Status: status}
	patch, err := mergePatch(from, to, corev1.Pod{})
	if err != nil {
		return nil, fmt.Errorf("comparing two states of pod %s: %w", keyOf(pod), err)
	}
	if len(patch) == 0 {
		return nil, nil
	}
	patch["metadata"] = map[string]any{"uid": pod.UID}
	return json.Marshal(patch)
}
