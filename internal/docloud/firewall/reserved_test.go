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
		"our own, and what is often there": {balanced(ports(tcp(10258), tcp(10260), tcp(10249), tcp(9100), tcp(111), udp(111), tcp(2381), tcp(9091), tcp(9178), tcp(9179))), false, checks, []string{
			"tcp 10258", "tcp 10260", "tcp 10249", "tcp 9100", "tcp 111", "udp 111", "tcp 2381", "tcp 9091", "tcp 9178", "tcp 9179",
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

// Which ports are reserved, and which of them may be opened all the same, are flags: all, or some of either protocol.
func TestReservedPortsByFlags(t *testing.T) {
	t.Parallel()
	port := func(protocol corev1.Protocol, number int32) corev1.ServicePort {
		return corev1.ServicePort{Protocol: protocol, Port: number}
	}
	for name, c := range map[string]struct {
		allow, reserve string
		opened         string
	}{
		"none":                   {"false", "", "tcp 8443, udp 8443"},
		"one":                    {"22", "", "tcp 22, tcp 8443, udp 8443"},
		"of UDP":                 {"4789/UDP", "", "tcp 8443, udp 4789, udp 8443"},
		"some":                   {"22/tcp, 4789/udp", "", "tcp 22, tcp 8443, udp 4789, udp 8443"},
		"all":                    {"true", "8443,8443/udp", "tcp 22, tcp 8443, udp 4789, udp 8443"},
		"one more":               {"false", "8443", "udp 8443"},
		"two more, one for both": {"8443", "8443,8443/udp", "tcp 8443"},
	} {
		service := service(corev1.ServiceTypeLoadBalancer, with(annotation.Type, annotation.TypeRegionalNetwork), with(annotation.LoadBalancerID, "lb"),
			ports(port(corev1.ProtocolTCP, 22), port(corev1.ProtocolTCP, 8443), port(corev1.ProtocolUDP, 8443), port(corev1.ProtocolUDP, 4789)))
		in := firewall.Input{Config: config(), Services: []*corev1.Service{service}}
		if err := (firewall.AllowFlag{Config: &in.Config}).Set(c.allow); err != nil {
			t.Error(err)
		}
		if c.reserve != "" {
			var err error
			if in.Config.Reserved, err = firewall.ParsePorts(c.reserve); err != nil {
				t.Error(err)
			}
		}
		var opened []string
		for _, r := range firewall.Desired(in).Request.InboundRules {
			if r.Ports != "10256" {
				opened = append(opened, r.Protocol+" "+r.Ports)
			}
		}
		if got := strings.Join(opened, ", "); got != c.opened {
			t.Errorf("%s: it opens %q, want %q", name, got, c.opened)
		}
	}
	for _, wrong := range []string{"", "ssh", "0", "65536", "22/sctp", "22,,23", "-1", "1"} {
		if ports, err := firewall.ParsePorts(wrong); (err == nil) != (wrong == "1") {
			t.Errorf("%q is read as %q, %v", wrong, ports, err)
		}
	}
}
