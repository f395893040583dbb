// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func certificate(id, name string, kind loadbalancer.CertificateType) loadbalancer.Certificate {
	return loadbalancer.Certificate{ID: id, Name: name, Type: kind}
}

func TestRotate(t *testing.T) {
	t.Parallel()
	const le, custom = loadbalancer.CertificateLetsEncrypt, loadbalancer.CertificateCustom
	type certs = []loadbalancer.Certificate
	for name, tt := range map[string]struct {
		named, used string
		all         certs
		partial     bool
		want        loadbalancer.Rotation
	}{
		"the same":                             {"old", "old", nil, true, loadbalancer.Rotation{Certificate: "old"}},
		"none is used yet":                     {"old", "", nil, true, loadbalancer.Rotation{Certificate: "old"}},
		"none is named":                        {"", "new", certs{certificate("new", "web", le)}, false, loadbalancer.Rotation{}},
		"renewed":                              {"old", "new", certs{certificate("old", "web", le), certificate("new", "web", le)}, false, loadbalancer.Rotation{Certificate: "new", Renewed: true}},
		"renewed, all that matters is known":   {"old", "new", certs{certificate("old", "web", le), certificate("new", "web", le)}, true, loadbalancer.Rotation{Certificate: "new", Renewed: true}},
		"renewed, and the old one is gone":     {"old", "new", certs{certificate("new", "web", le)}, false, loadbalancer.Rotation{Certificate: "new", Renewed: true}},
		"changed on purpose":                   {"old", "new", certs{certificate("old", "shop", le), certificate("new", "web", le)}, false, loadbalancer.Rotation{Certificate: "old"}},
		"one that DigitalOcean does not renew": {"old", "new", certs{certificate("old", "web", custom), certificate("new", "web", custom)}, false, loadbalancer.Rotation{Certificate: "old"}},
		"the one in use is gone":               {"old", "new", certs{certificate("old", "web", le)}, false, loadbalancer.Rotation{Certificate: "old"}},
		"the named one may be gone":            {"old", "new", certs{certificate("new", "web", le)}, true, loadbalancer.Rotation{Certificate: "new", Unsure: true}},
		"nothing is known":                     {"old", "new", nil, true, loadbalancer.Rotation{Certificate: "new", Unsure: true}},
	} {
		o := &loadbalancer.Observed{ForwardingRules: []loadbalancer.ForwardingRule{{EntryPort: 80}, {EntryPort: 443, CertificateID: tt.used}}}
		if got := loadbalancer.Rotate(tt.named, o, tt.all, tt.partial); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
	if got := loadbalancer.Rotate("old", nil, nil, false); got != (loadbalancer.Rotation{Certificate: "old"}) {
		t.Errorf("without a load balancer: %+v", got)
	}
}

// A renewal changes the Service's annotation and nothing on the load balancer.
func TestRenewalIsFollowed(t *testing.T) {
	t.Parallel()
	in := input(service("certificate-id", "old", annotation.LoadBalancerID, lbID, "type", regional))
	o := keeps(desired(t, in))
	for i := range o.ForwardingRules {
		if o.ForwardingRules[i].CertificateID == "old" {
			o.ForwardingRules[i].CertificateID = "new"
		}
	}
	in.Observed = &o
	in.Certificates = []loadbalancer.Certificate{certificate("old", "web", loadbalancer.CertificateLetsEncrypt), certificate("new", "web", loadbalancer.CertificateLetsEncrypt)}
	result, err := loadbalancer.Desired(in)
	must.Do(t, err)
	if diff := cmp.Diff(map[string]string{annotation.CertificateID: "new"}, result.Annotate); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if got := messages(loadbalancer.Diff(o, result.Request)); got != nil {
		t.Errorf("%q", got)
	}
	in.Certificates, in.PartialCertificates = nil, true
	if result, err = loadbalancer.Desired(in); err != nil || result.Annotate != nil || len(result.Warnings) != 1 ||
		!strings.Contains(result.Warnings[0].Message, "keeps certificate new instead of old: not all certificates could be read") {
		t.Errorf("%v, %+v", err, result)
	}
	if got := messages(loadbalancer.Diff(o, result.Request)); got != nil {
		t.Errorf("in doubt, nothing is changed: %q", got)
	}
}

// After a renewal two certificates have one name for a while. The one in use is the renewed one, whatever the order of the list.
func TestNameOfTwoCertificates(t *testing.T) {
	t.Parallel()
	in := input(service("certificate-name", "web"))
	in.Certificates = []loadbalancer.Certificate{certificate("old", "web", loadbalancer.CertificateLetsEncrypt), certificate("new", "web", loadbalancer.CertificateLetsEncrypt)}
	o := keeps(desired(t, in))
	for i := range o.ForwardingRules {
		if o.ForwardingRules[i].CertificateID == "old" {
			o.ForwardingRules[i].CertificateID = "new"
		}
	}
	in.Observed = &o
	if got := messages(loadbalancer.Diff(o, desired(t, in))); got != nil {
		t.Errorf("%q", got)
	}
}
