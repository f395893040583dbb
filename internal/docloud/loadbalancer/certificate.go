// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
)

// Rotation is which certificate a load balancer is to have, given that DigitalOcean renews those of Let's Encrypt by itself: a renewed one has
// a new ID, and the load balancer already uses it while the Service still names the old one.
type Rotation struct {
	// Certificate is the ID to send.
	Certificate string
	// Renewed reports that it is a renewed one and that the Service's annotation is to be changed to it.
	Renewed bool
	// Unsure reports that it could not be told, since not all certificates are known; the load balancer keeps what it has.
	Unsure bool
}

// Rotate decides between the certificate that a Service names by ID and the one that its load balancer uses. The load balancer's wins if it is
// one of Let's Encrypt and either has the name of the Service's, or the Service's does not exist any more. Otherwise the Service has been
// changed on purpose, and its word counts. observed may be nil; partial says that certificates are not all there are.
func Rotate(named string, observed *Observed, certificates []Certificate, partial bool) Rotation {
	r := Rotation{Certificate: named}
	current := certificateOf(observed)
	if named == "" || current == "" || uses(observed, named) {
		return r
	}
	now, nowKnown := certificateByID(certificates, current)
	before, beforeKnown := certificateByID(certificates, named)
	switch {
	case nowKnown && now.Type != CertificateLetsEncrypt:
	case nowKnown && beforeKnown && now.Name != before.Name:
	case nowKnown && (beforeKnown || !partial):
		r.Certificate, r.Renewed = current, true
	case partial:
		r.Certificate, r.Unsure = current, true
	}
	return r
}

// certificateOf returns the certificate that a load balancer uses, empty for none: that of the first rule that has one.
func certificateOf(o *Observed) string {
	if o == nil {
		return ""
	}
	for _, rule := range o.ForwardingRules {
		if rule.CertificateID != "" {
			return rule.CertificateID
		}
	}
	return ""
}

func uses(o *Observed, certificate string) bool {
	return slices.ContainsFunc(o.ForwardingRules, func(r ForwardingRule) bool { return r.CertificateID == certificate })
}

func certificateByID(all []Certificate, id string) (Certificate, bool) {
	i := slices.IndexFunc(all, func(c Certificate) bool { return c.ID == id })
	if i < 0 {
		return Certificate{}, false
	}
	return all[i], true
}

// certificate returns the ID of the certificate that a Service asks for, by ID, by domains or by name, and what to write on the Service for it.
func (in Input) certificate(s annotation.Settings, result *Result) (string, error) {
	if s.CertificateID != "" {
		r := Rotate(s.CertificateID, in.Observed, in.Certificates, in.PartialCertificates)
		switch {
		case r.Renewed:
			result.annotate(in.Service.Annotations, annotation.CertificateID, r.Certificate)
		case r.Unsure:
			result.warn(ReasonKept, fmt.Sprintf("the load balancer keeps certificate %s instead of %s: not all certificates could be read, "+
				"so that it may be the renewed one", r.Certificate, s.CertificateID))
		}
		return r.Certificate, nil
	}
	if len(s.CertificateDomains) > 0 {
		id, wait := in.managed(s.CertificateDomains)
		if err := in.permitted(id, annotation.CertificateDomains, s.CertificateDomains); err != nil {
			return "", err
		}
		if result.Certificate = wait; wait != nil && in.Observed == nil {
			return "", wait
		}
		return id, nil
	}
	if s.CertificateName == "" {
		return "", nil
	}
	// After a renewal two certificates may have the name; the one in use is the right one.
	current := certificateOf(in.Observed)
	if c, ok := certificateByID(in.Certificates, current); ok && c.Name == s.CertificateName {
		return current, nil
	}
	i := slices.IndexFunc(in.Certificates, func(c Certificate) bool { return c.Name == s.CertificateName })
	switch {
	case i >= 0 && strings.HasPrefix(s.CertificateName, ManagedPrefix): // anybody can tell its name from its domains
		return in.Certificates[i].ID, in.permitted(in.Certificates[i].ID, annotation.CertificateName, in.Certificates[i].DNSNames)
	case i >= 0:
		return in.Certificates[i].ID, nil
	}
	problem := "but the account has no certificate of that name: make it, or request one of Let's Encrypt with annotation " + annotation.CertificateDomains
	if in.PartialCertificates {
		problem = "but not all certificates of the account could be read, and those that were have another name"
	}
	return "", &annotation.Error{Annotation: annotation.CertificateName, Value: s.CertificateName, Problem: problem}
}
