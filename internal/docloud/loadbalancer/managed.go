// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
)

// CertificateState is how far a certificate is, as the API spells it.
type CertificateState string

// The states of a certificate. One that somebody uploaded is verified at once.
const (
	CertificatePending  CertificateState = "pending"
	CertificateVerified CertificateState = "verified"
	CertificateError    CertificateState = "error"
)

// CertificateRequest is the body of the POST that makes a certificate of Let's Encrypt (OpenAPI description, certificates_create).
type CertificateRequest struct {
	Name     string          `json:"name"`
	Type     CertificateType `json:"type"`
	DNSNames []string        `json:"dns_names"`
}

// ManagedPrefix begins the names of certificates that are made for annotations. It MUST not be changed: those of existing clusters are found by it.
const ManagedPrefix = "mooring-"

// ManagedName is the name of the certificate for exactly these domains, which are in lower case, sorted and each once: the prefix and the
// first 16 bytes of their SHA-256 sum in hexadecimal. It is the same in all clusters of an account, since names are unique there and the
// certificate is as well. It MUST not be changed.
func ManagedName(domains []string) string {
	sum := sha256.Sum256([]byte(strings.Join(domains, ",")))
	return ManagedPrefix + hex.EncodeToString(sum[:16])
}

// CertificateWait is a certificate that a Service asks for by its domains and that cannot be used yet. Its text is one sentence.
type CertificateWait struct { //nolint:errname // it is an error for who has no load balancer yet, and news for others
	Request CertificateRequest
	// Make reports that the account has none, so that it is to be made. Never with Failed.
	Make bool
	// Failed reports that a person has to do something; otherwise it is to be looked at again.
	Failed  bool
	Message string
}

// Error implements error.
func (w *CertificateWait) Error() string { return w.Message }

// managed returns the ID of the certificate of Let's Encrypt for exactly these domains, or what is to be waited for:
//
//	the load balancer uses one                      that one, whatever its state and its name: DigitalOcean renews it
//	one is verified                                 that one, the one of our name first
//	not all certificates could be read              wait
//	one of our name: is for something else          a person has to delete it
//	                 could not be issued            a person has to see to the DNS, and to delete it
//	one is pending                                  wait
//	none                                            make it
func (in Input) managed(domains []string) (string, *CertificateWait) {
	w := &CertificateWait{Request: CertificateRequest{Name: ManagedName(domains), Type: CertificateLetsEncrypt, DNSNames: domains}}
	what := fmt.Sprintf("certificate %q for %s", w.Request.Name, named(domains))
	fitting := slices.DeleteFunc(slices.Clone(in.Certificates), func(c Certificate) bool { return !fits(c, w.Request) })
	slices.SortFunc(fitting, func(a, b Certificate) int {
		return cmp.Or(cmp.Compare(rank(a, w.Request.Name), rank(b, w.Request.Name)), strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
	})
	if c, ok := certificateByID(fitting, certificateOf(in.Observed)); ok {
		return c.ID, nil
	}
	first := func(state CertificateState) *Certificate {
		i := slices.IndexFunc(fitting, func(c Certificate) bool { return cmp.Or(c.State, CertificateVerified) == state })
		if i < 0 {
			return nil
		}
		return &fitting[i]
	}
	ours := slices.IndexFunc(in.Certificates, func(c Certificate) bool { return c.Name == w.Request.Name })
	pending := first(CertificatePending)
	switch verified := first(CertificateVerified); {
	case verified != nil:
		return verified.ID, nil
	case in.PartialCertificates:
		w.Message = "not all certificates of the account could be read, so that it is not known whether there is one for " + named(domains)
	case ours >= 0 && !fits(in.Certificates[ours], w.Request):
		w.Failed = true
		w.Message = fmt.Sprintf("the account has a %s for other domains: delete it there, and it is created again", what)
	case pending != nil:
		w.Message = fmt.Sprintf("certificate %q for %s is being issued, which needs DigitalOcean's DNS to serve these domains for this account",
			pending.Name, named(domains))
	case ours >= 0:
		w.Failed = true
		w.Message = what + " could not be issued: let DigitalOcean's DNS serve these domains for this account, then delete the certificate there, " +
			"and it is created again"
	default:
		w.Make = true
		w.Message = what + " is being made"
	}
	return "", w
}

// DomainsAnnotation on a Namespace: the domains, separated by commas, for which Services in the namespace may have
// certificates by naming them; "*.example.com" for all below example.com, "*" for all. It is on the Namespace because
// authors of Services usually may not write Namespaces. It MUST NOT be changed.
const DomainsAnnotation = "cloud.mooring.dev/load-balancer-certificate-domains"

// Domains are those for which a Service may have certificates. Problem says why it could not be read what the namespace
// allows, empty for nothing.
type Domains struct {
	Allowed []string
	Problem string
}

// ParseDomains reads [DomainsAnnotation].
func ParseDomains(value string) []string {
	var domains []string
	for domain := range strings.SplitSeq(value, ",") {
		if domain = strings.ToLower(strings.TrimSpace(domain)); domain != "" {
			domains = append(domains, domain)
		}
	}
	return domains
}

// permitted is an error if a Service may not have a certificate, empty for one that is to be made, for the domains that it
// asks for by an annotation. DigitalOcean then points the domains at the load balancer, so that it matters whose they are.
// The cluster's defaults are allowed, and what the load balancer uses.
func (in Input) permitted(certificate, by string, domains []string) error {
	value := in.Service.Annotations[by]
	if in.Domains == nil || value == "" {
		return nil
	}
	inUse := func(r ForwardingRule) bool { return r.CertificateID == certificate }
	if certificate != "" && in.Observed != nil && slices.ContainsFunc(in.Observed.ForwardingRules, inUse) {
		return nil
	}
	if len(domains) == 0 {
		domains = []string{"*"} // the API does not show them
	}
	refused := slices.DeleteFunc(slices.Clone(domains), func(domain string) bool {
		return slices.ContainsFunc(in.Domains.Allowed, func(a string) bool {
			below, wild := strings.CutPrefix(a, "*.")
			return a == "*" || a == strings.ToLower(domain) || wild && strings.HasSuffix(strings.ToLower(domain), "."+below)
		})
	})
	if len(refused) == 0 {
		return nil
	}
	problem := fmt.Sprintf("but namespace %s may not have certificates for %s: an administrator allows it with "+
		"kubectl annotate namespace %[1]s %[3]s=%[4]s", in.Service.Namespace, strings.Join(refused, ", "), DomainsAnnotation, strings.Join(refused, ","))
	if in.Domains.Problem != "" {
		problem += " (" + in.Domains.Problem + ")"
	}
	return &annotation.Error{Annotation: by, Value: value, Problem: problem}
}

// rank puts our own certificate before others.
func rank(c Certificate, name string) int {
	if c.Name == name {
		return 0
	}
	return 1
}

// fits reports whether a certificate is what a request would make. What is not shown does not speak against one that has the name.
func fits(c Certificate, r CertificateRequest) bool {
	if c.Type != r.Type && c.Type != "" {
		return false
	}
	if len(c.DNSNames) == 0 {
		return c.Name == r.Name
	}
	names := make([]string, len(c.DNSNames))
	for i, name := range c.DNSNames {
		names[i] = strings.ToLower(name)
	}
	return slices.Equal(sorted(names), r.DNSNames)
}

// named are domains for people, the first few of them.
func named(domains []string) string {
	const shown = 5
	if more := len(domains) - shown; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(domains[:shown], ", "), more)
	}
	return strings.Join(domains, ", ")
}

// AssumedCertificate is the certificate that a Service asks for by its domains, as if the account had it; false if it asks for none. It is for those
// who ask what would be sent where the account's certificates are not known. The Service is with the cluster's defaults.
func AssumedCertificate(effective *corev1.Service) (Certificate, bool) {
	s, _, _ := annotation.Parse(effective.Annotations, annotation.Options{FixedType: annotation.TypeRegional})
	if len(s.CertificateDomains) == 0 {
		return Certificate{}, false
	}
	name := ManagedName(s.CertificateDomains)
	return Certificate{ID: "(" + name + ")", Name: name, Type: CertificateLetsEncrypt, State: CertificateVerified, DNSNames: s.CertificateDomains}, true
}
