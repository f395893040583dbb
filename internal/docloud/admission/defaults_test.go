// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"errors"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/mooring-dev/mooring/internal/docloud/admission"
	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// A Service is judged with the cluster's defaults, and DigitalOcean is asked about what would be sent with them.
func TestDefaults(t *testing.T) {
	t.Parallel()
	d, _, err := annotation.NewDefaults(service("certificate-domains", "example.com", "size-unit", "2", "sticky-sessions-cookie-name", "c", "sticky-sessions-cookie-ttl", "60", "network-stack", "IPV4").Annotations)
	must.Do(t, err)
	with := loadbalancer.Cluster{DefaultType: annotation.TypeRegional, Region: "nyc1", Defaults: d}
	without := with
	without.Defaults = nil
	for name, pairs := range map[string][]string{
		"a certificate":       {"protocol", "https"},
		"a cookie":            {"sticky-sessions-type", "cookies"},
		"another certificate": {"protocol", "https", "certificate-name", "web"},
		"the other size":      {"size-slug", "lb-small", "http3-port", "443"},
	} {
		r := admission.Request{Operation: admissionv1.Create, New: service(pairs...), Cluster: with}
		if got := admission.Review(r); !got.Allowed() || got.Ask == nil || len(got.Warnings) > 0 {
			t.Errorf("%s: %+v", name, got)
		}
		r.Cluster = without
		if got := admission.Review(r); name != "another certificate" && got.Allowed() {
			t.Errorf("%s: it is right without defaults and shows nothing", name)
		}
	}
	result, err := admission.Draft(loadbalancer.Input{Service: service("type", "REGIONAL_NETWORK"), Cluster: with})
	if err != nil || result.Request.NetworkStack != "IPV4" || result.Request.SizeUnit != 2 {
		t.Errorf("%+v, %v", result.Request, err)
	}
}

// A certificate that is yet to be made, or to be issued, is not a reason to refuse the Service that asks for it.
func TestCertificateThatIsNotThereYet(t *testing.T) {
	t.Parallel()
	cluster := loadbalancer.Cluster{DefaultType: annotation.TypeRegional, Region: "nyc1"}
	s := service("certificate-domains", "example.com", "protocol", "https")
	if d := admission.Review(admission.Request{Operation: admissionv1.Create, New: s, Cluster: cluster}); !d.Allowed() || d.Ask == nil {
		t.Errorf("%+v", d)
	}
	result, err := admission.Draft(loadbalancer.Input{Service: s, Cluster: cluster})
	wait := (*loadbalancer.CertificateWait)(nil)
	if !errors.As(err, &wait) || !wait.Make {
		t.Fatal(err)
	}
	if a := admission.Wrong(result, err); a.Verdict != admission.VerdictUnknown || a.Text != wait.Message {
		t.Errorf("%+v", a)
	}
	for _, pairs := range [][]string{{"certificate-id", "c"}, {"certificate-name", "n"}} {
		bad := service(append([]string{"certificate-domains", "example.com"}, pairs...)...)
		if d := admission.Review(admission.Request{Operation: admissionv1.Create, New: bad, Cluster: cluster}); d.Allowed() {
			t.Errorf("%q: %+v", pairs, d)
		}
	}
}
