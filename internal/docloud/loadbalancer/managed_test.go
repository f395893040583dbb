// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// The name is the hash of these names; existing certificates are found by it.
const managedName = "mooring-2c3ba6cdce09fc2a059ed55cba6088b6"

// leCertificate is one of Let's Encrypt for a.example and b.example.
func leCertificate(id, name string, state loadbalancer.CertificateState) loadbalancer.Certificate {
	return loadbalancer.Certificate{ID: id, Name: name, Type: loadbalancer.CertificateLetsEncrypt, State: state, DNSNames: []string{"B.example", "a.example"}}
}

func TestManagedCertificateIsContract(t *testing.T) {
	t.Parallel()
	if got := loadbalancer.ManagedName([]string{"a.example", "b.example"}); got != managedName {
		t.Error(got)
	}
	_, err := loadbalancer.Desired(input(service("certificate-domains", "b.example,a.example")))
	wait, ok := errors.AsType[*loadbalancer.CertificateWait](err)
	if !ok {
		t.Fatal(err)
	}
	body, err := json.Marshal(wait.Request)
	want := `{"name":"` + managedName + `","type":"lets_encrypt","dns_names":["a.example","b.example"]}`
	if err != nil || string(body) != want {
		t.Errorf("%v, %s", err, body)
	}
	states := []loadbalancer.CertificateState{loadbalancer.CertificatePending, loadbalancer.CertificateVerified, loadbalancer.CertificateError}
	if diff := cmp.Diff([]loadbalancer.CertificateState{"pending", "verified", "error"}, states); diff != "" {
		t.Error(diff)
	}
}

// Which certificate is used, and what is waited for.
func TestManagedCertificate(t *testing.T) {
	t.Parallel()
	const pending, verified, failed = loadbalancer.CertificatePending, loadbalancer.CertificateVerified, loadbalancer.CertificateError
	type certs = []loadbalancer.Certificate
	other := leCertificate("o", "other", verified)
	custom := leCertificate("u", managedName, verified)
	custom.Type = loadbalancer.CertificateCustom
	elsewhere := leCertificate("e", managedName, verified)
	elsewhere.DNSNames = []string{"a.example"}
	unshown := loadbalancer.Certificate{ID: "n", Name: managedName}
	const what = `certificate "` + managedName + `" for a.example, b.example`
	for name, tt := range map[string]struct {
		all          certs
		used         string
		partial      bool
		id           string
		make, failed bool
		message      string
	}{
		"none":                            {make: true, message: what + " is being made"},
		"none, as far as is known":        {partial: true, message: "not all certificates of the account could be read, so that it is not known whether there is one for a.example, b.example"},
		"pending":                         {all: certs{leCertificate("c", managedName, pending)}, message: what + " is being issued, which needs DigitalOcean's DNS to serve these domains for this account"},
		"verified":                        {all: certs{leCertificate("c", managedName, verified)}, id: "c"},
		"verified, not all could be read": {all: certs{leCertificate("c", managedName, verified)}, partial: true, id: "c"},
		"could not be issued":             {all: certs{leCertificate("c", managedName, failed)}, failed: true, message: what + " could not be issued: let DigitalOcean's DNS serve these domains for this account, then delete the certificate there, and it is created again"},
		"somebody else's":                 {all: certs{other}, id: "o"},
		"ours before somebody else's":     {all: certs{other, leCertificate("z", managedName, verified)}, id: "z"},
		"somebody else's, ours pending":   {all: certs{leCertificate("c", managedName, pending), other}, id: "o"},
		"somebody else's that failed":     {all: certs{leCertificate("o", "other", failed)}, make: true, message: what + " is being made"},
		"somebody else's that is pending": {all: certs{leCertificate("o", "other", pending)}, message: `certificate "other" for a.example, b.example is being issued, which needs DigitalOcean's DNS to serve these domains for this account`},
		"the one in use":                  {all: certs{leCertificate("c", managedName, verified), other}, used: "o", id: "o"},
		"the one in use, being renewed":   {all: certs{leCertificate("c", managedName, pending)}, used: "c", id: "c"},
		"renewed":                         {all: certs{leCertificate("old", managedName, verified), leCertificate("new", managedName, verified)}, used: "old", id: "old"},
		"the one in use is another":       {all: certs{leCertificate("c", managedName, verified), {ID: "x", Name: "x", Type: loadbalancer.CertificateCustom}}, used: "x", id: "c"},
		"an upload has the name":          {all: certs{custom}, failed: true, message: "the account has a " + what + " for other domains: delete it there, and it is created again"},
		"other domains have the name":     {all: certs{elsewhere}, failed: true, message: "the account has a " + what + " for other domains: delete it there, and it is created again"},
		"other domains have another name": {all: certs{{ID: "x", Name: "x", Type: loadbalancer.CertificateLetsEncrypt, State: verified, DNSNames: []string{"a.example"}}}, make: true, message: what + " is being made"},
		"nothing is shown but the name":   {all: certs{unshown}, id: "n"},
	} {
		in := input(service("certificate-domains", "b.example,a.example"))
		in.Certificates, in.PartialCertificates = tt.all, tt.partial
		if tt.used != "" {
			o := keeps(desired(t, input(service("certificate-id", tt.used))))
			in.Observed = &o
		}
		result, err := loadbalancer.Desired(in)
		if tt.id != "" {
			if err != nil || result.Certificate != nil || !uses(result.Request, tt.id) {
				t.Errorf("%s: %v, %+v, %v", name, err, result.Certificate, result.Request.ForwardingRules)
			}
			continue
		}
		wait, ok := errors.AsType[*loadbalancer.CertificateWait](err)
		if !ok || wait.Make != tt.make || wait.Failed != tt.failed || wait.Message != tt.message || err.Error() != tt.message {
			t.Errorf("%s: %v\nwant %s", name, err, tt.message)
		}
	}
}

func uses(r loadbalancer.Request, id string) bool {
	return slices.ContainsFunc(r.ForwardingRules, func(rule loadbalancer.ForwardingRule) bool { return rule.CertificateID == id })
}

// A load balancer that serves goes on as it does until the certificate can be used: its rules stay, all else follows.
func TestRulesStayUntilTheCertificateIsThere(t *testing.T) {
	t.Parallel()
	for name, before := range map[string][]string{"without a certificate": nil, "with another": {"certificate-id", "cert-2"}} {
		o := keeps(desired(t, input(service(before...))))
		in := input(service("certificate-domains", "a.example,b.example", "size-unit", "2"))
		in.Observed, in.Nodes = &o, nodes(v4(1), v4(2))
		result, err := loadbalancer.Desired(in)
		if err != nil || result.Certificate == nil || !result.Certificate.Make {
			t.Fatalf("%s: %v, %+v", name, err, result.Certificate)
		}
		want := []string{"size_unit, update: the size is 1 instead of 2", "droplet_ids, update: droplet 3 is not wanted"}
		if diff := cmp.Diff(want, messages(loadbalancer.Diff(o, result.Request))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		in.Certificates = append(in.Certificates, leCertificate("c", managedName, loadbalancer.CertificateVerified))
		if result, err = loadbalancer.Desired(in); err != nil || result.Certificate != nil || !uses(result.Request, "c") {
			t.Errorf("%s, verified: %v, %+v", name, err, result)
		}
		in.Service.Spec.Ports[0].Protocol = "SCTP"
		in.Certificates = nil
		if _, err = loadbalancer.Desired(in); err == nil || !strings.Contains(err.Error(), "SCTP") {
			t.Errorf("%s: what cannot be forwarded at all is told: %v", name, err)
		}
	}
}

// What stands in the way of the certificate's use is told as for others.
func TestManagedCertificateAndPorts(t *testing.T) {
	t.Parallel()
	with := func(pairs ...string) loadbalancer.Input {
		in := input(service(append([]string{"certificate-domains", "a.example,b.example"}, pairs...)...))
		in.Certificates = []loadbalancer.Certificate{leCertificate("c", managedName, loadbalancer.CertificateVerified)}
		return in
	}
	_, err := loadbalancer.Desired(with("tls-passthrough", "true"))
	want := `port 443 has the protocol https, but annotation ` + p + `certificate-domains is "a.example,b.example" and ` + p + `tls-passthrough is "true": remove one of them`
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
	in := with()
	ports(in.Service, "tcp:80:30080")
	result, err := loadbalancer.Desired(in)
	if err != nil || len(result.Warnings) != 1 || !strings.Contains(result.Warnings[0].Message, "certificate-domains is \"a.example,b.example\", but no port of the Service uses it") {
		t.Errorf("%q, %v", result.Warnings, err)
	}
	in = with("type", network)
	if result, err = loadbalancer.Desired(in); err != nil || result.Certificate != nil || loadbalancer.NeedsOf(in).Certificates {
		t.Errorf("a type that uses none: %+v, %v", result, err)
	}
	if c, ok := loadbalancer.AssumedCertificate(with().Service); !ok || c.Name != managedName || c.ID != "("+managedName+")" {
		t.Errorf("%+v", c)
	}
	if c, ok := loadbalancer.AssumedCertificate(service()); ok {
		t.Errorf("%+v", c)
	}
}

// However the names are written and the list is ordered, it is one certificate.
func TestManagedCertificateIsOne(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		domains := rapid.Permutation([]string{"a.example", "B.EXAMPLE", "b.example", "*.b.example", "A.Example"}).Draw(t, "domains")
		all := []loadbalancer.Certificate{}
		for i, kind := range rapid.SliceOfN(rapid.SampledFrom([]string{"other", "mooring"}), 0, 4).Draw(t, "certificates") {
			all = append(all, loadbalancer.Certificate{
				ID: string(rune('p' + i)), Name: kind, Type: loadbalancer.CertificateLetsEncrypt, State: loadbalancer.CertificateVerified, DNSNames: []string{"a.example", "*.b.example", "b.example"},
			})
		}
		in := input(service("certificate-domains", strings.Join(domains, ",")))
		in.Certificates = all
		first, err1 := loadbalancer.Desired(in)
		in.Certificates = rapid.Permutation(all).Draw(t, "order")
		in.Service.Annotations[annotation.CertificateDomains] = "*.b.example,a.example,b.example"
		second, err2 := loadbalancer.Desired(in)
		if cmp.Diff(first.Request, second.Request) != "" || (err1 == nil) != (err2 == nil) || err1 != nil && err1.Error() != err2.Error() {
			t.Errorf("%+v, %v; %+v, %v", first.Request.ForwardingRules, err1, second.Request.ForwardingRules, err2)
		}
	})
}

// Which domains an administrator's words allow: those that they name, and with an asterisk those below.
func TestAllowedDomains(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ allowed, asked, refused string }{
		"nothing":           {"", "a.example", "a.example"},
		"itself":            {"a.example", "a.example", ""},
		"another":           {"b.example", "a.example", "a.example"},
		"one of two":        {"a.example", "a.example,b.example", "b.example"},
		"below":             {"*.example", "a.example,b.a.example,*.a.example", ""},
		"not the domain":    {"*.a.example", "a.example", "a.example"},
		"not what ends so":  {"*.a.example", "ba.example", "ba.example"},
		"not below a name":  {"a.example", "*.a.example,b.a.example", "*.a.example,b.a.example"},
		"a wildcard itself": {"*.a.example", "*.a.example", ""},
		"not half a label":  {"*a.example", "ba.example", "ba.example"},
		"all":               {"*", "a.example,*.b.example", ""},
		"capitals, blanks":  {" A.Example , *.B.example,", "a.example,c.b.example", ""},
	} {
		in := input(service("certificate-domains", tt.asked))
		in.Domains = &loadbalancer.Domains{Allowed: loadbalancer.ParseDomains(tt.allowed)}
		_, err := loadbalancer.Desired(in)
		wrong, refused := errors.AsType[*annotation.Error](err)
		if refused != (tt.refused != "") || refused && !strings.HasSuffix(wrong.Problem, "kubectl annotate namespace default "+loadbalancer.DomainsAnnotation+"="+tt.refused) {
			t.Errorf("%s: %v", name, err)
		}
		in.Cluster.Defaults = annotation.Defaults{annotation.CertificateDomains: tt.asked}
		delete(in.Service.Annotations, annotation.CertificateDomains)
		if _, err := loadbalancer.Desired(in); strings.Contains(err.Error(), "may not have") {
			t.Errorf("%s: the cluster's default is refused: %v", name, err)
		}
	}
	in := input(service("certificate-domains", "a.example"))
	in.Domains = &loadbalancer.Domains{Problem: "the namespace could not be read: forbidden"}
	if _, err := loadbalancer.Desired(in); !strings.HasSuffix(err.Error(), "(the namespace could not be read: forbidden)") {
		t.Error(err)
	}
}
