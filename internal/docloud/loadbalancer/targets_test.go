// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
)

// labeled gives a Node labels.
func labeled(n *corev1.Node, pairs ...string) *corev1.Node {
	n.Labels = map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		n.Labels[pairs[i]] = pairs[i+1]
	}
	return n
}

// A Service chooses its Nodes by labels. None that matches is a problem, and so is what is not a selector.
func TestNodeSelector(t *testing.T) {
	t.Parallel()
	all := nodes(labeled(v4(1), "role", "edge"), labeled(v4(2), "role", "edge", "retired", ""), v4(3))
	for selector, want := range map[string][]int{
		"": {1, 2, 3}, "role=edge": {1, 2}, "role=edge,!retired": {1}, "role!=edge": {3}, "role in (edge,core)": {1, 2}, "retired": {2},
	} {
		in := input(service("node-selector", selector))
		in.Nodes = all
		if r := desired(t, in); !slices.Equal(r.DropletIDs, want) {
			t.Errorf("%q: %v, want %v", selector, r.DropletIDs, want)
		}
	}
	for selector, want := range map[string]string{
		"role=core": "no node is ready for the load balancer: node node-1 is not selected by annotation " + p + "node-selector, node node-2",
		"role=a b":  "annotation " + p + `node-selector is "role=a b", which is not a selector of labels: `,
		"!":         "which is not a selector of labels: ",
	} {
		in := input(service("node-selector", selector))
		in.Nodes = all
		if _, err := loadbalancer.Desired(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", selector, err, want)
		}
	}
}

// With externalTrafficPolicy Local and the annotation, targets are where endpoints are; without endpoints, or without knowing, all Nodes are.
func TestLocalTargetsOnly(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		asked  string
		policy corev1.ServiceExternalTrafficPolicy
		where  map[string]bool
		want   []int
		warned bool
	}{
		"where endpoints are":        {"true", corev1.ServiceExternalTrafficPolicyLocal, map[string]bool{"node-2": true, "gone": true}, []int{2}, false},
		"not asked for":              {"false", corev1.ServiceExternalTrafficPolicyLocal, map[string]bool{"node-2": true}, []int{1, 2, 3}, false},
		"no endpoints":               {"true", corev1.ServiceExternalTrafficPolicyLocal, map[string]bool{}, []int{1, 2, 3}, false},
		"endpoints are not known":    {"true", corev1.ServiceExternalTrafficPolicyLocal, nil, []int{1, 2, 3}, false},
		"endpoints on machines gone": {"true", corev1.ServiceExternalTrafficPolicyLocal, map[string]bool{"gone": true}, []int{1, 2, 3}, false},
		"any node serves":            {"true", corev1.ServiceExternalTrafficPolicyCluster, map[string]bool{"node-2": true}, []int{1, 2, 3}, true},
	} {
		in := input(service("local-targets-only", tt.asked))
		in.Service.Spec.ExternalTrafficPolicy, in.EndpointNodes = tt.policy, tt.where
		result, err := loadbalancer.Desired(in)
		if err != nil || !slices.Equal(result.Request.DropletIDs, tt.want) || (len(result.Warnings) > 0) != tt.warned {
			t.Errorf("%s: %v, %v, %v", name, result.Request.DropletIDs, result.Warnings, err)
		}
		if asks := tt.asked == "true" && tt.policy == corev1.ServiceExternalTrafficPolicyLocal; loadbalancer.NeedsOf(in).Endpoints != asks {
			t.Errorf("%s: endpoints are needed: %t", name, !asks)
		}
	}
}

// A machine that is private on purpose is left out of external load balancers without a warning.
func TestPrivateNodesAreNoNews(t *testing.T) {
	t.Parallel()
	for value, warns := range map[string]bool{"private": false, "public": true, "": true} {
		w := loadbalancer.World{
			Service: service("type", network), Nodes: nodes(v4(1), labeled(node(2, "int:10.0.0.2"), loadbalancer.NetworkTypeLabel, value)), Cluster: input(nil).Cluster,
			List: loadbalancer.Reading[loadbalancer.Observed]{Met: &loadbalancer.Demand{}},
		}
		w.Service.Finalizers = []string{loadbalancer.Finalizer}
		plan := loadbalancer.MakePlan(w)
		warned := slices.ContainsFunc(plan.Notes, func(n loadbalancer.Note) bool {
			return n.Reason == loadbalancer.ReasonLeftOut && strings.Contains(n.Message, "node-2")
		})
		if warned != warns {
			t.Errorf("%q: %v", value, plan.Notes)
		}
	}
	if loadbalancer.NetworkTypeLabel != "doks.digitalocean.com/node-network-type" {
		t.Error("existing Nodes carry the label")
	}
}

// A policy of cipher suites that nobody asks for is the one that there is, and nothing is sent for the default one: the upstream project sends none.
func TestCipherPolicy(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ asked, is, sent, differs string }{
		"none asked for":            {},
		"none asked for, default":   {is: "DEFAULT"},
		"none asked for, strong":    {is: "STRONG", sent: "STRONG"},
		"strong asked for":          {asked: "STRONG", is: "DEFAULT", sent: "STRONG", differs: "tls_cipher_policy, update: the policy of cipher suites is DEFAULT instead of STRONG"},
		"strong asked for, unknown": {asked: "STRONG", sent: "STRONG", differs: "tls_cipher_policy, update: the policy of cipher suites is DEFAULT instead of STRONG"},
		"default asked for":         {asked: "DEFAULT", is: "STRONG", sent: "DEFAULT", differs: "tls_cipher_policy, update: the policy of cipher suites is STRONG instead of DEFAULT"},
		"as asked for":              {asked: "STRONG", is: "STRONG", sent: "STRONG"},
	} {
		in := input(service("tls-cipher-policy", tt.asked))
		o := keeps(desired(t, input(service())))
		o.TLSCipherPolicy = tt.is
		in.Observed = &o
		r := desired(t, in)
		if got := strings.Join(messages(loadbalancer.Diff(o, r)), ";"); r.TLSCipherPolicy != tt.sent || got != tt.differs {
			t.Errorf("%s: %q is sent, %q", name, r.TLSCipherPolicy, got)
		}
	}
	_, err := loadbalancer.Desired(input(service("tls-cipher-policy", "WEAK")))
	if problem := (*annotation.Error)(nil); !errors.As(err, &problem) || problem.Annotation != annotation.TLSCipherPolicy {
		t.Error(err)
	}
}
