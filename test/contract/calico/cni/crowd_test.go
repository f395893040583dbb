// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package cni

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

// TestCrowd compares what caliconode.Crowd writes as text, without libcalico-go, with what the plugin writes for the same pods.
func TestCrowd(t *testing.T) {
	needNamespaces(t)
	crowd, api := caliconode.Crowd{Machines: 1, PodsEach: 3}, controlplane.Shared(t)
	api.AllowPods(t, corev1.NamespaceDefault, "default")
	h := history{pools: []caliconode.Pool{{CIDR: "10.0.0.0/26"}}, hosts: []caliconode.Host{bare(crowd.Machine(0), 1)}}
	real := newCluster(t, h, api, testkit.NewEtcd(t), true)
	pods := api.Client.CoreV1().Pods(corev1.NamespaceDefault)
	for i := range crowd.PodsEach {
		pod := crowd.Pod(0, i)
		created, now := pod.DeepCopy(), int64(0)
		created.UID = ""
		_, err := pods.Create(t.Context(), created, metav1.CreateOptions{})
		real.must(err)
		openSandbox(t, pod)
		real.must(real.plugin.call(t.Context(), string(add), h.hosts[0], map[string]any{"type": "calico-ipam"}, pod, sandbox(pod)))
		real.must(pods.Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
	}
	simulated := &cluster{t: t, etcd: testkit.NewEtcd(t), began: map[string]int64{}}
	real.must(crowd.Fill(t.Context(), simulated.etcd.Client))
	ofPods := func(c *cluster) map[string]map[string]string {
		all := c.contents(map[string]int{})
		maps.DeleteFunc(all, func(key string, _ map[string]string) bool {
			return !strings.Contains(key, "/workloadendpoints/") && (!strings.Contains(key, "/ipam/v2/") || strings.HasSuffix(key, "/config"))
		})
		return all
	}
	for _, difference := range differences(ofPods(real), ofPods(simulated)) {
		t.Error(difference)
	}
}
