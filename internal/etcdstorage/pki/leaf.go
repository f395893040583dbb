// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"slices"
	"time"
)

// TenantURI begins the URI that says in a client certificate for which tenant it speaks. It MUST NOT change: proxies admit it.
const TenantURI = "urn:mooring:etcd-tenant:"

// ClientURI begins the URI that says for which Secret a client certificate was issued: namespace, name and number follow. It MUST NOT
// change: by it certificates are revoked.
const ClientURI = "urn:mooring:etcd-client:"

// Leaf says who a certificate speaks for.
type Leaf struct {
	Purpose    Purpose
	CommonName string
	// DNSNames, IPs and URIs are its subject alternative names.
	DNSNames []string
	IPs      []netip.Addr
	URIs     []string
}

// ServingLeaf is the certificate of the proxies behind a Service: every name by which the cluster knows it, and localhost.
func ServingLeaf(service, namespace, clusterDomain string) Leaf {
	return Leaf{
		Purpose: Serving, CommonName: cut(service, maxCommonName),
		DNSNames: []string{
			service + "." + namespace + ".svc", service + "." + namespace + ".svc." + clusterDomain, service + "." + namespace, service, "localhost",
		},
		IPs: []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()},
	}
}

// ClientLeaf is the certificate that a tenant gets in a Secret. Its common name is what etcdproxy-controller gave it; proxies go by the URIs: the
// first says whose it is, the last which client it is. number tells apart the clients that a Secret had at different times.
func ClientLeaf(tenant, namespace, secret string, number int) Leaf {
	return Leaf{
		Purpose: Client, CommonName: cut("client-"+namespace+"-"+secret, maxCommonName),
		URIs: []string{TenantURI + tenant, fmt.Sprintf("%s%s/%s/%d", ClientURI, namespace, secret, number)},
	}
}

// Pair is a certificate, with its CA's after it, and its key, as they are stored.
type Pair struct{ Cert, Key []byte }

// Issue makes a certificate of a key of its own, P-256. It ends no later than its CA.
func (c CA) Issue(random io.Reader, now time.Time, leaf Leaf, validity time.Duration) (Pair, error) {
	if !c.signs(now) {
		return Pair{}, fmt.Errorf("CA %q cannot sign: it has no key, or is not valid now", c.cert.Subject.CommonName)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), random)
	if err != nil {
		return Pair{}, fmt.Errorf("making a key: %w", err)
	}
	serial, err := newSerial(random)
	if err != nil {
		return Pair{}, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: leaf.CommonName}, DNSNames: leaf.DNSNames,
		NotBefore: later(now.Add(-Backdate(validity)), c.cert.NotBefore).UTC(), NotAfter: earlier(now.Add(validity), c.cert.NotAfter).UTC(),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{leaf.usage()}, BasicConstraintsValid: true,
	}
	for _, ip := range leaf.IPs {
		template.IPAddresses = append(template.IPAddresses, ip.AsSlice())
	}
	for _, text := range leaf.URIs {
		uri, err := url.Parse(text)
		if err != nil {
			return Pair{}, fmt.Errorf("URI of a certificate: %w", err)
		}
		template.URIs = append(template.URIs, uri)
	}
	der, err := x509.CreateCertificate(random, template, c.cert, key.Public(), c.key)
	if err != nil {
		return Pair{}, fmt.Errorf("signing a certificate: %w", err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Cert: slices.Concat(encodePEM(blockCertificate, der), c.CertPEM), Key: keyPEM}, nil
}

func (l Leaf) usage() x509.ExtKeyUsage {
	if l.Purpose == Serving {
		return x509.ExtKeyUsageServerAuth
	}
	return x509.ExtKeyUsageClientAuth
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// errNoPair reports that nothing is there yet.
var errNoPair = errors.New("there is no certificate yet")

// inspect returns the certificate of a pair, or why the pair is of no use.
func (p Pair) inspect() (*x509.Certificate, error) {
	if len(p.Cert) == 0 && len(p.Key) == 0 {
		return nil, errNoPair
	}
	certs, err := parseCertificates(p.Cert)
	if err != nil {
		return nil, fmt.Errorf("the certificate cannot be used: %w", err)
	}
	key, err := parseKey(p.Key)
	if err != nil {
		return nil, fmt.Errorf("the key cannot be used: %w", err)
	}
	if !key.PublicKey.Equal(certs[0].PublicKey) {
		return nil, errors.New("the key is not that of the certificate")
	}
	return certs[0], nil
}

// NotAfter is the end of the certificate's life, and the zero time if there is none that can be read.
func (p Pair) NotAfter() time.Time {
	cert, err := p.inspect()
	if err != nil {
		return time.Time{}
	}
	return cert.NotAfter
}

// matches reports whether a certificate speaks for whom it should.
func (l Leaf) matches(cert *x509.Certificate) bool {
	var uris []string
	for _, u := range cert.URIs {
		uris = append(uris, u.String())
	}
	var ips []netip.Addr
	for _, raw := range cert.IPAddresses {
		ip, _ := netip.AddrFromSlice(raw)
		ips = append(ips, ip.Unmap())
	}
	return cert.Subject.CommonName == l.CommonName && slices.Equal(cert.DNSNames, l.DNSNames) && slices.Equal(uris, l.URIs) &&
		slices.Equal(ips, l.IPs) && slices.Equal(cert.ExtKeyUsage, []x509.ExtKeyUsage{l.usage()})
}

// Validity is the time from issue to the end that is wanted for CAs and for leaves.
type Validity struct{ Signing, Leaf time.Duration }

// renewal says why a pair has to be issued again now, "" if it has not. A CA whose key is lost is trusted as before, so what it has signed
// is renewed in its own time: anyone who read a bundle at its start, when there was no other CA, would not trust the next one.
func (w World) renewal(want Place, issuer CA) string {
	cert, err := want.Pair.inspect()
	if err != nil {
		return err.Error()
	}
	signer, ok := w.signerOf(cert)
	switch {
	case !ok:
		return "its CA is not known"
	case !want.Leaf.matches(cert):
		return "it has another identity"
	case !within(cert, w.Now) || !signer.valid(w.Now):
		return "it is not valid now"
	case !w.Now.Before(moment(cert, w.Validity.Leaf, 2, 3)) && !w.endsWith(cert, issuer):
		return "two thirds of its validity are over"
	case signer.Generation < issuer.Generation && signer.key != nil:
		return "the next CA signs"
	}
	return ""
}

// endsWith reports that a certificate ends with the CA that would sign the next one, which would end no later. It matters where an issuer is
// late with its next CA: without it a certificate would be issued again and again as the end comes closer.
func (w World) endsWith(cert *x509.Certificate, issuer CA) bool {
	end := issuer.cert.NotAfter
	return cert.NotAfter.Equal(end) && !w.Now.Add(w.Validity.Leaf).Before(end)
}

// signerOf finds the CA that has signed a certificate: the newest one, since an issuer may have given two of them the same key.
func (w World) signerOf(cert *x509.Certificate) (CA, bool) {
	for _, ca := range slices.Backward(w.Signers) {
		if cert.CheckSignatureFrom(ca.cert) == nil {
			return ca, true
		}
	}
	return CA{}, false
}
