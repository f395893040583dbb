// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package firewall_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/firewall"
)

// Ports of the machines themselves are not opened on a Service's word, for everybody or for some, and the Service is told; its other ports
// are, and so is what only its load balancer reaches. Anyone who runs the machines may allow them.
func TestReservedPorts(t *testing.T) {
	t.Parallel()
	tcp := func(port int32) corev1.ServicePort {
		return corev1.ServicePort{Protocol: corev1.ProtocolTCP, Port: port}
	}
	udp := func(port int32) corev1.ServicePort {
		return corev1.ServicePort{Protocol: corev1.ProtocolUDP, Port: port}
	}
	balanced := func(change ...func(*corev1.Service)) *corev1.Service {
		return service(corev1.ServiceTypeLoadBalancer, append(change, with(annotation.Type, annotation.TypeRegionalNetwork), with(annotation.LoadBalancerID, "lb"))...)
	}
	const checks = "tcp 10256 from load balancer lb"
	for name, c := range map[string]struct {
		service *corev1.Service
		allow   bool
		opened  string
		refused []string
	}{
		"SSH alongside HTTP": {balanced(ports(tcp(22), tcp(80))), false, "tcp 80" + everybody + "; " + checks, []string{"tcp 22, which this service asks for: on the machines it is that of SSH; take another port"}},
		"to somebody":        {balanced(ports(tcp(6443)), ranges("10.0.0.0/8")), false, checks, []string{"tcp 6443, which this service asks for: on the machines it is that of the Kubernetes API server"}},
		"all of them": {balanced(ports(tcp(179), tcp(2379), tcp(2380), tcp(5473), tcp(10250), tcp(10255), tcp(10257), tcp(10259), udp(4789), udp(8472))), false, checks, []string{
			"tcp 179", "tcp 2379", "tcp 2380", "tcp 5473", "tcp 10250", "tcp 10255", "tcp 10257", "tcp 10259", "udp 4789", "udp 8472",
		}},
		"the same numbers of the other protocol": {balanced(ports(udp(22), tcp(4789))), false, "tcp 4789" + everybody + "; " + checks + "; udp 22" + everybody, nil},
		"a node port":                            {service(corev1.ServiceTypeNodePort, ports(corev1.ServicePort{Protocol: corev1.ProtocolTCP, Port: 80, NodePort: 10250})), false, "", []string{"tcp 10250"}},
		"allowed":                                {balanced(ports(tcp(22))), true, "tcp 22" + everybody + "; " + checks, nil},
	} {
		in := firewall.Input{Config: config(), Services: []*corev1.Service{c.service}}
		in.Config.AllowReserved = c.allow
		got := firewall.Desired(in)
		if opened := rules(got.Request.InboundRules); opened != c.opened {
			t.Errorf("%s: it opens %q, want %q", name, opened, c.opened)
		}
		if len(got.Warnings) != len(c.refused) || len(got.Problems) > 0 {
			t.Errorf("%s: %d warnings, %v", name, len(got.Warnings), got.Problems)
			continue
		}
		for i, want := range c.refused {
			if w := got.Warnings[i]; w.Reason != "FirewallPortReserved" || !strings.HasPrefix(w.Message, "the firewall does not open "+want) || !strings.HasSuffix(w.Message, "with --firewall-allow-reserved-ports") {
				t.Errorf("%s: %s: %s", name, w.Reason, w.Message)
			}
		}
	}
}
