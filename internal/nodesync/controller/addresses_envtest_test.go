// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// listCounter counts the lists that are asked for.
type listCounter struct {
	client.Reader
	lists atomic.Int64
}

func (c *listCounter) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	c.lists.Add(1)
	return c.Reader.List(ctx, list, opts...)
}

// Few addresses or many, the answer is the same, and many cost no more questions than there are pages of pods.
func TestPodsWithAddresses(t *testing.T) {
	s := newStage(t, 0)
	s.api.AllowPods(t, "default", "default")
	running := func(name, ip string, phase corev1.PodPhase) {
		pod := podOn(s.name("x"), name)
		pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
		created := must.Get(s.api.Client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})).Or(t)
		t.Cleanup(func() {
			now := int64(0)
			_ = s.api.Client.CoreV1().Pods("default").Delete(context.Background(), created.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
		})
		created.Status.Phase, created.Status.PodIP = phase, ip
		created.Status.PodIPs = []corev1.PodIP{{IP: ip}}
		must.Get(s.api.Client.CoreV1().Pods("default").UpdateStatus(t.Context(), created, metav1.UpdateOptions{})).Or(t)
	}
	running("a", "10.99.0.1", corev1.PodRunning)
	running("b", "10.99.0.2", corev1.PodSucceeded)
	running("c", "10.99.0.3", corev1.PodRunning)
	reader := &listCounter{Reader: s.cluster.reader}
	cluster := NewKubernetesCluster(reader, clock.RealClock{})
	few := []netip.Addr{netip.MustParseAddr("10.99.0.1"), netip.MustParseAddr("10.99.0.2"), netip.MustParseAddr("10.99.0.9")}
	many := few
	for a := netip.MustParseAddr("10.98.0.1"); len(many) < 500; a = a.Next() {
		many = append(many, a)
	}
	want := []nodesync.PodAddress{{Address: few[0], Pod: "default/" + s.name("x") + "-a"}}
	for _, addresses := range [][]netip.Addr{few, many} {
		reader.lists.Store(0)
		got := must.Get(cluster.PodsWithAddresses(t.Context(), addresses)).Or(t)
		if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("asked for %d addresses:\n%s", len(addresses), diff)
		}
		if lists := reader.lists.Load(); lists > 3 {
			t.Errorf("%d addresses cost %d lists", len(addresses), lists)
		}
	}
}
