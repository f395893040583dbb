// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// The request, byte for byte: what scripts and the upstream project's users know.
func TestRequestBytes(t *testing.T) {
	t.Parallel()
	in := input(service("ip", "192.0.2.44", "certificate-id", "cert-1", "http-idle-timeout-seconds", "0", "subnet-uuid", "s", "size-unit", "2"))
	result := must.Get(loadbalancer.Desired(in)).Or(t)
	got, err := json.Marshal(result.Request)
	want := `{"name":"a0a1b2c3d4e5f60718293a4b5c6d7e8f","algorithm":"round_robin","region":"nyc1","size_unit":2,"type":"REGIONAL",` +
		`"forwarding_rules":[{"entry_protocol":"tcp","entry_port":80,"target_protocol":"tcp","target_port":30080},` +
		`{"entry_protocol":"https","entry_port":443,"target_protocol":"http","target_port":30443,"certificate_id":"cert-1"}],` +
		`"health_check":{"protocol":"http","port":10256,"path":"/healthz","check_interval_seconds":3,"response_timeout_seconds":5,` +
		`"healthy_threshold":5,"unhealthy_threshold":3,"proxy_protocol":false},"sticky_sessions":{"type":"none"},"droplet_ids":[1,2,3],` +
		`"tags":["k8s:c1"],"vpc_uuid":"vpc","subnet_uuid":"s","disable_lets_encrypt_dns_records":false,"http_idle_timeout_seconds":0,` +
		`"firewall":{},"network":"EXTERNAL","network_stack":"DUALSTACK"}`
	if err != nil || string(got) != want {
		t.Errorf("%v\n%s, want\n%s", err, got, want)
	}
	if result.CreateOnly.IP != "192.0.2.44" || result.Disowned || result.Annotate != nil {
		t.Errorf("%+v", result)
	}
}

// Names by which existing load balancers are found.
func TestNames(t *testing.T) {
	t.Parallel()
	if got := loadbalancer.NameOf(service()); got != defName {
		t.Errorf("%q, want %q", got, defName)
	}
	if got := loadbalancer.NameOf(service("name", "mine")); got != "mine" {
		t.Errorf("%q", got)
	}
	if got := loadbalancer.NameOf(service("name", "")); got != defName {
		t.Errorf("%q", got)
	}
	if got := loadbalancer.DefaultName(&corev1.Service{ObjectMeta: metav1.ObjectMeta{UID: "ab-c"}}); got != "aabc" {
		t.Errorf("%q", got)
	}
	if loadbalancer.ClusterTagPrefix != "k8s:" || loadbalancer.ClusterTag("x") != "k8s:x" || loadbalancer.ClusterTag("") != "" {
		t.Error("the tag of clusters is k8s:ID")
	}
	if loadbalancer.ReasonKept != "LoadBalancerFieldKept" || loadbalancer.ReasonSpec != "ServiceFieldDoubtful" {
		t.Error("reasons of events are selected by alerts")
	}
}

// What is refused, in one sentence each.
func TestRefusals(t *testing.T) {
	t.Parallel()
	local := func(s *corev1.Service, change func(*corev1.Service)) *corev1.Service { change(s); return s }
	for name, tt := range map[string]struct {
		service *corev1.Service
		change  func(*loadbalancer.Input)
		want    string
		is      error
	}{
		"SCTP": {
			service: ports(service(), "sctp:132:30132"), want: `the protocol of port 132 is "SCTP", it must be TCP or UDP`,
		},
		"no protocol": {
			service: local(service(), func(s *corev1.Service) { s.Spec.Ports = s.Spec.Ports[:1]; s.Spec.Ports[0].Protocol = "" }),
			want:    `the protocol of port 80 is "", it must be TCP or UDP`,
		},
		"an address instead of a range": {
			service: local(service(), func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.1"} }),
			want:    `spec.loadBalancerSourceRanges is "192.0.2.1", it must be a range such as 192.0.2.0/24 or 2001:db8::/32`,
		},
		"TLS without a certificate": {
			service: service("tls-ports", "443"),
			want:    `port 443 has the protocol https, so that it needs ` + p + `certificate-id, ` + p + `certificate-name or ` + p + `tls-passthrough: set one of them`,
		},
		"TLS without a certificate on many ports is said once": {
			service: service("protocol", "http2"),
			want:    `port 80 has the protocol http2, so that it needs ` + p + `certificate-id, ` + p + `certificate-name or ` + p + `tls-passthrough: set one of them`,
		},
		"certificate and passthrough": {
			service: service("certificate-name", "web", "tls-passthrough", "true"),
			want:    `port 443 has the protocol https, but annotation ` + p + `certificate-name is "web" and ` + p + `tls-passthrough is "true": remove one of them`,
		},
		"no such certificate": {
			service: service("certificate-name", "nobody's"), want: `annotation ` + p + `certificate-name is "nobody's", but the account has no certificate of that name: make it, or request one of Let's Encrypt with annotation ` + p + `certificate-domains`,
		},
		"no such certificate among those that could be read": {
			service: service("certificate-name", "nobody's"), change: func(in *loadbalancer.Input) { in.PartialCertificates = true },
			want: `annotation ` + p + `certificate-name is "nobody's", but not all certificates of the account could be read, and those that were have another name`,
		},
		"HTTP/3 without a certificate": {
			service: service("http3-port", "443"), want: `annotation ` + p + `http3-port is "443", so that it needs ` + p + `certificate-id or ` + p + `certificate-name: set one of them`,
		},
		"HTTP/3 passed through": {
			service: service("http3-port", "443", "tls-passthrough", "1"),
			want:    `annotation ` + p + `http3-port is "443", but ` + p + `tls-passthrough is "1": TLS cannot be passed through for HTTP/3, remove one of them`,
		},
		"health check of a port that is not there": {
			service: service("override-health-check", "", "healthcheck-port", "9999"),
			want:    `annotation ` + p + `healthcheck-port is "9999", but the Service has no such port: its TCP ports are 80, 443`,
		},
		"health check of a UDP port": {
			service: ports(service("override-health-check", "", "healthcheck-port", "53"), "udp:53:30053", "tcp:53:30054"),
			want:    `annotation ` + p + `healthcheck-port is "53", but that is a UDP port, which cannot be checked`,
		},
		"health check without a TCP port": {
			service: ports(service("override-health-check", "yes"), "udp:53:30053"),
			want:    `annotation ` + p + `override-health-check is "yes", but the Service has no TCP port that could be checked`,
		},
		"health check of no port at all": {
			service: ports(service("override-health-check", "", "healthcheck-port", "80"), "udp:53:30053"),
			want:    `annotation ` + p + `healthcheck-port is "80", but the Service has no such port, and no TCP port at all`,
		},
		"internal and dual stack": {
			service: service("network", "INTERNAL", "network-stack", "DUALSTACK"),
			want:    `annotation ` + p + `network-stack is "DUALSTACK", but the load balancer is INTERNAL: it must be IPV4`,
		},
		"dual stack without IPv6": {
			service: service("type", "REGIONAL_NETWORK", "network-stack", "DUALSTACK"),
			want: `annotation ` + p + `network-stack is "DUALSTACK", but nodes node-1, node-2, node-3 have no public IPv6 address: ` +
				`every node of a REGIONAL_NETWORK load balancer needs one; give them IPv6, or ask for IPV4`,
		},
		"no nodes": {
			service: service(), change: func(in *loadbalancer.Input) { in.Nodes = nil },
			want: `no node is ready for the load balancer: the cluster has no nodes`, is: loadbalancer.ErrNoNodes,
		},
		"no nodes with an address": {
			service: service(), change: func(in *loadbalancer.Input) { in.Nodes = nodes(node(1), node(2, "ext:2001:db8::1")) },
			want: `no node is ready for the load balancer: node node-1 has no IPv4 address, node node-2 has no IPv4 address`, is: loadbalancer.ErrNoNodes,
		},
		"private nodes alone": {
			service: service("type", "REGIONAL_NETWORK"), change: func(in *loadbalancer.Input) { in.Nodes = nodes(node(1, "int:10.0.0.1")) },
			want: `no node can be a target of the load balancer: of type REGIONAL_NETWORK, it needs a node with a public IPv4 address; for nodes without, set annotation ` +
				p + `type to REGIONAL or ` + p + `network to INTERNAL`, is: loadbalancer.ErrNoEligibleNodes,
		},
		"a node of another provider": {
			service: service(), change: func(in *loadbalancer.Input) { in.Nodes[1].Spec.ProviderID = "aws:///i-1" },
			want: `a node is not a droplet: node node-2: the provider ID is not one of DigitalOcean: "aws:///i-1" does not begin with digitalocean://; ` +
				`label it node.kubernetes.io/exclude-from-external-load-balancers if it is to get no traffic`, is: loadbalancer.ErrForeignNode,
		},
		"no droplet for any node": {
			service: service(), change: func(in *loadbalancer.Input) { in.Nodes = nodes(node(0, "int:10.0.0.1")) },
			want: `no node is ready for the load balancer: node node-0 has no provider ID, and no droplet matches its name`, is: loadbalancer.ErrNoNodes,
		},
		"a global load balancer": {
			service: service(), change: func(in *loadbalancer.Input) {
				in.Observed = &loadbalancer.Observed{ID: lbID, Name: "g", Type: "GLOBAL"}
			},
			want: `the service gets no load balancer from DigitalOcean: load balancer "g" (` + lbID + `) is of type GLOBAL, which a Service cannot have`, is: loadbalancer.ErrNotOurs,
		},
		"all that is wrong, at once": {
			service: local(service("type", "x", "size-slug", "y"), func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"z"} }),
			want: `annotation ` + p + `type is "x", it must be REGIONAL or REGIONAL_NETWORK; annotation ` + p +
				`size-slug is "y", it must be one of lb-small, lb-medium and lb-large; spec.loadBalancerSourceRanges is "z", it must be a range such as 192.0.2.0/24 or 2001:db8::/32`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := input(tt.service)
			if tt.change != nil {
				tt.change(&in)
			}
			result, err := loadbalancer.Desired(in)
			if err == nil || err.Error() != tt.want {
				t.Fatalf("says\n%v, want\n%s", err, tt.want)
			}
			var problems loadbalancer.Problems
			if !errors.As(err, &problems) || tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("%T", err)
			}
			if result.Request.Name != "" {
				t.Errorf("a request alongside an error: %+v", result.Request)
			}
		})
	}
}

// Which rule a port gets. Rules are in the order of ports.
func TestForwardingRules(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		service *corev1.Service
		want    []string
	}{
		"REGIONAL: node ports":                 {service(), []string{"tcp:80 → tcp:30080", "tcp:443 → tcp:30443"}},
		"REGIONAL_NETWORK: the Service's":      {service("type", network), []string{"tcp:80 → tcp:80", "tcp:443 → tcp:443"}},
		"REGIONAL_NETWORK: no protocols":       {service("type", network, "protocol", "https", "tls-ports", "443", "http3-port", "443"), []string{"tcp:80 → tcp:80", "tcp:443 → tcp:443"}},
		"UDP":                                  {ports(service("protocol", "http"), "udp:53:30053", "tcp:53:30054"), []string{"udp:53 → udp:30053", "http:53 → http:30054"}},
		"UDP of a network load balancer":       {ports(service("type", network), "udp:53:30053"), []string{"udp:53 → udp:53"}},
		"lists win over the default":           {service("protocol", "http", "http2-ports", "443", "tls-passthrough", "true"), []string{"http:80 → http:30080", "http2:443 → http2:30443 with TLS passed through"}},
		"a certificate makes 443 https":        {service("certificate-id", "c"), []string{"tcp:80 → tcp:30080", "https:443 → http:30443 with certificate c"}},
		"so does passthrough":                  {service("tls-passthrough", "true"), []string{"tcp:80 → tcp:30080", "https:443 → https:30443 with TLS passed through"}},
		"but not if another port is listed":    {service("certificate-id", "c", "tls-ports", "80"), []string{"https:80 → http:30080 with certificate c", "tcp:443 → tcp:30443"}},
		"http2 for 443 leaves 80 alone":        {service("certificate-id", "c", "http2-ports", "443"), []string{"tcp:80 → tcp:30080", "http2:443 → http:30443 with certificate c"}},
		"a certificate by name":                {service("certificate-name", "web"), []string{"tcp:80 → tcp:30080", "https:443 → http:30443 with certificate cert-1"}},
		"the ID wins over the name":            {service("certificate-id", "c", "certificate-name", "web"), []string{"tcp:80 → tcp:30080", "https:443 → http:30443 with certificate c"}},
		"HTTP/3 comes last":                    {service("certificate-id", "c", "http3-port", "443"), []string{"tcp:80 → tcp:30080", "https:443 → http:30443 with certificate c", "http3:443 → http:30443 with certificate c"}},
		"HTTP/3 on a port that is not there":   {service("certificate-id", "c", "http3-port", "9"), []string{"tcp:80 → tcp:30080", "https:443 → http:30443 with certificate c"}},
		"no node port, no target":              {ports(service(), "tcp:80:0"), []string{"tcp:80 → tcp:0"}},
		"a number of 33 bits is cut to 32":     {service("tls-ports", "4294967739", "certificate-id", "c"), []string{"tcp:80 → tcp:30080", "https:443 → http:30443 with certificate c"}},
		"UDP never gets a protocol from lists": {ports(service("certificate-id", "c", "tls-ports", "443"), "udp:443:30444"), []string{"udp:443 → udp:30444"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := must.Get(loadbalancer.Desired(input(tt.service))).Or(t)
			var got []string
			for _, rule := range result.Request.ForwardingRules {
				got = append(got, rule.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestHealthChecks(t *testing.T) {
	t.Parallel()
	local := func(healthPort int32, pairs ...string) *corev1.Service {
		s := service(pairs...)
		s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, healthPort
		return s
	}
	noType := local(31234)
	noType.Spec.Type = ""
	const tail = " every 3 s, timeout 5 s, healthy after 5, unhealthy after 3"
	for name, tt := range map[string]struct {
		service *corev1.Service
		want    string
		asLB    bool // the PROXY protocol is left to the load balancer
	}{
		"kube-proxy":                         {service(), "http:10256/healthz" + tail, false},
		"local traffic":                      {local(31234), "http:31234/healthz" + tail, false},
		"local traffic, no port yet":         {local(0), "http:10256/healthz" + tail, false},
		"local traffic counts with the type": {noType, "http:10256/healthz" + tail, false},
		"override":                           {service("override-health-check", "false"), "tcp:30080" + tail, true},
		"override of local traffic":          {local(31234, "override-health-check", ""), "tcp:30080" + tail, true},
		"a path asks by HTTP":                {service("override-health-check", "", "healthcheck-path", "/p", "healthcheck-port", "443"), "http:30443/p" + tail, true},
		"first TCP port":                     {ports(service("override-health-check", ""), "udp:53:30053", "tcp:80:30080"), "tcp:30080" + tail, true},
		"figures need no override":           {service("healthcheck-check-interval-seconds", "10", "healthcheck-unhealthy-threshold", "4"), "http:10256/healthz every 10 s, timeout 5 s, healthy after 5, unhealthy after 4", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := must.Get(loadbalancer.Desired(input(tt.service))).Or(t)
			h := result.Request.HealthCheck
			if h.String() != tt.want {
				t.Errorf("%s, want %s", h, tt.want)
			}
			if asLB := h.ProxyProtocol == nil; asLB != tt.asLB || !asLB && *h.ProxyProtocol {
				t.Errorf("PROXY protocol: %v", h.ProxyProtocol)
			}
		})
	}
}

// Which Nodes get traffic, for each kind of load balancer, and which stack follows.
func TestNodes(t *testing.T) {
	t.Parallel()
	excluded, deleted, tainted, kept := v4(4), v4(5), v4(6), v4(7)
	excluded.Labels = map[string]string{corev1.LabelNodeExcludeBalancers: ""}
	deleted.DeletionTimestamp = &metav1.Time{}
	deleted.DeletionTimestamp.Time = deleted.DeletionTimestamp.AddDate(2026, 1, 1)
	tainted.Spec.Taints = []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler"}}
	kept.Labels = map[string]string{corev1.LabelNodeExcludeBalancers: "false"}
	private, v6, named := node(2, "int:10.0.0.2"), node(3, "ext:2001:db8::3"), node(0, "int:10.0.0.9", "ext:198.51.100.9")
	droplets := []instance.Droplet{{ID: 90, Name: "node-0"}, {ID: 91, Name: "twin"}, {ID: 92, Name: "twin"}}
	twin := v4(0)
	twin.Name = "twin"
	for name, tt := range map[string]struct {
		annotations []string
		nodes       []*corev1.Node
		want        []int
		stack       string
		leftOut     string
	}{
		"REGIONAL takes private nodes":            {[]string{"type", regional}, nodes(v4(1), private), []int{1, 2}, "DUALSTACK", ""},
		"REGIONAL leaves IPv6 alone out":          {[]string{"type", regional}, nodes(v4(1), v6), []int{1}, "DUALSTACK", "node-3 has no IPv4 address"},
		"REGIONAL_NETWORK needs public addresses": {[]string{"type", network}, nodes(v4(1), private), []int{1}, "IPV4", "node-2 has no public IPv4 address, which a REGIONAL_NETWORK load balancer needs"},
		"INTERNAL takes all":                      {[]string{"type", network, "network", "INTERNAL"}, nodes(v4(1), private, v6), []int{1, 2, 3}, "IPV4", ""},
		"dual if all are":                         {[]string{"type", network}, nodes(dual(1), dual(2)), []int{1, 2}, "DUALSTACK", ""},
		"not dual if one is not":                  {[]string{"type", network}, nodes(dual(1), v4(2)), []int{1, 2}, "IPV4", ""},
		"those left out do not count":             {[]string{"type", network}, nodes(dual(1), v6), []int{1}, "DUALSTACK", "node-3 has no IPv4 address"},
		"as asked for":                            {[]string{"type", network, "network-stack", "IPV4"}, nodes(dual(1)), []int{1}, "IPV4", ""},
		"REGIONAL as asked for":                   {[]string{"type", regional, "network-stack", "IPV4"}, nodes(dual(1)), []int{1}, "IPV4", ""},
		"excluded": {
			[]string{"type", regional}, nodes(excluded, v4(1), deleted, tainted, kept), []int{1, 7}, "DUALSTACK",
			"node-4 has the label node.kubernetes.io/exclude-from-external-load-balancers; node-5 is being deleted; node-6 has the taint ToBeDeletedByClusterAutoscaler",
		},
		"by name, after the others": {[]string{"type", regional}, nodes(named, v4(1)), []int{1, 90}, "DUALSTACK", ""},
		"two droplets of one name":  {[]string{"type", regional}, nodes(twin, v4(1)), []int{1}, "DUALSTACK", "twin has no provider ID, and droplets 91, 92 share its name"},
		"each droplet once":         {[]string{"type", regional}, nodes(v4(1), v4(1)), []int{1}, "DUALSTACK", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := input(service(tt.annotations...))
			in.Nodes, in.Droplets = tt.nodes, droplets
			result := must.Get(loadbalancer.Desired(in)).Or(t)
			if diff := cmp.Diff(tt.want, result.Request.DropletIDs); diff != "" || result.Request.NetworkStack != tt.stack {
				t.Errorf("stack %s, droplets (-want +got):\n%s", result.Request.NetworkStack, diff)
			}
			var leftOut []string
			for _, l := range result.LeftOut {
				leftOut = append(leftOut, l.Node+" "+l.Reason)
			}
			if got := strings.Join(leftOut, "; "); got != tt.leftOut {
				t.Errorf("left out\n%s, want\n%s", got, tt.leftOut)
			}
			if len(result.Targets) != len(tt.want) {
				t.Errorf("targets %v", result.Targets)
			}
		})
	}
}

// What cannot change is taken from the load balancer there is, and a wish for something else is answered.
func TestFixedFieldsAreKept(t *testing.T) {
	t.Parallel()
	in := input(service("type", regional, "network", "INTERNAL", "network-stack", "IPV4", "ip", "192.0.2.44"))
	in.Observed = &loadbalancer.Observed{
		ID: lbID, Name: "renamed by hand", Type: network, Network: "EXTERNAL", NetworkStack: "DUALSTACK", Region: "ams3", VPC: "theirs", IP: "203.0.113.9",
	}
	in.Nodes = nodes(dual(1), v4(2))
	result := must.Get(loadbalancer.Desired(in)).Or(t)
	r := result.Request
	got := []string{r.Name, r.Type, r.Network, r.NetworkStack, r.Region, r.VPC, r.ForwardingRules[0].String()}
	if diff := cmp.Diff([]string{"renamed by hand", network, "EXTERNAL", "DUALSTACK", "ams3", "theirs", "tcp:80 → tcp:80"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	const why = " is asked for: DigitalOcean does not change it, only a new load balancer can have another"
	want := []annotation.Warning{
		{Reason: loadbalancer.ReasonKept, Message: "the load balancer's type stays REGIONAL_NETWORK, REGIONAL" + why},
		{Reason: loadbalancer.ReasonKept, Message: "the load balancer's network stays EXTERNAL, INTERNAL" + why},
		{Reason: loadbalancer.ReasonKept, Message: "the load balancer's region stays ams3, nyc1" + why},
		{Reason: loadbalancer.ReasonKept, Message: "the load balancer's VPC stays theirs, vpc" + why},
		{Reason: loadbalancer.ReasonKept, Message: "the load balancer's address stays 203.0.113.9, 192.0.2.44" + why},
		{Reason: loadbalancer.ReasonKept, Message: "the load balancer's network stack stays DUALSTACK, IPV4" + why},
		{Reason: loadbalancer.ReasonKept, Message: "the load balancer's network stack stays DUALSTACK, but node node-2 has no public IPv6 address: clients over IPv6 do not reach them"},
	}
	if diff := cmp.Diff(want, result.Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{annotation.LoadBalancerID: lbID, annotation.Type: network}, result.Annotate); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
}

// A stack that was asked for and cannot be had with these Nodes stops nothing once the load balancer is there.
func TestExistingStackIsNoProblem(t *testing.T) {
	t.Parallel()
	in := input(service("type", network, "network-stack", "DUALSTACK"))
	in.Observed = &loadbalancer.Observed{ID: lbID, Type: network, NetworkStack: "DUALSTACK"}
	if result, err := loadbalancer.Desired(in); err != nil || result.Request.NetworkStack != "DUALSTACK" || len(result.Request.DropletIDs) != 3 {
		t.Errorf("%v, %+v", err, result.Request)
	}
}

func TestDisowned(t *testing.T) {
	t.Parallel()
	in := input(service(annotation.Disown, "true"))
	in.Observed = &loadbalancer.Observed{ID: lbID, Type: regional}
	if result, err := loadbalancer.Desired(in); err != nil || !result.Disowned || result.Annotate != nil {
		t.Errorf("%v, %+v", err, result)
	}
}

// Warnings about what the annotations alone do not show.
func TestSpecWarnings(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		service *corev1.Service
		want    string
	}{
		"listed port that is not there":   {service("http-ports", "80,8080,8081"), `annotation ` + p + `http-ports is "80,8080,8081", but the Service has no TCP port 8080, 8081`},
		"HTTP/3 port that is not there":   {service("certificate-id", "c", "http3-port", "9"), `annotation ` + p + `http3-port is "9", but the Service has no such port`},
		"certificate that nothing uses":   {ports(service("certificate-id", "c"), "tcp:80:30080"), `annotation ` + p + `certificate-id is "c", but no port of the Service uses it: name one in ` + p + `tls-ports`},
		"named one that nothing uses":     {ports(service("certificate-name", "web"), "tcp:80:30080"), `annotation ` + p + `certificate-name is "web", but no port of the Service uses it: name one in ` + p + `tls-ports`},
		"passthrough that nothing uses":   {ports(service("tls-passthrough", "true"), "tcp:80:30080"), `annotation ` + p + `tls-passthrough is "true", but no port of the Service uses it: name one in ` + p + `tls-ports`},
		"no node port":                    {ports(service(), "tcp:80:0"), `port 80 has no node port, without which a REGIONAL load balancer cannot reach it`},
		"DigitalOcean's own ports":        {ports(service("type", network), "tcp:50054:30054"), `port 50054 will be refused: DigitalOcean keeps 50053 to 50055 for itself`},
		"allow rules alongside ranges":    {ranges(service("allow-rules", "ip:1.2.3.4"), "10.0.0.0/8"), `annotation ` + p + `allow-rules has no effect alongside spec.loadBalancerSourceRanges`},
		"loadBalancerIP":                  {withSpec(func(s *corev1.ServiceSpec) { s.LoadBalancerIP = "1.2.3.4" }), `spec.loadBalancerIP is "1.2.3.4" and has no effect: use annotation ` + p + `ip`},
		"session affinity of the Service": {withSpec(func(s *corev1.ServiceSpec) { s.SessionAffinity = "ClientIP" }), `spec.sessionAffinity is ClientIP, which holds behind the load balancer only: use annotation ` + p + `sticky-sessions-type for the load balancer itself`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result, err := loadbalancer.Desired(input(tt.service))
			if err != nil || len(result.Warnings) != 1 || result.Warnings[0].Message != tt.want {
				t.Errorf("%v, %v, want %s", err, result.Warnings, tt.want)
			}
		})
	}
}

func withSpec(change func(*corev1.ServiceSpec)) *corev1.Service {
	s := service()
	change(&s.Spec)
	return s
}

func ranges(s *corev1.Service, values ...string) *corev1.Service {
	s.Spec.LoadBalancerSourceRanges = values
	return s
}

func TestAsks(t *testing.T) {
	t.Parallel()
	class := "example.com/other"
	for name, tt := range map[string]struct {
		service *corev1.Service
		want    string
	}{
		"ours":          {service(), ""},
		"no type":       {withSpec(func(s *corev1.ServiceSpec) { s.Type = "" }), ""},
		"another type":  {withSpec(func(s *corev1.ServiceSpec) { s.Type = "ClusterIP" }), "the service gets no load balancer from DigitalOcean: service default/web is of type ClusterIP, not LoadBalancer"},
		"another class": {withSpec(func(s *corev1.ServiceSpec) { s.LoadBalancerClass = &class }), `the service gets no load balancer from DigitalOcean: service default/web has loadBalancerClass "example.com/other", which leaves it to another controller`},
	} {
		if err := loadbalancer.Asks(tt.service); (err == nil) != (tt.want == "") || err != nil && (err.Error() != tt.want || !errors.Is(err, loadbalancer.ErrNotOurs)) {
			t.Errorf("%s: %v, want %s", name, err, tt.want)
		}
	}
}

func TestNeeds(t *testing.T) {
	t.Parallel()
	observed := func(certificate string) *loadbalancer.Observed {
		return &loadbalancer.Observed{Type: regional, ForwardingRules: []loadbalancer.ForwardingRule{{CertificateID: certificate}}}
	}
	for name, tt := range map[string]struct {
		in   loadbalancer.Input
		want loadbalancer.InputNeeds
	}{
		"nothing":                            {input(service()), loadbalancer.InputNeeds{}},
		"a node without a provider ID":       {loadbalancer.Input{Service: service(), Nodes: nodes(node(0))}, loadbalancer.InputNeeds{Droplets: true}},
		"a certificate by name":              {input(service("certificate-name", "web")), loadbalancer.InputNeeds{Certificates: true}},
		"not if the ID is there too":         {input(service("certificate-name", "web", "certificate-id", "c")), loadbalancer.InputNeeds{}},
		"not on a network load balancer":     {input(service("certificate-name", "web", "type", network)), loadbalancer.InputNeeds{}},
		"the load balancer uses another one": {loadbalancer.Input{Service: service("certificate-id", "c"), Observed: observed("d")}, loadbalancer.InputNeeds{Certificates: true}},
		"the load balancer uses the same":    {loadbalancer.Input{Service: service("certificate-id", "c"), Observed: observed("c")}, loadbalancer.InputNeeds{}},
	} {
		if got := loadbalancer.NeedsOf(tt.in); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}
