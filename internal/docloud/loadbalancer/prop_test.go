// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// drawAnnotations draws annotations that mostly mean something together.
func drawAnnotations(t *rapid.T) map[string]string {
	out := map[string]string{}
	maybe := func(name string, values ...string) {
		if rapid.IntRange(0, 3).Draw(t, "with "+name) == 0 {
			out[p+name] = rapid.SampledFrom(values).Draw(t, name)
		}
	}
	maybe("type", regional, network)
	maybe("network", "EXTERNAL", "INTERNAL")
	maybe("network-stack", "IPV4", "DUALSTACK")
	maybe("name", "web", "shop")
	maybe("ip", "192.0.2.44")
	maybe("subnet-uuid", "3d6f6fdc-8b7e-49fd-a3c2-0d73ec4e40b4")
	maybe("protocol", "tcp", "http", "https", "http2")
	maybe("http-ports", "80", "8080")
	maybe("tls-ports", "443", "443,8443")
	maybe("http2-ports", "8443", "443")
	maybe("http3-port", "443", "80")
	maybe("tls-passthrough", "true", "false", "maybe")
	maybe("certificate-id", "cert-1", "c")
	maybe("certificate-name", "web", "other")
	maybe("hostname", "web.example.com")
	maybe("algorithm", "least_connections", "x")
	maybe("size-unit", "0", "1", "3")
	maybe("size-slug", "lb-small", "lb-large")
	if rapid.IntRange(0, 3).Draw(t, "sticky") == 0 {
		out[p+"sticky-sessions-type"], out[p+"sticky-sessions-cookie-name"], out[p+"sticky-sessions-cookie-ttl"] = "cookies", "c", "60"
	}
	for _, flag := range []string{"redirect-http-to-https", "enable-proxy-protocol", "enable-backend-keepalive", "disable-lets-encrypt-dns-records"} {
		maybe(flag, "true", "false")
	}
	maybe("http-idle-timeout-seconds", "0", "60", "90")
	maybe("allow-rules", "ip:1.2.3.4,cidr:10.0.0.0/8", "cidr:10.0.0.0/8,cidr:10.0.0.0/8")
	maybe("deny-rules", "ip:9.9.9.9", "bogus,")
	maybe("override-health-check", "", "false")
	maybe("healthcheck-port", "443", "80")
	maybe("healthcheck-path", "/p", "")
	maybe("healthcheck-protocol", "tcp", "https", "http")
	maybe("healthcheck-check-interval-seconds", "0", "10", "3")
	maybe("healthcheck-healthy-threshold", "0", "3")
	maybe("tls-cipher-policy", "DEFAULT", "STRONG", "")
	maybe("node-selector", "!retired", "")
	maybe("local-targets-only", "true", "false")
	return out
}

// drawInput draws a Service with ports, annotations and ranges, Nodes of all kinds, and certificates.
func drawInput(t *rapid.T) loadbalancer.Input {
	s := service()
	s.Annotations = drawAnnotations(t)
	all := []string{"tcp:80:30080", "tcp:443:30443", "tcp:8443:30844", "udp:443:30444", "udp:53:30053", "tcp:53:30054", "tcp:9:0"}
	ports(s, rapid.SliceOfNDistinct(rapid.SampledFrom(all), 1, 5, rapid.ID[string]).Draw(t, "ports")...)
	s.Spec.LoadBalancerSourceRanges = rapid.SampledFrom([][]string{nil, nil, {"10.0.0.0/8", "192.0.2.0/24", "2001:db8::/32"}, {"192.0.2.9/24", "192.0.2.0/24"}}).Draw(t, "ranges")
	if rapid.Bool().Draw(t, "local") {
		s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, 31234
	}
	in := input(s)
	in.Cluster.DefaultType = rapid.SampledFrom([]string{regional, network}).Draw(t, "default type")
	in.Cluster.ID = rapid.SampledFrom([]string{"", "c1"}).Draw(t, "cluster")
	in.Cluster.VPC = rapid.SampledFrom([]string{"", "vpc"}).Draw(t, "VPC")
	in.Nodes, in.EndpointNodes = nil, map[string]bool{}
	for _, id := range rapid.SliceOfNDistinct(rapid.IntRange(1, 20), 1, 6, rapid.ID[int]).Draw(t, "nodes") {
		kinds := []*corev1.Node{v4(id), dual(id), node(id, fmt.Sprintf("int:10.0.0.%d", id)), node(id, fmt.Sprintf("ext:2001:db8::%d", id)), node(id)}
		n := rapid.SampledFrom(kinds).Draw(t, "kind")
		if rapid.IntRange(0, 4).Draw(t, "unnamed") == 0 {
			n.Spec.ProviderID = ""
			in.Droplets = append(in.Droplets, instance.Droplet{ID: id, Name: n.Name})
		}
		in.EndpointNodes[n.Name] = rapid.Bool().Draw(t, "has a pod")
		in.Nodes = append(in.Nodes, n)
	}
	return in
}

// attempt returns the result for an input, or skips the draw if it is refused.
func attempt(t *rapid.T, in loadbalancer.Input) loadbalancer.Result {
	result, err := loadbalancer.Desired(in)
	if err != nil {
		t.SkipNow()
	}
	return result
}

// Idempotent: what a request made does not differ from it, nor from what is asked for once the load balancer is there; and nothing is left to
// be written on the Service after it was written once.
func TestIdempotent(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		first := attempt(t, in)
		o := keeps(first.Request)
		if got := messages(loadbalancer.Diff(o, first.Request)); got != nil {
			t.Fatalf("differs from what made it: %q\nrequest %+v\nobserved %+v", got, first.Request, o)
		}
		in.Observed = &o
		second := must.Get(loadbalancer.Desired(in)).Or(t)
		want := first.Request
		if len(want.Tags) > 0 {
			want.Tags = append(slices.Clone(want.Tags), "somebody") // the tag that keeps gives it besides
		}
		if diff := cmp.Diff(want, second.Request); diff != "" && len(o.Tags) > 1 {
			t.Fatalf("the request for the load balancer there is (-first +second):\n%s", diff)
		}
		in.Service = in.Service.DeepCopy()
		maps.Copy(in.Service.Annotations, second.Annotate)
		if third := attempt(t, in); third.Annotate != nil || cmp.Diff(second.Request, third.Request) != "" {
			t.Fatalf("writes again: %v", third.Annotate)
		}
	})
}

// Order-blind: the order of Nodes and droplets changes the order of targets at most, and that of the load balancer's own lists changes nothing.
func TestOrderBlind(t *testing.T) {
	t.Parallel()
	sets := cmpopts.SortSlices(func(a, b int) bool { return a < b })
	cases.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		one, err := loadbalancer.Desired(in)
		in.Nodes, in.Droplets = rapid.Permutation(in.Nodes).Draw(t, "nodes again"), rapid.Permutation(in.Droplets).Draw(t, "droplets again")
		in.Service = in.Service.DeepCopy()
		in.Service.Spec.LoadBalancerSourceRanges = rapid.Permutation(in.Service.Spec.LoadBalancerSourceRanges).Draw(t, "ranges again")
		other, otherErr := loadbalancer.Desired(in)
		if (err == nil) != (otherErr == nil) {
			t.Fatalf("%v, then %v", err, otherErr)
		}
		if diff := cmp.Diff(one.Request, other.Request, sets) + cmp.Diff(one.Targets, other.Targets) + cmp.Diff(one.LeftOut, other.LeftOut); diff != "" && err == nil {
			t.Fatalf("(-one +other):\n%s", diff)
		}
		if err != nil {
			return
		}
		o := keeps(one.Request)
		if got := messages(loadbalancer.Diff(o, other.Request)); got != nil {
			t.Fatalf("%q", got)
		}
	})
}

// Minimal: every difference is one. If all others are made good, it alone is left.
func TestMinimal(t *testing.T) {
	t.Parallel()
	seen := map[loadbalancer.Field]bool{}
	cases.Check(t, func(t *rapid.T) {
		is, must := attempt(t, drawInput(t)), attempt(t, drawInput(t))
		o := keeps(is.Request)
		all := loadbalancer.Diff(o, must.Request)
		for _, d := range all {
			seen[d.Field] = true
			rest := o
			for _, other := range all {
				if !cmp.Equal(other, d) {
					rest = cured(rest, must.Request, other)
				}
			}
			if left := loadbalancer.Diff(rest, must.Request); len(left) != 1 || left[0].Message != d.Message {
				t.Fatalf("without %q there is left %q", d, messages(left))
			}
		}
		cure := o
		for _, d := range all {
			cure = cured(cure, must.Request, d)
		}
		if left := messages(loadbalancer.Diff(cure, must.Request)); left != nil {
			t.Fatalf("all was made good, and there is left %q", left)
		}
	})
	for _, field := range []loadbalancer.Field{loadbalancer.FieldDroplets, loadbalancer.FieldForwardingRule, loadbalancer.FieldHealthCheck, loadbalancer.FieldAllow} {
		if !seen[field] {
			t.Errorf("no difference of %s was drawn", field)
		}
	}
}

// cured makes one difference good.
func cured(o loadbalancer.Observed, r loadbalancer.Request, d loadbalancer.Difference) loadbalancer.Observed {
	good := keeps(r)
	drop := func(list []string, value string) []string {
		return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == value })
	}
	rule := func(list []string) []string {
		words := strings.Fields(d.Message) // "allow rule X is missing", "deny rule "" is not wanted"
		value := strings.Trim(words[2], `"`)
		if strings.HasSuffix(d.Message, "is missing") {
			return append(slices.Clone(list), value)
		}
		return drop(list, value)
	}
	firewall := loadbalancer.Firewall{}
	if o.Firewall != nil {
		firewall = *o.Firewall
	}
	switch d.Field {
	case loadbalancer.FieldName:
		o.Name = good.Name
	case loadbalancer.FieldType:
		o.Type = good.Type
	case loadbalancer.FieldNetwork:
		o.Network = good.Network
	case loadbalancer.FieldNetworkStack:
		o.NetworkStack = good.NetworkStack
	case loadbalancer.FieldRegion:
		o.Region = good.Region
	case loadbalancer.FieldVPC:
		o.VPC = good.VPC
	case loadbalancer.FieldSubnet:
		o.Subnet = good.Subnet
	case loadbalancer.FieldProject:
		o.Project = good.Project
	case loadbalancer.FieldCipherPolicy:
		o.TLSCipherPolicy = good.TLSCipherPolicy
	case loadbalancer.FieldSize:
		o.SizeSlug, o.SizeUnit = good.SizeSlug, good.SizeUnit
	case loadbalancer.FieldForwardingRule:
		if d.RuleMissing {
			o.ForwardingRules = append(slices.Clone(o.ForwardingRules), d.Rule)
		} else {
			o.ForwardingRules = slices.DeleteFunc(slices.Clone(o.ForwardingRules), func(r loadbalancer.ForwardingRule) bool { return r == d.Rule })
		}
	case loadbalancer.FieldHealthCheck:
		o.HealthCheck = good.HealthCheck
	case loadbalancer.FieldStickySessions:
		o.StickySessions = good.StickySessions
	case loadbalancer.FieldDroplets:
		o.DropletIDs = slices.DeleteFunc(append(slices.Clone(o.DropletIDs), d.Missing...), func(id int) bool { return slices.Contains(d.Unwanted, id) })
	case loadbalancer.FieldDropletTag:
		o.DropletTag = ""
	case loadbalancer.FieldTags:
		o.Tags = append(slices.Clone(o.Tags), r.Tags...)
	case loadbalancer.FieldRedirect:
		o.RedirectHTTPToHTTPS = r.RedirectHTTPToHTTPS
	case loadbalancer.FieldProxyProtocol:
		o.EnableProxyProtocol = r.EnableProxyProtocol
	case loadbalancer.FieldKeepalive:
		o.EnableBackendKeepalive = r.EnableBackendKeepalive
	case loadbalancer.FieldDNSRecords:
		o.DisableLetsEncryptDNSRecords = r.DisableLetsEncryptDNSRecords
	case loadbalancer.FieldIdleTimeout:
		o.HTTPIdleTimeoutSeconds = good.HTTPIdleTimeoutSeconds
	case loadbalancer.FieldAllow:
		firewall.Allow = rule(firewall.Allow)
		o.Firewall = &firewall
	case loadbalancer.FieldDeny:
		firewall.Deny = rule(firewall.Deny)
		o.Firewall = &firewall
	}
	return o
}

// Immutable fields never flip, whatever happens to Service, Nodes and configuration, and a load balancer that is ours stays ours.
func TestFixedFieldsNeverFlip(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		o := keeps(attempt(t, drawInput(t)).Request)
		later := drawInput(t)
		later.Observed = &o
		r := attempt(t, later).Request
		if r.Type != o.Type || r.Network != o.Network || r.NetworkStack != o.NetworkStack || r.Region != o.Region || r.VPC != "" && r.VPC != o.VPC {
			t.Fatalf("%+v\nasks to change %+v", r, o)
		}
		if later.Service.Annotations[annotation.Name] == "" && r.Name != o.Name {
			t.Fatalf("renames %q to %q unasked", o.Name, r.Name)
		}
		if fixed := loadbalancer.Curable(loadbalancer.Diff(o, r), loadbalancer.RemedyNone); len(fixed) > 0 {
			t.Fatalf("%q", messages(fixed))
		}
	})
}

// Nothing that was given is changed: the same values may be shared by many.
func TestDesiredIsPure(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		before := in.Service.DeepCopy()
		one, err := loadbalancer.Desired(in)
		two, again := loadbalancer.Desired(in)
		if diff := cmp.Diff(before, in.Service) + cmp.Diff(one, two) + cmp.Diff(fmt.Sprint(err), fmt.Sprint(again)); diff != "" {
			t.Fatal(diff)
		}
	})
}
