// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package firewall_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/firewall"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// made is the firewall that a request makes, as DigitalOcean shows it: "0" for all ports.
func made(r firewall.Request) firewall.Observed {
	o := firewall.Observed{ID: "f", Name: r.Name, DropletIDs: r.DropletIDs, Tags: append([]string{}, r.Tags...)}
	show := func(protocol, ports string) string {
		if protocol == "icmp" || ports == "all" || ports == "" {
			return "0"
		}
		return ports
	}
	for _, rule := range r.InboundRules {
		rule.Ports = show(rule.Protocol, rule.Ports)
		o.InboundRules = append(o.InboundRules, rule)
	}
	for _, rule := range r.OutboundRules {
		rule.Ports = show(rule.Protocol, rule.Ports)
		o.OutboundRules = append(o.OutboundRules, rule)
	}
	return o
}

func TestDiff(t *testing.T) {
	t.Parallel()
	request := firewall.Desired(firewall.Input{Config: config(), Services: []*corev1.Service{service(corev1.ServiceTypeLoadBalancer, with(annotation.LoadBalancerID, "lb-1"))}}).Request
	for name, tt := range map[string]struct {
		change func(*firewall.Observed)
		want   string
		closes bool
	}{
		"nothing": {func(*firewall.Observed) {}, "", false},
		"order and grouping": {func(o *firewall.Observed) {
			slices.Reverse(o.InboundRules)
			slices.Reverse(o.OutboundRules)
			o.InboundRules = append(o.InboundRules, firewall.InboundRule{Protocol: "tcp", Ports: "80-80", Sources: firewall.Peers{Addresses: []string{"0.0.0.0/0"}}})
		}, "", false},
		"what is not shown": {func(o *firewall.Observed) { o.Tags, o.DropletIDs = nil, nil }, "", false},
		"the case of tags":  {func(o *firewall.Observed) { o.Tags = []string{"K8S:Worker"} }, "", false},
		"droplets":          {func(o *firewall.Observed) { o.DropletIDs = []int{1} }, "", false},
		"the name":          {func(o *firewall.Observed) { o.Name = "x" }, `the name is "x" instead of "k8s-fw"`, false},
		"a missing rule": {func(o *firewall.Observed) { o.InboundRules = o.InboundRules[1:] },
			"inbound tcp 80 from 0.0.0.0/0 is missing; inbound tcp 80 from ::/0 is missing", false},
		"a rule too many": {func(o *firewall.Observed) {
			o.InboundRules = append(o.InboundRules, firewall.InboundRule{Protocol: "udp", Ports: "53", Sources: firewall.Peers{KubernetesIDs: []string{"k"}}})
		}, "inbound udp 53 from Kubernetes cluster k is not wanted", true},
		"another source":   {func(o *firewall.Observed) { o.InboundRules[0].Sources.Tags = []string{"ops"} }, "inbound tcp 80 from tag ops is not wanted", true},
		"another droplet":  {func(o *firewall.Observed) { o.InboundRules[0].Sources.DropletIDs = []int{4} }, "inbound tcp 80 from droplet 4 is not wanted", true},
		"no way out":       {func(o *firewall.Observed) { o.OutboundRules = o.OutboundRules[:2] }, "outbound icmp to 0.0.0.0/0 is missing; outbound icmp to ::/0 is missing", false},
		"another way out":  {func(o *firewall.Observed) { o.OutboundRules[0].Destinations.Tags = []string{"a"} }, "outbound tcp to tag a is not wanted", true},
		"the wrong tags":   {func(o *firewall.Observed) { o.Tags = []string{"a"} }, "tag k8s:worker is missing; tag a is not wanted", true},
		"none of the tags": {func(o *firewall.Observed) { o.Tags = []string{} }, "tag k8s:worker is missing", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			copied := request
			copied.InboundRules, copied.OutboundRules = slices.Clone(request.InboundRules), slices.Clone(request.OutboundRules)
			o := made(copied)
			tt.change(&o)
			all := firewall.Diff(o, request)
			texts := make([]string, len(all))
			for i, d := range all {
				texts[i] = d.String()
			}
			if got := strings.Join(texts, "; "); got != tt.want || firewall.Closes(all) != tt.closes {
				t.Errorf("%q (closes: %v), want %q (%v)", got, firewall.Closes(all), tt.want, tt.closes)
			}
			if len(firewall.Except(all, all)) != 0 || len(firewall.Except(all, nil)) != len(all) {
				t.Error("Except does not take away what is known")
			}
		})
	}
}

func TestOurs(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		tags     []string
		droplets []int
		ours     bool
		why      string
	}{
		"our tag":                     {[]string{"K8S:worker"}, nil, true, ""},
		"our tag and others":          {[]string{"a", "k8s:worker"}, []int{1}, true, ""},
		"nobody's":                    {[]string{}, nil, true, ""},
		"tags are not shown":          {nil, []int{1}, true, ""},
		"another cluster's":           {[]string{"k8s:other"}, nil, false, "covers droplets with the tag k8s:other, and not k8s:worker"},
		"somebody's for some machine": {[]string{}, []int{1}, false, "covers single droplets and no tag"},
	} {
		ours, why := firewall.Ours(firewall.Observed{ID: "f", Name: "k8s-fw", Tags: tt.tags, DropletIDs: tt.droplets}, config())
		if ours != tt.ours || !strings.Contains(why, tt.why) || !ours && !strings.Contains(why, "give it the tag k8s:worker to hand it over") {
			t.Errorf("%s: %v, %q", name, ours, why)
		}
	}
}

// drawService draws a Service that may be wrong in any way that matters.
func drawService(t *rapid.T, name string) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, Annotations: map[string]string{}},
		Spec: corev1.ServiceSpec{Type: rapid.SampledFrom([]corev1.ServiceType{
			corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeLoadBalancer,
		}).Draw(t, "type")},
	}
	for range rapid.IntRange(0, 3).Draw(t, "ports") {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
			Protocol: rapid.SampledFrom([]corev1.Protocol{"TCP", "UDP", "SCTP"}).Draw(t, "protocol"),
			Port:     rapid.Int32Range(80, 84).Draw(t, "port"), NodePort: rapid.Int32Range(30000, 30005).Draw(t, "node port"),
		})
	}
	for _, choice := range [][]string{
		{annotation.Type, "REGIONAL", "REGIONAL_NETWORK", "GLOBAL"}, {annotation.Network, "EXTERNAL", "INTERNAL", "PUBLIC"},
		{annotation.LoadBalancerID, "lb-1", "lb-2"}, {annotation.FirewallManaged, "true", "false", "x"}, {annotation.AllowRules, "ip:192.0.2.1", "x"},
		{annotation.OverrideHealthCheck, ""}, {annotation.HealthCheckPort, "80", "90"},
	} {
		if value := rapid.SampledFrom(append(choice[1:], "-", "-", "-")).Draw(t, choice[0]); value != "-" {
			s.Annotations[choice[0]] = value
		}
	}
	s.Spec.LoadBalancerSourceRanges = rapid.SampledFrom([][]string{nil, nil, {"192.0.2.0/24"}, {"x"}}).Draw(t, "ranges")
	return s
}

func drawInput(t *rapid.T) firewall.Input {
	in := firewall.Input{Config: config()}
	in.Config.DefaultType = rapid.SampledFrom([]string{"", "REGIONAL"}).Draw(t, "default")
	for i := range rapid.IntRange(0, 4).Draw(t, "services") {
		in.Services = append(in.Services, drawService(t, fmt.Sprint("s", i)))
	}
	if rapid.Bool().Draw(t, "there is one") {
		before := firewall.Input{Config: in.Config}
		for i := range rapid.IntRange(0, 3).Draw(t, "earlier services") {
			before.Services = append(before.Services, drawService(t, fmt.Sprint("s", i)))
		}
		o := made(firewall.Desired(before).Request)
		o.DropletIDs = rapid.SampledFrom([][]int{nil, {1}, {2, 1}}).Draw(t, "droplets")
		in.Observed = &o
	}
	return in
}

func encode(t *rapid.T, v any) string {
	data := must.Get(json.Marshal(v)).Or(t)
	return string(data)
}

// The laws of a planner: what is made by a request does not differ from it and is asked for again; the order of Services does not matter; a bad
// Service changes nothing for the others, and nothing that was open for it is closed.
func TestLaws(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		result := firewall.Desired(in)
		after := made(result.Request)
		if d := firewall.Diff(after, result.Request); len(d) > 0 {
			t.Fatalf("not idempotent: %v", d)
		}
		again := in
		again.Observed = &after
		if got := firewall.Desired(again); encode(t, got.Request) != encode(t, result.Request) {
			t.Fatalf("does not converge: %s, then %s", encode(t, result.Request), encode(t, got.Request))
		}
		shuffled := in
		shuffled.Services = rapid.Permutation(in.Services).Draw(t, "order")
		if in.Observed != nil {
			o := *in.Observed
			o.InboundRules = rapid.Permutation(o.InboundRules).Draw(t, "rules")
			shuffled.Observed = &o
		}
		if encode(t, firewall.Desired(shuffled).Request) != encode(t, result.Request) {
			t.Fatal("the order matters")
		}
		good := firewall.Input{Config: in.Config, Services: slices.DeleteFunc(slices.Clone(in.Services), func(s *corev1.Service) bool {
			return slices.ContainsFunc(result.Problems, func(p firewall.Problem) bool { return p.Service == s })
		})}
		for _, d := range firewall.Diff(after, firewall.Desired(good).Request) {
			if !d.Closes {
				t.Fatalf("a bad Service takes away: %v", d)
			}
		}
		if in.Observed == nil {
			return
		}
		for _, p := range result.Problems {
			for _, r := range p.Kept {
				if !strings.Contains(rules(in.Observed.InboundRules), r.String()) {
					t.Fatalf("%v is kept and was not there", r)
				}
			}
		}
	})
}

// FuzzSources: whatever stands in an allow rule or a range, nothing panics, and what is opened is what was written.
func FuzzSources(f *testing.F) {
	for _, s := range []string{"ip:192.0.2.1", "cidr:192.0.2.0/24", "ip:::1", "cidr:::/0", "x", "ip:fe80::1%eth0", "cidr:010.0.0.0/8", "ip:,cidr:"} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, rule, source string) {
		for _, s := range []*corev1.Service{
			service(corev1.ServiceTypeLoadBalancer, with(annotation.AllowRules, rule)), service(corev1.ServiceTypeLoadBalancer, ranges(source)),
		} {
			result := firewall.Desired(firewall.Input{Config: config(), Services: []*corev1.Service{s}})
			if (len(result.Problems) == 0) == (len(result.Request.InboundRules) == 0) {
				t.Errorf("rules %v with problems %v", result.Request.InboundRules, result.Problems)
			}
			after := made(result.Request)
			if d := firewall.Diff(after, result.Request); len(d) > 0 {
				t.Errorf("differs from itself: %v", d)
			}
		}
	})
}
