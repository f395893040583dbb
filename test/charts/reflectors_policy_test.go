// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package charts_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/test/objects"
)

// TestReflectorsPolicies compares the chart's policies with those of the manifests, and looks for what the values make of them.
func TestReflectorsPolicies(t *testing.T) {
	t.Parallel()
	specs := func(all []*unstructured.Unstructured) map[string]admissionregistrationv1.ValidatingAdmissionPolicySpec {
		out := map[string]admissionregistrationv1.ValidatingAdmissionPolicySpec{}
		bound := map[string]bool{}
		for _, b := range objects.OfKind[admissionregistrationv1.ValidatingAdmissionPolicyBinding](t, all, "ValidatingAdmissionPolicyBinding") {
			bound[b.Spec.PolicyName] = true
		}
		for _, p := range objects.OfKind[admissionregistrationv1.ValidatingAdmissionPolicy](t, all, "ValidatingAdmissionPolicy") {
			if !bound[p.Name] {
				t.Errorf("nothing binds %s", p.Name)
			}
			out[p.Name] = p.Spec
		}
		return out
	}
	const file, roles, peers = "dist/calico-route-reflector-operator-kubernetes.yaml", "calico-route-reflector-operator-node-roles", "calico-route-reflector-operator-bgp-peers"
	content := must.Get(os.ReadFile(filepath.Join(testkit.Root(t), file))).Or(t)
	want := specs(objects.Parse(t, file, content))
	have := specs(render(t, namespace, `calicoRouteReflectorOperator: {enabled: true}`))
	if diff := cmp.Diff(want, have); diff != "" || len(want) != 2 {
		t.Errorf("- manifests, + chart:\n%s", diff)
	}
	elsewhere := specs(render(t, "net", `calicoRouteReflectorOperator:
  enabled: true
  bgpPeerPolicy: {accounts: ["system:serviceaccount:velero:velero", "jane@example.com"]}
  nodeRolePolicy: {accounts: ["system:serviceaccount:velero:velero", "jane@example.com"]}
`))
	for _, account := range []string{"system:serviceaccount:net:calico-route-reflector-operator", "system:serviceaccount:velero:velero", "jane@example.com"} {
		for _, policy := range []string{peers, roles} {
			if text := elsewhere[policy].MatchConditions[0].Expression; !strings.Contains(text, `"`+account+`"`) {
				t.Errorf("%s lets %s not pass: %s", policy, account, text)
			}
		}
	}
	off := specs(render(t, namespace, `calicoRouteReflectorOperator: {enabled: true, bgpPeerPolicy: {enabled: false}}`))
	if _, has := off[roles]; len(off) != 1 || !has {
		t.Errorf("switched off, there are %d policies", len(off))
	}
	if etcd := specs(render(t, namespace, reflectorsScenarios()["etcdv3"])); len(etcd) != 0 {
		t.Errorf("with etcd there are %d policies", len(etcd))
	}
}
