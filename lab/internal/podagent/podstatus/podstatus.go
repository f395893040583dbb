// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package podstatus makes a pod's status of what its containers are, by the rules of kubelet 1.36 (pkg/kubelet/kubelet_pods.go, getPhase, and
// pkg/kubelet/status/generate.go). It is pure.
package podstatus

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/sim/kubelet"
)

// World is what there is of a pod on its machine.
type World struct {
	// Host is the machine's address, Address the pod's; the latter is not valid before the pod has one.
	Host, Address netip.Addr
	// Connected says that the pod has its network.
	Connected bool
	// Init and Containers are in the order of the spec.
	Init, Containers []corev1.ContainerStatus
	// Ended says that no container will be started again.
	Ended bool
	Now   metav1.Time
}

// Make returns the pod's status. Conditions that are not kubelet's stay as they are.
func Make(pod *corev1.Pod, w World) corev1.PodStatus {
	status := *pod.Status.DeepCopy()
	status.ObservedGeneration = pod.Generation
	if status.StartTime == nil {
		now := w.Now
		status.StartTime = &now
	}
	status.HostIP, status.HostIPs = w.Host.String(), []corev1.HostIP{{IP: w.Host.String()}}
	if w.Address.IsValid() {
		status.PodIP, status.PodIPs = w.Address.String(), []corev1.PodIP{{IP: w.Address.String()}}
	}
	status.InitContainerStatuses, status.ContainerStatuses = w.Init, w.Containers
	status.Phase = phase(pod, w)
	set := func(kind corev1.PodConditionType, problem, message string) {
		value := corev1.ConditionTrue
		if problem != "" {
			value = corev1.ConditionFalse
		}
		kubelet.SetPodCondition(&status, kind, value, problem, pod.Generation, w.Now)
		for i := range status.Conditions {
			if status.Conditions[i].Type == kind {
				status.Conditions[i].Message = message
			}
		}
	}
	connected := ""
	if !w.Connected {
		connected = "PodNotConnected"
	}
	set(corev1.PodReadyToStartContainers, connected, "")
	// kubelet gives this one no reason.
	for i := range status.Conditions {
		if status.Conditions[i].Type == corev1.PodReadyToStartContainers {
			status.Conditions[i].Reason = ""
		}
	}
	initialized, why := uninitialized(pod, w)
	set(corev1.PodInitialized, initialized, why)
	ready, why := unready(pod, w, status.Phase)
	set(corev1.ContainersReady, ready, why)
	if ready == "" && !kubelet.ReadinessGatesOpen(pod) {
		ready, why = "ReadinessGatesNotReady", "a condition that the pod names in its readiness gates is not true"
	}
	set(corev1.PodReady, ready, why)
	set(corev1.PodScheduled, "", "")
	return status
}

// IsSidecar reports whether an init container runs as long as the pod.
func IsSidecar(c corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// Initialized reports whether an init container is out of the way of the next one: it has done its work, or runs beside the others and has started.
func Initialized(c corev1.Container, status corev1.ContainerStatus) bool {
	if IsSidecar(c) {
		return status.Started != nil && *status.Started
	}
	return status.State.Terminated != nil && status.State.Terminated.ExitCode == 0
}

// uninitialized returns reason and message if not all init containers are out of the way.
func uninitialized(pod *corev1.Pod, w World) (reason, message string) {
	var waiting []string
	for i, c := range pod.Spec.InitContainers {
		if i >= len(w.Init) || !Initialized(c, w.Init[i]) {
			waiting = append(waiting, c.Name)
		}
	}
	if len(waiting) == 0 || w.Ended && len(w.Containers) > 0 && w.Containers[0].State.Terminated != nil {
		return "", ""
	}
	return "ContainersNotInitialized", fmt.Sprintf("containers with incomplete status: [%s]", strings.Join(waiting, " "))
}

// unready returns reason and message if not all containers are ready.
func unready(pod *corev1.Pod, w World, phase corev1.PodPhase) (reason, message string) {
	if phase == corev1.PodSucceeded {
		return "PodCompleted", ""
	}
	if phase == corev1.PodFailed {
		return "PodFailed", ""
	}
	var names []string
	for i, c := range pod.Spec.InitContainers {
		if IsSidecar(c) && (i >= len(w.Init) || !w.Init[i].Ready) {
			names = append(names, c.Name)
		}
	}
	for _, c := range w.Containers {
		if !c.Ready {
			names = append(names, c.Name)
		}
	}
	if len(names) == 0 {
		return "", ""
	}
	return "ContainersNotReady", fmt.Sprintf("containers with unready status: [%s]", strings.Join(names, " "))
}

// phase sums up the containers.
func phase(pod *corev1.Pod, w World) corev1.PodPhase {
	if p, decided := initPhase(pod, w); decided {
		return p
	}
	waiting, running, failed := count(w.Containers)
	switch {
	case w.Ended && running == 0 && failed+waiting > 0:
		return corev1.PodFailed
	case w.Ended && running == 0:
		return corev1.PodSucceeded
	case waiting > 0:
		return corev1.PodPending
	default:
		return corev1.PodRunning
	}
}

// count counts containers that have never run, that run or will again, and that have failed; the others have done their work.
func count(containers []corev1.ContainerStatus) (waiting, running, failed int) {
	for _, c := range containers {
		switch {
		case c.State.Running != nil:
			running++
		case c.State.Terminated != nil:
			if c.State.Terminated.ExitCode != 0 {
				failed++
			}
		case c.LastTerminationState.Terminated != nil:
			running++ // between two runs
		default:
			waiting++
		}
	}
	return waiting, running, failed
}

// initPhase decides while init containers are not out of the way.
func initPhase(pod *corev1.Pod, w World) (p corev1.PodPhase, decided bool) {
	for i, c := range pod.Spec.InitContainers {
		if i < len(w.Init) && Initialized(c, w.Init[i]) {
			continue
		}
		if w.Ended {
			if IsSidecar(c) && slices.ContainsFunc(w.Containers, func(s corev1.ContainerStatus) bool { return s.State.Terminated != nil }) {
				continue // it was stopped with the others
			}
			return corev1.PodFailed, true
		}
		return corev1.PodPending, true
	}
	return "", false
}
