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
	// calico are the Calico Nodes where they are not part of the Nodes, which inEtcd says.
	calico []routereflector.CalicoNode
	inEtcd bool
}

// addresses are what calico-node has given the nodes, all of a node's at once.
func (w world) addresses() map[string]own {
	if w.inEtcd {
		return addressesInEtcd(w.calico)
	}
	return addressesOf(w.nodes)
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
	addresses, pods := w.addresses(), podsOf(w.pods)
	there := out.stay(w, pods)
	for _, m := range w.list.Machines {
		if m.State == machines.Off {
			continue
		}
		address, ok := addresses[m.Name]
		ok = ok && address.of(m) // else it is that of an earlier machine of the name
		has, joined := there[m.Name]
		if !joined {
			has = address
		}
		reached := has.reached(pods[m.Name])
		if ok && !joined {
			out.add = append(out.add, fabric.Machine{Name: m.Name, Address: address.v4, AddressV6: address.v6, Pods: reached})
		}
		if isAwaited(m) && (len(reached) == 0 || !ok && !joined) {
			out.awaited = append(out.awaited, m.Name)
		}
	}
	return out
}

// stay notes of the machines on the network who goes and whose pods are others by now, and returns the addresses of those that stay.
func (c *changes) stay(w world, pods map[string][]netip.Addr) map[string]own {
	there := map[string]own{}
	for _, h := range w.hosts {
		m, ok := w.list.Find(h.Name)
		has := own{h.Address, h.AddressV6}
		if !ok || m.State == machines.Off || !has.of(m) {
			c.remove = append(c.remove, h.Name)
			continue
		}
		there[h.Name] = has
		if want := has.reached(pods[h.Name]); !slices.Equal(h.Pods, want) {
			c.pods[h.Name] = want
		}
	}
	return there
}

// isAwaited reports whether a machine will join by itself: not one that is silent, nor one that waits for a cloud controller manager which does not
// run here.
func isAwaited(m machines.Machine) bool {
	return m.State == machines.Running && (!m.ExternalCloudProvider || m.Droplet != 0)
}

// own are a machine's addresses, with the length of their networks; what it has not is the zero Prefix.
type own struct{ v4, v6 netip.Prefix }

// of reports whether the addresses are those of the machine. Which families it has is what calico-node has written.
func (o own) of(m machines.Machine) bool {
	return (o.v4.IsValid() || o.v6.IsValid()) &&
		(!o.v4.IsValid() || o.v4.Addr() == m.Address) && (!o.v6.IsValid() || o.v6.Addr() == machines.IPv6(m.Address))
}

// reached are those of the pods' addresses to which there can be routes: of the families that the machine has.
func (o own) reached(pods []netip.Addr) []netip.Addr {
	var out []netip.Addr
	for _, pod := range pods {
		if pod.Is4() && o.v4.IsValid() || pod.Is6() && o.v6.IsValid() {
			out = append(out, pod)
		}
	}
	return out
}

// addressesOf are the nodes' addresses, as calico-node has written them, all of a node's at once.
func addressesOf(nodes []*corev1.Node) map[string]own {
	out := map[string]own{}
	for _, node := range nodes {
		var o own
		o.v4, _ = netip.ParsePrefix(node.Annotations[routereflector.IPv4Annotation]) // the zero Prefix if there is none
		o.v6, _ = netip.ParsePrefix(node.Annotations[routereflector.IPv6Annotation])
		if o.v4.IsValid() || o.v6.IsValid() {
			out[node.Name] = o
		}
	}
	return out
}

// addressesInEtcd are those of Calico Nodes. The length of their networks, which is not kept of them, is that of the machines'.
func addressesInEtcd(nodes []routereflector.CalicoNode) map[string]own {
	out := map[string]own{}
	for _, n := range nodes {
		var o own
		if n.IPv4.IsValid() {
			o.v4 = netip.PrefixFrom(n.IPv4, machines.Network().Bits())
		}
		if n.IPv6.IsValid() {
			o.v6 = netip.PrefixFrom(n.IPv6, machines.NetworkV6().Bits())
		}
		if o.v4.IsValid() || o.v6.IsValid() {
			out[n.Name] = o
		}
	}
	return out
}

// podsOf are the sorted addresses of the pods that have some of their own, by node.
func podsOf(pods []*corev1.Pod) map[string][]netip.Addr {
	out := map[string][]netip.Addr{}
	for _, pod := range pods {
		if pod.Spec.HostNetwork || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
			continue
		}
		all := pod.Status.PodIPs
		if len(all) == 0 {
			all = []corev1.PodIP{{IP: pod.Status.PodIP}}
		}
		for _, ip := range all {
			if address, err := netip.ParseAddr(ip.IP); err == nil {
				out[pod.Spec.NodeName] = append(out[pod.Spec.NodeName], address)
			}
		}
	}
	for _, addresses := range out {
		slices.SortFunc(addresses, netip.Addr.Compare)
	}
	return out
}
