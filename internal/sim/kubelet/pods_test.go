// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/sim/kubelet"
)

// addresses is a pod network with a state: who has which address. It fails the first time it is asked.
type addresses struct {
	mu     sync.Mutex
	failed bool
	// dual gives each pod an IPv6 address as well.
	dual bool
	next byte
	held map[types.UID]netip.Addr
}

func (a *addresses) Add(_ context.Context, pod *corev1.Pod) ([]netip.Addr, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.failed {
		a.failed = true
		return nil, errors.New("not yet")
	}
	if a.held == nil {
		a.held = map[types.UID]netip.Addr{}
	}
	if _, ok := a.held[pod.UID]; !ok {
		a.next++
		a.held[pod.UID] = netip.AddrFrom4([4]byte{10, 9, 8, a.next})
	}
	if a.dual {
		return []netip.Addr{a.held[pod.UID], netip.MustParseAddr("fd00::9")}, nil
	}
	return []netip.Addr{a.held[pod.UID]}, nil
}

func (a *addresses) Del(_ context.Context, pod *corev1.Pod) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.held, pod.UID)
	return nil
}

func (a *addresses) holders() []types.UID {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.held))
}

// namespace makes a new namespace in which pods can be created, and returns its name. Its pods go with the test.
func (w *world) namespace() string {
	w.t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "pods-"}}
	namespace, err := w.client.CoreV1().Namespaces().Create(w.t.Context(), namespace, metav1.CreateOptions{})
	w.must(err)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	_, err = w.client.CoreV1().ServiceAccounts(namespace.Name).Create(w.t.Context(), account, metav1.CreateOptions{})
	w.must(err)
	w.t.Cleanup(func() {
		now := int64(0)
		err := w.client.CoreV1().Pods(namespace.Name).DeleteCollection(context.WithoutCancel(w.t.Context()),
			metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{})
		if err != nil {
			w.t.Error(err)
		}
	})
	return namespace.Name
}

// run creates a pod that is bound to a machine.
func (w *world) run(namespace, name, machine string, change ...func(*corev1.Pod)) *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			NodeName:       machine,
			InitContainers: []corev1.Container{{Name: "init", Image: "init:1"}},
			Containers:     []corev1.Container{{Name: "app", Image: "app:1"}},
		},
	}
	for _, c := range change {
		c(pod)
	}
	created, err := w.client.CoreV1().Pods(namespace).Create(w.t.Context(), pod, metav1.CreateOptions{})
	w.must(err)
	return created
}

// pod returns the pod, nil if there is none.
func (w *world) pod(namespace, name string) *corev1.Pod {
	w.t.Helper()
	pod, err := w.client.CoreV1().Pods(namespace).Get(w.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.must(err)
	return pod
}

func ready(pod *corev1.Pod) bool {
	return pod != nil && pod.Status.Phase == corev1.PodRunning && slices.ContainsFunc(pod.Status.Conditions,
		func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
}

func TestPodOfBothFamilies(t *testing.T) {
	t.Parallel()
	m := machine("dual-runs")
	m.PodNetwork = &addresses{dual: true}
	w := newWorld(t, m)
	ns := w.namespace()
	w.run(ns, "app", m.Name)
	w.eventually("the pod is ready", func() bool { return ready(w.pod(ns, "app")) })
	status := w.pod(ns, "app").Status
	if want := []corev1.PodIP{{IP: "10.9.8.1"}, {IP: "fd00::9"}}; status.PodIP != want[0].IP || !slices.Equal(status.PodIPs, want) {
		t.Errorf("pod IP %q %v, want %v", status.PodIP, status.PodIPs, want)
	}
}

func TestPodRunsAndEnds(t *testing.T) {
	t.Parallel()
	network := &addresses{}
	m := machine("pod-runs")
	m.PodNetwork = network
	w := newWorld(t, m)
	ns := w.namespace()
	created := w.run(ns, "app", m.Name)
	w.eventually("the pod is ready", func() bool { return ready(w.pod(ns, "app")) })
	status := w.pod(ns, "app").Status
	if status.PodIP != "10.9.8.1" || len(status.PodIPs) != 1 || status.HostIP != "192.168.7.1" || status.StartTime == nil {
		t.Errorf("pod IP %q %v, host IP %q, started %v", status.PodIP, status.PodIPs, status.HostIP, status.StartTime)
	}
	if len(status.ContainerStatuses) != 1 || !status.ContainerStatuses[0].Ready || status.ContainerStatuses[0].State.Running == nil ||
		len(status.InitContainerStatuses) != 1 || status.InitContainerStatuses[0].State.Terminated == nil {
		t.Errorf("containers %+v %+v", status.InitContainerStatuses, status.ContainerStatuses)
	}
	if got := network.holders(); !slices.Equal(got, []types.UID{created.UID}) {
		t.Errorf("addresses are held by %v, want %v", got, created.UID)
	}

	// A kubelet that restarts finds the pod running and leaves it alone.
	w.must(w.Restart(m.Name))
	w.heartbeats(m.Name, 3)
	if got := w.pod(ns, "app").Status.PodIP; got != status.PodIP {
		t.Errorf("pod IP %q after a restart of the kubelet, %q before", got, status.PodIP)
	}

	w.must(w.client.CoreV1().Pods(ns).Delete(t.Context(), "app", metav1.DeleteOptions{}))
	w.eventually("the pod is gone", func() bool { return w.pod(ns, "app") == nil })
	if got := network.holders(); len(got) != 0 {
		t.Errorf("the pod is gone and %v still hold addresses", got)
	}
}

func TestPodOnTheHostsNetwork(t *testing.T) {
	t.Parallel()
	m := machine("pod-host")
	w := newWorld(t, m)
	ns := w.namespace()
	w.run(ns, "agent", m.Name, func(p *corev1.Pod) { p.Spec.HostNetwork = true })
	w.eventually("the pod is ready", func() bool { return ready(w.pod(ns, "agent")) })
	if got := w.pod(ns, "agent").Status.PodIP; got != "192.168.7.1" {
		t.Errorf("pod IP %q", got)
	}
	waiting := w.run(ns, "app", m.Name) // no CNI plugin
	w.heartbeats(m.Name, 3)
	if got := w.pod(ns, waiting.Name); got.Status.Phase != corev1.PodPending {
		t.Errorf("a pod without a network is %s", got.Status.Phase)
	}
}

// A pod that somebody removes at once, and whose name another takes, as kubectl's --force does to a StatefulSet's.
func TestPodVanishesAndItsNameIsTaken(t *testing.T) {
	t.Parallel()
	network := &addresses{}
	m := machine("pod-vanish")
	m.PodNetwork = network
	w := newWorld(t, m)
	ns := w.namespace()
	w.run(ns, "app-0", m.Name)
	w.eventually("the pod is ready", func() bool { return ready(w.pod(ns, "app-0")) })
	now := int64(0)
	w.must(w.client.CoreV1().Pods(ns).Delete(t.Context(), "app-0", metav1.DeleteOptions{GracePeriodSeconds: &now}))
	successor := w.run(ns, "app-0", m.Name)
	w.eventually("only the successor has an address", func() bool {
		return slices.Equal(network.holders(), []types.UID{successor.UID}) && ready(w.pod(ns, "app-0"))
	})
}

func TestPodOfAFrozenMachineWaits(t *testing.T) {
	t.Parallel()
	network := &addresses{failed: true}
	m := machine("pod-frozen")
	m.PodNetwork = network
	w := newWorld(t, m, machine("pod-clock"))
	ns := w.namespace()
	w.run(ns, "old", m.Name)
	w.eventually("the pod is ready", func() bool { return ready(w.pod(ns, "old")) })
	w.must(w.Freeze(m.Name))
	w.run(ns, "new", m.Name)
	w.must(w.client.CoreV1().Pods(ns).Delete(t.Context(), "old", metav1.DeleteOptions{}))
	w.heartbeats("pod-clock", 10)
	if old := w.pod(ns, "old"); old == nil || old.DeletionTimestamp == nil {
		t.Error("a frozen machine removed a pod")
	}
	if phase := w.pod(ns, "new").Status.Phase; phase != corev1.PodPending {
		t.Errorf("a frozen machine made a pod %s", phase)
	}
	w.must(w.Thaw(m.Name))
	w.eventually("the thawed machine catches up", func() bool {
		return w.pod(ns, "old") == nil && ready(w.pod(ns, "new"))
	})
	if got := fmt.Sprint(len(network.holders())); got != "1" {
		t.Errorf("%s pods hold addresses, want 1", got)
	}
}

func TestPodWithAReadinessGate(t *testing.T) {
	t.Parallel()
	m := machine("pod-gate")
	w := newWorld(t, m)
	ns := w.namespace()
	pod := w.run(ns, "app", m.Name, func(p *corev1.Pod) {
		p.Spec.HostNetwork = true
		p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/balanced"}}
	})
	w.eventually("the pod runs", func() bool { return w.pod(ns, "app").Status.Phase == corev1.PodRunning })
	if ready(w.pod(ns, "app")) {
		t.Error("a pod is ready behind a closed gate")
	}
	patch := `{"status":{"conditions":[{"type":"example.com/balanced","status":"True"}]}}`
	_, err := w.client.CoreV1().Pods(ns).
		Patch(t.Context(), pod.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	w.must(err)
	w.eventually("the pod is ready", func() bool { return ready(w.pod(ns, "app")) })
}

var _ kubelet.PodNetwork = (*addresses)(nil)
