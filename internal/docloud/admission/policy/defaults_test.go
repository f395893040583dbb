// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/mooring-dev/mooring/internal/docloud/admission"
	"github.com/mooring-dev/mooring/internal/docloud/admission/policy"
	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// Where the cluster has defaults, no Service is refused that is right with them; and what is wrong whatever the defaults is refused as ever.
func TestAServiceThatIsRightWithDefaultsIsNotRefused(t *testing.T) { //nolint:paralleltest // policies apply to the whole cluster
	d, _, err := annotation.NewDefaults(map[string]string{
		annotation.CertificateDomains: "example.com", annotation.StickySessionsCookieName: "c", annotation.StickySessionsCookieTTL: "60",
		annotation.SizeUnit: "2", annotation.NetworkStack: annotation.StackDual, annotation.Protocol: annotation.ProtocolHTTP,
	})
	must.Do(t, err)
	s := connect(t, controlplane.Shared(t), "")
	defer install(t, s, annotation.TypeRegional, slices.Sorted(maps.Keys(d))...)()
	cluster := loadbalancer.Cluster{DefaultType: annotation.TypeRegional, Defaults: d}
	bare := loadbalancer.Cluster{DefaultType: annotation.TypeRegional}
	allowed, thanks, refused := 0, 0, 0
	r := cases.Rand(t)
	most := cases.Number(t, 50, 600, 2000)
	for n := 0; n < most || n < 10*most && (thanks == 0 || allowed == 0); n++ { // few are right, and fewer thanks to the defaults
		one := random(r)
		want, _ := review(admission.Request{Operation: admissionv1.Create, New: one, Cluster: cluster})
		got := refusal(t, s.try(t.Context(), one))
		without, _ := review(admission.Request{Operation: admissionv1.Create, New: one, Cluster: bare})
		switch {
		case len(want) == 0 && len(got) > 0:
			t.Fatalf("annotations %q, ports %v: the controller takes it, the policy says %q", one.Annotations, one.Spec.Ports, got)
		case len(want) == 0 && len(without) > 0:
			thanks++
		case len(want) == 0:
			allowed++
		case len(got) > 0:
			refused++
		}
		for _, sentence := range got {
			if !slices.Contains(want, sentence) && !slices.Contains(without, sentence) {
				t.Fatalf("annotations %q: the policy says %q, the controller %q", one.Annotations, sentence, want)
			}
		}
	}
	t.Logf("allowed %d, thanks to the defaults %d, refused %d", allowed, thanks, refused)
	if thanks == 0 || allowed == 0 || refused == 0 {
		t.Error("these show little")
	}
}

// The policies of a cluster without defaults are the same with none and without a word of them.
func TestNoDefaults(t *testing.T) {
	t.Parallel()
	for _, pair := range policy.All("") {
		for _, v := range pair.Policy.Spec.Variables {
			if v.Name == "defaulted" && v.Expression != "[]" {
				t.Errorf("%s: %s", pair.Policy.Name, v.Expression)
			}
			if pair.Policy.Name == policy.Doubts && strings.Contains(v.Expression, "defaulted") {
				t.Errorf("%s: %s", v.Name, v.Expression)
			}
		}
	}
}
