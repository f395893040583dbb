// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"crypto/sha1" //nolint:gosec // DigitalOcean's API has this fingerprint; nothing is protected by it
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"net/http"
	"time"
)

const (
	certificateCustom      = "custom"
	certificateLetsEncrypt = "lets_encrypt"

	certificateVerified = "verified"
)

// letsEncryptLife is how long Let's Encrypt's certificates are valid.
const letsEncryptLife = 90 * 24 * time.Hour

// certificate is never changed in place, see table.
type certificate struct {
	shown      Certificate
	verifiedAt time.Time
	forced     string // a state that was set from outside
}

func (crt *certificate) show(when time.Time) Certificate {
	shown := crt.shown
	switch {
	case crt.forced != "":
		shown.State = crt.forced
	case when.Before(crt.verifiedAt):
		shown.State = "pending"
	default:
		shown.State = certificateVerified
	}
	return shown
}

// CertificateSpec is a certificate to be.
type CertificateSpec struct {
	Name     string   `json:"name"`
	DNSNames []string `json:"dnsNames,omitempty"`
	// Custom makes it a certificate that somebody uploaded instead of one of Let's Encrypt.
	Custom bool `json:"custom,omitempty"`
	// ID is made from the seed if empty.
	ID string `json:"id,omitempty"`
}

// createCertificate of the account; leaf is the uploaded PEM, if there is one. Names are unique.
func (a *account) createCertificate(spec CertificateSpec, leaf string, now time.Time) (*certificate, *refusal) {
	if spec.Name == "" {
		return nil, invalid("name is needed")
	}
	for other := range a.certificates.values() {
		if other.shown.Name == spec.Name {
			return nil, invalid("certificate name %q is taken", spec.Name)
		}
	}
	crt := &certificate{shown: Certificate{
		ID: spec.ID, Name: spec.Name, CreatedAt: rfc3339(now), DNSNames: append([]string{}, spec.DNSNames...), Type: certificateLetsEncrypt,
		NotAfter: rfc3339(now.Add(letsEncryptLife)),
	}, verifiedAt: now.Add(a.sim.options.Certificates.VerifiedAfter)}
	if crt.shown.ID == "" {
		crt.shown.ID = a.sim.newUUID()
	}
	if spec.Custom {
		crt.shown.Type, crt.verifiedAt = certificateCustom, now
	}
	sum := sha1.Sum([]byte(crt.shown.ID + leaf)) //nolint:gosec // see the import
	crt.shown.SHA1Fingerprint = hex.EncodeToString(sum[:])
	if block, _ := pem.Decode([]byte(leaf)); block != nil {
		if parsed, err := x509.ParseCertificate(block.Bytes); err == nil {
			crt.shown.NotAfter, crt.shown.DNSNames = rfc3339(parsed.NotAfter), append([]string{}, parsed.DNSNames...)
		}
	}
	a.certificates.put(crt.shown.ID, crt, now)
	return crt, nil
}

// certificateUsers returns the load balancers whose rules use a certificate.
func (a *account) certificateUsers(id string) []*loadBalancer {
	var users []*loadBalancer
	for lb := range a.balancers.values() {
		for _, rule := range lb.shown.ForwardingRules {
			if rule.CertificateID == id {
				users = append(users, lb)
				break
			}
		}
	}
	return users
}

// rotateCertificate does what DigitalOcean does when a Let's Encrypt certificate nears its end: a new certificate of the same
// name takes the place of the old one, in the rules of load balancers too, and the old ID is no more.
func (a *account) rotateCertificate(old *certificate, now time.Time) (*certificate, *refusal) {
	a.certificates.remove(old.shown.ID, now)
	renewed, refused := a.createCertificate(CertificateSpec{
		Name: old.shown.Name, DNSNames: old.shown.DNSNames, Custom: old.shown.Type == certificateCustom,
	}, "", now)
	if refused != nil {
		return nil, refused
	}
	renewed.verifiedAt = now
	for _, lb := range a.certificateUsers(old.shown.ID) {
		a.changeBalancer(lb, now, func(lb *loadBalancer) {
			for i := range lb.shown.ForwardingRules {
				if lb.shown.ForwardingRules[i].CertificateID == old.shown.ID {
					lb.shown.ForwardingRules[i].CertificateID = renewed.shown.ID
				}
			}
		})
	}
	return renewed, nil
}

// listCertificates: name is compared exactly.
func listCertificates(c *call) result {
	name, when := c.query.Get("name"), c.whenListed()
	wanted := func(crt *certificate) bool { return name == "" || crt.shown.Name == name }
	return listing(c, "certificates", filter(c.account.certificates.valuesAt(when), wanted), func(crt *certificate) any {
		return crt.show(when)
	})
}

func getCertificate(c *call) result {
	when := c.whenSeenByGet()
	crt, found := c.account.certificates.getAt(c.params["certificate_id"], when)
	if !found {
		return notFound().result()
	}
	return ok(map[string]any{"certificate": crt.show(when)})
}

func createCertificate(c *call) result {
	var request struct {
		Name            string   `json:"name"`
		Type            string   `json:"type"`
		DNSNames        []string `json:"dns_names"`
		PrivateKey      string   `json:"private_key"`
		LeafCertificate string   `json:"leaf_certificate"`
	}
	if refused := c.decode(&request); refused != nil {
		return refused.result()
	}
	custom := request.Type == certificateCustom || (request.Type == "" && request.LeafCertificate != "")
	switch {
	case request.Type != "" && request.Type != certificateCustom && request.Type != certificateLetsEncrypt:
		return invalid("type must be custom or lets_encrypt, not %q", request.Type).result()
	case custom && (request.PrivateKey == "" || request.LeafCertificate == ""):
		return invalid("a custom certificate needs private_key and leaf_certificate").result()
	case !custom && len(request.DNSNames) == 0:
		return invalid("a Let's Encrypt certificate needs dns_names").result()
	}
	spec := CertificateSpec{Name: request.Name, DNSNames: request.DNSNames, Custom: custom}
	crt, refused := c.account.createCertificate(spec, request.LeafCertificate, c.now)
	if refused != nil {
		return refused.result()
	}
	return result{status: http.StatusCreated, body: map[string]any{"certificate": crt.show(c.now)}}
}

// deleteCertificate refuses with 403 while a load balancer uses it, in words that Terraform's provider looks for.
func deleteCertificate(c *call) result {
	crt, found := c.account.certificates.get(c.params["certificate_id"])
	if !found {
		return notFound().result()
	}
	if len(c.account.certificateUsers(crt.shown.ID)) > 0 {
		return refuse(http.StatusForbidden, "Make sure the certificate is not in use before deleting it").result()
	}
	c.account.certificates.remove(crt.shown.ID, c.now)
	return noContent()
}
