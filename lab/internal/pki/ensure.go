// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	// authorityLife and leafLife are how long new certificates are valid. A leaf is renewed at the next start of the lab once less
	// than renewBefore is left; a lab that runs for a year without a restart is not foreseen.
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 365 * 24 * time.Hour
	renewBefore   = 60 * 24 * time.Hour
	// clockSkew is how far back certificates are valid, for machines whose clocks differ a little.
	clockSkew = 5 * time.Minute

	keyBlock         = "PRIVATE KEY"
	publicBlock      = "PUBLIC KEY"
	certificateBlock = "CERTIFICATE"
)

// Ensure makes dir hold what plan says, as of now. It keeps every authority, key pair and certificate that is there, was signed by
// the right authority, still says what the plan says and is not about to expire.
func Ensure(dir string, plan Plan, now time.Time) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making the PKI folder: %w", err)
	}
	authorities := map[string]authority{}
	for _, name := range plan.Authorities {
		a, err := ensureAuthority(dir, name, now)
		if err != nil {
			return fmt.Errorf("certificate authority %s: %w", name, err)
		}
		authorities[name] = a
	}
	for _, certificate := range plan.Certificates {
		signer, ok := authorities[certificate.Authority]
		if !ok {
			return fmt.Errorf("certificate %s: its authority %s is not in the plan", certificate.Name, certificate.Authority)
		}
		if err := ensureCertificate(dir, certificate, signer, now); err != nil {
			return fmt.Errorf("certificate %s: %w", certificate.Name, err)
		}
	}
	for _, name := range plan.KeyPairs {
		if err := ensureKeyPair(dir, name); err != nil {
			return fmt.Errorf("key pair %s: %w", name, err)
		}
	}
	return nil
}

type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

func ensureAuthority(dir, name string, now time.Time) (authority, error) {
	base := filepath.Join(dir, name)
	certificate, key, err := load(base)
	switch {
	case err == nil && certificate.IsCA && now.Add(leafLife).Before(certificate.NotAfter):
		return authority{certificate, key}, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return authority{}, err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "mooring-lab-" + name},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(authorityLife),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
	}
	newKey, err := newKey()
	if err != nil {
		return authority{}, err
	}
	signed, err := write(base, template, newKey, authority{certificate: template, key: newKey})
	return authority{signed, newKey}, err
}

func ensureCertificate(dir string, wanted Certificate, signer authority, now time.Time) error {
	base := filepath.Join(dir, wanted.Name)
	template, err := templateFor(wanted, now)
	if err != nil {
		return err
	}
	current, _, err := load(base)
	if err == nil && stillGood(current, template, signer, now) {
		return nil
	}
	// A damaged certificate is replaced like a missing one: unlike an authority, nothing else depends on it.
	key, err := newKey()
	if err != nil {
		return err
	}
	_, err = write(base, template, key, signer)
	return err
}

func templateFor(wanted Certificate, now time.Time) (*x509.Certificate, error) {
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: wanted.CommonName, Organization: wanted.Organizations},
		NotBefore: now.Add(-clockSkew),
		NotAfter:  now.Add(leafLife),
		KeyUsage:  x509.KeyUsageDigitalSignature,
		DNSNames:  wanted.DNSNames,
	}
	for _, text := range wanted.IPs {
		ip := net.ParseIP(text)
		if ip == nil {
			return nil, fmt.Errorf("%q is not an IP address", text)
		}
		template.IPAddresses = append(template.IPAddresses, ip)
	}
	if wanted.Serves() {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if wanted.Client {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	if len(template.ExtKeyUsage) == 0 {
		return nil, errors.New("it neither serves nor authenticates a client")
	}
	return template, nil
}

func stillGood(current, wanted *x509.Certificate, signer authority, now time.Time) bool {
	return current.CheckSignatureFrom(signer.certificate) == nil &&
		now.After(current.NotBefore) && now.Add(renewBefore).Before(current.NotAfter) &&
		current.Subject.CommonName == wanted.Subject.CommonName &&
		slices.Equal(current.Subject.Organization, wanted.Subject.Organization) &&
		slices.Equal(current.DNSNames, wanted.DNSNames) &&
		slices.EqualFunc(current.IPAddresses, wanted.IPAddresses, net.IP.Equal) &&
		slices.Equal(current.ExtKeyUsage, wanted.ExtKeyUsage)
}

func ensureKeyPair(dir, name string) error {
	base := filepath.Join(dir, name)
	key, err := loadKey(base + ".key")
	if errors.Is(err, fs.ErrNotExist) {
		if key, err = newKey(); err != nil {
			return err
		}
		if err = writeKey(base+".key", key); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("encoding the public key: %w", err)
	}
	return writePEM(base+".pub", publicBlock, der)
}

func newKey() (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating a key: %w", err)
	}
	return key, nil
}

// write signs template and writes first the key, then the certificate: a crash in between leaves no certificate without its key.
func write(base string, template *x509.Certificate, key crypto.Signer, signer authority) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("choosing a serial number: %w", err)
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, signer.certificate, key.Public(), signer.key)
	if err != nil {
		return nil, fmt.Errorf("signing: %w", err)
	}
	signed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading back: %w", err)
	}
	if err := os.Remove(base + ".crt"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return signed, errors.Join(writeKey(base+".key", key), writePEM(base+".crt", certificateBlock, der))
}

func writeKey(path string, key crypto.Signer) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("encoding the key: %w", err)
	}
	return writePEM(path, keyBlock, der)
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// load reads base.crt and base.key and checks that they belong together.
func load(base string) (*x509.Certificate, crypto.Signer, error) {
	der, err := readPEM(base+".crt", certificateBlock)
	if err != nil {
		return nil, nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, fmt.Errorf("parsing %s.crt: %w", base, err)
	}
	key, err := loadKey(base + ".key")
	if err != nil {
		return nil, nil, err
	}
	certified, err := x509.MarshalPKIXPublicKey(certificate.PublicKey)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding the public key of %s.crt: %w", base, err)
	}
	own, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, nil, fmt.Errorf("encoding the public key of %s.key: %w", base, err)
	}
	if !bytes.Equal(certified, own) {
		return nil, nil, fmt.Errorf("%s.crt does not belong to %s.key; delete both to have them made again", base, base)
	}
	return certificate, key, nil
}

func loadKey(path string) (crypto.Signer, error) {
	der, err := readPEM(path, keyBlock)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("parsing %s: %w", path, err)
	}
	key, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s holds a key of type %T, which cannot sign", path, parsed)
	}
	return key, nil
}

func readPEM(path, kind string) ([]byte, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(content)
	if block == nil || block.Type != kind {
		return nil, fmt.Errorf("%s holds no PEM block %q; delete it to have it made again", path, kind)
	}
	return block.Bytes, nil
}
