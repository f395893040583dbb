// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// getsReady is a kubelet that reports its Node to be Ready.
func (s *stage) getsReady(machine string) {
	s.t.Helper()
	nodes := s.api.Client.CoreV1().Nodes()
	node := must.Get(nodes.Get(s.t.Context(), s.name(machine), metav1.GetOptions{})).Or(s.t)
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(s.clock.Now()),
	}}
	must.Get(nodes.UpdateStatus(s.t.Context(), node, metav1.UpdateOptions{})).Or(s.t)
}

// roundsReady runs rounds for two hours, while a kubelet renews its Lease.
func (s *stage) roundsReady(r *Reconciler, machine string) {
	s.t.Helper()
	leases := s.api.Client.CoordinationV1().Leases(leaseNamespace)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: s.name(machine)}}
	if made, err := leases.Create(s.t.Context(), lease, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
		lease = must.Get(leases.Get(s.t.Context(), lease.Name, metav1.GetOptions{})).Or(s.t)
	} else {
		must.Do(s.t, err)
		lease = made
		s.t.Cleanup(func() { _ = leases.Delete(context.Background(), lease.Name, metav1.DeleteOptions{}) })
	}
	for end := s.clock.Now().Add(2 * time.Hour); s.clock.Now().Before(end); {
		now := metav1.NewMicroTime(s.clock.Now())
		lease.Spec.RenewTime = &now
		lease = must.Get(leases.Update(s.t.Context(), lease, metav1.UpdateOptions{})).Or(s.t)
		s.passTime(r, 1)
	}
}

func (s *stage) createPod(pod *corev1.Pod) {
	s.t.Helper()
	pod = pod.DeepCopy()
	pod.UID = ""
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	must.Get(s.api.Client.CoreV1().Pods(pod.Namespace).Create(s.t.Context(), pod, metav1.CreateOptions{})).Or(s.t)
	s.t.Cleanup(func() { s.deletePod(context.Background(), pod.Namespace, pod.Name) })
}

func (s *stage) deletePod(ctx context.Context, namespace, name string) {
	now := int64(0)
	err := s.api.Client.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	if err != nil && !apierrors.IsNotFound(err) {
		s.t.Fatal(err)
	}
}

// In the kubernetes datastore an endpoint is its pod, and what is left of one is its address with the handle.
func TestLeftoverInTheKubernetesDatastore(t *testing.T) {
	s := newStage(t, 0)
	s.api.AllowPods(t, "default", "default")
	store, journal := s.openKubernetesDatastore(), &world{}
	s.createNode("1")
	s.startCalicoNode("1")
	s.getsReady("1")
	pods := map[string]*corev1.Pod{}
	for _, name := range []string{"a", "b"} {
		pod := podOn(s.name("1"), name)
		s.createPod(pod)
		live := must.Get(s.api.Client.CoreV1().Pods("default").Get(t.Context(), pod.Name, metav1.GetOptions{})).Or(t)
		must.Get(s.agents["1"].PodNetwork().Add(t.Context(), live)).Or(t)
		pods[name] = live
	}
	s.deletePod(t.Context(), "default", pods["b"].Name)
	earlier := pods["a"]
	s.deletePod(t.Context(), "default", earlier.Name) // and it comes again, as a pod of a StatefulSet does
	s.createPod(podOn(s.name("1"), "a"))
	var err error
	if pods["a"], err = s.api.Client.CoreV1().Pods("default").Get(t.Context(), earlier.Name, metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	must.Get(s.agents["1"].PodNetwork().Add(t.Context(), pods["a"])).Or(t)
	r := s.reconciler()
	r.Datastore, r.Leftovers, r.Journal = store, true, journal
	r.Config.MinOverlapPercent, r.Config.MaxUnwitnessed, r.Config.MaxLeftovers = 0, 1000, 1000 // what other tests have left is there as well
	handles := func() (a, b bool) {
		for key := range s.custom() {
			a, b = a || key == "ipamhandles "+caliconode.HandleID(pods["a"]), b || key == "ipamhandles "+caliconode.HandleID(pods["b"])
		}
		return a, b
	}
	s.roundsReady(r, "1")
	if a, b := handles(); !a || !b || slices.ContainsFunc(journal.entries, func(e Entry) bool { return e.Leftovers }) {
		t.Errorf("without the flag handles are there: %t of the pod that lives, %t of the one that is gone; journaled: %+v", a, b, journal.entries)
	}
	if !slices.ContainsFunc(slices.Collect(maps.Keys(r.refused)), func(x nodesync.Refusal) bool { return x.Gate == nodesync.GatePodLeftovers && x.Of.Host == s.name("1") }) {
		t.Errorf("without the flag the leftovers are not reported: %v", r.refused)
	}
	r.Config.AlsoRemove = []nodesync.ResourceKind{nodesync.KindPodLeftovers}
	s.roundsReady(r, "1")
	if a, b := handles(); !a || b {
		t.Errorf("handles are there: %t of the pod that lives, %t of the one that is gone", a, b)
	}
	if _, there := s.custom()["ipamhandles "+caliconode.HandleID(earlier)]; there {
		t.Error("the handle of an earlier sandbox of the pod that lives is there")
	}
	if n := len(journal.entries); n == 0 || len(journal.entries[n-1].Addresses) != 2 || journal.entries[n-1].MachineUID == "" {
		t.Errorf("journaled: %+v", journal.entries)
	}
}
