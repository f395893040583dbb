// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// defaulted is an input whose cluster has defaults, given like the annotations of a Service.
func defaulted(t *testing.T, s *corev1.Service, pairs ...string) loadbalancer.Input {
	t.Helper()
	d, _, err := annotation.NewDefaults(service(pairs...).Annotations)
	must.Do(t, err)
	in := input(s)
	in.Cluster.Defaults = d
	return in
}

// A default is what the Service would have said: the same request, byte for byte.
func TestDefaultsAreAsIfTheServiceSaidIt(t *testing.T) {
	t.Parallel()
	all := []string{
		"network-stack", "IPV4", "subnet-uuid", "3d6f6fdc-8b7e-49fd-a3c2-0d73ec4e40b4", "project-id", project, "protocol", "http", "tls-ports", "443", "certificate-name", "web",
		"http3-port", "443", "size-unit", "3", "sticky-sessions-type", "cookies", "sticky-sessions-cookie-name", "c", "sticky-sessions-cookie-ttl", "9",
		"redirect-http-to-https", "true", "enable-proxy-protocol", "true", "enable-backend-keepalive", "true", "disable-lets-encrypt-dns-records", "true",
		"http-idle-timeout-seconds", "90", "allow-rules", "ip:192.0.2.1", "deny-rules", "cidr:10.0.0.0/8", "healthcheck-check-interval-seconds", "9",
		"healthcheck-response-timeout-seconds", "4", "healthcheck-unhealthy-threshold", "4", "healthcheck-healthy-threshold", "4",
	}
	want := desired(t, input(service(all...)))
	in := defaulted(t, service(), all...)
	if diff := cmp.Diff(want, desired(t, in)); diff != "" {
		t.Errorf("(-said +default):\n%s", diff)
	}
	if needs := loadbalancer.NeedsOf(in); !needs.Certificates {
		t.Error("a certificate by default has to be looked up")
	}
	result, err := loadbalancer.Desired(in)
	if err != nil || len(result.Warnings) > 0 || result.Annotate != nil {
		t.Errorf("%q, %q, %v: nothing of it is the Service's", result.Warnings, result.Annotate, err)
	}
	if len(in.Service.Annotations) > 0 {
		t.Errorf("the Service was changed: %q", in.Service.Annotations)
	}
}

// Anyone who has not written a value is not told that it has no effect, and is told whose it is where it stops something.
func TestDefaultsAreNotTheOwnersFault(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		in   loadbalancer.Input
		want string
	}{
		"a certificate that no port uses": {in: defaulted(t, ports(service(), "udp:53:30053"), "certificate-name", "web", "tls-ports", "443")},
		"source ranges beside":            {in: defaulted(t, fromRanges(service(), "192.0.2.0/24"), "allow-rules", "ip:192.0.2.1")},
		"no such certificate": {
			in:   defaulted(t, service(), "certificate-name", "nobody's"),
			want: `annotation ` + p + `certificate-name is "nobody's" by the cluster's default, but the account has no certificate of that name: make it, or request one of Let's Encrypt with annotation ` + p + `certificate-domains`,
		},
		"no port to check": {
			in:   defaulted(t, service("override-health-check", ""), "healthcheck-port", "9999"),
			want: `annotation ` + p + `healthcheck-port is "9999" by the cluster's default, but the Service has no such port: its TCP ports are 80, 443`,
		},
		"HTTP/3 without a certificate": {
			in:   defaulted(t, service(), "http3-port", "443"),
			want: `annotation ` + p + `http3-port is "443" by the cluster's default, so that it needs ` + p + `certificate-id or ` + p + `certificate-name: set one of them`,
		},
		"nodes without IPv6": {
			in: func() loadbalancer.Input {
				in := defaulted(t, service("type", network), "network-stack", "DUALSTACK")
				in.Nodes = nodes(v4(1))
				return in
			}(),
			want: `annotation ` + p + `network-stack is "DUALSTACK" by the cluster's default, but node node-1 has no public IPv6 address: every node of a REGIONAL_NETWORK load balancer needs one; give them IPv6, or ask for IPV4`,
		},
	} {
		result, err := loadbalancer.Desired(tt.in)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != tt.want || len(result.Warnings) > 0 {
			t.Errorf("%s: %s, %q\nwant %s", name, got, result.Warnings, tt.want)
		}
	}
	in := defaulted(t, service(), "network", "INTERNAL", "network-stack", "IPV4")
	o := keeps(desired(t, input(service())))
	in.Observed = &o
	if result, err := loadbalancer.Desired(in); err != nil || len(result.Warnings) > 0 || len(loadbalancer.Diff(o, result.Request)) > 0 {
		t.Errorf("a load balancer that is older than the defaults: %q, %v, %q", result.Warnings, err, messages(loadbalancer.Diff(o, result.Request)))
	}
}

func fromRanges(s *corev1.Service, all ...string) *corev1.Service {
	s.Spec.LoadBalancerSourceRanges = all
	return s
}

// What is written on a Service is what it lacks, not what its cluster's defaults lack, and a default changes no load balancer that says otherwise.
func TestDefaultsAndWhatIsWritten(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		pool := []string{"size-unit", "protocol", "http-idle-timeout-seconds", "enable-proxy-protocol", "certificate-name"}
		values := map[string]string{"size-unit": "2", "protocol": "http", "http-idle-timeout-seconds": "90", "enable-proxy-protocol": "true", "certificate-name": "other"}
		var own, pairs []string
		for _, name := range pool {
			if rapid.Bool().Draw(t, name) {
				pairs = append(pairs, name, values[name])
			}
			own = append(own, name, map[string]string{"size-unit": "1", "protocol": "tcp", "http-idle-timeout-seconds": "60", "enable-proxy-protocol": "false", "certificate-name": "web"}[name])
		}
		d, _, err := annotation.NewDefaults(service(pairs...).Annotations)
		must.Do(t, err)
		in := input(service(own...))
		plain := must.Get(loadbalancer.Desired(in)).Or(t)
		in.Cluster.Defaults = d
		with, err := loadbalancer.Desired(in)
		if err != nil || cmp.Diff(plain.Request, with.Request) != "" {
			t.Errorf("%v, %s", err, cmp.Diff(plain.Request, with.Request))
		}
		o := keeps(with.Request)
		in.Observed = &o
		with, err = loadbalancer.Desired(in)
		if err != nil || strings.Join([]string{with.Annotate[annotation.LoadBalancerID], with.Annotate[annotation.Type]}, " ") != lbID+" "+regional {
			t.Errorf("%v, %q", err, with.Annotate)
		}
	})
}
