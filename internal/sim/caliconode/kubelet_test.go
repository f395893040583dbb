// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package caliconode_test

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/sim/kubelet"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cluster"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

var _ kubelet.PodNetwork = (*caliconode.PodNetwork)(nil)

// TestPodOfASimulatedKubelet joins both simulators: a pod that a simulated kubelet runs has a WorkloadEndpoint with the
// address of its status, although the kubelet's cache is stripped, and neither outlives it.
func TestPodOfASimulatedKubelet(t *testing.T) {
	t.Parallel()
	api := cluster.Shared(t)
	datastore, _ := connect(t)
	node, cart := createNodeAndPod(t, api)
	agent := start(t, datastore, host(node.Name, "192.168.0.11"))

	fleet := kubelet.NewFleet(kubelet.Config{Client: api.Client, LeaseInterval: time.Second, Logger: logr.Discard()})
	must.Do(t, fleet.Add(kubelet.Machine{
		Name: node.Name, Address: netip.MustParseAddr("192.168.0.11"), PodNetwork: agent.PodNetwork(),
	}))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- fleet.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})

	pods := api.Client.CoreV1().Pods(cart.Namespace)
	var running *corev1.Pod
	testkit.Eventually(t, "the pod runs", func() string {
		var err error
		if running, err = pods.Get(ctx, cart.Name, metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		if running.Status.Phase != corev1.PodRunning {
			return string(running.Status.Phase)
		}
		return ""
	})
	weps := endpoints(t, datastore)
	if len(weps) != 1 || !slices.Equal(weps[0].Spec.IPNetworks, []string{running.Status.PodIP + "/32"}) ||
		weps[0].Labels["app"] != "cart" || len(weps[0].Spec.Ports) != 1 ||
		!slices.Equal(weps[0].Spec.Profiles, []string{"kns." + cart.Namespace, "ksa." + cart.Namespace + ".till"}) {
		t.Errorf("the pod has %s, the endpoints are %+v", running.Status.PodIP, weps)
	}
	wantInconsistencies(t, datastore)

	must.Do(t, pods.Delete(ctx, cart.Name, metav1.DeleteOptions{}))
	testkit.Eventually(t, "the pod is gone", func() string {
		if _, err := pods.Get(ctx, cart.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return "it is still there"
		}
		return ""
	})
	if left := endpoints(t, datastore); len(left) != 0 {
		t.Errorf("endpoints are left: %+v", left)
	}
	wantInconsistencies(t, datastore)
}
