// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package annotation_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
)

// contract is every public name, spelled out: manifests of existing clusters hold these strings, and a change here breaks them in silence.
func contract() map[string]string {
	return map[string]string{
		annotation.LoadBalancerID:                "kubernetes.digitalocean.com/load-balancer-id",
		annotation.Name:                          "service.beta.kubernetes.io/do-loadbalancer-name",
		annotation.Type:                          "service.beta.kubernetes.io/do-loadbalancer-type",
		annotation.Network:                       "service.beta.kubernetes.io/do-loadbalancer-network",
		annotation.NetworkStack:                  "service.beta.kubernetes.io/do-loadbalancer-network-stack",
		annotation.IP:                            "service.beta.kubernetes.io/do-loadbalancer-ip",
		annotation.SubnetUUID:                    "service.beta.kubernetes.io/do-loadbalancer-subnet-uuid",
		annotation.ProjectID:                     "service.beta.kubernetes.io/do-loadbalancer-project-id",
		annotation.ReservedIP:                    "service.beta.kubernetes.io/do-loadbalancer-reserved-ip",
		annotation.NodeSelector:                  "service.beta.kubernetes.io/do-loadbalancer-node-selector",
		annotation.LocalTargetsOnly:              "service.beta.kubernetes.io/do-loadbalancer-local-targets-only",
		annotation.TLSCipherPolicy:               "service.beta.kubernetes.io/do-loadbalancer-tls-cipher-policy",
		annotation.Protocol:                      "service.beta.kubernetes.io/do-loadbalancer-protocol",
		annotation.HTTPPorts:                     "service.beta.kubernetes.io/do-loadbalancer-http-ports",
		annotation.TLSPorts:                      "service.beta.kubernetes.io/do-loadbalancer-tls-ports",
		annotation.HTTP2Ports:                    "service.beta.kubernetes.io/do-loadbalancer-http2-ports",
		annotation.HTTP3Port:                     "service.beta.kubernetes.io/do-loadbalancer-http3-port",
		annotation.TLSPassthrough:                "service.beta.kubernetes.io/do-loadbalancer-tls-passthrough",
		annotation.CertificateID:                 "service.beta.kubernetes.io/do-loadbalancer-certificate-id",
		annotation.CertificateName:               "service.beta.kubernetes.io/do-loadbalancer-certificate-name",
		annotation.CertificateDomains:            "service.beta.kubernetes.io/do-loadbalancer-certificate-domains",
		annotation.Hostname:                      "service.beta.kubernetes.io/do-loadbalancer-hostname",
		annotation.Algorithm:                     "service.beta.kubernetes.io/do-loadbalancer-algorithm",
		annotation.SizeSlug:                      "service.beta.kubernetes.io/do-loadbalancer-size-slug",
		annotation.SizeUnit:                      "service.beta.kubernetes.io/do-loadbalancer-size-unit",
		annotation.StickySessionsType:            "service.beta.kubernetes.io/do-loadbalancer-sticky-sessions-type",
		annotation.StickySessionsCookieName:      "service.beta.kubernetes.io/do-loadbalancer-sticky-sessions-cookie-name",
		annotation.StickySessionsCookieTTL:       "service.beta.kubernetes.io/do-loadbalancer-sticky-sessions-cookie-ttl",
		annotation.RedirectHTTPToHTTPS:           "service.beta.kubernetes.io/do-loadbalancer-redirect-http-to-https",
		annotation.EnableProxyProtocol:           "service.beta.kubernetes.io/do-loadbalancer-enable-proxy-protocol",
		annotation.EnableBackendKeepalive:        "service.beta.kubernetes.io/do-loadbalancer-enable-backend-keepalive",
		annotation.DisableLetsEncryptDNSRecord:   "service.beta.kubernetes.io/do-loadbalancer-disable-lets-encrypt-dns-records",
		annotation.HTTPIdleTimeout:               "service.beta.kubernetes.io/do-loadbalancer-http-idle-timeout-seconds",
		annotation.AllowRules:                    "service.beta.kubernetes.io/do-loadbalancer-allow-rules",
		annotation.DenyRules:                     "service.beta.kubernetes.io/do-loadbalancer-deny-rules",
		annotation.OverrideHealthCheck:           "service.beta.kubernetes.io/do-loadbalancer-override-health-check",
		annotation.HealthCheckPort:               "service.beta.kubernetes.io/do-loadbalancer-healthcheck-port",
		annotation.HealthCheckPath:               "service.beta.kubernetes.io/do-loadbalancer-healthcheck-path",
		annotation.HealthCheckProtocol:           "service.beta.kubernetes.io/do-loadbalancer-healthcheck-protocol",
		annotation.HealthCheckInterval:           "service.beta.kubernetes.io/do-loadbalancer-healthcheck-check-interval-seconds",
		annotation.HealthCheckTimeout:            "service.beta.kubernetes.io/do-loadbalancer-healthcheck-response-timeout-seconds",
		annotation.HealthCheckUnhealthyThreshold: "service.beta.kubernetes.io/do-loadbalancer-healthcheck-unhealthy-threshold",
		annotation.HealthCheckHealthyThreshold:   "service.beta.kubernetes.io/do-loadbalancer-healthcheck-healthy-threshold",
		annotation.Disown:                        "service.kubernetes.io/do-loadbalancer-disown",
		annotation.FirewallManaged:               "kubernetes.digitalocean.com/firewall-managed",
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for got, want := range contract() {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Reasons of events are selected by alerts.
func TestReasons(t *testing.T) {
	t.Parallel()
	got := []string{annotation.ReasonNoEffect, annotation.ReasonDoubtful, annotation.ReasonUnknown}
	if diff := cmp.Diff([]string{"AnnotationHasNoEffect", "AnnotationValueDoubtful", "AnnotationUnknown"}, got); diff != "" {
		t.Error(diff)
	}
}

// The values that the API knows, and the figures of the health check, which are sent as they stand.
func TestValues(t *testing.T) {
	t.Parallel()
	got := []any{
		annotation.TypeRegional, annotation.TypeRegionalNetwork, annotation.DefaultType, annotation.NetworkExternal, annotation.NetworkInternal,
		annotation.StackIPv4, annotation.StackDual, annotation.ProtocolTCP, annotation.ProtocolUDP, annotation.ProtocolHTTP, annotation.ProtocolHTTPS,
		annotation.ProtocolHTTP2, annotation.ProtocolHTTP3, annotation.AlgorithmRoundRobin, annotation.AlgorithmLeastConnections,
		annotation.StickyNone, annotation.StickyCookies, annotation.SizeSmall, annotation.SizeMedium, annotation.SizeLarge,
		annotation.DefaultHealthCheckInterval, annotation.DefaultHealthCheckTimeout, annotation.DefaultHealthCheckUnhealthyThreshold,
		annotation.DefaultHealthCheckHealthyThreshold,
	}
	want := []any{
		"REGIONAL", "REGIONAL_NETWORK", "REGIONAL_NETWORK", "EXTERNAL", "INTERNAL", "IPV4", "DUALSTACK", "tcp", "udp", "http", "https", "http2", "http3",
		"round_robin", "least_connections", "none", "cookies", "lb-small", "lb-medium", "lb-large", 3, 5, 3, 5,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// The reference page is written from the table: every name is in it once, with something to say.
func TestTableIsComplete(t *testing.T) {
	t.Parallel()
	var names []string
	for _, e := range annotation.Table() {
		names = append(names, e.Name)
		if e.Values == "" || e.Default == "" || e.Effect == "" {
			t.Errorf("%s lacks values, default or effect", e.Name)
		}
		for what, text := range map[string]string{"values": e.Values, "default": e.Default, "leniency": e.Lenient, "why it is per service": e.PerService} {
			if strings.HasSuffix(text, ".") || text != "" && strings.ToLower(text[:1]) != text[:1] && !strings.HasPrefix(text, "REGIONAL") &&
				!strings.HasPrefix(text, "IPV4") && !strings.HasPrefix(text, "EXTERNAL") && !strings.HasPrefix(text, "DEFAULT_LB_TYPE") {
				t.Errorf("%s: %s %q is a part of a sentence", e.Name, what, text)
			}
		}
		if !strings.HasSuffix(e.Effect, ".") {
			t.Errorf("%s: effect %q is a sentence", e.Name, e.Effect)
		}
		if e.RegionalNetwork && !e.Regional {
			t.Errorf("%s: there is nothing that REGIONAL_NETWORK alone uses", e.Name)
		}
	}
	slices.Sort(names)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(contract())), names); diff != "" {
		t.Errorf("the table's names (-want +got):\n%s", diff)
	}
}

// What only the creating request carries, and what cannot change, is marked: the docs and the events say so.
func TestTableMarks(t *testing.T) {
	t.Parallel()
	marked := map[string][]string{}
	for _, e := range annotation.Table() {
		short := strings.TrimPrefix(strings.TrimPrefix(e.Name, annotation.Prefix), "kubernetes.digitalocean.com/")
		for mark, on := range map[string]bool{
			"create only": e.CreateOnly, "fixed": e.Fixed, "written": e.Written, "regional only": e.Regional && !e.RegionalNetwork,
			"per service": e.PerService != "", "own": e.Own,
		} {
			if on {
				marked[mark] = append(marked[mark], short)
			}
		}
	}
	want := map[string][]string{
		"create only":   {"ip"},
		"fixed":         {"type", "network", "network-stack"},
		"written":       {"load-balancer-id", "type", "certificate-id"},
		"regional only": {"protocol", "http-ports", "tls-ports", "http2-ports", "http3-port", "tls-passthrough", "certificate-id", "certificate-name", "certificate-domains", "tls-cipher-policy"},
		"own":           {"reserved-ip", "project-id", "node-selector", "local-targets-only", "certificate-domains", "tls-cipher-policy"},
		"per service":   {"load-balancer-id", "name", "type", "ip", "reserved-ip", "certificate-id", "hostname", "override-health-check", "service.kubernetes.io/do-loadbalancer-disown"},
	}
	if diff := cmp.Diff(want, marked); diff != "" {
		t.Error(diff)
	}
}
