// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package predecessor_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// The vectors are samples; these are rules for what lies between them. Each changes a vector's input in a way of which the answer is known.
func TestNeighbors(t *testing.T) {
	t.Parallel()
	vectors := loadLoadBalancerVectors(t)
	inputs := make([]loadbalancer.Input, len(vectors.Vectors))
	for i, v := range vectors.Vectors {
		inputs[i] = vectors.input(t, v)
	}
	for name, rule := range map[string]func(*rapid.T, loadbalancer.Input, loadbalancer.Result, error){
		"what a network load balancer does not use changes nothing":         unusedAnnotations,
		"what nobody knows changes nothing":                                 unknownAnnotations,
		"a value that is the default changes nothing":                       defaultValues,
		"the order of nodes changes the order of targets alone":             nodeOrder,
		"options are independent of each other and of ports":                independentOptions,
		"a load balancer made by a request is what is asked for":            roundTrip,
		"a Service with more ports has the rules of those it had, and more": morePorts,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cases.Check(t, func(t *rapid.T) {
				in := rapid.SampledFrom(inputs).Draw(t, "vector")
				in.Service = in.Service.DeepCopy()
				result, err := loadbalancer.Desired(in)
				if in.Service.Annotations == nil {
					in.Service.Annotations = map[string]string{}
				}
				rule(t, in, result, err)
			})
		})
	}
}

// same compares the answers to an input before and after a change.
func same(t *rapid.T, in loadbalancer.Input, before loadbalancer.Result, err error, options ...cmp.Option) {
	t.Helper()
	after, again := loadbalancer.Desired(in)
	if (err == nil) != (again == nil) {
		t.Fatalf("%v, then %v", err, again)
	}
	if diff := cmp.Diff(before.Request, after.Request, options...); diff != "" {
		t.Fatalf("(-before +after):\n%s", diff)
	}
}

func unusedAnnotations(t *rapid.T, in loadbalancer.Input, before loadbalancer.Result, err error) {
	if err != nil || before.Request.Type != annotation.TypeRegionalNetwork {
		t.SkipNow()
	}
	for _, e := range annotation.Table() {
		if e.Regional && !e.RegionalNetwork {
			in.Service.Annotations[e.Name] = rapid.SampledFrom([]string{"", "443", "http", "true", "nonsense"}).Draw(t, e.Name)
		}
	}
	same(t, in, before, err)
}

func unknownAnnotations(t *rapid.T, in loadbalancer.Input, before loadbalancer.Result, err error) {
	in.Service.Annotations[annotation.Prefix+rapid.StringMatching(`unheard-of-[a-z]{1,5}`).Draw(t, "name")] = "x"
	in.Service.Annotations[annotation.FirewallManaged] = "maybe"
	in.Service.Annotations["example.com/any"] = "x"
	in.Service.Labels = map[string]string{"any": "x"}
	same(t, in, before, err)
}

func defaultValues(t *rapid.T, in loadbalancer.Input, before loadbalancer.Result, err error) {
	if err != nil {
		t.SkipNow()
	}
	defaults := map[string]string{
		annotation.Network: "EXTERNAL", annotation.Algorithm: "round_robin", annotation.StickySessionsType: "none", annotation.SizeUnit: "0",
		annotation.RedirectHTTPToHTTPS: "false", annotation.EnableProxyProtocol: "f", annotation.EnableBackendKeepalive: "0",
		annotation.DisableLetsEncryptDNSRecord: "False", annotation.HealthCheckInterval: "3", annotation.HealthCheckTimeout: "5",
		annotation.HealthCheckUnhealthyThreshold: "3", annotation.HealthCheckHealthyThreshold: "5", annotation.AllowRules: "", annotation.DenyRules: "",
		annotation.Name: "", annotation.Type: "", annotation.NetworkStack: "", annotation.CertificateID: "", annotation.CertificateName: "",
		annotation.IP: " ", annotation.SubnetUUID: "", annotation.SizeSlug: "", annotation.Hostname: "", annotation.Protocol: "tcp",
	}
	for _, name := range slices.Sorted(maps.Keys(defaults)) {
		if _, set := in.Service.Annotations[name]; !set && rapid.Bool().Draw(t, name) {
			in.Service.Annotations[name] = defaults[name]
		}
	}
	same(t, in, before, err)
}

func nodeOrder(t *rapid.T, in loadbalancer.Input, before loadbalancer.Result, err error) {
	in.Nodes, in.Droplets = rapid.Permutation(in.Nodes).Draw(t, "nodes"), rapid.Permutation(in.Droplets).Draw(t, "droplets")
	same(t, in, before, err, cmpopts.SortSlices(func(a, b int) bool { return a < b }))
}

func independentOptions(t *rapid.T, in loadbalancer.Input, before loadbalancer.Result, err error) {
	if err != nil {
		t.SkipNow()
	}
	seconds, want := uint64(90), before
	for _, option := range []struct {
		name, value string
		apply       func(*loadbalancer.Request)
	}{
		{annotation.Name, "mine", func(r *loadbalancer.Request) { r.Name = "mine" }},
		{annotation.EnableProxyProtocol, "t", func(r *loadbalancer.Request) { r.EnableProxyProtocol = true }},
		{annotation.RedirectHTTPToHTTPS, "1", func(r *loadbalancer.Request) { r.RedirectHTTPToHTTPS = true }},
		{annotation.EnableBackendKeepalive, "TRUE", func(r *loadbalancer.Request) { r.EnableBackendKeepalive = true }},
		{annotation.DisableLetsEncryptDNSRecord, "true", func(r *loadbalancer.Request) { r.DisableLetsEncryptDNSRecords = true }},
		{annotation.HTTPIdleTimeout, "90", func(r *loadbalancer.Request) { r.HTTPIdleTimeoutSeconds = &seconds }},
		{annotation.DenyRules, "ip:9.9.9.9 ,x", func(r *loadbalancer.Request) { r.Firewall.Deny = []string{"ip:9.9.9.9", "x"} }},
		{annotation.SubnetUUID, " s ", func(r *loadbalancer.Request) { r.Subnet = "s" }},
		{annotation.HealthCheckInterval, "+7", func(r *loadbalancer.Request) { r.HealthCheck.Interval = 7 }},
		{annotation.HealthCheckHealthyThreshold, "-2", func(r *loadbalancer.Request) { r.HealthCheck.HealthyThreshold = -2 }},
		{annotation.Algorithm, "least_connections", func(r *loadbalancer.Request) { r.Algorithm = "least_connections" }},
	} {
		if rapid.Bool().Draw(t, option.name) {
			in.Service.Annotations[option.name] = option.value
			option.apply(&want.Request)
		}
	}
	same(t, in, want, err)
}

// roundTrip is a second look, at the load balancer that the first made.
func roundTrip(t *rapid.T, in loadbalancer.Input, before loadbalancer.Result, err error) {
	if err != nil {
		t.SkipNow()
	}
	in.Observed = made(before.Request, "id")
	if before.Request.SizeUnit > 0 {
		in.Observed.SizeUnit = before.Request.SizeUnit
	}
	in.Observed.SizeSlug, in.Observed.Subnet = before.Request.SizeSlug, before.Request.Subnet
	if before.Request.SizeSlug != "" {
		in.Observed.SizeUnit = 0
	}
	in.Observed.RedirectHTTPToHTTPS, in.Observed.EnableProxyProtocol = before.Request.RedirectHTTPToHTTPS, before.Request.EnableProxyProtocol
	in.Observed.EnableBackendKeepalive, in.Observed.HTTPIdleTimeoutSeconds = before.Request.EnableBackendKeepalive, before.Request.HTTPIdleTimeoutSeconds
	in.Observed.DisableLetsEncryptDNSRecords = before.Request.DisableLetsEncryptDNSRecords
	same(t, in, before, err)
	if differences := loadbalancer.Diff(*in.Observed, before.Request); len(differences) > 0 {
		t.Fatalf("%v", differences)
	}
}

func morePorts(t *rapid.T, in loadbalancer.Input, before loadbalancer.Result, err error) {
	if err != nil || before.Request.Type == annotation.TypeRegional && slices.Contains([]string{"https", "http2"}, in.Service.Annotations[annotation.Protocol]) {
		t.SkipNow()
	}
	port := int32(rapid.IntRange(1000, 1010).Draw(t, "port"))
	in.Service.Spec.Ports = append(in.Service.Spec.Ports, corev1.ServicePort{Protocol: corev1.ProtocolUDP, Port: port, NodePort: 31000})
	after := must.Get(loadbalancer.Desired(in)).Or(t)
	isHTTP3 := func(r loadbalancer.ForwardingRule) bool {
		return r.EntryProtocol == "http3" && strings.HasPrefix(r.TargetProtocol, "http")
	}
	var got []loadbalancer.ForwardingRule
	for _, r := range after.Request.ForwardingRules {
		if r.EntryPort != int(port) {
			got = append(got, r)
		}
	}
	if diff := cmp.Diff(before.Request.ForwardingRules, got); diff != "" {
		t.Fatalf("(-before +after):\n%s", diff)
	}
	last := after.Request.ForwardingRules[len(after.Request.ForwardingRules)-1]
	if last.EntryPort != int(port) && !isHTTP3(last) {
		t.Fatalf("the new port is not last: %v", after.Request.ForwardingRules)
	}
}
