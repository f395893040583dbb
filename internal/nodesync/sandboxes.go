// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"cmp"
	"slices"
)

// Sandboxed is an address or an endpoint of a pod of which the datastore holds something of several sandboxes or hosts,
// with the container ID of its sandbox.
type Sandboxed struct {
	Leftover
	// Container is an endpoint's spec.containerID, or what follows the network in an address's handle (cni-plugin, pkg/ipamplugin: GetHandleID). A pod of
	// several networks has several handles of one.
	Container string
}

// GoneFrom reports that what the live read of a leftover's pod returned does not speak for it on that Kubernetes Node:
// the pod is gone, is bound to another Node, or has another sandbox there. A pod is never bound to a second Node, so
// that another pod of its name would have another sandbox.
func (l Leftover) GoneFrom(node string, pod PodLookup) bool {
	switch {
	case pod.Verdict == VerdictGone:
		return true
	case pod.Verdict != VerdictAlive || pod.Node == "":
		return false
	case l.Sandbox == "":
		return pod.Node != node
	}
	return pod.Node == node && (l.Living.Name != "" || pod.Container == l.Sandbox)
}

// OldSandboxes returns those of the holdings of living pods that earlier pods of their names have left. The Node that
// a pod is bound to decides between hosts, once something of it is there; on that host the endpoint's container ID
// decides between addresses, if an address has it as well: then handles name sandboxes here. What a pod has of
// several networks is of one sandbox. That a sandbox looks old for a moment while another starts is for the sweeps to
// outlast.
func OldSandboxes(nodes []CalicoNode, held []Sandboxed, pods []PodLookup) (old []Leftover) {
	hosts := map[string][]string{}
	for _, n := range nodes {
		if name, gate, _ := kubernetesName(n); gate == "" {
			hosts[name] = append(hosts[name], n.Name)
		}
	}
	byPod := map[[2]string][]Sandboxed{}
	for _, h := range held {
		byPod[[2]string{h.Namespace, h.Pod}] = append(byPod[[2]string{h.Namespace, h.Pod}], h)
	}
	for _, pod := range pods {
		if on := hosts[pod.Node]; pod.Verdict == VerdictAlive && len(on) == 1 {
			old = append(old, oldOf(pod, on[0], byPod[[2]string{pod.Namespace, pod.Name}])...)
		}
	}
	slices.SortFunc(old, compareLeftovers)
	return old
}

// oldOf does so for one pod, which is bound to the Node of the host.
func oldOf(pod PodLookup, host string, held []Sandboxed) (old []Leftover) {
	var here []Sandboxed
	for _, h := range held {
		if h.Host == host {
			here = append(here, h)
		} else {
			old = append(old, h.Leftover)
		}
	}
	if len(here) == 0 {
		return nil // it may be about to start there
	}
	living, ref := pod.Container, EndpointRef{}
	slices.SortFunc(here, func(a, b Sandboxed) int { return compareLeftovers(a.Leftover, b.Leftover) })
	for _, h := range here {
		if h.Endpoint.Name == "" {
			continue
		}
		if living = cmp.Or(living, h.Container); living != h.Container {
			return old // two endpoints of two sandboxes
		}
		ref = h.Endpoint
	}
	named := slices.ContainsFunc(here, func(h Sandboxed) bool { return h.Endpoint.Name == "" && h.Container == living })
	for _, h := range here {
		if h.Endpoint.Name == "" && h.Container != "" && living != "" && named && h.Container != living {
			h.Sandbox, h.Living = living, ref
			old = append(old, h.Leftover)
		}
	}
	return old
}
