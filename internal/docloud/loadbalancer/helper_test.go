// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer_test

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/docloud/providerid"
)

const (
	p        = annotation.Prefix
	uid      = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
	defName  = "a0a1b2c3d4e5f60718293a4b5c6d7e8f"
	lbID     = "6e1f2a3b-0000-4000-8000-00000000000a"
	region   = "nyc1"
	network  = annotation.TypeRegionalNetwork
	regional = annotation.TypeRegional
)

// service is a Service with TCP ports 80 and 443; pairs are annotations, whose names get the prefix unless they have a slash.
func service(pairs ...string) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: types.UID(uid), Annotations: map[string]string{}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{
			{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, NodePort: 30080}, {Name: "https", Protocol: corev1.ProtocolTCP, Port: 443, NodePort: 30443},
		}},
	}
	for i := 0; i < len(pairs); i += 2 {
		name := pairs[i]
		if !strings.Contains(name, "/") {
			name = p + name
		}
		s.Annotations[name] = pairs[i+1]
	}
	return s
}

// ports replaces the Service's ports by "tcp:80:30080".
func ports(s *corev1.Service, specs ...string) *corev1.Service {
	s.Spec.Ports = nil
	for _, spec := range specs {
		var protocol string
		var port, nodePort int32
		if _, err := fmt.Sscanf(strings.ReplaceAll(spec, ":", " "), "%s %d %d", &protocol, &port, &nodePort); err != nil {
			panic(err)
		}
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Protocol: corev1.Protocol(strings.ToUpper(protocol)), Port: port, NodePort: nodePort})
	}
	return s
}

// node is a Node with droplet id (0 for no provider ID); addresses are "int:10.0.0.1" or "ext:198.51.100.1".
func node(id int, addresses ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", id)}}
	if id > 0 {
		n.Spec.ProviderID = providerid.Format(id)
	}
	for _, a := range addresses {
		kind, address, _ := strings.Cut(a, ":")
		t := corev1.NodeInternalIP
		if kind == "ext" {
			t = corev1.NodeExternalIP
		}
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: t, Address: address})
	}
	return n
}

func v4(id int) *corev1.Node {
	return node(id, fmt.Sprintf("int:10.0.0.%d", id), fmt.Sprintf("ext:198.51.100.%d", id))
}

func dual(id int) *corev1.Node {
	n := v4(id)
	n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: fmt.Sprintf("2001:db8::%d", id)})
	return n
}

func nodes(all ...*corev1.Node) []*corev1.Node { return all }

// input is what a cluster with three IPv4 Nodes asks for a Service.
func input(s *corev1.Service) loadbalancer.Input {
	return loadbalancer.Input{
		Service: s, Nodes: nodes(v4(1), v4(2), v4(3)), Cluster: loadbalancer.Cluster{ID: "c1", Region: region, VPC: "vpc", DefaultType: regional},
		Certificates: []loadbalancer.Certificate{
			{ID: "cert-1", Name: "web", Type: loadbalancer.CertificateLetsEncrypt}, {ID: "cert-2", Name: "other", Type: loadbalancer.CertificateCustom},
		},
	}
}

// keeps is a load balancer as DigitalOcean keeps what a request says: defaults filled in, lists in an order of its own, and what means nothing
// left out. It is written from the API's description, independently of the comparison that it is to test.
func keeps(r loadbalancer.Request) loadbalancer.Observed {
	o := loadbalancer.Observed{
		ID: lbID, Name: r.Name, Status: loadbalancer.StatusActive, IP: "203.0.113.9", Region: r.Region, Type: r.Type, Network: r.Network,
		NetworkStack: r.NetworkStack, VPC: r.VPC, Subnet: r.Subnet, Project: r.Project, SizeUnit: r.SizeUnit,
		TLSCipherPolicy:     cmp.Or(r.TLSCipherPolicy, "DEFAULT"),
		RedirectHTTPToHTTPS: r.RedirectHTTPToHTTPS, EnableProxyProtocol: r.EnableProxyProtocol, EnableBackendKeepalive: r.EnableBackendKeepalive,
		DisableLetsEncryptDNSRecords: r.DisableLetsEncryptDNSRecords, HTTPIdleTimeoutSeconds: r.HTTPIdleTimeoutSeconds,
	}
	switch {
	case r.SizeSlug == "lb-small" || r.SizeSlug == "" && r.SizeUnit == 0:
		o.SizeUnit = 1
	case r.SizeSlug == "lb-medium":
		o.SizeUnit = 3
	case r.SizeSlug == "lb-large":
		o.SizeUnit = 6
	}
	if o.VPC == "" {
		o.VPC = "the region's"
	}
	if sixty := uint64(60); o.HTTPIdleTimeoutSeconds == nil || *o.HTTPIdleTimeoutSeconds == 0 {
		o.HTTPIdleTimeoutSeconds = &sixty
	}
	for i := range r.ForwardingRules {
		o.ForwardingRules = append(o.ForwardingRules, r.ForwardingRules[len(r.ForwardingRules)-1-i])
	}
	for i := range r.DropletIDs {
		o.DropletIDs = append(o.DropletIDs, r.DropletIDs[len(r.DropletIDs)-1-i])
	}
	o.Tags = append([]string{"somebody"}, r.Tags...)
	h := r.HealthCheck
	for _, n := range []struct {
		value *int
		def   int
	}{{&h.Port, 80}, {&h.Interval, 10}, {&h.Timeout, 5}, {&h.HealthyThreshold, 3}, {&h.UnhealthyThreshold, 5}} {
		if *n.value == 0 {
			*n.value = n.def
		}
	}
	if h.Protocol == "tcp" {
		h.Path = ""
	} else if h.Path == "" {
		h.Path = "/"
	}
	o.HealthCheck = &h
	o.StickySessions = &loadbalancer.StickySessions{Type: r.StickySessions.Type}
	if r.StickySessions.Type == "cookies" {
		*o.StickySessions = r.StickySessions
	}
	if len(r.Firewall.Allow)+len(r.Firewall.Deny) > 0 {
		o.Firewall = &loadbalancer.Firewall{Allow: append([]string{}, r.Firewall.Allow...), Deny: append([]string{}, r.Firewall.Deny...)}
	}
	return o
}
