// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"time"
)

// Purpose says whose certificates a CA signs.
type Purpose string

// The purposes.
const (
	Serving Purpose = "serving"
	Client  Purpose = "client"
)

// Types of PEM blocks.
const (
	blockCertificate = "CERTIFICATE"
	blockKey         = "PRIVATE KEY"
)

// CA is one generation of a CA.
type CA struct {
	// Generation counts the CAs of a purpose from 1 up; a greater one is newer.
	Generation int
	// CertPEM and KeyPEM are what is stored. KeyPEM is nil when the key is lost: such a CA is still trusted and signs no more.
	CertPEM, KeyPEM []byte
	// Published is since when all bundles are known to hold it; zero while that is not known.
	Published time.Time
	// Origin is the issuer that it was taken from, as [World] has it; "" for one that was made here.
	Origin string

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NotAfter is the end of its life.
func (c CA) NotAfter() time.Time { return c.cert.NotAfter }

// maxBackdate bounds how far before the present the validity of certificates begins, so that peers whose clocks are behind accept them at once.
const maxBackdate = time.Hour

// Backdate is how far before the present a certificate of this validity begins.
func Backdate(validity time.Duration) time.Duration { return min(maxBackdate, validity/10) }

// NewCA makes a CA of its own key, P-256. The owner goes into its name, cut to what a common name may hold (64 bytes, RFC 5280 appendix A.1).
func NewCA(random io.Reader, now time.Time, owner string, purpose Purpose, generation int, validity time.Duration) (CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), random)
	if err != nil {
		return CA{}, fmt.Errorf("making the key of a CA: %w", err)
	}
	serial, err := newSerial(random)
	if err != nil {
		return CA{}, err
	}
	suffix := fmt.Sprintf(" %s CA %d", purpose, generation)
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: cut(owner, maxCommonName-len(suffix)) + suffix},
		NotBefore: now.Add(-Backdate(validity)).UTC(), NotAfter: now.Add(validity).UTC(),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(random, template, template, key.Public(), key)
	if err != nil {
		return CA{}, fmt.Errorf("making the certificate of a CA: %w", err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return CA{}, err
	}
	return parseCA(generation, encodePEM(blockCertificate, der), keyPEM)
}

// parseCA reads what is stored of a CA. A key that cannot be read, or is another's, is left out.
func parseCA(generation int, certPEM, keyPEM []byte) (CA, error) {
	certs, err := parseCertificates(certPEM)
	if err != nil {
		return CA{}, err
	}
	if len(certs) != 1 || !certs[0].IsCA {
		return CA{}, errors.New("it is not the certificate of one CA")
	}
	out := CA{Generation: generation, CertPEM: certPEM, cert: certs[0]}
	if key, err := parseKey(keyPEM); err == nil && key.PublicKey.Equal(certs[0].PublicKey) {
		out.key, out.KeyPEM = key, keyPEM
	}
	return out, nil
}

// valid reports that the CA is within its validity.
func (c CA) valid(now time.Time) bool { return within(c.cert, now) }

// signs reports that it can sign now.
func (c CA) signs(now time.Time) bool { return c.key != nil && c.valid(now) }

// after reports whether numerator/denominator of the CA's life are over. A CA that was made with a longer validity than is wanted now lives as long
// as is wanted now.
func (c CA) after(now time.Time, validity time.Duration, numerator, denominator int64) bool {
	return !now.Before(moment(c.cert, validity, numerator, denominator))
}

// moment is when that part of a certificate's life is over.
func moment(cert *x509.Certificate, validity time.Duration, numerator, denominator int64) time.Time {
	life := min(cert.NotAfter.Sub(cert.NotBefore), validity+Backdate(validity))
	return cert.NotBefore.Add(life / time.Duration(denominator) * time.Duration(numerator))
}

func within(cert *x509.Certificate, now time.Time) bool {
	return !now.Before(cert.NotBefore) && !now.After(cert.NotAfter)
}

// maxCommonName is the upper bound of a common name (RFC 5280, ub-common-name).
const maxCommonName = 64

func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return text[:most]
}

// newSerial is a random number of 127 bits (RFC 5280, 4.1.2.2: positive, at most 20 bytes).
func newSerial(random io.Reader) (*big.Int, error) {
	raw := make([]byte, 16)
	if _, err := io.ReadFull(random, raw); err != nil {
		return nil, fmt.Errorf("drawing a serial number: %w", err)
	}
	raw[0] = raw[0]&0x7f | 0x40
	return new(big.Int).SetBytes(raw), nil
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("writing a key: %w", err)
	}
	return encodePEM(blockKey, der), nil
}

func parseKey(text []byte) (*ecdsa.PrivateKey, error) {
	block, rest := pem.Decode(text)
	if block == nil || block.Type != blockKey || len(rest) > 0 {
		return nil, errors.New("it is not one private key in PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading a key: %w", err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("the key is a %T, not one of ECDSA", parsed)
	}
	return key, nil
}

// parseCertificates reads certificates in PEM, and nothing else.
func parseCertificates(text []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for len(text) > 0 {
		block, rest := pem.Decode(text)
		if block == nil || block.Type != blockCertificate {
			return nil, errors.New("it holds something else than certificates in PEM")
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("reading a certificate: %w", err)
		}
		out, text = append(out, cert), rest
	}
	if len(out) == 0 {
		return nil, errors.New("it holds no certificate")
	}
	return out, nil
}
