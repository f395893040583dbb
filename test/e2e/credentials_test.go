// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// authority is a certificate authority of a test.
type authority struct {
	t           *testing.T
	dir         string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	// File is its certificate.
	File string
}

// credential is the files of a certificate and its key.
type credential struct{ Cert, Key string }

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	a.certificate, a.key = template, newKey(t)
	der := a.sign(template, a.key)
	var err error
	if a.certificate, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.File = a.write("ca.pem", "CERTIFICATE", der)
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return der
}

func (a *authority) write(name, kind string, der []byte) string {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// Issue makes a certificate for loopback, or for a host name, that has been valid for a day and ends after the given time.
func (a *authority) Issue(name, host string, life time.Duration) credential {
	a.t.Helper()
	key := newKey(a.t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name, Organization: []string{"system:masters"}},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(life), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if host == "" {
		template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return credential{Cert: a.write(name+".pem", "CERTIFICATE", a.sign(template, key)), Key: a.write(name+".key", "EC PRIVATE KEY", der)}
}

// listen answers TLS handshakes as etcd does, which is crypto/tls as well, and then says nothing. It returns its URL.
func (a *authority) listen(server credential, clients *authority) string {
	a.t.Helper()
	certificate, err := tls.LoadX509KeyPair(server.Cert, server.Key)
	if err != nil {
		a.t.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
	if clients != nil {
		config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		config.ClientCAs.AddCert(clients.certificate)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_ = connection.(*tls.Conn).HandshakeContext(a.t.Context())
				_, _ = connection.Read(make([]byte, 1024))
				_ = connection.Close()
			}()
		}
	}()
	return "https://" + listener.Addr().String()
}

// badEtcdCertificates are certificates for etcd that cannot be read, do not fit, are somebody else's, or are no longer valid.
func (s *dirtySite) badEtcdCertificates() []refusal {
	s.t.Helper()
	ours, theirs := newAuthority(s.t, "ours"), newAuthority(s.t, "theirs")
	good := ours.Issue("etcd", "", time.Hour)
	client, other := ours.Issue("client", "", time.Hour), ours.Issue("other", "", time.Hour)
	stale, foreign := ours.Issue("stale", "", -time.Hour), theirs.Issue("foreign", "", time.Hour)
	open, closed := ours.listen(good, nil), ours.listen(good, ours)
	none := filepath.Join(s.t.TempDir(), "none.pem")
	garbage := filepath.Join(s.t.TempDir(), "garbage.pem")
	s.must(os.WriteFile(garbage, []byte("-----BEGIN CERTIFICATE-----\nnothing\n"), 0o600))
	env := func(endpoint, ca string, own credential) []string {
		return []string{"ETCD_ENDPOINTS=" + endpoint, "ETCD_CA_CERT_FILE=" + ca, "ETCD_CERT_FILE=" + own.Cert, "ETCD_KEY_FILE=" + own.Key}
	}
	return []refusal{
		{"certificates for http", env(s.through.EtcdURL, ours.File, client), nil, "etcd certificates are set but ETCD_ENDPOINTS is http"},
		{"no CA file", env(open, none, client), nil, "ETCD_CA_CERT_FILE cannot be read"},
		{"a CA file that is none", env(open, garbage, client), nil, "holds no certificate"},
		{"no certificate file", env(open, ours.File, credential{none, client.Key}), nil, "ETCD_CERT_FILE cannot be read"},
		{"no key file", env(open, ours.File, credential{client.Cert, none}), nil, "ETCD_KEY_FILE cannot be read"},
		{"a certificate without key", env(open, ours.File, credential{Cert: client.Cert}), nil, "a client certificate needs both"},
		{"a certificate file that is none", env(open, ours.File, credential{garbage, client.Key}), nil, "certificate"},
		{"a key of another certificate", env(open, ours.File, credential{client.Cert, other.Key}), nil, "private key does not match public key"},
		{"a CA of others", env(open, theirs.File, client), nil, "certificate signed by unknown authority (check ETCD_CA_CERT_FILE"},
		{"an expired server", env(ours.listen(stale, nil), ours.File, client), nil, "certificate has expired"},
		{"a server of another name", env(ours.listen(ours.Issue("named", "etcd.example", time.Hour), nil), ours.File, client), nil, "and the host names in ETCD_ENDPOINTS"},
		{"no client certificate", env(closed, ours.File, credential{}), nil, "etcd refuses our client certificate"},
		{"a client certificate of others", env(closed, ours.File, foreign), nil, "etcd refuses our client certificate"},
		{"an expired client certificate", env(closed, ours.File, stale), nil, "etcd refuses our client certificate"},
	}
}

// badKubernetesCredentials are kubeconfigs with which the API server cannot be talked to.
func (s *dirtySite) badKubernetesCredentials(etcd string) []refusal {
	s.t.Helper()
	theirs := newAuthority(s.t, "theirs")
	server := s.api.Config.Host
	data, err := os.ReadFile(s.api.Config.CAFile)
	s.must(err)
	block, _ := pem.Decode(data)
	broken := filepath.Join(s.t.TempDir(), "broken")
	s.must(os.WriteFile(broken, []byte("not: [a kubeconfig"), 0o600))
	kubeconfig := func(path string) []string { return []string{"--kubeconfig", path} }
	return []refusal{
		{"no kubeconfig", []string{etcd}, kubeconfig(filepath.Join(s.t.TempDir(), "none")), "cannot be read"},
		{"a kubeconfig that is none", []string{etcd}, kubeconfig(broken), "--kubeconfig"},
		{"a CA of others for Kubernetes", []string{etcd}, kubeconfig(writeKubeconfig(s.t, server, s.token, theirs.certificate.Raw)), "certificate signed by unknown authority"},
		{"a token of nobody", []string{etcd}, kubeconfig(writeKubeconfig(s.t, server, "nobody", block.Bytes)), "the server has asked for the client to provide credentials"},
	}
}
