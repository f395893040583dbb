// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doapi_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/fault"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// A certificate is asked for by its domains, is pending, and is listed with all that decides about it; without a response it may be there.
func TestCreateCertificate(t *testing.T) {
	t.Parallel()
	cloud := digitalocean.New(digitalocean.Options{Certificates: digitalocean.CertificateOptions{VerifiedAfter: time.Hour}})
	c := client(t, cloud)
	r := loadbalancer.CertificateRequest{Name: "web", Type: loadbalancer.CertificateLetsEncrypt, DNSNames: []string{"a.example.com", "b.example.com"}}
	made, err := c.CreateCertificate(t.Context(), r)
	want := loadbalancer.Certificate{ID: made.ID, Name: "web", Type: "lets_encrypt", State: "pending", DNSNames: r.DNSNames}
	if diff := cmp.Diff(want, made); diff != "" || err != nil || made.ID == "" {
		t.Fatalf("%v\n%s", err, diff)
	}
	all, err := c.Certificates(t.Context())
	if diff := cmp.Diff([]loadbalancer.Certificate{want}, all); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	if _, err := c.CreateCertificate(t.Context(), r); !errors.Is(err, doapi.ErrRefused) {
		t.Errorf("a name that is taken: %v", err)
	}
	must.Do(t, cloud.Inject(fault.Rule{Route: "POST /v2/certificates", Kind: fault.CutAfterApply, Nth: 1}))
	r.Name = "other"
	if _, err := c.CreateCertificate(t.Context(), r); !errors.Is(err, doapi.ErrAmbiguous) {
		t.Errorf("no response: %v", err)
	}
	if all, err := c.Certificates(t.Context()); err != nil || len(all) != 2 {
		t.Errorf("%v, %v: it was not asked for twice", all, err)
	}
}

// A certificate is read and deleted by its ID, unless a load balancer uses it; prices are those of the list of sizes.
func TestDeleteCertificate(t *testing.T) {
	t.Parallel()
	cloud := digitalocean.New(digitalocean.Options{})
	c := doapi.NewCleanup(client(t, cloud))
	made, err := cloud.Account("").CreateCertificate(digitalocean.CertificateSpec{Name: "mooring-1", DNSNames: []string{"a.example.com"}})
	must.Do(t, err)
	if found, err := c.Certificate(t.Context(), made.ID); err != nil || found.Name != "mooring-1" {
		t.Errorf("%+v, %v", found, err)
	}
	balancer, err := cloud.Account("").CreateLoadBalancer(digitalocean.LoadBalancer{Name: "web", Type: "REGIONAL", ForwardingRules: []digitalocean.ForwardingRule{
		{EntryProtocol: "https", EntryPort: 443, TargetProtocol: "http", TargetPort: 80, CertificateID: made.ID},
	}})
	must.Do(t, err)
	if err := c.DeleteCertificate(t.Context(), made.ID); !errors.Is(err, doapi.ErrForbidden) {
		t.Errorf("one in use: %v", err)
	}
	must.Do(t, cloud.Account("").DeleteLoadBalancer(balancer.ID))
	if err := c.DeleteCertificate(t.Context(), made.ID); err != nil {
		t.Error(err)
	}
	if _, err := c.Certificate(t.Context(), made.ID); !errors.Is(err, doapi.ErrNotFound) {
		t.Errorf("one that is gone: %v", err)
	}
	if err := c.DeleteCertificate(t.Context(), "../droplets"); !errors.Is(err, doapi.ErrNotFound) {
		t.Errorf("an ID that is another address: %v", err)
	}
	if prices, err := c.Prices(t.Context()); err != nil || prices["s-1vcpu-1gb"] != 600 {
		t.Errorf("%v, %v", prices, err)
	}
}
