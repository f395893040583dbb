// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package simulated_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// on is an EndpointSlice of service-0 with pods on these Nodes.
func on(nodes ...string) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: "service-0-abc", Labels: map[string]string{discoveryv1.LabelServiceName: "service-0"}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for _, node := range nodes {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.1.0.1"}, NodeName: &node})
	}
	return slice
}

// targets expects a load balancer of service-0 to have the droplets of these Nodes.
func (b *bubble) targets(when string, nodes ...string) {
	b.t.Helper()
	account := b.cloud.Account("")
	var want []int
	for _, name := range nodes {
		droplet := must.Get(account.Droplet(name)).Or(b.t)
		want = append(want, droplet.ID)
	}
	slices.Sort(want)
	if got := slices.Sorted(slices.Values(account.LoadBalancers()[0].DropletIDs)); !slices.Equal(got, want) {
		b.t.Errorf("%s: targets %v, want %v", when, got, want)
	}
}

func localOnly(s *corev1.Service) {
	s.Annotations = map[string]string{annotation.LocalTargetsOnly: "true"}
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}

// Targets follow the pods of a Service that asks for it, and a label of a Node that another asks for, within seconds.
func TestTargetsFollowPodsAndLabels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := settled(t, 4, 0)
		defer b.stop()
		b.add(on("node-1"))
		b.serve("service-0", 80, localOnly)
		elapse(3 * time.Minute)
		b.targets("at first", "node-1")
		slices := b.store.DiscoveryV1().EndpointSlices("default")
		for _, nodes := range [][]string{{"node-1", "node-2"}, {"node-2"}} {
			must.Get(slices.Update(t.Context(), on(nodes...), metav1.UpdateOptions{})).Or(t)
			elapse(15 * time.Second)
			b.targets("after a pod has come or gone", nodes...)
		}
		must.Do(t, slices.Delete(t.Context(), "service-0-abc", metav1.DeleteOptions{}))
		elapse(15 * time.Second)
		b.targets("without pods", "node-0", "node-1", "node-2", "node-3")

		b.change("service-0", func(s *corev1.Service) { s.Annotations[annotation.NodeSelector] = "role=edge" })
		elapse(15 * time.Second)
		b.targets("no Node is selected: all stay", "node-0", "node-1", "node-2", "node-3")
		node := b.node("node-3")
		node.Labels = map[string]string{"role": "edge"}
		must.Get(b.store.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{})).Or(t)
		elapse(30 * time.Second)
		b.targets("one Node is selected", "node-3")
	})
}

// Without the right to read EndpointSlices all Nodes are targets, and an event says so.
func TestWithoutEndpointSlicesAllNodesAreTargets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, likeDigitalOcean())
		b.forbidden = "endpointslices"
		b.member("node-0")
		b.member("node-1")
		b.add(on("node-1"))
		b.serve("service-0", 80, localOnly)
		b.start(death{})
		defer b.stop()
		elapse(3 * time.Minute)
		b.targets("not allowed to read", "node-0", "node-1")
		var told []string
		for _, e := range b.events() {
			if e.Reason == "LoadBalancerEndpointsUnknown" {
				told = append(told, e.Message)
			}
		}
		if len(told) != 1 || !strings.Contains(told[0], "the program's ClusterRole") {
			t.Errorf("events: %q", told)
		}
	})
}
