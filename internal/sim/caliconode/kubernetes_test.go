// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package caliconode_test

import (
	"context"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit/cluster"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
)

// createNodeAndPod creates a Node, and a pod that is bound to it, as a kubelet's CNI plugin finds them.
func createNodeAndPod(t *testing.T, api *cluster.Cluster) (*corev1.Node, *corev1.Pod) {
	t.Helper()
	core := api.Client.CoreV1()
	node, err := core.Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "kdd-"}}, metav1.CreateOptions{})
	must.Do(t, err)
	namespace, err := core.Namespaces().
		Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "kdd-"}}, metav1.CreateOptions{})
	must.Do(t, err)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "till"}}
	must.Get(core.ServiceAccounts(namespace.Name).Create(t.Context(), account, metav1.CreateOptions{})).Or(t)
	cart := pod("cart-a")
	cart.Namespace, cart.UID, cart.Spec.NodeName = namespace.Name, "", node.Name
	cart = must.Get(core.Pods(namespace.Name).Create(t.Context(), cart, metav1.CreateOptions{})).Or(t)
	t.Cleanup(func() {
		now := int64(0)
		ctx := context.WithoutCancel(t.Context())
		_ = core.Pods(namespace.Name).Delete(ctx, cart.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
		_ = core.Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{})
	})
	return node, cart
}

// TestKubernetesDatastore goes through a host's and a pod's life where Calico keeps its data in the Kubernetes API. It is
// serial because the kinds are cluster-scoped.
func TestKubernetesDatastore(t *testing.T) { //nolint:paralleltest // see above
	api := cluster.Shared(t)
	api.Serve(t, controlplane.CalicoCRDs(t)...)
	t.Cleanup(func() {
		for _, kind := range []string{"blockaffinities", "ipamblocks", "ipamhandles"} {
			err := api.Client.CoreV1().RESTClient().Delete().AbsPath("/apis/crd.projectcalico.org/v1", kind).
				Do(context.WithoutCancel(t.Context())).Error()
			if err != nil {
				t.Errorf("deleting all %s: %v", kind, err)
			}
		}
	})
	cfg := apiconfig.NewCalicoAPIConfig()
	cfg.Spec.DatastoreType = apiconfig.Kubernetes
	cfg.Spec.Kubeconfig = api.Kubeconfig(t)
	datastore := must.Get(caliconode.Connect(*cfg)).Or(t)
	t.Cleanup(func() { _ = datastore.Close() })
	must.Do(t, datastore.Initialize(t.Context(), "10.20.0.0/16"))
	node, cart := createNodeAndPod(t, api)
	if _, err := datastore.Start(t.Context(), host("nowhere", "192.168.0.9")); err == nil {
		t.Error("calico-node started on a host without a Kubernetes Node")
	}
	agent := start(t, datastore, host(node.Name, "192.168.0.11"))
	node = must.Get(api.Client.CoreV1().Nodes().Get(t.Context(), node.Name, metav1.GetOptions{})).Or(t)
	tunnel := node.Annotations["projectcalico.org/IPv4IPIPTunnelAddr"]
	if got := node.Annotations["projectcalico.org/IPv4Address"]; got != "192.168.0.11/24" || tunnel == "" {
		t.Errorf("the Node says: address %q, tunnel address %q", got, tunnel)
	}

	address := add(t, agent, cart)
	wantAnnotations(t, api, cart, address, caliconode.ContainerID(cart))
	wantInconsistencies(t, datastore)
	must.Do(t, agent.PodNetwork().Del(t.Context(), cart))
	wantAnnotations(t, api, cart, netip.Addr{}, caliconode.ContainerID(cart))
	now := int64(0)
	if err := api.Client.CoreV1().Pods(cart.Namespace).Delete(t.Context(), cart.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	if err := agent.PodNetwork().Del(t.Context(), cart); err != nil {
		t.Errorf("Del of a pod that is gone: %v", err)
	}
	wantInconsistencies(t, datastore)

	if _, err := agent.LeaveAffinityWithoutBlock(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := agent.LeavePendingAffinity(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := agent.LeaveOrphanedHandle(t.Context()); err != nil {
		t.Error(err)
	}
	wantInconsistencies(t, datastore, "handle without its addresses",
		"confirmed affinity of "+node.Name+" without its block", "pending affinity of "+node.Name+" without its block")
}

// wantAnnotations checks what the CNI plugin leaves on a pod; the zero address means that the pod has lost its address.
func wantAnnotations(t *testing.T, api *cluster.Cluster, pod *corev1.Pod, address netip.Addr, container string) {
	t.Helper()
	got := must.Get(api.Client.CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})).Or(t)
	want := ""
	if address.IsValid() {
		want = address.String() + "/32"
	}
	for annotation, value := range map[string]string{
		"cni.projectcalico.org/podIP": want, "cni.projectcalico.org/podIPs": want, "cni.projectcalico.org/containerID": container,
	} {
		if actual, ok := got.Annotations[annotation]; !ok || actual != value {
			t.Errorf("annotation %s is %q, want %q", annotation, actual, value)
		}
	}
}
