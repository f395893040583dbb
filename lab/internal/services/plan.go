// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// front is one port of a Service at its cluster address.
type front struct {
	address  netip.AddrPort
	protocol corev1.Protocol
}

// backends are the endpoints behind each front that has any, sorted. A front without is not in it: nobody listens there.
type backends map[front][]netip.AddrPort

// plan says what is to be carried where. As kube-proxy does, it takes the endpoints that are ready; where there is none, those that are ending
// and serve still (KEP-1669). What has no cluster address of its own, or is of another family or protocol, is left out.
func plan(services []*corev1.Service, slicesOf map[string][]*discoveryv1.EndpointSlice) backends {
	out := backends{}
	for _, service := range services {
		address, err := netip.ParseAddr(service.Spec.ClusterIP)
		if err != nil || !address.Is4() || service.Spec.Type == corev1.ServiceTypeExternalName {
			continue
		}
		for _, port := range service.Spec.Ports {
			protocol := cmp.Or(port.Protocol, corev1.ProtocolTCP)
			if protocol != corev1.ProtocolTCP && protocol != corev1.ProtocolUDP {
				continue
			}
			behind := endpoints(slicesOf[service.Namespace+"/"+service.Name], port.Name, protocol)
			if len(behind) > 0 {
				out[front{netip.AddrPortFrom(address, uint16(port.Port)), protocol}] = behind //nolint:gosec // validated by the API server
			}
		}
	}
	return out
}

// endpoints are the sorted endpoints behind a port of that name.
func endpoints(endpointSlices []*discoveryv1.EndpointSlice, name string, protocol corev1.Protocol) []netip.AddrPort {
	var ready, ending []netip.AddrPort
	for _, slice := range endpointSlices {
		port, ok := portOf(slice, name, protocol)
		if !ok || slice.AddressType != discoveryv1.AddressTypeIPv4 {
			continue
		}
		for _, endpoint := range slice.Endpoints {
			into := &ready
			switch {
			case isOr(endpoint.Conditions.Ready, true):
			case isOr(endpoint.Conditions.Serving, false) && isOr(endpoint.Conditions.Terminating, false):
				into = &ending
			default:
				continue
			}
			for _, text := range endpoint.Addresses {
				if address, err := netip.ParseAddr(text); err == nil {
					*into = append(*into, netip.AddrPortFrom(address, port))
				}
			}
		}
	}
	if len(ready) == 0 {
		ready = ending
	}
	slices.SortFunc(ready, netip.AddrPort.Compare)
	return slices.Compact(ready)
}

func portOf(slice *discoveryv1.EndpointSlice, name string, protocol corev1.Protocol) (uint16, bool) {
	for _, port := range slice.Ports {
		sameName := port.Name == nil && name == "" || port.Name != nil && *port.Name == name
		sameProtocol := port.Protocol == nil && protocol == corev1.ProtocolTCP || port.Protocol != nil && *port.Protocol == protocol
		if port.Port != nil && sameName && sameProtocol {
			return uint16(*port.Port), true //nolint:gosec // validated by the API server
		}
	}
	return 0, false
}

// isOr is what a condition says, or what it means to say nothing.
func isOr(condition *bool, otherwise bool) bool {
	if condition == nil {
		return otherwise
	}
	return *condition
}
