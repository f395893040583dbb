// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxyapp

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// TenantURI begins the URI that says in a certificate for which tenant it speaks: TenantURI + name, as an URI SAN. It MUST NOT change: issued
// certificates carry it.
const TenantURI = "urn:mooring:etcd-tenant:"

// Kinds of identities, the part before the first colon of --allowed-identity.
const (
	kindURI = "uri"
	kindDNS = "dns"
	kindCN  = "cn"
)

// identity is one name that a certificate carries, written kind:value as in --allowed-identity.
type identity struct{ kind, value string }

func (i identity) String() string { return i.kind + ":" + i.value }

// parseIdentity reads one --allowed-identity, or a line of another source of identities, which errors name.
func parseIdentity(source, text string) (identity, error) {
	complain := func(problem string) (identity, error) {
		return identity{}, fmt.Errorf(source+" %q %s: write uri:URI, dns:NAME or cn:NAME, which the certificate must carry exactly so", text, problem)
	}
	kind, value, found := strings.Cut(text, ":")
	switch {
	case !found || (kind != kindURI && kind != kindDNS && kind != kindCN):
		return complain("does not say which name of the certificate to check")
	case value == "":
		return complain("names nobody")
	case value != strings.TrimSpace(value):
		return complain("begins or ends with a space")
	case kind == kindDNS && !validHost(value):
		return complain("is not a DNS name (patterns are not known)")
	case kind == kindURI:
		u, err := url.Parse(value)
		if err != nil || !u.IsAbs() {
			return complain("is not a URI with a scheme")
		}
		value = u.String() // as certificates' URIs are written below
	case kind == kindDNS:
		value = canonicalDNS(value)
	}
	return identity{kind, value}, nil
}

// defaultIdentities are what is admitted without --allowed-identity.
func defaultIdentities(tenant string) []identity {
	return []identity{{kindURI, TenantURI + tenant}, {kindCN, tenant}}
}

// identitiesOf lists the names of a certificate: its URI SANs, its DNS SANs, its common name. IP addresses and e-mail addresses name no tenant.
func identitiesOf(cert *x509.Certificate) []identity {
	var out []identity
	for _, u := range cert.URIs {
		out = append(out, identity{kindURI, u.String()})
	}
	for _, name := range cert.DNSNames {
		out = append(out, identity{kindDNS, canonicalDNS(name)})
	}
	if cn := cert.Subject.CommonName; cn != "" {
		out = append(out, identity{kindCN, cn})
	}
	return out
}

func canonicalDNS(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// errRevoked begins the answer to clients whose identity was revoked.
var errRevoked = errors.New("the client certificate was revoked")

// errNotAdmitted begins the answer to clients of another tenant. It tells them what they are and not what they would have to be.
var errNotAdmitted = errors.New("the client certificate does not belong to this tenant")

// authorizer returns the judge of verified client certificates: one of the certificate's names must be one of the admitted ones, unless it
// carries the URI of another tenant, which beats any other name, or one that is revoked.
func authorizer(tenant string, admitted []identity, revoked func(*x509.Certificate) bool) func(*x509.Certificate) error {
	return func(cert *x509.Certificate) error {
		names := identitiesOf(cert)
		if revoked(cert) {
			return fmt.Errorf("%w: it is %s", errRevoked, describe(names))
		}
		refused := fmt.Errorf("%w: it is %s", errNotAdmitted, describe(names))
		for _, name := range names {
			if name.kind == kindURI && strings.HasPrefix(name.value, TenantURI) && name.value != TenantURI+tenant && !slices.Contains(admitted, name) {
				return refused
			}
		}
		if !slices.ContainsFunc(names, func(name identity) bool { return slices.Contains(admitted, name) }) {
			return refused
		}
		return nil
	}
}

// describe lists names for people, not more than a few of them.
func describe(names []identity) string {
	const most = 4
	if len(names) == 0 {
		return "without any name"
	}
	var out []string
	for i, name := range names {
		if i == most {
			out = append(out, fmt.Sprintf("and %d more", len(names)-most))
			break
		}
		out = append(out, fmt.Sprintf("%q", name.String()))
	}
	return strings.Join(out, ", ")
}
