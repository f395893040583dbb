// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package certreload_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mooring-dev/mooring/internal/platform/certreload"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// authority is a CA made for a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// pair is a leaf certificate with its key, as files hold them.
type pair struct{ cert, key []byte }

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	return newAuthorityUntil(t, name, time.Now().Add(time.Hour))
}

func newAuthorityUntil(t *testing.T, name string, end time.Time) *authority {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: end, KeyUsage: x509.KeyUsageCertSign,
	}
	der := must.Get(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)).Or(t)
	cert := must.Get(x509.ParseCertificate(der)).Or(t)
	return &authority{cert: cert, key: key, pem: encode("CERTIFICATE", der)}
}

// issue makes a leaf for localhost whose serial number tells it apart, followed by its CA.
func (a *authority) issue(t *testing.T, serial int64) pair {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "leaf"}, DNSNames: []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Unix(4_000_000_000, 0),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der := must.Get(x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)).Or(t)
	keyDER := must.Get(x509.MarshalECPrivateKey(key)).Or(t)
	return pair{cert: append(encode("CERTIFICATE", der), a.pem...), key: encode("EC PRIVATE KEY", keyDER)}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)).Or(t)
	return key
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// folder holds the three files of a test.
type folder string

func newFolder(t *testing.T, p pair, ca []byte) folder {
	t.Helper()
	f := folder(t.TempDir())
	f.write(t, p, ca)
	return f
}

func (f folder) files() certreload.Files {
	return certreload.Files{Cert: f.path("tls.crt"), Key: f.path("tls.key"), CA: f.path("ca.crt")}
}

func (f folder) path(name string) string { return filepath.Join(string(f), name) }

func (f folder) write(t *testing.T, p pair, ca []byte) {
	t.Helper()
	f.put(t, "tls.crt", p.cert)
	f.put(t, "tls.key", p.key)
	f.put(t, "ca.crt", ca)
}

func (f folder) put(t *testing.T, name string, data []byte) {
	t.Helper()
	must.Do(t, os.WriteFile(f.path(name), data, 0o600))
}

func newReloader(t *testing.T, files certreload.Files, o certreload.Options) *certreload.Reloader {
	t.Helper()
	r := must.Get(certreload.New(files, o)).Or(t)
	return r
}

// serial is which leaf a reloader serves.
func serial(r *certreload.Reloader) int64 { return r.Current().Certificate.Leaf.SerialNumber.Int64() }

// bundle joins CA files.
func bundle(cas ...*authority) []byte {
	var out bytes.Buffer
	for _, ca := range cas {
		out.Write(ca.pem)
	}
	return out.Bytes()
}
