// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package firewall_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/firewall"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

const everybody = " from 0.0.0.0/0, ::/0"

func config() firewall.Config { return firewall.Config{Name: "k8s-fw", Tags: []string{"k8s:worker"}} }

// service is a Service named web with port 80 and node port 30080.
func service(kind corev1.ServiceType, change ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Annotations: map[string]string{}},
		Spec: corev1.ServiceSpec{
			Type: kind, Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80, NodePort: 30080}},
		},
	}
	for _, c := range change {
		c(s)
	}
	return s
}

func with(name, value string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Annotations[name] = value }
}

func named(name string) func(*corev1.Service) { return func(s *corev1.Service) { s.Name = name } }

func ports(all ...corev1.ServicePort) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.Ports = all }
}

func ranges(all ...string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = all }
}

// rules says what a request lets in.
func rules(all []firewall.InboundRule) string {
	out := make([]string, len(all))
	for i, r := range all {
		out[i] = r.String()
	}
	return strings.Join(out, "; ")
}

func TestOneService(t *testing.T) {
	t.Parallel()
	const balancer, nodePort = corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort
	local := func(s *corev1.Service) {
		s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, 31234
	}
	class := "example.com/other"
	for name, tt := range map[string]struct {
		service *corev1.Service
		want    string
		problem []string // parts of the problem
		warning string
	}{
		"cluster IPs need nothing":                         {service: service(corev1.ServiceTypeClusterIP)},
		"external names need nothing":                      {service: service(corev1.ServiceTypeExternalName)},
		"a node port is open to all":                       {service: service(nodePort), want: "tcp 30080" + everybody},
		"but not one that is not there":                    {service: service(nodePort, ports(corev1.ServicePort{Port: 80}))},
		"nor one of SCTP":                                  {service: service(nodePort, ports(corev1.ServicePort{Protocol: "SCTP", NodePort: 30080}))},
		"nor one whose owner looks after it":               {service: service(nodePort, with(annotation.FirewallManaged, "false"))},
		"who writes nonsense does not":                     {service: service(nodePort, with(annotation.FirewallManaged, "no")), want: "tcp 30080" + everybody, warning: annotation.FirewallManaged},
		"source ranges are for load balancers":             {service: service(nodePort, ranges("192.0.2.0/24")), want: "tcp 30080" + everybody},
		"a network load balancer's port is open":           {service: service(balancer), want: "tcp 80" + everybody + "; tcp 10256" + everybody},
		"its health checks come from itself":               {service: service(balancer, with(annotation.LoadBalancerID, "lb-1")), want: "tcp 80" + everybody + "; tcp 10256 from load balancer lb-1"},
		"to the port of the Service":                       {service: service(balancer, local), want: "tcp 80" + everybody + "; tcp 31234" + everybody},
		"a checked port is open as well":                   {service: service(balancer, with(annotation.OverrideHealthCheck, "true"), with(annotation.LoadBalancerID, "lb-1")), want: "tcp 80" + everybody + "; tcp 10256 from load balancer lb-1; tcp 30080 from load balancer lb-1"},
		"a regional one has its own way":                   {service: service(balancer, with(annotation.Type, annotation.TypeRegional))},
		"and an internal one":                              {service: service(balancer, with(annotation.Network, annotation.NetworkInternal))},
		"source ranges bound its clients":                  {service: service(balancer, ranges(" 192.0.2.7/24", "2001:db8::/32", "192.0.2.0/24")), want: "tcp 80 from 192.0.2.0/24, 2001:db8::/32; tcp 10256" + everybody},
		"allow rules as well":                              {service: service(balancer, with(annotation.AllowRules, "ip:192.0.2.7,cidr:198.51.100.0/24")), want: "tcp 80 from 192.0.2.7, 198.51.100.0/24; tcp 10256" + everybody},
		"source ranges win":                                {service: service(balancer, with(annotation.AllowRules, "ip:192.0.2.7"), ranges("10.0.0.0/8")), want: "tcp 80 from 10.0.0.0/8; tcp 10256" + everybody},
		"firewall-managed counts here too":                 {service: service(balancer, with(annotation.FirewallManaged, "false"))},
		"another class is the upstream project's business": {service: service(balancer, func(s *corev1.Service) { s.Spec.LoadBalancerClass = &class }), want: "tcp 80" + everybody + "; tcp 10256" + everybody},
		"what stops the load balancer may not matter":      {service: service(balancer, with(annotation.SizeUnit, "many")), want: "tcp 80" + everybody + "; tcp 10256" + everybody},
		"a wrong type":                                     {service: service(balancer, with(annotation.Type, "GLOBAL")), problem: []string{annotation.Type, `"GLOBAL"`, annotation.TypeRegional}},
		"a wrong network":                                  {service: service(balancer, with(annotation.Network, "PUBLIC")), problem: []string{annotation.Network, `"PUBLIC"`, annotation.NetworkInternal}},
		"a wrong range":                                    {service: service(balancer, ranges("192.0.2.1")), problem: []string{"spec.loadBalancerSourceRanges", `"192.0.2.1"`, "192.0.2.0/24"}},
		"a wrong allow rule":                               {service: service(balancer, with(annotation.AllowRules, "ip:1.2.3")), problem: []string{annotation.AllowRules, `"ip:1.2.3"`, "ip:ADDRESS"}},
		"a checked port that is none":                      {service: service(balancer, with(annotation.OverrideHealthCheck, ""), with(annotation.HealthCheckPort, "81")), problem: []string{annotation.HealthCheckPort, `"81"`}},
		"of no consequence for a regional one":             {service: service(balancer, with(annotation.Type, annotation.TypeRegional), ranges("192.0.2.1"))},
		"two protocols": {
			service: service(balancer, ports(corev1.ServicePort{Protocol: "TCP", Port: 53}, corev1.ServicePort{Protocol: "UDP", Port: 53}, corev1.ServicePort{Protocol: "SCTP", Port: 54})),
			want:    "tcp 53" + everybody + "; tcp 10256" + everybody + "; udp 53" + everybody,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := firewall.Desired(firewall.Input{Config: config(), Services: []*corev1.Service{tt.service}})
			if got := rules(result.Request.InboundRules); got != tt.want {
				t.Errorf("lets in %q, want %q", got, tt.want)
			}
			if (len(result.Problems) > 0) != (len(tt.problem) > 0) || (len(result.Warnings) > 0) != (tt.warning != "") {
				t.Fatalf("problems %+v, warnings %+v", result.Problems, result.Warnings)
			}
			for _, part := range tt.problem {
				if text := result.Problems[0].Message(); !strings.Contains(text, part) || !strings.HasSuffix(text, "keeps what it has for this service, which is nothing") {
					t.Errorf("%q lacks %q", text, part)
				}
			}
			if tt.warning != "" && !strings.Contains(result.Warnings[0].Message, tt.warning) {
				t.Errorf("warning %q", result.Warnings[0].Message)
			}
		})
	}
}

// The request's form is a contract: what an empty cluster sends.
func TestTheFormOfARequest(t *testing.T) {
	t.Parallel()
	got := must.Get(json.Marshal(firewall.Desired(firewall.Input{Config: config()}).Request)).Or(t)
	const anywhere = `{"addresses":["0.0.0.0/0","::/0"]}`
	const want = `{"name":"k8s-fw","inbound_rules":null,"outbound_rules":[{"protocol":"tcp","ports":"all","destinations":` + anywhere +
		`},{"protocol":"udp","ports":"all","destinations":` + anywhere + `},{"protocol":"icmp","destinations":` + anywhere +
		`}],"droplet_ids":null,"tags":["k8s:worker"]}`
	if string(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A Service that cannot be understood keeps what there may be for it, and no more.
func TestWhatIsKept(t *testing.T) {
	t.Parallel()
	rule := func(protocol, ports string, peers firewall.Peers) firewall.InboundRule {
		return firewall.InboundRule{Protocol: protocol, Ports: ports, Sources: peers}
	}
	addresses := func(all ...string) firewall.Peers { return firewall.Peers{Addresses: all} }
	lb := func(id string) firewall.Peers { return firewall.Peers{LoadBalancerUIDs: []string{id}} }
	observed := &firewall.Observed{ID: "f", InboundRules: []firewall.InboundRule{
		rule("tcp", "80", firewall.Peers{Addresses: []string{"192.0.2.0/24"}, Tags: []string{"ops"}, DropletIDs: []int{1}}), // the tag and the droplet are nobody's
		rule("tcp", "30080", addresses("0.0.0.0/0")), // while it was of type NodePort
		rule("tcp", "10256", lb("lb-1")), rule("tcp", "10256", lb("lb-2")), rule("tcp", "10256", addresses("192.0.2.1")),
		rule("udp", "80", addresses("0.0.0.0/0")), rule("tcp", "22", addresses("0.0.0.0/0")), rule("tcp", "0", addresses("0.0.0.0/0")),
		rule("tcp", "1-65535", addresses("::/0")), rule("icmp", "0", addresses("0.0.0.0/0")), rule("tcp", "81", addresses("0.0.0.0/0", "::/0")),
	}, DropletIDs: []int{7, 3}}
	bad := service(corev1.ServiceTypeLoadBalancer, with(annotation.Type, "GLOBAL"), with(annotation.LoadBalancerID, "lb-1"))
	other := service(corev1.ServiceTypeLoadBalancer, named("other"), with(annotation.LoadBalancerID, "lb-3"), ranges("192.0.2.0/24"))
	in := firewall.Input{Config: config(), Services: []*corev1.Service{bad}, Observed: observed}
	result := firewall.Desired(in)
	const kept = "tcp 80 from 192.0.2.0/24; tcp 10256 from load balancer lb-1; tcp 30080 from 0.0.0.0/0"
	if got := rules(result.Request.InboundRules); got != kept || rules(result.Problems[0].Kept) != kept || !strings.HasSuffix(result.Problems[0].Message(), kept) {
		t.Errorf("keeps %q, want %q; %s", got, kept, result.Problems[0].Message())
	}
	if !slices.Equal(result.Request.DropletIDs, []int{3, 7}) {
		t.Errorf("droplets %v: those that people gave it stay", result.Request.DropletIDs)
	}
	in.Services = append(in.Services, other)
	const both = "tcp 80 from 192.0.2.0/24; tcp 10256 from load balancer lb-1; tcp 10256 from load balancer lb-3; tcp 30080 from 0.0.0.0/0"
	if got := rules(firewall.Desired(in).Request.InboundRules); got != both {
		t.Errorf("with another one: %q, want %q", got, both)
	}
	in.Balancers = []string{"lb-2"} // neither of the two exists, DigitalOcean says
	result = firewall.Desired(in)
	if got := rules(result.Request.InboundRules); got != "tcp 80 from 192.0.2.0/24; tcp 30080 from 0.0.0.0/0" {
		t.Errorf("without the load balancers: %q", got)
	}
	if len(result.Problems) != 2 || result.Problems[1].NamesNoBalancer() || !result.Problems[0].NamesNoBalancer() ||
		!strings.Contains(result.Problems[0].Err.Error(), `"lb-3", but the account has no such load balancer`) {
		t.Errorf("problems %+v", result.Problems)
	}
}
