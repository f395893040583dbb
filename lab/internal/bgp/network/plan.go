// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/lab/internal/bgp/fabric"
	"github.com/mooring-dev/mooring/lab/internal/machines"
)

// world is what the network follows: the machines that exist, what the API server says of them, and who is in the network.
type world struct {
	list  machines.List
	nodes []*corev1.Node
	pods  []*corev1.Pod
	hosts []fabric.Machine
}

// changes are what has to be done to the network, in this order.
type changes struct {
	// remove are names, add whole machines; pods are those of machines that stay, by name, where they differ.
	remove []string
	add    []fabric.Machine
	pods   map[string][]netip.Addr
	// awaited are machines that run and have no address from Calico or no pod yet.
	awaited []string
}

// pending names the machines that the network has yet to follow.
func (c changes) pending() []string {
	names := slices.Concat(c.remove, c.awaited)
	for _, m := range c.add {
		names = append(names, m.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// plan says how the network follows. A machine comes when Calico has given it its address, and goes only with the machine itself: what is deleted
// from the API server alone takes no machine off a network.
//
//	in the list, running or frozen, same address   stays; joins once its Node has Calico's address
//	in the list, off or with another address       goes
//	not in the list                                goes
func plan(w world) changes {
	out := changes{pods: map[string][]netip.Addr{}}
	addresses, pods := addressesOf(w.nodes), podsOf(w.pods)
	there := map[string]bool{}
	for _, h := range w.hosts {
		m, ok := w.list.Find(h.Name)
		if !ok || m.State == machines.Off || m.Address != h.Address.Addr() {
			out.remove = append(out.remove, h.Name)
			continue
		}
		there[h.Name] = true
		if !slices.Equal(h.Pods, pods[h.Name]) {
			out.pods[h.Name] = pods[h.Name]
		}
	}
	for _, m := range w.list.Machines {
		if m.State == machines.Off {
			continue
		}
		address, ok := addresses[m.Name]
		ok = ok && address.Addr() == m.Address // else it is that of an earlier machine of the name
		if ok && !there[m.Name] {
			out.add = append(out.add, fabric.Machine{Name: m.Name, Address: address, Pods: pods[m.Name]})
		}
		if isAwaited(m) && (len(pods[m.Name]) == 0 || !ok && !there[m.Name]) {
			out.awaited = append(out.awaited, m.Name)
		}
	}
	return out
}

// isAwaited reports whether a machine will join by itself: not one that is silent, nor one that waits for a cloud controller manager which does not
// run here.
func isAwaited(m machines.Machine) bool {
	return m.State == machines.Running && (!m.ExternalCloudProvider || m.Droplet != 0)
}

// addressesOf are the nodes' addresses, with the length of their network, as calico-node has written them.
func addressesOf(nodes []*corev1.Node) map[string]netip.Prefix {
	out := map[string]netip.Prefix{}
	for _, node := range nodes {
		if address, err := netip.ParsePrefix(node.Annotations[routereflector.IPv4Annotation]); err == nil {
			out[node.Name] = address
		}
	}
	return out
}

// podsOf are the sorted addresses of the pods that have some of their own, by node.
func podsOf(pods []*corev1.Pod) map[string][]netip.Addr {
	out := map[string][]netip.Addr{}
	for _, pod := range pods {
		address, err := netip.ParseAddr(pod.Status.PodIP)
		ended := pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
		if err == nil && address.Is4() && !pod.Spec.HostNetwork && !ended {
			out[pod.Spec.NodeName] = append(out[pod.Spec.NodeName], address)
		}
	}
	for _, addresses := range out {
		slices.SortFunc(addresses, netip.Addr.Compare)
	}
	return out
}
