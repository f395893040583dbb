// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/docloud/admission"
	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

const (
	p  = annotation.Prefix
	id = "6e1f2a3b-0000-4000-8000-00000000000a"
)

// service is a Service of type LoadBalancer with TCP ports 80 and 443; pairs are annotations, whose names get the prefix unless they have a slash.
func service(pairs ...string) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9", Annotations: map[string]string{}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{
			{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, NodePort: 30080}, {Name: "https", Protocol: corev1.ProtocolTCP, Port: 443, NodePort: 30443},
		}},
	}
	for i := 0; i < len(pairs); i += 2 {
		name := pairs[i]
		if !strings.Contains(name, "/") {
			name = p + name
		}
		s.Annotations[name] = pairs[i+1]
	}
	return s
}

func with(s *corev1.Service, change func(*corev1.Service)) *corev1.Service { change(s); return s }

// What is not looked at, whatever stands in it.
func TestLeftAlone(t *testing.T) {
	t.Parallel()
	bad := func() *corev1.Service { return service("type", "GLOBAL") }
	class := "example.com/other"
	for name, r := range map[string]admission.Request{
		"a deletion":     {Operation: admissionv1.Delete, Old: bad()},
		"a connection":   {Operation: admissionv1.Connect, New: bad()},
		"a status":       {Operation: admissionv1.Update, Subresource: "status", Old: service(), New: bad()},
		"another type":   {Operation: admissionv1.Create, New: with(bad(), func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort })},
		"another class":  {Operation: admissionv1.Create, New: with(bad(), func(s *corev1.Service) { s.Spec.LoadBalancerClass = &class })},
		"disowned":       {Operation: admissionv1.Create, New: service("type", "GLOBAL", annotation.Disown, "1")},
		"going":          {Operation: admissionv1.Update, Old: service(), New: with(bad(), func(s *corev1.Service) { s.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} })},
		"the controller": {Operation: admissionv1.Update, User: admission.Controllers()[0], Old: service(), New: bad()},
		"nothing":        {Operation: admissionv1.Create},
		"unchanged":      {Operation: admissionv1.Update, Old: bad(), New: bad()},
		"a label":        {Operation: admissionv1.Update, Old: bad(), New: with(bad(), func(s *corev1.Service) { s.Labels = map[string]string{"a": "b"} })},
	} {
		if d := admission.Review(r); !d.Allowed() || len(d.Warnings) > 0 || d.Ask != nil {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// A change is refused for what it brings, not for what it finds, and what it leaves is said.
func TestChangesAreJudgedByWhatTheyBring(t *testing.T) {
	t.Parallel()
	const badType = `annotation ` + p + `type is "GLOBAL", it must be REGIONAL or REGIONAL_NETWORK`
	const badProxy = `annotation ` + p + `enable-proxy-protocol is "on", it must be true or false`
	for name, tc := range map[string]struct {
		old, new *corev1.Service
		want     admission.Decision
	}{
		"another mistake":       {service("type", "GLOBAL"), service("type", "GLOBAL", "enable-proxy-protocol", "on"), admission.Decision{Problems: []string{badProxy}, Warnings: []string{badType}}},
		"one of two is gone":    {service("type", "GLOBAL", "enable-proxy-protocol", "on"), service("type", "GLOBAL"), admission.Decision{Warnings: []string{badType}}},
		"another wrong value":   {service("enable-proxy-protocol", "off"), service("enable-proxy-protocol", "on"), admission.Decision{Problems: []string{badProxy}}},
		"it was disowned":       {service("type", "GLOBAL", annotation.Disown, "true"), service("type", "GLOBAL"), admission.Decision{Problems: []string{badType}}},
		"it was of another":     {with(service("type", "GLOBAL"), func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP }), service("type", "GLOBAL"), admission.Decision{Problems: []string{badType}}},
		"another type":          {service("type", "REGIONAL", annotation.LoadBalancerID, id), service("type", "REGIONAL_NETWORK", annotation.LoadBalancerID, id), admission.Decision{Problems: []string{`annotation ` + p + `type is "REGIONAL_NETWORK", but the load balancer is of type REGIONAL, which DigitalOcean does not change: only a new load balancer can have another`}}},
		"a warning that stands": {service("x", "1"), service("x", "1", "enable-proxy-protocol", "on"), admission.Decision{Problems: []string{badProxy}}},
	} {
		got := admission.Review(admission.Request{Operation: admissionv1.Update, Old: tc.old, New: tc.new})
		got.Ask = nil
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// DigitalOcean is asked about what would be sent and differs, and about the right load balancer.
func TestQuestions(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		old, new *corev1.Service
		asked    bool
		id       string
	}{
		"a new Service":                     {nil, service(), true, ""},
		"one that is handed over":           {nil, service(annotation.LoadBalancerID, id), true, id},
		"a change":                          {service(annotation.LoadBalancerID, id), service(annotation.LoadBalancerID, id, "size-unit", "2"), true, id},
		"a change, the ID is left out":      {service(annotation.LoadBalancerID, id), service("size-unit", "2"), true, id},
		"a mistake is put right":            {service("size-unit", "x"), service("size-unit", "1"), true, ""},
		"nothing that is sent":              {service(), service("hostname", "example.com", "example.com/x", "y"), false, ""},
		"a mistake":                         {nil, service("size-unit", "x"), false, ""},
		"a change alongside an old mistake": {service("size-slug", "x"), service("size-slug", "x", "enable-proxy-protocol", "1"), false, ""},
		"a port":                            {service(), with(service(), func(s *corev1.Service) { s.Spec.Ports[0].Port = 81 }), true, ""},
	} {
		operation := admissionv1.Update
		if tc.old == nil {
			operation = admissionv1.Create
		}
		d := admission.Review(admission.Request{Operation: operation, Old: tc.old, New: tc.new})
		if (d.Ask != nil) != tc.asked || d.Ask != nil && d.Ask.ID != tc.id {
			t.Errorf("%s: asked %+v, want %v about %q", name, d.Ask, tc.asked, tc.id)
		}
	}
}

// A draft is what the controller sends, but for Nodes: it has the droplets that are there, and lets DigitalOcean choose what follows from Nodes.
func TestDraft(t *testing.T) {
	t.Parallel()
	cluster := loadbalancer.Cluster{ID: "c", Region: "nyc1"}
	result, err := admission.Draft(loadbalancer.Input{Service: service(), Cluster: cluster})
	if r := result.Request; err != nil || r.NetworkStack != "" || r.DropletIDs != nil || r.Region != "nyc1" || len(r.ForwardingRules) != 2 || len(result.Warnings) > 0 {
		t.Errorf("a new one: %+v, %v", result, err)
	}
	for _, tc := range []struct{ network, stack, kind, want string }{
		{"INTERNAL", "", "", "IPV4"}, {"", "DUALSTACK", "", "DUALSTACK"}, {"", "IPV4", "", "IPV4"}, {"", "", "REGIONAL", "DUALSTACK"},
	} {
		result, err := admission.Draft(loadbalancer.Input{Service: service("network", tc.network, "network-stack", tc.stack, "type", tc.kind), Cluster: cluster})
		if err != nil || result.Request.NetworkStack != tc.want {
			t.Errorf("%+v: %q, %v", tc, result.Request.NetworkStack, err)
		}
	}
	observed := &loadbalancer.Observed{ID: id, Name: "web", Type: "REGIONAL_NETWORK", Network: "EXTERNAL", NetworkStack: "DUALSTACK", DropletIDs: []int{7, 8}}
	result, err = admission.Draft(loadbalancer.Input{Service: service(), Cluster: cluster, Observed: observed})
	if r := result.Request; err != nil || !slices.Equal(r.DropletIDs, []int{7, 8}) || r.NetworkStack != "DUALSTACK" || r.Name != "web" || len(result.Warnings) > 0 {
		t.Errorf("one that exists: %+v, %v", result, err)
	}
}

// Only a refusal refuses, and no response is a warning.
func TestAnswers(t *testing.T) {
	t.Parallel()
	d := admission.Decision{Warnings: []string{"w"}, Ask: &admission.Question{Before: []string{"old"}}}
	for name, tc := range map[string]struct {
		answer admission.Answer
		want   admission.Decision
	}{
		"taken":   {admission.Answer{Verdict: admission.VerdictTaken, Warnings: []string{"old", "w", "new"}}, admission.Decision{Warnings: []string{"w", "new"}}},
		"refused": {admission.Refused("no such thing."), admission.Decision{Problems: []string{"DigitalOcean refuses the load balancer: no such thing"}, Warnings: []string{"w"}}},
		"unknown": {admission.Unknown("it responds with 500"), admission.Decision{Warnings: []string{"w", "DigitalOcean was not queried whether it accepts this load balancer: it responds with 500"}}},
		"none":    {admission.Answer{}, admission.Decision{Warnings: []string{"w", "DigitalOcean was not queried whether it accepts this load balancer: "}}},
		"not a type that a Service can have": {
			admission.Wrong(loadbalancer.Result{}, fmt.Errorf("%w: x", loadbalancer.ErrNotOurs)),
			admission.Decision{Warnings: []string{"w", "DigitalOcean was not queried whether it accepts this load balancer: the service gets no load balancer from DigitalOcean: x"}},
		},
	} {
		if diff := cmp.Diff(tc.want, d.With(tc.answer)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Names and words that others hold.
func TestContract(t *testing.T) {
	t.Parallel()
	got := []string{string(admission.VerdictTaken), string(admission.VerdictRefused), string(admission.VerdictUnknown)}
	got = append(got, admission.Controllers()...)
	want := []string{"taken", "refused", "unknown", "system:serviceaccount:kube-system:cloud-controller-manager", "system:cloud-controller-manager"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// FuzzReview: whatever stands in annotations, a Service is refused if and only if the controller could not make its load balancer, in the same
// words, and the same Service again is never refused.
func FuzzReview(f *testing.F) {
	f.Add("type", "REGIONAL", "protocol", "https", false)
	f.Add("size-unit", "4294967297", "size-slug", "lb-small", false)
	f.Add("http-ports", "80,80", "healthcheck-port", "x", true)
	f.Fuzz(func(t *testing.T, name, value, other, another string, regional bool) {
		cluster := loadbalancer.Cluster{Region: "nyc1"}
		if regional {
			cluster.DefaultType = annotation.TypeRegional
		}
		s := service(name, value, other, another)
		if _, managed := s.Annotations[annotation.CertificateName]; managed {
			return
		}
		d := admission.Review(admission.Request{Operation: admissionv1.Create, New: s, Cluster: cluster})
		_, err := admission.Draft(loadbalancer.Input{Service: s, Cluster: cluster})
		if disowned, _ := annotation.IsDisowned(s.Annotations); disowned {
			err = nil
		}
		if (err == nil) != d.Allowed() || err != nil && err.Error() != d.Message() {
			t.Errorf("%q: the controller says %v, the webhook %q", s.Annotations, err, d.Message())
		}
		if again := admission.Review(admission.Request{Operation: admissionv1.Update, Old: s, New: s, Cluster: cluster}); !again.Allowed() || len(again.Warnings) > 0 || again.Ask != nil {
			t.Errorf("%q: the same again: %+v", s.Annotations, again)
		}
	})
}

// A change that only takes annotations away is refused for what that changes of others alone, never for what stayed wrong.
func TestNothingOldIsRefused(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		values := []string{"", "x", "80", "80,443", "443", "https", "true", "REGIONAL", "INTERNAL", "DUALSTACK", "cookies", "lb-small"}
		names := []string{"type", "protocol", "http-ports", "tls-ports", "network", "network-stack", "size-slug", "size-unit", "tls-passthrough", "http3-port", "healthcheck-port"}
		old := service()
		for _, name := range rapid.SliceOfN(rapid.SampledFrom(names), 0, 5).Draw(t, "names") {
			old.Annotations[p+name] = rapid.SampledFrom(values).Draw(t, name)
		}
		next := old.DeepCopy()
		next.Annotations[p+rapid.SampledFrom(names).Draw(t, "changed")] = rapid.SampledFrom(values).Draw(t, "value")
		d := admission.Review(admission.Request{Operation: admissionv1.Update, Old: old, New: next})
		before := admission.Review(admission.Request{Operation: admissionv1.Create, New: old})
		for _, problem := range d.Problems {
			if slices.Contains(before.Problems, problem) {
				t.Errorf("from %q to %q: refused for what was there: %s", old.Annotations, next.Annotations, problem)
			}
		}
	})
}
