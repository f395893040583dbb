// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func service(name, address string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}, Spec: corev1.ServiceSpec{ClusterIP: address, Ports: ports}}
}

func endpointPort(name string, number int32, protocol corev1.Protocol) discoveryv1.EndpointPort {
	return discoveryv1.EndpointPort{Name: &name, Port: &number, Protocol: &protocol}
}

func endpointSlice(ports []discoveryv1.EndpointPort, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Ports: ports, Endpoints: endpoints}
}

// endpoint has the conditions ready, serving and terminating.
func endpoint(address string, ready, serving, terminating bool) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{
		Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating},
	}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	tcp := func(name string, port int32) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Port: port, Protocol: corev1.ProtocolTCP}
	}
	external := service("web", "10.96.0.7", tcp("", 80))
	external.Spec.Type = corev1.ServiceTypeExternalName
	web := []discoveryv1.EndpointPort{endpointPort("", 8080, corev1.ProtocolTCP)}
	unnamed := endpointSlice([]discoveryv1.EndpointPort{{Port: web[0].Port}}, discoveryv1.Endpoint{Addresses: []string{"10.244.0.3"}})
	six := endpointSlice(web, endpoint("fd00::1", true, true, false))
	six.AddressType = discoveryv1.AddressTypeIPv6
	at := netip.MustParseAddrPort
	for name, c := range map[string]struct {
		service *corev1.Service
		slices  []*discoveryv1.EndpointSlice
		want    backends
	}{
		"ready endpoints of all slices, once each": {service("web", "10.96.0.7", tcp("", 80)),
			[]*discoveryv1.EndpointSlice{
				endpointSlice(web, endpoint("10.244.0.2", true, true, false), endpoint("10.244.0.1", true, true, false), endpoint("10.244.0.9", false, false, false)),
				endpointSlice(web, endpoint("10.244.0.2", true, true, false)), six,
			},
			backends{{at("10.96.0.7:80"), "TCP"}: {at("10.244.0.1:8080"), at("10.244.0.2:8080")}}},
		"nothing said means ready, and TCP": {service("web", "10.96.0.7", corev1.ServicePort{Port: 80}), []*discoveryv1.EndpointSlice{unnamed},
			backends{{at("10.96.0.7:80"), "TCP"}: {at("10.244.0.3:8080")}}},
		"ending ones only where none is ready": {service("web", "10.96.0.7", tcp("", 80)),
			[]*discoveryv1.EndpointSlice{endpointSlice(web, endpoint("10.244.0.1", false, true, true), endpoint("10.244.0.2", false, false, true))},
			backends{{at("10.96.0.7:80"), "TCP"}: {at("10.244.0.1:8080")}}},
		"no ending one beside a ready one": {service("web", "10.96.0.7", tcp("", 80)),
			[]*discoveryv1.EndpointSlice{endpointSlice(web, endpoint("10.244.0.1", false, true, true), endpoint("10.244.0.2", true, true, false))},
			backends{{at("10.96.0.7:80"), "TCP"}: {at("10.244.0.2:8080")}}},
		"ports by name and protocol": {
			service("dns", "10.96.0.8", tcp("tcp", 53), corev1.ServicePort{Name: "udp", Port: 53, Protocol: corev1.ProtocolUDP},
				corev1.ServicePort{Name: "sctp", Port: 53, Protocol: corev1.ProtocolSCTP}, tcp("other", 54)),
			[]*discoveryv1.EndpointSlice{endpointSlice([]discoveryv1.EndpointPort{
				endpointPort("udp", 1053, corev1.ProtocolUDP), endpointPort("tcp", 2053, corev1.ProtocolTCP), endpointPort("sctp", 3053, corev1.ProtocolSCTP),
			}, endpoint("10.244.0.1", true, true, false))},
			backends{{at("10.96.0.8:53"), "TCP"}: {at("10.244.0.1:2053")}, {at("10.96.0.8:53"), "UDP"}: {at("10.244.0.1:1053")}}},
		"no endpoints": {service("web", "10.96.0.7", tcp("", 80)), nil, backends{}},
		"headless":     {service("web", corev1.ClusterIPNone, tcp("", 80)), []*discoveryv1.EndpointSlice{unnamed}, backends{}},
		"no address":   {service("web", "", tcp("", 80)), []*discoveryv1.EndpointSlice{unnamed}, backends{}},
		"external":     {external, []*discoveryv1.EndpointSlice{unnamed}, backends{}},
	} {
		got := plan([]*corev1.Service{c.service}, map[string][]*discoveryv1.EndpointSlice{"a/" + c.service.Name: c.slices})
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(front{}), cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

func TestWithoutOwn(t *testing.T) {
	t.Parallel()
	left := withoutOwn([]*corev1.Service{service("dns", "10.96.0.10"), service("web", "10.96.0.11")})
	if len(left) != 1 || left[0].Name != "web" {
		t.Errorf("left: %v", left)
	}
}
