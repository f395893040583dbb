// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package cni

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/sim/caliconode"
)

// deed is what happens to a sandbox.
type deed string

const (
	add  deed = "ADD"
	del  deed = "DEL"
	lose deed = "lose" // the sandbox ends and nobody calls the plugin: a lost DEL
	// remove deletes the pod from Kubernetes.
	remove deed = "remove"
	// borrow is an ADD for the plugin, which finds all blocks taken, and BorrowAddress for the simulator.
	borrow deed = "borrow"
)

// step is one deed. Sandboxes of a pod are told apart by a number: a runtime makes another when the first has died, and the pod keeps its name.
type step struct {
	deed    deed
	host    string
	pod     string
	sandbox int
	// refused reports that both must refuse.
	refused bool
}

func (s step) String() string {
	return fmt.Sprintf("%s %s/%s sandbox %d", s.deed, s.host, s.pod, s.sandbox)
}

// history is what happens in one cluster.
type history struct {
	pools []caliconode.Pool
	hosts []caliconode.Host
	// ipam is the IPAM configuration of the plugin's on all hosts.
	ipam  map[string]any
	steps []step
}

const namespace = "shop"

// object is a pod as a person creates it: with labels, a service account and ports, all of which Calico copies.
func object(name, host string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, GenerateName: "cart-", Labels: map[string]string{"app": "cart"}},
		Spec: corev1.PodSpec{
			NodeName: host, ServiceAccountName: "till",
			Containers: []corev1.Container{{
				Name: "app", Image: "cart:1",
				Ports: []corev1.ContainerPort{
					{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}, {ContainerPort: 53, HostPort: 53, Protocol: corev1.ProtocolUDP},
				},
			}},
		},
	}
}

// inSandbox returns the pod as the simulator takes it, which has a sandbox for each UID. Both writers are given the same sandboxes.
func inSandbox(pod *corev1.Pod, number int) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.UID = types.UID(fmt.Sprintf("%s in sandbox %d", pod.Name, number))
	return pod
}

func host(name string, last byte) caliconode.Host {
	return caliconode.Host{Name: name, KubernetesNode: name, Address: netip.AddrFrom4([4]byte{172, 30, 0, last}), IPIP: true}
}

// histories are those that are compared, by name.
func histories() map[string]history {
	dual, single := host("dual", 3), host("single", 4)
	dual.AddressV6, dual.DualStack = netip.MustParseAddr("fd00:172::3"), true
	single.Address, single.IPIP = netip.MustParseAddr("fd00:172::4"), false
	return map[string]history{
		"sandboxes": {
			pools: []caliconode.Pool{{CIDR: "10.20.0.0/16", Encapsulation: caliconode.IPIP}},
			hosts: []caliconode.Host{host("west", 1), host("east", 2)},
			ipam:  map[string]any{"type": "calico-ipam"},
			steps: []step{
				{deed: add, host: "west", pod: "cart-a"}, {deed: add, host: "west", pod: "cart-b"}, {deed: add, host: "east", pod: "cart-c"},
				{deed: del, host: "west", pod: "cart-a"}, {deed: del, host: "west", pod: "cart-a"},
				// A sandbox that is connected again takes another address under the same handle.
				{deed: add, host: "west", pod: "cart-b"},
				// A sandbox dies and the pod gets another: the DEL of the first comes late.
				{deed: add, host: "west", pod: "cart-a"}, {deed: lose, host: "west", pod: "cart-a"}, {deed: add, host: "west", pod: "cart-a", sandbox: 1},
				{deed: del, host: "west", pod: "cart-a"}, {deed: del, host: "west", pod: "cart-a", sandbox: 1},
				// The DEL never comes, and the successor goes.
				{deed: lose, host: "west", pod: "cart-b"}, {deed: add, host: "west", pod: "cart-b", sandbox: 1},
				{deed: del, host: "west", pod: "cart-b", sandbox: 1},
				// The pod is gone from Kubernetes before its sandbox is.
				{deed: remove, host: "east", pod: "cart-c"}, {deed: del, host: "east", pod: "cart-c"}, {deed: del, host: "east", pod: "never-added"},
			},
		},
		"borrowed": {
			// Two blocks of four addresses: each host has one, and the third pod of west is the first that must borrow.
			pools: []caliconode.Pool{{CIDR: "10.30.0.0/29", BlockSize: 30}},
			hosts: []caliconode.Host{bare("west", 1), bare("east", 2)},
			ipam:  map[string]any{"type": "calico-ipam"},
			steps: borrowing(),
		},
		"lent": {
			pools: []caliconode.Pool{{CIDR: "10.30.0.0/29", BlockSize: 30}},
			hosts: []caliconode.Host{bare("west", 1), bare("east", 2)},
			ipam:  map[string]any{"type": "calico-ipam"},
			steps: []step{
				{deed: add, host: "east", pod: "lender"}, {deed: add, host: "west", pod: "cart-0"}, {deed: add, host: "west", pod: "cart-1"},
				{deed: add, host: "west", pod: "cart-2"}, {deed: add, host: "west", pod: "cart-3"},
				{deed: borrow, host: "west", pod: "cart-4"}, {deed: borrow, host: "west", pod: "cart-5"}, {deed: del, host: "west", pod: "cart-4"},
				{deed: borrow, host: "west", pod: "cart-6"}, {deed: del, host: "west", pod: "cart-0"},
			},
		},
		"both families": {
			pools: []caliconode.Pool{{CIDR: "10.20.0.0/16", Encapsulation: caliconode.IPIP}, {CIDR: "fd00:30::/64"}},
			hosts: []caliconode.Host{dual},
			ipam:  map[string]any{"type": "calico-ipam", "assign_ipv4": "true", "assign_ipv6": "true"},
			steps: []step{
				{deed: add, host: "dual", pod: "cart-a"}, {deed: add, host: "dual", pod: "cart-b"}, {deed: lose, host: "dual", pod: "cart-b"},
				{deed: add, host: "dual", pod: "cart-b", sandbox: 1}, {deed: del, host: "dual", pod: "cart-a"}, {deed: del, host: "dual", pod: "cart-b"},
				{deed: del, host: "dual", pod: "cart-b", sandbox: 1},
			},
		},
		"IPv6 alone": {
			pools: []caliconode.Pool{{CIDR: "fd00:30::/64"}},
			hosts: []caliconode.Host{single},
			ipam:  map[string]any{"type": "calico-ipam", "assign_ipv4": "false", "assign_ipv6": "true"},
			steps: []step{{deed: add, host: "single", pod: "cart-a"}, {deed: lose, host: "single", pod: "cart-a"}, {deed: del, host: "single", pod: "cart-a"}},
		},
	}
}

// bare is a host without a tunnel address.
func bare(name string, last byte) caliconode.Host {
	h := host(name, last)
	h.IPIP = false
	return h
}

func borrowing() []step {
	steps := []step{{deed: add, host: "east", pod: "lender"}}
	for i := range 7 {
		steps = append(steps, step{deed: add, host: "west", pod: fmt.Sprintf("cart-%d", i)})
	}
	steps = append(steps, step{deed: add, host: "west", pod: "one-too-many", refused: true}, step{deed: del, host: "west", pod: "one-too-many"})
	for i := range 7 {
		steps = append(steps, step{deed: del, host: "west", pod: fmt.Sprintf("cart-%d", 6-i)})
	}
	return append(steps, step{deed: del, host: "east", pod: "lender"})
}
