// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package podstatus_test

import (
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/lab/internal/podagent/podstatus"
)

func waiting(name string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}
}

func running(name string, ready bool) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, Ready: ready, Started: &ready, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
}

func ended(name string, code int32) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}}
}

// between is one that has ended and waits for its next start.
func between(name string) corev1.ContainerStatus {
	c := waiting(name)
	c.LastTerminationState = ended(name, 1).State
	return c
}

type statuses []corev1.ContainerStatus

// TestPhaseAndConditions is kubelet's table: what there is of the containers, and what the pod is called then.
func TestPhaseAndConditions(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		inits, sidecars  int
		init, containers statuses
		ended            bool
		phase            corev1.PodPhase
		initialized      corev1.ConditionStatus
		ready            string // status, reason and message
	}{
		"nothing has started": {
			containers: statuses{waiting("a")}, phase: corev1.PodPending, initialized: "True", ready: "False ContainersNotReady containers with unready status: [a]",
		},
		"one of two runs": {
			containers: statuses{running("a", true), waiting("b")}, phase: corev1.PodPending, initialized: "True",
			ready: "False ContainersNotReady containers with unready status: [b]",
		},
		"both run, one is not ready": {
			containers: statuses{running("a", true), running("b", false)}, phase: corev1.PodRunning, initialized: "True",
			ready: "False ContainersNotReady containers with unready status: [b]",
		},
		"all is well": {containers: statuses{running("a", true)}, phase: corev1.PodRunning, initialized: "True", ready: "True  "},
		"between two runs": {
			containers: statuses{between("a")}, phase: corev1.PodRunning, initialized: "True", ready: "False ContainersNotReady containers with unready status: [a]",
		},
		"one has ended, another runs": {
			containers: statuses{ended("a", 0), running("b", true)}, phase: corev1.PodRunning, initialized: "True",
			ready: "False ContainersNotReady containers with unready status: [a]",
		},
		"all have done their work": {
			containers: statuses{ended("a", 0)}, ended: true, phase: corev1.PodSucceeded, initialized: "True", ready: "False PodCompleted ",
		},
		"one has failed for good": {
			containers: statuses{ended("a", 0), ended("b", 3)}, ended: true, phase: corev1.PodFailed, initialized: "True", ready: "False PodFailed ",
		},
		"an init container runs": {
			inits: 1, init: statuses{running("i", false)}, containers: statuses{waiting("a")}, phase: corev1.PodPending, initialized: "False",
			ready: "False ContainersNotReady containers with unready status: [a]",
		},
		"an init container has failed for good": {
			inits: 1, init: statuses{ended("i", 1)}, containers: statuses{waiting("a")}, ended: true, phase: corev1.PodFailed, initialized: "False",
			ready: "False PodFailed ",
		},
		"an init container has done its work": {
			inits: 1, init: statuses{ended("i", 0)}, containers: statuses{running("a", true)}, phase: corev1.PodRunning, initialized: "True", ready: "True  ",
		},
		"a sidecar is not ready": {
			sidecars: 1, init: statuses{running("s", false)}, containers: statuses{waiting("a")}, phase: corev1.PodPending, initialized: "False",
			ready: "False ContainersNotReady containers with unready status: [s a]",
		},
		"a sidecar runs beside": {
			sidecars: 1, init: statuses{running("s", true)}, containers: statuses{running("a", true)}, phase: corev1.PodRunning, initialized: "True", ready: "True  ",
		},
		"a sidecar was ended after the work": {
			sidecars: 1, init: statuses{ended("s", 143)}, containers: statuses{ended("a", 0)}, ended: true, phase: corev1.PodSucceeded, initialized: "True",
			ready: "False PodCompleted ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
			always := corev1.ContainerRestartPolicyAlways
			for i := range test.inits {
				pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: test.init[i].Name})
			}
			for i := range test.sidecars {
				pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: test.init[i].Name, RestartPolicy: &always})
			}
			got := podstatus.Make(pod, podstatus.World{
				Host: netip.MustParseAddr("172.30.0.2"), Address: netip.MustParseAddr("10.244.0.5"), Connected: true, Init: test.init, Containers: test.containers,
				Ended: test.ended, Now: metav1.NewTime(time.Unix(1000, 0)),
			})
			if got.Phase != test.phase {
				t.Errorf("the phase is %s", got.Phase)
			}
			if c := condition(got, corev1.PodInitialized); c.Status != test.initialized || c.ObservedGeneration != 3 {
				t.Errorf("initialized is %+v", c)
			}
			for _, kind := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady} {
				if c := condition(got, kind); string(c.Status)+" "+c.Reason+" "+c.Message != test.ready {
					t.Errorf("%s is %+v", kind, c)
				}
			}
			if got.PodIP != "10.244.0.5" || got.HostIP != "172.30.0.2" || got.PodIPs[0].IP != got.PodIP || got.HostIPs[0].IP != got.HostIP || got.ObservedGeneration != 3 {
				t.Errorf("addresses %s, %s", got.PodIP, got.HostIP)
			}
		})
	}
}

func condition(status corev1.PodStatus, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{}
}

// TestSecondStatusIsTheSame sees that nothing is written when nothing has changed, and that others' conditions stay.
func TestSecondStatusIsTheSame(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{Spec: corev1.PodSpec{ReadinessGates: []corev1.PodReadinessGate{{ConditionType: "example.org/gate"}}}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: "example.org/gate", Status: corev1.ConditionFalse}}
	world := podstatus.World{Host: netip.MustParseAddr("172.30.0.2"), Connected: true, Containers: statuses{running("a", true)}, Now: metav1.NewTime(time.Unix(1000, 0))}
	pod.Status = podstatus.Make(pod, world)
	if c := condition(pod.Status, corev1.PodReady); c.Status != corev1.ConditionFalse || c.Reason != "ReadinessGatesNotReady" {
		t.Errorf("with a closed gate it is %+v", c)
	}
	if c := condition(pod.Status, corev1.ContainersReady); c.Status != corev1.ConditionTrue {
		t.Errorf("containers are %+v", c)
	}
	world.Now = metav1.NewTime(time.Unix(2000, 0))
	again := podstatus.Make(pod, world)
	if first := condition(pod.Status, corev1.PodReady); condition(again, corev1.PodReady) != first || !again.StartTime.Equal(pod.Status.StartTime) {
		t.Errorf("the second status differs: %+v", again)
	}
	if c := condition(again, "example.org/gate"); c.Status != corev1.ConditionFalse {
		t.Errorf("the gate is %+v", c)
	}
	world.Connected = false
	if c := condition(podstatus.Make(pod, world), corev1.PodReadyToStartContainers); c.Status != corev1.ConditionFalse || c.Reason != "" {
		t.Errorf("without a network it is %+v", c)
	}
}
