// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package predecessor_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/firewall"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// canonicalFirewall writes a request with its rules in a fixed order, each once; all else stays as it is, down to fields that are left out.
func canonicalFirewall(t *testing.T, request []byte) []byte {
	t.Helper()
	var fields map[string]json.RawMessage
	must.Do(t, json.Unmarshal(request, &fields))
	for _, list := range []string{"inbound_rules", "outbound_rules"} {
		var rules []json.RawMessage
		must.Do(t, json.Unmarshal(fields[list], &rules))
		for i := range rules {
			var compact bytes.Buffer
			must.Do(t, json.Compact(&compact, rules[i]))
			rules[i] = compact.Bytes()
		}
		slices.SortFunc(rules, func(a, b json.RawMessage) int { return bytes.Compare(a, b) })
		rules = slices.CompactFunc(rules, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) })
		var err error
		if fields[list], err = json.Marshal(rules); err != nil {
			t.Fatal(err)
		}
	}
	out := must.Get(json.Marshal(fields)).Or(t)
	return out
}

// firewallWaiver is a way in which the firewall differs on purpose. Like those of droplets it is a rule, and no list of names.
type firewallWaiver struct {
	reason  string
	applies func(*corev1.Service) bool
}

// firewallWaivers is the one list of them. They apply to vectors that the upstream project answers.
func firewallWaivers() []firewallWaiver {
	balancer := func(s *corev1.Service) bool { return s.Spec.Type == corev1.ServiceTypeLoadBalancer }
	return []firewallWaiver{
		{
			reason: "the upstream project opens the ports of a load balancer to everybody although the Service names source ranges (its issue 911); Mooring opens " +
				"them for those, and for nobody where one cannot be read",
			applies: func(s *corev1.Service) bool {
				return balancer(s) && (len(s.Spec.LoadBalancerSourceRanges) > 0 || s.Annotations[annotation.AllowRules] != "")
			},
		},
		{
			reason: "the upstream project respects the annotation firewall-managed of Services of type NodePort only (its issue 911); Mooring respects it for load balancers too",
			applies: func(s *corev1.Service) bool {
				managed, _ := annotation.IsFirewallManaged(s.Annotations)
				return balancer(s) && !managed
			},
		},
	}
}

// waivedFirewall returns the reason why a vector may be answered differently, empty if it may not.
func waivedFirewall(t *testing.T, v firewallVector) string {
	t.Helper()
	if v.Error != "" {
		return ""
	}
	for _, w := range firewallWaivers() {
		for _, raw := range v.Services {
			if w.applies(decode[corev1.Service](t, raw)) {
				return w.reason
			}
		}
	}
	return ""
}

// The waivers have reasons and are needed; and without what they are about, a waived vector is answered as the upstream project does, so
// that a waiver hides nothing else.
func TestFirewallWaivers(t *testing.T) {
	t.Parallel()
	all := loadFirewallVectors(t)
	for _, w := range firewallWaivers() {
		needed, applies := 0, 0
		for i, v := range all.Vectors {
			in := all.input(t, v)
			if v.Error != "" || !slices.ContainsFunc(in.Services, w.applies) {
				continue
			}
			applies++
			result := firewall.Desired(in)
			if compareFirewall(t, v, result.Request, len(result.Problems) > 0) != "" {
				needed++
			}
			for _, s := range in.Services {
				s.Spec.LoadBalancerSourceRanges = nil
				delete(s.Annotations, annotation.AllowRules)
				delete(s.Annotations, annotation.FirewallManaged)
			}
			result = firewall.Desired(in)
			if problem := compareFirewall(t, v, result.Request, len(result.Problems) > 0); problem != "" {
				t.Errorf("%s differs in more than the waiver says: %s", v.title(i), problem)
			}
		}
		if applies > 0 && needed == 0 || w.reason == "" {
			t.Errorf("the waiver with the reason %q is not needed: take it from the list", w.reason)
		}
		t.Logf("%d of %d vectors need: %s", needed, len(all.Vectors), w.reason)
	}
}
