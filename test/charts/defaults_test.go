// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package charts_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/mooring-dev/mooring/internal/docloud/admission/policy"
	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/defaults"
	"github.com/mooring-dev/mooring/test/objects"
)

const valuesWithDefaults = `
digitaloceanCloudControllerManager:
  enabled: true
  loadBalancerDefaults:
    service.beta.kubernetes.io/do-loadbalancer-size-unit: "2"
    service.beta.kubernetes.io/do-loadbalancer-allow-rules: "ip:192.0.2.1,cidr:10.0.0.0/8"
    service.beta.kubernetes.io/do-loadbalancer-certificate-domains: "*.example.com"
  admission:
    policies: {enabled: true}
    server: {enabled: true, certificates: {certManager: true}}
`

// TestDefaultsReachAllWhoDecide: the two programs read the same defaults, and the policies know their names.
func TestDefaultsReachAllWhoDecide(t *testing.T) {
	t.Parallel()
	want := annotation.Defaults{annotation.SizeUnit: "2", annotation.AllowRules: "ip:192.0.2.1,cidr:10.0.0.0/8", annotation.CertificateDomains: "*.example.com"}
	all := render(t, cloudNamespace, valuesWithDefaults)
	read := 0
	for _, d := range objects.OfKind[appsv1.Deployment](t, all, "Deployment") {
		for _, e := range d.Spec.Template.Spec.Containers[0].Env {
			if e.Name != defaults.EnvText {
				continue
			}
			read++
			if got, _, err := defaults.Parse([]byte(e.Value)); err != nil || cmp.Diff(want, got) != "" {
				t.Errorf("%s reads %q, %v", d.Name, got, err)
			}
		}
	}
	if read != 2 {
		t.Errorf("%d programs have the defaults", read)
	}
	specs := map[string]admissionregistrationv1.ValidatingAdmissionPolicySpec{}
	for _, pair := range policy.All("", slices.Sorted(maps.Keys(want))...) {
		specs[pair.Policy.Name] = pair.Policy.Spec
	}
	have := map[string]admissionregistrationv1.ValidatingAdmissionPolicySpec{}
	for _, p := range objects.OfKind[admissionregistrationv1.ValidatingAdmissionPolicy](t, all, "ValidatingAdmissionPolicy") {
		have[p.Name] = p.Spec
	}
	if diff := cmp.Diff(specs, have); diff != "" {
		t.Errorf("- code, + chart:\n%s", diff)
	}
	extra := strings.Replace(valuesWithDefaults, "  admission:\n", "  extraEnv: [{name: DO_LOAD_BALANCER_DEFAULTS, value: x}]\n  admission:\n", 1)
	if _, complaint, err := helm(t, extra, "template", "mooring", chart, "--namespace", cloudNamespace); err == nil || !strings.Contains(complaint, "set digitaloceanCloudControllerManager.loadBalancerDefaults") {
		t.Errorf("%v, %s", err, complaint)
	}
}
