// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package annotation_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

const p = annotation.Prefix

// with returns annotations from pairs; names without a slash get the prefix.
func with(pairs ...string) map[string]string {
	out := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		name := pairs[i]
		if !strings.Contains(name, "/") {
			name = p + name
		}
		out[name] = pairs[i+1]
	}
	return out
}

func regional() annotation.Options { return annotation.Options{DefaultType: annotation.TypeRegional} }

func TestDefaults(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]annotation.Options{
		"REGIONAL_NETWORK": {}, "REGIONAL": regional(),
	} {
		got, warnings, err := annotation.Parse(nil, o)
		if err != nil || len(warnings) > 0 {
			t.Fatalf("%v, %v", warnings, err)
		}
		want := annotation.Settings{
			Type: name, Network: "EXTERNAL", Algorithm: "round_robin", Sticky: annotation.Sticky{Type: "none"},
			HealthCheck: annotation.HealthCheck{Interval: 3, Timeout: 5, UnhealthyThreshold: 3, HealthyThreshold: 5},
		}
		if name == annotation.TypeRegional {
			want.Protocol = "tcp"
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestEverything(t *testing.T) {
	t.Parallel()
	got, warnings, err := annotation.Parse(with(
		annotation.LoadBalancerID, "id", "name", "web.example-1", "type", "REGIONAL", "network", "EXTERNAL", "network-stack", "IPV4", "ip", " 203.0.113.7 ",
		"subnet-uuid", " 3d6f6fdc-8b7e-49fd-a3c2-0d73ec4e40b4", "project-id", "4DE7ac8b-495b-4884-9a69-1050c6793cd6", "protocol", "http", "http-ports", "80,81", "tls-ports", "443", "http2-ports", "8443",
		"http3-port", "443", "certificate-id", "c", "hostname", "Web.Example.COM", "size-unit", "3", "sticky-sessions-type", "cookies",
		"sticky-sessions-cookie-name", "DO-CCM", "sticky-sessions-cookie-ttl", "60", "redirect-http-to-https", "1", "enable-proxy-protocol", "true",
		"enable-backend-keepalive", "T", "disable-lets-encrypt-dns-records", "TRUE", "http-idle-timeout-seconds", "600",
		"allow-rules", "ip:1.2.3.4, cidr:2.3.0.0/16", "deny-rules", "cidr:2001:db8::/32", "override-health-check", "", "healthcheck-port", "80",
		"healthcheck-path", "/ok", "healthcheck-protocol", "https", "healthcheck-check-interval-seconds", "10",
		"healthcheck-response-timeout-seconds", "9", "healthcheck-unhealthy-threshold", "4", "healthcheck-healthy-threshold", "6",
		annotation.Disown, "true", "example.com/other", "x",
	), annotation.Options{})
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v, %v", warnings, err)
	}
	eighty, secure, timeout := 80, 443, uint64(600)
	want := annotation.Settings{
		ID: "id", Name: "web.example-1", Type: "REGIONAL", TypeAsked: "REGIONAL", Network: "EXTERNAL", NetworkStack: "IPV4", IP: "203.0.113.7",
		Subnet: "3d6f6fdc-8b7e-49fd-a3c2-0d73ec4e40b4", Project: "4de7ac8b-495b-4884-9a69-1050c6793cd6", Hostname: "web.example.com", Protocol: "http", HTTPPorts: []int{80, 81}, TLSPorts: []int{443},
		HTTP2Ports: []int{8443}, HTTP3Port: &secure, CertificateID: "c", Algorithm: "round_robin", SizeUnit: 3,
		Sticky: annotation.Sticky{Type: "cookies", Cookie: "DO-CCM", TTL: 60}, RedirectHTTPToHTTPS: true, ProxyProtocol: true, BackendKeepalive: true,
		DisableLetsEncryptDNSRecords: true, HTTPIdleTimeout: &timeout, Allow: []string{"ip:1.2.3.4", "cidr:2.3.0.0/16"}, Deny: []string{"cidr:2001:db8::/32"},
		HealthCheck: annotation.HealthCheck{
			Override: true, Port: &eighty, Path: "/ok", Protocol: "https", Interval: 10, Timeout: 9, UnhealthyThreshold: 4, HealthyThreshold: 6,
		},
		Disowned: true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Each wrong value has a sentence with annotation, value and allowed values.
func TestErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		annotations map[string]string
		want        string
	}{
		{with("type", "GLOBAL"), `annotation ` + p + `type is "GLOBAL", it must be REGIONAL or REGIONAL_NETWORK`},
		{with("network", "PUBLIC"), `annotation ` + p + `network is "PUBLIC", it must be EXTERNAL or INTERNAL`},
		{with("network-stack", "IPV6"), `annotation ` + p + `network-stack is "IPV6", it must be IPV4 or DUALSTACK`},
		{with("protocol", "udp"), `annotation ` + p + `protocol is "udp", it must be one of tcp, http, https, http2 and http3`},
		{with("protocol", ""), `annotation ` + p + `protocol is "", it must be one of tcp, http, https, http2 and http3`},
		{with("tls-ports", "443, 8443"), `annotation ` + p + `tls-ports is "443, 8443", it must be port numbers separated by commas, without blanks`},
		{with("http-ports", ""), `annotation ` + p + `http-ports is "", it must be port numbers separated by commas, without blanks`},
		{with("http-ports", "80", "http2-ports", "443,80"), `annotation ` + p + `http2-ports is "443,80", but port 80 is in ` + p + `http-ports as well: it can have one protocol only`},
		{with("tls-ports", "443,443"), `annotation ` + p + `tls-ports is "443,443", where port 443 is listed twice`},
		{with("http3-port", "443,80"), `annotation ` + p + `http3-port is "443,80", it must be one port number`},
		{with("size-slug", "lb-xl"), `annotation ` + p + `size-slug is "lb-xl", it must be one of lb-small, lb-medium and lb-large`},
		{with("size-unit", "two"), `annotation ` + p + `size-unit is "two", it must be a whole number, not negative`},
		{with("size-unit", "-1"), `annotation ` + p + `size-unit is "-1", it must be a whole number, not negative`},
		{with("size-slug", "lb-small", "size-unit", "2"), `annotation ` + p + `size-unit is "2", but ` + p + `size-slug is "lb-small": give one of them`},
		{with("sticky-sessions-type", "cookies", "sticky-sessions-cookie-ttl", "1"), `annotation ` + p + `sticky-sessions-cookie-name is "", it must be the name of a cookie, since ` + p + `sticky-sessions-type is cookies`},
		{with("sticky-sessions-type", "cookies", "sticky-sessions-cookie-name", "c", "sticky-sessions-cookie-ttl", "1m"), `annotation ` + p + `sticky-sessions-cookie-ttl is "1m", it must be a whole number of seconds, since ` + p + `sticky-sessions-type is cookies`},
		{with("enable-proxy-protocol", "on"), `annotation ` + p + `enable-proxy-protocol is "on", it must be true or false`},
		{with("redirect-http-to-https", ""), `annotation ` + p + `redirect-http-to-https is "", it must be true or false`},
		{with("http-idle-timeout-seconds", "-1"), `annotation ` + p + `http-idle-timeout-seconds is "-1", it must be a whole number of seconds, not negative`},
		{with("healthcheck-check-interval-seconds", ""), `annotation ` + p + `healthcheck-check-interval-seconds is "", it must be a whole number of seconds`},
		{with("healthcheck-healthy-threshold", "few"), `annotation ` + p + `healthcheck-healthy-threshold is "few", it must be a whole number`},
		{with("override-health-check", "", "healthcheck-port", "80,443"), `annotation ` + p + `healthcheck-port is "80,443", it must be the number of one port of the Service`},
		{with("override-health-check", "", "healthcheck-protocol", "udp"), `annotation ` + p + `healthcheck-protocol is "udp", it must be one of tcp, http and https`},
		{with(annotation.Disown, "yes"), `annotation ` + annotation.Disown + ` is "yes", it must be true or false`},
	} {
		_, _, err := annotation.Parse(tt.annotations, regional())
		if err == nil || err.Error() != tt.want {
			t.Errorf("%v\nsays %v\nwant %s", tt.annotations, err, tt.want)
		}
		var errs annotation.Errors
		if !errors.As(err, &errs) || len(errs) != 1 || errs[0].Annotation == "" {
			t.Errorf("%v: %d errors", tt.annotations, len(errs))
		}
	}
}

// All wrong values are found at once, and each can be told on its own.
func TestErrorsAreCollected(t *testing.T) {
	t.Parallel()
	_, _, err := annotation.Parse(with("type", "x", "size-unit", "y", "enable-proxy-protocol", "z"), regional())
	var errs annotation.Errors
	if !errors.As(err, &errs) || len(errs) != 3 || len(errs.Unwrap()) != 3 {
		t.Fatalf("%v", err)
	}
	if want := errs[0].Error() + "; " + errs[1].Error() + "; " + errs[2].Error(); err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
	var one *annotation.Error
	if !errors.As(err, &one) || one.Value != "x" {
		t.Errorf("%+v", one)
	}
}

// Values that are accepted although they mean nothing, or will be refused by DigitalOcean, are sent as they are and warned of.
func TestWarnings(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		o           annotation.Options
		annotations map[string]string
		reason      string
		want        string
		check       func(annotation.Settings) bool
	}{
		{regional(), with("name", "my name"), annotation.ReasonDoubtful, `name is "my name", which DigitalOcean may refuse: a name is 1 to 255 letters, digits, dots and dashes`, func(s annotation.Settings) bool { return s.Name == "my name" }},
		{regional(), with("ip", "mine"), annotation.ReasonDoubtful, `ip is "mine", which is not an IP address and will be refused by DigitalOcean`, func(s annotation.Settings) bool { return s.IP == "mine" }},
		{regional(), with("subnet-uuid", " x "), annotation.ReasonDoubtful, `subnet-uuid is " x ", which is not a UUID and will be refused by DigitalOcean`, func(s annotation.Settings) bool { return s.Subnet == "x" }},
		{regional(), with("protocol", "http3"), annotation.ReasonDoubtful, `protocol is "http3", which DigitalOcean takes for one port only and not towards droplets: use ` + p + `http3-port`, func(s annotation.Settings) bool { return s.Protocol == "http3" }},
		{regional(), with("http3-port", "-1"), annotation.ReasonNoEffect, `http3-port is "-1", which means that no port serves HTTP/3`, func(s annotation.Settings) bool { return s.HTTP3Port == nil }},
		{regional(), with("tls-passthrough", "maybe"), annotation.ReasonNoEffect, `tls-passthrough is "maybe", which is neither true nor false: TLS is not passed through`, func(s annotation.Settings) bool { return !s.TLSPassthrough }},
		{regional(), with("certificate-id", "a", "certificate-name", "b"), annotation.ReasonNoEffect, `certificate-name is "b", which has no effect alongside ` + p + `certificate-id`, nil},
		{regional(), with("hostname", "no_name"), annotation.ReasonNoEffect, `hostname is "no_name", which is not a DNS name: the load balancer's addresses are published instead`, func(s annotation.Settings) bool { return s.Hostname == "" }},
		{regional(), with("hostname", "192.0.2.1"), annotation.ReasonNoEffect, `hostname is "192.0.2.1", which is not a DNS name: the load balancer's addresses are published instead`, func(s annotation.Settings) bool { return s.Hostname == "" }},
		{regional(), with("algorithm", "random"), annotation.ReasonNoEffect, `algorithm is "random", which is not an algorithm: round_robin is asked for, and DigitalOcean ignores it`, func(s annotation.Settings) bool { return s.Algorithm == "round_robin" }},
		{regional(), with("algorithm", "least_connections"), annotation.ReasonNoEffect, `algorithm is "least_connections", which DigitalOcean ignores: the algorithm can no longer be chosen`, func(s annotation.Settings) bool { return s.Algorithm == "least_connections" }},
		{regional(), with("size-unit", "0"), annotation.ReasonNoEffect, `size-unit is "0", which means the smallest size, 1`, nil},
		{regional(), with("size-unit", "101"), annotation.ReasonDoubtful, `size-unit is "101", which DigitalOcean will refuse: it takes 1 to 100`, func(s annotation.Settings) bool { return s.SizeUnit == 101 }},
		{regional(), with("sticky-sessions-type", "ip"), annotation.ReasonNoEffect, `sticky-sessions-type is "ip", which is neither none nor cookies: sessions are not sticky`, func(s annotation.Settings) bool { return s.Sticky == annotation.Sticky{Type: "none"} }},
		{regional(), with("sticky-sessions-cookie-name", "c"), annotation.ReasonNoEffect, `sticky-sessions-cookie-name is "c", which has no effect without ` + p + `sticky-sessions-type: cookies`, func(s annotation.Settings) bool { return s.Sticky.Cookie == "" }},
		{regional(), with("sticky-sessions-type", "cookies", "sticky-sessions-cookie-name", "c", "sticky-sessions-cookie-ttl", "0"), annotation.ReasonDoubtful, `sticky-sessions-cookie-ttl is "0", which DigitalOcean will refuse: a cookie holds for one second or more`, nil},
		{regional(), with("http-idle-timeout-seconds", "0"), annotation.ReasonDoubtful, `http-idle-timeout-seconds is "0", which DigitalOcean will refuse: it takes 30 to 600 seconds`, func(s annotation.Settings) bool { return *s.HTTPIdleTimeout == 0 }},
		{regional(), with("deny-rules", "bogus"), annotation.ReasonDoubtful, `deny-rules is "bogus", where "bogus" is neither ip:ADDRESS nor cidr:RANGE and will be refused by DigitalOcean`, func(s annotation.Settings) bool { return s.Deny[0] == "bogus" }},
		{regional(), with("allow-rules", "ip:1.2.3.4,"), annotation.ReasonDoubtful, `allow-rules is "ip:1.2.3.4,", where "" is neither ip:ADDRESS nor cidr:RANGE and will be refused by DigitalOcean`, func(s annotation.Settings) bool { return len(s.Allow) == 2 }},
		{regional(), with("healthcheck-check-interval-seconds", "1"), annotation.ReasonDoubtful, `healthcheck-check-interval-seconds is "1", which DigitalOcean may refuse: it documents 3 to 300`, func(s annotation.Settings) bool { return s.HealthCheck.Interval == 1 }},
		{regional(), with("healthcheck-healthy-threshold", "0"), annotation.ReasonDoubtful, `healthcheck-healthy-threshold is "0", which is not sent: DigitalOcean's own default is used`, nil},
		{regional(), with("override-health-check", "false"), annotation.ReasonNoEffect, `override-health-check is "false", which does not turn it off: the annotation's presence counts, remove it for the default health check`, func(s annotation.Settings) bool { return s.HealthCheck.Override }},
		{regional(), with("healthcheck-port", "80"), annotation.ReasonNoEffect, `healthcheck-port is "80", which has no effect without ` + p + `override-health-check`, func(s annotation.Settings) bool { return s.HealthCheck.Port == nil }},
		{regional(), with("override-health-check", "yes", "healthcheck-path", "/p", "healthcheck-protocol", "tcp"), annotation.ReasonNoEffect, `healthcheck-path is "/p", which has no effect while ` + p + `healthcheck-protocol is tcp`, func(s annotation.Settings) bool { return s.HealthCheck.Path == "/p" }},
		{annotation.Options{}, with("tls-ports", "any thing"), annotation.ReasonNoEffect, `tls-ports is "any thing", which has no effect on a load balancer of type REGIONAL_NETWORK`, func(s annotation.Settings) bool { return s.TLSPorts == nil }},
		{annotation.Options{}, with("tls-port", "443"), annotation.ReasonUnknown, `tls-port is not known and has no effect; did you mean ` + p + `tls-ports?`, nil},
		{annotation.Options{}, with("quite-another", "443"), annotation.ReasonUnknown, `quite-another is not known and has no effect`, nil},
	} {
		s, warnings, err := annotation.Parse(tt.annotations, tt.o)
		want := []annotation.Warning{{Reason: tt.reason, Message: "annotation " + p + tt.want}}
		if diff := cmp.Diff(want, warnings); diff != "" || err != nil {
			t.Errorf("%v: %v, warnings (-want +got):\n%s", tt.annotations, err, diff)
		}
		if tt.check != nil && !tt.check(s) {
			t.Errorf("%v: %+v", tt.annotations, s)
		}
	}
}

// The type of the load balancer there is wins over annotation and default, and says which annotations are read.
func TestFixedType(t *testing.T) {
	t.Parallel()
	s, _, err := annotation.Parse(with("type", "REGIONAL", "protocol", "nonsense"), annotation.Options{FixedType: "REGIONAL_NETWORK"})
	if err != nil || s.Type != "REGIONAL_NETWORK" || s.TypeAsked != "REGIONAL" {
		t.Errorf("%+v, %v", s, err)
	}
	if s, _, _ := annotation.Parse(nil, annotation.Options{DefaultType: "GLOBAL"}); s.Type != "REGIONAL_NETWORK" {
		t.Errorf("an unknown default makes %s", s.Type)
	}
}

// An event has room for a thousand letters; a value may have many more.
func TestLongValuesAreCut(t *testing.T) {
	t.Parallel()
	_, _, err := annotation.Parse(with("type", strings.Repeat("ä", 500)), regional())
	if err == nil || len(err.Error()) > 400 || !strings.Contains(err.Error(), "…") {
		t.Errorf("%v", err)
	}
}

func TestDisowned(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]bool{"true": true, "1": true, "false": false} {
		if got, err := annotation.IsDisowned(with(annotation.Disown, value)); err != nil || got != want {
			t.Errorf("%s: %v, %v", value, got, err)
		}
	}
	if got, err := annotation.IsDisowned(nil); err != nil || got {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := annotation.IsDisowned(with(annotation.Disown, "")); err == nil {
		t.Error("an empty value is not a boolean")
	}
}

func TestFirewallManaged(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]bool{"true": true, "false": false, "0": false} {
		if got, warnings := annotation.IsFirewallManaged(with(annotation.FirewallManaged, value)); got != want || len(warnings) > 0 {
			t.Errorf("%s: %v, %v", value, got, warnings)
		}
	}
	if got, warnings := annotation.IsFirewallManaged(nil); !got || len(warnings) > 0 {
		t.Errorf("%v, %v", got, warnings)
	}
	got, warnings := annotation.IsFirewallManaged(with(annotation.FirewallManaged, "nope"))
	if !got || len(warnings) != 1 || !strings.Contains(warnings[0].Message, `is "nope"`) {
		t.Errorf("%v, %v", got, warnings)
	}
}

// values are right and wrong ones for every annotation.
func values() []string {
	return []string{
		"", "x", "true", "false", "0", "1", "-1", "80", "443", "80,443", "443,8443", " 443", "REGIONAL", "REGIONAL_NETWORK", "INTERNAL", "EXTERNAL",
		"DUALSTACK", "IPV4", "http", "https", "http2", "tcp", "cookies", "none", "lb-small", "ip:1.2.3.4", "4294967739", "99999999999999999999",
	}
}

func draw(t *rapid.T) (map[string]string, annotation.Options) {
	names := slices.Sorted(maps.Keys(contract()))
	annotations := rapid.MapOf(rapid.SampledFrom(names), rapid.SampledFrom(values())).Draw(t, "annotations")
	types := []string{"", "REGIONAL", "REGIONAL_NETWORK"}
	return annotations, annotation.Options{DefaultType: rapid.SampledFrom(types).Draw(t, "default"), FixedType: rapid.SampledFrom(types).Draw(t, "fixed")}
}

// Every error names its annotation, the value and nothing over one line; every warning is one sentence; and the same input gives the same output.
func TestSentences(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		annotations, o := draw(t)
		s, warnings, err := annotation.Parse(annotations, o)
		again, warningsAgain, errAgain := annotation.Parse(maps.Clone(annotations), o)
		if diff := cmp.Diff(s, again) + cmp.Diff(warnings, warningsAgain) + cmp.Diff(fmt.Sprint(err), fmt.Sprint(errAgain)); diff != "" {
			t.Fatalf("not the same twice:\n%s", diff)
		}
		var errs annotation.Errors
		if err != nil && !errors.As(err, &errs) {
			t.Fatalf("%T", err)
		}
		for _, e := range errs {
			if !strings.Contains(e.Error(), e.Annotation) || !strings.Contains(e.Error(), fmt.Sprintf("%q", annotations[e.Annotation])) || strings.Contains(e.Error(), "\n") {
				t.Errorf("%s", e)
			}
		}
		for _, w := range warnings {
			if w.Reason == "" || !strings.HasPrefix(w.Message, "annotation ") || strings.Contains(w.Message, "\n") || strings.HasSuffix(w.Message, ".") {
				t.Errorf("%+v", w)
			}
		}
		if s.SizeSlug != "" && s.SizeUnit > 0 && err == nil {
			t.Errorf("two sizes: %+v", s)
		}
	})
}

// What a network load balancer does not use cannot be wrong there.
func TestUnusedValuesCannotBeWrong(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		annotations := map[string]string{}
		used := 0
		for _, e := range annotation.Table() {
			if e.Regional && !e.RegionalNetwork && rapid.Bool().Draw(t, e.Name) {
				annotations[e.Name] = rapid.SampledFrom(values()).Draw(t, "value")
				used++
			}
		}
		_, warnings, err := annotation.Parse(annotations, annotation.Options{FixedType: annotation.TypeRegionalNetwork})
		if err != nil || len(warnings) != used {
			t.Fatalf("%d annotations, %v, %v", used, warnings, err)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, name := range slices.Sorted(maps.Keys(contract())) {
		for _, value := range []string{"", "true", "443,80", "cookies", "ip:1.2.3.4,cidr:10.0.0.0/8", "\x00\n"} {
			f.Add(name, value, "type", "REGIONAL")
		}
	}
	f.Fuzz(func(t *testing.T, name1, value1, name2, value2 string) {
		annotations := with(name1, value1, name2, value2, "sticky-sessions-type", "cookies", "override-health-check", "")
		for _, o := range []annotation.Options{regional(), {}} {
			_, warnings, err := annotation.Parse(annotations, o)
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("not one line: %q", err)
			}
			for _, w := range warnings {
				if w.Message == "" || strings.Contains(strings.ReplaceAll(w.Message, name1, ""), "\n") && !strings.Contains(name2, "\n") {
					t.Errorf("not one line: %q", w)
				}
			}
		}
		annotation.IsFirewallManaged(annotations)
		if _, err := annotation.IsDisowned(annotations); err != nil && !strings.Contains(err.Error(), annotation.Disown) {
			t.Error(err)
		}
	})
}
