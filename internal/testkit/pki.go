// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority is a certificate authority made for a test, P-256 throughout.
type Authority struct {
	// PEM is its certificate.
	PEM  []byte
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Pair is a leaf certificate with its authority's after it, and its key, as files hold them.
type Pair struct{ Cert, Key []byte }

// Leaf says what a certificate is made of; the zero value is one for both sides of a connection on loopback, valid for an hour.
type Leaf struct {
	CommonName string
	// DNSNames nil means localhost; IP nil means 127.0.0.1.
	DNSNames []string
	IP       []net.IP
	// URI is an URI SAN; empty for none.
	URI string
	// NotBefore and NotAfter are offsets from now; both zero means -1 h and +1 h.
	NotBefore, NotAfter time.Duration
	// Usages nil means server and client.
	Usages []x509.ExtKeyUsage
}

// NewAuthority makes an authority that is valid for an hour.
func NewAuthority(tb testing.TB, name string) *Authority {
	tb.Helper()
	return NewAuthorityFor(tb, name, -time.Hour, time.Hour)
}

// NewAuthorityFor makes an authority whose validity lies around now by these offsets.
func NewAuthorityFor(tb testing.TB, name string, notBefore, notAfter time.Duration) *Authority {
	tb.Helper()
	key := newKey(tb)
	template := &x509.Certificate{
		SerialNumber: newSerial(tb), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(notBefore), NotAfter: time.Now().Add(notAfter), KeyUsage: x509.KeyUsageCertSign,
	}
	der := must.Get(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)).Or(tb)
	cert := must.Get(x509.ParseCertificate(der)).Or(tb)
	return &Authority{PEM: encodePEM("CERTIFICATE", der), cert: cert, key: key}
}

// Issue makes a certificate and its key.
func (a *Authority) Issue(tb testing.TB, leaf Leaf) Pair {
	tb.Helper()
	if leaf.DNSNames == nil {
		leaf.DNSNames = []string{"localhost"}
	}
	if leaf.IP == nil {
		leaf.IP = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	if leaf.NotBefore == 0 && leaf.NotAfter == 0 {
		leaf.NotBefore, leaf.NotAfter = -time.Hour, time.Hour
	}
	if leaf.Usages == nil {
		leaf.Usages = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	template := &x509.Certificate{
		SerialNumber: newSerial(tb), Subject: pkix.Name{CommonName: leaf.CommonName}, DNSNames: leaf.DNSNames, IPAddresses: leaf.IP,
		NotBefore: time.Now().Add(leaf.NotBefore), NotAfter: time.Now().Add(leaf.NotAfter), ExtKeyUsage: leaf.Usages,
	}
	if leaf.URI != "" {
		uri := must.Get(url.Parse(leaf.URI)).Or(tb)
		template.URIs = []*url.URL{uri}
	}
	key := newKey(tb)
	der := must.Get(x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)).Or(tb)
	keyDER := must.Get(x509.MarshalECPrivateKey(key)).Or(tb)
	return Pair{Cert: append(encodePEM("CERTIFICATE", der), a.PEM...), Key: encodePEM("EC PRIVATE KEY", keyDER)}
}

// Client is a TLS 1.3 configuration with the pair (none if it is zero) that trusts these authorities.
func (p Pair) Client(tb testing.TB, trust ...*Authority) *tls.Config {
	tb.Helper()
	out := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: x509.NewCertPool()}
	for _, a := range trust {
		out.RootCAs.AddCert(a.cert)
	}
	if p.Cert != nil {
		pair := must.Get(tls.X509KeyPair(p.Cert, p.Key)).Or(tb)
		out.Certificates = []tls.Certificate{pair}
	}
	return out
}

// Bundle joins the certificates of authorities, as a CA file holds them.
func Bundle(authorities ...*Authority) []byte {
	var out bytes.Buffer
	for _, a := range authorities {
		out.Write(a.PEM)
	}
	return out.Bytes()
}

// TLSFolder is a folder with tls.crt, tls.key and ca.crt.
type TLSFolder string

// NewTLSFolder makes one with these contents.
func NewTLSFolder(tb testing.TB, pair Pair, bundle []byte) TLSFolder {
	tb.Helper()
	f := TLSFolder(tb.TempDir())
	f.Put(tb, "tls.crt", pair.Cert)
	f.Put(tb, "tls.key", pair.Key)
	f.Put(tb, "ca.crt", bundle)
	return f
}

// Cert is the path of the certificate.
func (f TLSFolder) Cert() string { return f.path("tls.crt") }

// Key is the path of the private key.
func (f TLSFolder) Key() string { return f.path("tls.key") }

// CA is the path of the bundle.
func (f TLSFolder) CA() string { return f.path("ca.crt") }

func (f TLSFolder) path(name string) string { return filepath.Join(string(f), name) }

// flags are those with which an etcd serves the pair and wants certificates of the bundle.
func (f TLSFolder) flags() []string {
	return []string{"--cert-file", f.Cert(), "--key-file", f.Key(), "--client-ca-file", f.CA()}
}

// Put replaces one file by renaming a new one over it, as careful writers do.
func (f TLSFolder) Put(tb testing.TB, name string, content []byte) {
	tb.Helper()
	partial := f.path("." + name + ".partial")
	must.Do(tb, os.WriteFile(partial, content, 0o600))
	must.Do(tb, os.Rename(partial, f.path(name)))
}

// PutPair replaces certificate and key, one after the other.
func (f TLSFolder) PutPair(tb testing.TB, pair Pair) {
	tb.Helper()
	f.Put(tb, "tls.crt", pair.Cert)
	f.Put(tb, "tls.key", pair.Key)
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)).Or(tb)
	return key
}

func newSerial(tb testing.TB) *big.Int {
	tb.Helper()
	random := make([]byte, 15)
	must.Get(rand.Read(random)).Or(tb)
	return new(big.Int).SetBytes(random)
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
