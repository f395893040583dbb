// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/nodesync"
)

const (
	// fewAddresses is up to how many addresses are asked for one by one. Each such question makes the API server look at all its pods, and
	// answer with next to nothing; a list of all pods is one look and a long answer.
	fewAddresses = 20
	podsPerPage  = 500
)

// PodsWithAddresses implements Cluster.
func (k *KubernetesCluster) PodsWithAddresses(ctx context.Context, addresses []netip.Addr) ([]nodesync.PodAddress, error) {
	var found []nodesync.PodAddress
	var err error
	if len(addresses) > fewAddresses {
		found, err = k.matchAddresses(ctx, addresses)
		addresses = nil
	}
	for _, address := range addresses {
		pods, err := k.runningPods(ctx, "status.podIP", address.String())
		if err != nil {
			return nil, err
		}
		for _, pod := range pods {
			found = append(found, nodesync.PodAddress{Address: address, Pod: pod})
		}
	}
	slices.SortFunc(found, func(a, b nodesync.PodAddress) int {
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Pod, b.Pod))
	})
	return found, err
}

// matchAddresses lists all running pods, page by page, and keeps those that have one of the addresses.
func (k *KubernetesCluster) matchAddresses(ctx context.Context, addresses []netip.Addr) ([]nodesync.PodAddress, error) {
	wanted := make(map[netip.Addr]bool, len(addresses))
	for _, address := range addresses {
		wanted[address] = true
	}
	var found []nodesync.PodAddress
	running := client.MatchingFields{"status.phase": string(corev1.PodRunning)}
	err := eachPage(ctx, k.reader, "PodList", podsPerPage, func(page *unstructured.UnstructuredList) {
		for i := range page.Items {
			for _, address := range addressesOf(&page.Items[i]) {
				if wanted[address] {
					pod := page.Items[i].GetNamespace() + "/" + page.Items[i].GetName()
					found = append(found, nodesync.PodAddress{Address: address, Pod: pod})
				}
			}
		}
	}, running)
	return found, err
}

// addressesOf returns the addresses of a pod, of both families.
func addressesOf(pod *unstructured.Unstructured) []netip.Addr {
	ips, _, _ := unstructured.NestedSlice(pod.Object, "status", "podIPs")
	addresses := make([]netip.Addr, 0, len(ips))
	for _, entry := range ips {
		fields, _ := entry.(map[string]any)
		text, _ := fields["ip"].(string)
		if address, err := netip.ParseAddr(text); err == nil {
			addresses = append(addresses, address.Unmap())
		}
	}
	return addresses
}
