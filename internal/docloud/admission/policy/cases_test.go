// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/docloud/admission"
	"github.com/mooring-dev/mooring/internal/docloud/admission/policy"
	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// ports replaces the Service's ports.
func ports(s *corev1.Service, protocol corev1.Protocol, numbers ...int32) *corev1.Service {
	s.Spec.Ports = nil
	for _, n := range numbers {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: strings.ToLower(string(protocol)) + string(rune('a'+len(s.Spec.Ports))), Protocol: protocol, Port: n})
	}
	return s
}

// The policies without defaults, put into force once: an API server takes seconds of a processor to compile them. Each test has Services of its own.
func TestPolicies(t *testing.T) { //nolint:paralleltest // policies apply to the whole cluster
	cluster := controlplane.Shared(t)
	s := connect(t, cluster, "")
	createBefore(t, s)
	defer install(t, s, "")()
	for name, test := range map[string]func(*testing.T, *controlplane.Cluster, *server){
		"refuse": refuseByExample, "warn": warnByExample, "leave what is there": leaveWhatIsThere,
		"bear long values": bearLongValues, "hand over": handOver,
	} {
		t.Run(name, func(t *testing.T) { test(t, cluster, s) })
	}
}

// The policy that refuses, by example: what each expression takes, and the sentence with which it refuses.
func refuseByExample(t *testing.T, _ *controlplane.Cluster, s *server) {
	t.Helper()
	regional := func(pairs ...string) *corev1.Service {
		return service("web", append([]string{"type", "REGIONAL"}, pairs...)...)
	}
	for _, tc := range []struct {
		rejected, accepted *corev1.Service
		want               string
	}{
		{service("web", "type", "GLOBAL"), service("web", "type", "REGIONAL"), `type is "GLOBAL", it must be REGIONAL or REGIONAL_NETWORK`},
		{service("web", "network", "internal"), service("web", "network", ""), `network is "internal", it must be EXTERNAL or INTERNAL`},
		{service("web", "network-stack", "IPV6"), service("web", "network-stack", "IPV4"), `network-stack is "IPV6", it must be IPV4 or DUALSTACK`},
		{service("web", "network", "INTERNAL", "network-stack", "DUALSTACK"), service("web", "network-stack", "DUALSTACK"), `but the load balancer is INTERNAL: it must be IPV4`},
		{regional("protocol", ""), service("web", "protocol", ""), `protocol is "", it must be one of tcp, http, https, http2 and http3`},
		{regional("protocol", "https"), regional("protocol", "https", "certificate-id", "c"), `port 80 has the protocol https, so that it needs`},
		{regional("tls-passthrough", "1", "certificate-name", "n"), regional("tls-passthrough", "0", "certificate-name", "n"), `certificate-name is "n" and ` + p + `tls-passthrough is "1": remove one of them`},
		{regional("http-ports", "80, 443"), regional("http-ports", "80,443"), `it must be port numbers separated by commas, without blanks`},
		{regional("http-ports", "80", "http2-ports", "443,80", "certificate-id", "c"), regional("http-ports", "80", "http2-ports", "443", "certificate-id", "c"), `but port 80 is in ` + p + `http-ports as well`},
		{regional("tls-ports", "443,443", "certificate-id", "c"), regional("tls-ports", "443", "certificate-id", "c"), `where port 443 is listed twice`},
		{regional("http3-port", "x"), service("web", "http3-port", "x"), `http3-port is "x", it must be one port number`},
		{regional("http3-port", "443"), regional("http3-port", "443", "certificate-id", "c"), `http3-port is "443", so that it needs`},
		{regional("http3-port", "443", "tls-passthrough", "true"), regional("http3-port", "-1", "tls-passthrough", "true"), `TLS cannot be passed through for HTTP/3`},
		{service("web", "size-slug", "lb-xl"), service("web", "size-slug", "lb-small"), `size-slug is "lb-xl", it must be one of lb-small, lb-medium and lb-large`},
		{service("web", "size-unit", "-1"), service("web", "size-unit", "100000"), `size-unit is "-1", it must be a whole number, not negative`},
		{service("web", "size-unit", "2", "size-slug", "lb-small"), service("web", "size-unit", "0", "size-slug", "lb-small"), `size-slug is "lb-small": give one of them`},
		{service("web", "sticky-sessions-type", "cookies", "sticky-sessions-cookie-ttl", "1"), service("web", "sticky-sessions-type", "cookie"), `sticky-sessions-cookie-name is "", it must be the name of a cookie`},
		{service("web", "sticky-sessions-type", "cookies", "sticky-sessions-cookie-name", "c"), service("web", "sticky-sessions-type", "cookies", "sticky-sessions-cookie-name", "c", "sticky-sessions-cookie-ttl", "1"), `sticky-sessions-cookie-ttl is "", it must be a whole number`},
		{service("web", "enable-proxy-protocol", "on"), service("web", "enable-proxy-protocol", "T"), `enable-proxy-protocol is "on", it must be true or false`},
		{service("web", annotation.Disown, "yes"), service("web", annotation.Disown, "true", "type", "GLOBAL"), `do-loadbalancer-disown is "yes", it must be true or false`},
		{service("web", "http-idle-timeout-seconds", "1m"), service("web", "http-idle-timeout-seconds", "60"), `http-idle-timeout-seconds is "1m", it must be a whole number of seconds`},
		{service("web", "healthcheck-check-interval-seconds", ""), service("web", "healthcheck-check-interval-seconds", "3"), `healthcheck-check-interval-seconds is "", it must be`},
		{service("web", "override-health-check", "", "healthcheck-protocol", "udp"), service("web", "healthcheck-protocol", "udp"), `healthcheck-protocol is "udp", it must be one of tcp, http and https`},
		{service("web", "override-health-check", "", "healthcheck-port", "81"), service("web", "healthcheck-port", "81"), `but the Service has no such port: its TCP ports are 80, 443`},
		{ports(service("web", "override-health-check", "", "healthcheck-port", "53"), "UDP", 53), ports(service("web", "override-health-check", "", "healthcheck-port", "53"), "TCP", 53), `but that is a UDP port`},
		{ports(service("web", "override-health-check", "1"), "UDP", 53), ports(service("web"), "UDP", 53), `but the Service has no TCP port that could be checked`},
		{ports(service("web"), "SCTP", 80), ports(service("web"), "UDP", 80), `the protocol of port 80 is "SCTP", it must be TCP or UDP`},
	} {
		got := refusal(t, s.try(t.Context(), tc.rejected))
		if len(got) != 1 || !strings.Contains(got[0], tc.want) {
			t.Errorf("%q is answered with %q, want one sentence with %q", tc.rejected.Annotations, got, tc.want)
		}
		if err := s.try(t.Context(), tc.accepted); err != nil {
			t.Errorf("%q: %v", tc.accepted.Annotations, err)
		}
	}
}

// The policy that warns, by example.
func warnByExample(t *testing.T, _ *controlplane.Cluster, s *server) {
	t.Helper()
	for _, tc := range []struct {
		doubtful, plain *corev1.Service
		want            string
	}{
		{service("web", "http-idle-timeout-seconds", "29"), service("web", "http-idle-timeout-seconds", "30"), p + `http-idle-timeout-seconds is "29", which DigitalOcean will refuse: it takes 30 to 600 seconds`},
		{service("web", "healthcheck-healthy-threshold", "11"), service("web", "healthcheck-healthy-threshold", "10"), p + `healthcheck-healthy-threshold is "11", which DigitalOcean may refuse: it documents 2 to 10`},
		{service("web", "healthcheck-response-timeout-seconds", "0"), service("web", "healthcheck-response-timeout-seconds", "300"), p + `healthcheck-response-timeout-seconds is "0", which is not sent: DigitalOcean's own default is used`},
		{service("web", "size-unit", "101"), service("web", "size-unit", "100"), p + `size-unit is "101", which DigitalOcean will refuse: it takes 1 to 100`},
		{service("web", "redirect", ""), service("web", "name", "x"), p + "redirect is not known and has no effect"},
		{service("web", "protocol", "http"), service("web", "protocol", "http", "type", "REGIONAL"), p + `protocol is "http", which has no effect on a load balancer of type REGIONAL_NETWORK`},
	} {
		s.heard()
		if err := s.try(t.Context(), tc.doubtful); err != nil {
			t.Errorf("%q: %v", tc.doubtful.Annotations, err)
		}
		if got := s.said(t); !slices.Equal(got, []string{"annotation " + tc.want}) {
			t.Errorf("%q: warnings %q, want %q", tc.doubtful.Annotations, got, tc.want)
		}
		if err := s.try(t.Context(), tc.plain); err != nil || len(s.said(t)) > 0 {
			t.Errorf("%q is refused or warned of: %v", tc.plain.Annotations, err)
		}
	}
}

// createBefore creates what leaveWhatIsThere finds, before the policies.
func createBefore(t *testing.T, s *server) {
	t.Helper()
	create := func(one *corev1.Service) {
		must.Get(s.CoreV1().Services("default").Create(t.Context(), one, metav1.CreateOptions{})).Or(t)
	}
	const id = "6e1f2a3b-0000-4000-8000-00000000000a"
	create(service("old", "type", "REGIONAL", annotation.LoadBalancerID, id, "network", "INTERNAL", "protocol", "ftp", "size-unit", "x"))
	other := service("other", "type", "GLOBAL")
	class := "example.com/other"
	other.Spec.LoadBalancerClass = &class
	create(other)
	plain := service("plain", "type", "GLOBAL")
	plain.Spec.Type = corev1.ServiceTypeClusterIP
	create(plain)
}

// What was there before the policies, right or wrong, can be changed in every other respect, set right step by step, and deleted; the controller can
// write what it writes; Services of others are left alone.
func leaveWhatIsThere(t *testing.T, cluster *controlplane.Cluster, s *server) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	patch := func(c *server, name, body string, sub ...string) error {
		_, err := c.CoreV1().Services("default").Patch(ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{}, sub...)
		return err
	}
	annotate := func(name, value string) string {
		if value == "null" {
			return `{"metadata":{"annotations":{"` + name + `":null}}}`
		}
		return `{"metadata":{"annotations":{"` + name + `":"` + value + `"}}}`
	}
	s.heard()
	must(patch(s, "old", `{"metadata":{"labels":{"a":"b"}}}`))
	must(patch(s, "old", annotate("example.com/a", "b")))
	must(patch(s, "old", `{"metadata":{"finalizers":["service.kubernetes.io/load-balancer-cleanup"]}}`))
	must(patch(s, "old", `{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}}`, "status"))
	must(patch(s, "old", annotate(p+"size-unit", "2")))
	must(patch(s, "old", annotate(annotation.CertificateID, "renewed")))
	if got := s.said(t); len(got) > 0 {
		t.Errorf("warnings %q", got)
	}
	got := refusal(t, patch(s, "old", annotate(p+"http-ports", "x")))
	if diff := cmp.Diff([]string{`annotation ` + p + `http-ports is "x", it must be port numbers separated by commas, without blanks`}, got); diff != "" {
		t.Errorf("a mistake alongside another (- want, + got):\n%s", diff)
	}
	got = refusal(t, patch(s, "old", annotate(annotation.Type, "REGIONAL_NETWORK")))
	if len(got) != 1 || got[0] != `annotation `+annotation.Type+` is "REGIONAL_NETWORK", `+admission.TypeStays("REGIONAL") {
		t.Errorf("another type: %q", got)
	}
	must(patch(s, "old", annotate(p+"network", "EXTERNAL")))
	if got := s.said(t); !slices.Equal(got, []string{`annotation ` + p + `network is "EXTERNAL", but DigitalOcean does not change the network of a load balancer: only a new one can have another`}) {
		t.Errorf("another network: warnings %q", got)
	}
	for _, user := range admission.Controllers() {
		controller := connect(t, cluster, user)
		must(patch(controller, "old", annotate(annotation.Type, "REGIONAL_NETWORK")))
		must(patch(controller, "old", annotate(annotation.Type, "REGIONAL")))
	}
	must(patch(s, "old", annotate(annotation.Type, "null")))
	for _, name := range []string{"other", "plain"} {
		must(patch(s, name, annotate(annotation.Type, "WORSE")))
	}
	if got := refusal(t, patch(s, "plain", `{"spec":{"type":"LoadBalancer"}}`)); len(got) != 1 {
		t.Errorf("a Service that becomes one of ours: %q", got)
	}
	// While it goes, kept by its finalizer, the controller and people may write anything.
	must(s.CoreV1().Services("default").Delete(ctx, "old", metav1.DeleteOptions{}))
	must(patch(s, "old", annotate(annotation.Type, "WORSE")))
	must(patch(s, "old", `{"metadata":{"finalizers":null}}`))
	must(s.CoreV1().Services("default").Delete(ctx, "other", metav1.DeleteOptions{}))
}

// The longest values there can be: what is judged stays within what the API server lets an expression cost, and what is not judged is taken.
func bearLongValues(t *testing.T, _ *controlplane.Cluster, s *server) {
	t.Helper()
	longest := func(piece string, length int) string { return strings.Repeat(piece, length/len(piece)) }
	one := service("web", "type", "REGIONAL")
	for _, name := range []string{annotation.HTTPPorts, annotation.TLSPorts, annotation.HTTP2Ports} {
		one.Annotations[name] = strings.TrimSuffix(longest("1,", policy.Judged), ",")
	}
	for _, e := range annotation.Table() {
		if form := annotation.FormOf(e.Name); form.Kind != annotation.KindPorts && e.Name != annotation.Type {
			one.Annotations[e.Name] = longest("9", policy.Judged)
		}
	}
	delete(one.Annotations, annotation.Disown)
	if got := refusal(t, s.try(t.Context(), one)); len(got) < 10 {
		t.Errorf("all wrong at once: %q", got)
	}
	for _, name := range []string{annotation.HTTPPorts, annotation.HTTP3Port, annotation.HealthCheckInterval, annotation.SizeUnit, annotation.StickySessionsCookieTTL} {
		if err := s.try(t.Context(), service("web", "type", "REGIONAL", "sticky-sessions-type", "cookies", "sticky-sessions-cookie-name", "c",
			"sticky-sessions-cookie-ttl", "1", name, longest("x,", 200<<10))); err != nil {
			t.Errorf("%s: %.300v", name, err)
		}
	}
}
