// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package names answers for the names of Services in a lab with real pods, as the DNS of a cluster does (Kubernetes' specification "DNS-Based
// Service Discovery", version 1.1.0). Nothing else has a name in there: the lab reaches nobody outside.
//
//	SERVICE.NAMESPACE.svc                    A: the cluster address; of a headless Service the addresses of its ready endpoints
//	HOST.SERVICE.NAMESPACE.svc               A: that endpoint of a headless Service, such as a StatefulSet's pod-0; or 10-244-0-7 for one without
//	                                         a host name
//	_PORT._PROTOCOL.SERVICE.NAMESPACE.svc    SRV: a named port
//	SERVICE.NAMESPACE.svc of an ExternalName CNAME
//
// each with or without .cluster.local. A name that exists and has no record of the type asked for has an empty answer; all others do not exist.
package names

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Domain is the cluster's.
const Domain = "cluster.local"

// Target is one SRV record.
type Target struct {
	Port uint16
	// Name is absolute, with a dot at the end.
	Name string
}

// Record is what there is under one name.
type Record struct {
	Addresses []netip.Addr
	Targets   []Target
	// Alias is the name that this one stands for, with a dot at the end; then there is nothing else.
	Alias string
}

// Zone is every name that exists, in small letters, below Domain and without it: "web.default.svc". It must not be changed.
type Zone map[string]Record

// NewZone makes the zone of Services and of the EndpointSlices of them. The order of the arguments does not matter.
func NewZone(services []*corev1.Service, slicesOf map[string][]*discoveryv1.EndpointSlice) Zone {
	z := Zone{}
	for _, service := range services {
		name := strings.ToLower(service.Name + "." + service.Namespace + ".svc")
		switch {
		case service.Spec.Type == corev1.ServiceTypeExternalName:
			z[name] = Record{Alias: absolute(service.Spec.ExternalName)}
		case service.Spec.ClusterIP == corev1.ClusterIPNone:
			z.addHeadless(name, slicesOf[service.Namespace+"/"+service.Name])
		default:
			z.addClusterIP(name, service)
		}
	}
	for name, record := range z {
		slices.SortFunc(record.Addresses, netip.Addr.Compare)
		record.Addresses = slices.Compact(record.Addresses)
		slices.SortFunc(record.Targets, func(a, b Target) int { return strings.Compare(a.Name, b.Name) })
		record.Targets = slices.Compact(record.Targets)
		z[name] = record
	}
	return z
}

// Lookup returns what there is under an absolute name, in letters of any size, with or without the domain.
func (z Zone) Lookup(name string) (Record, bool) {
	name = strings.TrimSuffix(strings.ToLower(strings.TrimSuffix(name, ".")), "."+Domain)
	record, ok := z[name]
	return record, ok
}

func (z Zone) addClusterIP(name string, service *corev1.Service) {
	address, err := netip.ParseAddr(service.Spec.ClusterIP)
	if err != nil || !address.Is4() {
		return // it has none yet
	}
	z[name] = Record{Addresses: []netip.Addr{address}}
	for _, port := range service.Spec.Ports {
		if port.Name != "" {
			z.addTarget(srvName(port.Name, port.Protocol, name), Target{Port: uint16(port.Port), Name: absolute(name + "." + Domain)}) //nolint:gosec // validated
		}
	}
}

func (z Zone) addHeadless(name string, endpointSlices []*discoveryv1.EndpointSlice) {
	z[name] = Record{} // it exists without endpoints, too
	for _, slice := range endpointSlices {
		if slice.AddressType != discoveryv1.AddressTypeIPv4 {
			continue
		}
		for _, endpoint := range slice.Endpoints {
			if endpoint.Conditions.Ready != nil && !*endpoint.Conditions.Ready {
				continue
			}
			for _, text := range endpoint.Addresses {
				if address, err := netip.ParseAddr(text); err == nil {
					z.addEndpoint(name, slice.Ports, endpoint.Hostname, address)
				}
			}
		}
	}
}

// addEndpoint adds one endpoint of a headless Service.
func (z Zone) addEndpoint(name string, ports []discoveryv1.EndpointPort, hostname *string, address netip.Addr) {
	host := strings.ReplaceAll(address.String(), ".", "-")
	if hostname != nil && *hostname != "" {
		host = strings.ToLower(*hostname)
	}
	own := host + "." + name
	for _, n := range []string{name, own} {
		record := z[n]
		record.Addresses = append(record.Addresses, address)
		z[n] = record
	}
	for _, port := range ports {
		if port.Name != nil && *port.Name != "" && port.Port != nil {
			protocol := corev1.ProtocolTCP
			if port.Protocol != nil {
				protocol = *port.Protocol
			}
			z.addTarget(srvName(*port.Name, protocol, name), Target{Port: uint16(*port.Port), Name: absolute(own + "." + Domain)}) //nolint:gosec // validated
		}
	}
}

func (z Zone) addTarget(name string, target Target) {
	record := z[name]
	record.Targets = append(record.Targets, target)
	z[name] = record
}

func srvName(port string, protocol corev1.Protocol, service string) string {
	return strings.ToLower("_"+port+"._"+string(protocol)) + "." + service
}

func absolute(name string) string { return strings.TrimSuffix(name, ".") + "." }
