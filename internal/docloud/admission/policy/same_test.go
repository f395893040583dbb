// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/docloud/admission"
	"github.com/mooring-dev/mooring/internal/docloud/admission/policy"
	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// values are what may stand in any annotation: right ones of every form, wrong ones, and those at the edges.
func values() []string {
	yes, no := annotation.Booleans()
	fixed := []string{
		"", " ", "true ", "TrUe", "yes", "no", "on", "x", "none", "cookies", "REGIONAL", "REGIONAL_NETWORK", "regional", "EXTERNAL", "INTERNAL", "IPV4", "DUALSTACK",
		"tcp", "udp", "http", "https", "http2", "http3", "lb-small", "lb-large", "lb-xl", "round_robin", "least_connections",
		"0", "-0", "+0", "00", "-1", "1", "+1", "01", "007", "1.0", "1e3", "0x10", "1_000", "-5", "3", "10", "11", "29", "30", "53", "80", "443", "8443", "600", "601", "100", "101",
		"2147483648", "4294967296", "4294967297", "4294967376", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809",
		"18446744073709551615", "18446744073709551616", "000000000000000000000000000000000080", "٣", "８０",
		"80,443", "443,80", "80, 443", "80,,443", ",", "80,", "80,80", "443,443,80,80", "80,443,80", "80,443,8443", "+80,080", "-80", "a,b",
		"\"quoted\"", "a\\b", "tab\there", "line\nbreak", "ünïcode", strings.Repeat("9", 120), strings.Repeat("8", policy.Judged),
		"web.example.com", "*.example.com,Example.com,example.com", "a..example", "a.example,*", strings.Repeat("a", 63) + ".example", strings.Repeat("a", 64) + ".example",
		strings.Repeat("a.", 125) + "abc", strings.Repeat("a.", 125) + "abcd", "4DE7ac8b-495b-4884-9a69-1050c6793cd6", "4de7ac8b-495b-4884-9a69-1050c6793cd6 ",
		"ip:192.0.2.1", "cidr:192.0.2.0/24",
	}
	return slices.Concat(fixed, yes, no)
}

// portsets are what a Service may forward.
func portsets() [][]corev1.ServicePort {
	port := func(protocol corev1.Protocol, number int32) corev1.ServicePort {
		return corev1.ServicePort{Name: strings.ToLower(fmt.Sprintf("%s-%d", protocol, number)), Protocol: protocol, Port: number}
	}
	const tcp, udp, sctp = corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP
	return [][]corev1.ServicePort{
		{port(tcp, 80), port(tcp, 443)}, {port(tcp, 80)}, {port(udp, 53)}, {port(udp, 443), port(tcp, 443), port(tcp, 8443)}, {port(tcp, 80), port(sctp, 9999)},
		{port(tcp, 53), port(udp, 53)}, {port(sctp, 80)},
	}
}

// judged are the names of annotations in the order of the table.
func judged() []string {
	var names []string
	for _, e := range annotation.Table() {
		names = append(names, e.Name)
	}
	return names
}

// single are Services with one annotation each, of both types: every name that has a form with every value.
func single() []*corev1.Service {
	var all []*corev1.Service
	for _, name := range judged() {
		text := annotation.FormOf(name).Kind == annotation.KindText
		for i, value := range values() {
			if text && i%4 != 0 {
				continue // what is any text is not judged by itself: TLS, sticky sessions and the like are in the combinations
			}
			s := service("web", "type", annotation.TypeRegional, "override-health-check", "")
			s.Annotations[name] = value
			all = append(all, s)
			if !text {
				other := service("web")
				other.Annotations[name] = value
				all = append(all, other)
			}
		}
	}
	return all
}

// random is a Service with some annotations, more often those that have to do with each other, and more often with values that are right.
func random(r *rand.Rand) *corev1.Service {
	s := service("web")
	s.Spec.Ports = portsets()[r.IntN(len(portsets()))]
	names, all := judged(), values()
	for range r.IntN(7) {
		name := names[r.IntN(len(names))]
		value := all[r.IntN(len(all))]
		form := annotation.FormOf(name)
		switch yes, no := annotation.Booleans(); {
		case r.IntN(3) == 0:
		case form.Kind == annotation.KindChoice && len(form.Choices) > 0:
			value = form.Choices[r.IntN(len(form.Choices))]
		case form.Kind == annotation.KindBoolean:
			value = append(yes, no...)[r.IntN(len(yes)+len(no))]
		case form.Kind == annotation.KindPorts, name == annotation.HTTP3Port, name == annotation.HealthCheckPort:
			value = []string{"80", "443", "53", "8443", "80,443", "443,80", "8443,443"}[r.IntN(7)]
		case form.Kind != annotation.KindText:
			value = []string{"1", "3", "10", "100"}[r.IntN(4)]
		}
		s.Annotations[name] = value
	}
	for _, likely := range []struct {
		name, value string
		in          int
	}{
		{annotation.Type, annotation.TypeRegional, 2}, {annotation.Protocol, annotation.ProtocolHTTPS, 4}, {annotation.CertificateID, "c", 3}, {annotation.CertificateName, "n", 5}, {annotation.CertificateDomains, "a.example,b.example", 6},
		{annotation.TLSPassthrough, "true", 4}, {annotation.TLSPorts, "443", 3}, {annotation.HTTP3Port, "443", 5}, {annotation.OverrideHealthCheck, "", 3},
		{annotation.HealthCheckPort, "80", 4}, {annotation.StickySessionsType, annotation.StickyCookies, 4}, {annotation.SizeSlug, annotation.SizeSmall, 5},
		{annotation.SizeUnit, "2", 4}, {annotation.Network, annotation.NetworkInternal, 4}, {annotation.NetworkStack, annotation.StackDual, 4}, {annotation.Disown, "true", 20},
	} {
		if r.IntN(likely.in) == 0 {
			s.Annotations[likely.name] = likely.value
		}
	}
	return s
}

// review is what package admission decides, its sentences sorted.
func review(r admission.Request) (problems, warnings []string) {
	d := admission.Review(r)
	slices.Sort(d.Problems)
	return d.Problems, d.Warnings
}

// The policy refuses what package admission refuses, in the same words, for every name with every value (for a change: with each fifth) and for
// combinations of them; what it warns of is among the warnings there.
func TestThePolicyRefusesWhatTheWebhookRefuses(t *testing.T) { //nolint:paralleltest // policies apply to the whole cluster
	s := connect(t, controlplane.Shared(t), "")
	defer install(t, s, annotation.TypeRegionalNetwork)()
	r, step := cases.Rand(t), cases.Number(t, 15, 1, 1)
	offset := r.IntN(step)
	var all []*corev1.Service
	for i, one := range single() {
		if (i+offset)%step == 0 {
			all = append(all, one)
		}
	}
	for range cases.Number(t, 100, 1500, 5000) {
		all = append(all, random(r))
	}
	refused, warned := 0, 0
	for _, one := range all {
		want, known := review(admission.Request{Operation: admissionv1.Create, New: one})
		s.heard()
		got := refusal(t, s.try(t.Context(), one))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("annotations %q, ports %v (- webhook, + policy):\n%s", one.Annotations, one.Spec.Ports, diff)
		}
		if len(got) > 0 {
			refused++
			continue
		}
		for _, sentence := range s.said(t) {
			warned++
			if !slices.ContainsFunc(known, func(k string) bool { return strings.HasPrefix(k, sentence) }) {
				t.Errorf("annotations %q: the policy warns %q, the webhook %q", one.Annotations, sentence, known)
			}
		}
	}
	t.Logf("%d Services: %d refused, %d warnings", len(all), refused, warned)
	if refused < len(all)/10 || refused > len(all)*9/10 || warned == 0 {
		t.Errorf("of %d Services %d are refused, %d warnings: these show little", len(all), refused, warned)
	}
}

// said are the sentences of the policy of doubts since the last request.
func (s *server) said(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, warning := range s.heard() {
		_, sentences, ok := strings.Cut(warning, "with binding '"+policy.Doubts+"': ")
		if !ok {
			continue // the API server's own
		}
		out = append(out, strings.Split(sentences, "; ")...)
	}
	return out
}

// Changes of Services that were there before the policies, right or wrong: the same decisions.
func TestThePolicyRefusesTheChangesThatTheWebhookRefuses(t *testing.T) { //nolint:paralleltest // policies apply to the whole cluster
	s := connect(t, controlplane.Shared(t), "")
	r := cases.Rand(t)
	var before []*corev1.Service
	for i := range cases.Number(t, 50, 150, 500) {
		one := random(r)
		one.Name = fmt.Sprintf("web-%d", i)
		if i%3 == 0 {
			one.Annotations[annotation.LoadBalancerID] = "6e1f2a3b-0000-4000-8000-00000000000a"
			one.Annotations[annotation.Type] = annotation.TypeRegional
		}
		if i%11 == 0 {
			one.Spec.Type = corev1.ServiceTypeClusterIP
		}
		created := must.Get(s.CoreV1().Services("default").Create(t.Context(), one, metav1.CreateOptions{})).Or(t)
		before = append(before, created)
	}
	defer install(t, s, annotation.TypeRegional)()
	cluster := loadbalancer.Cluster{DefaultType: annotation.TypeRegional}
	refused, changes := 0, 0
	for _, old := range before {
		for range 8 {
			next := changed(r, old)
			want, _ := review(admission.Request{Operation: admissionv1.Update, New: next, Old: old, Cluster: cluster})
			got := refusal(t, s.change(t.Context(), next))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("from %q to %q (- webhook, + policy):\n%s", old.Annotations, next.Annotations, diff)
			}
			changes++
			if len(got) > 0 {
				refused++
			}
		}
	}
	t.Logf("%d changes, %d refused", changes, refused)
	if refused == 0 || refused == changes {
		t.Error("these show nothing")
	}
}

// changed is a Service after somebody has changed some of it.
func changed(r *rand.Rand, old *corev1.Service) *corev1.Service {
	next := old.DeepCopy()
	next.Spec.Type = corev1.ServiceTypeLoadBalancer
	other := random(r)
	names := slices.Sorted(maps.Keys(other.Annotations))
	r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names[:r.IntN(len(names)+1)] {
		if next.Annotations == nil {
			next.Annotations = map[string]string{}
		}
		next.Annotations[name] = other.Annotations[name]
	}
	for _, name := range slices.Sorted(maps.Keys(old.Annotations)) {
		if r.IntN(5) == 0 {
			delete(next.Annotations, name)
		}
	}
	if r.IntN(4) == 0 {
		next.Spec.Ports = other.Spec.Ports
	}
	return next
}
