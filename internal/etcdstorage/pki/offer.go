// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/x509"
	"errors"
	"fmt"
)

// ParseOffer reads the CA that an issuer has put into a Secret: a certificate, perhaps with those of its issuers after it, and its key. Of
// these only the first is trusted: anyone who is signed by the issuer itself is not a client of this tenant. The error says what cannot be
// used, as the end of a sentence.
func ParseOffer(pair Pair) (*CA, error) {
	certs, err := parseCertificates(pair.Cert)
	if err != nil {
		return nil, fmt.Errorf("its certificate cannot be used: %w", err)
	}
	cert := certs[0]
	if !cert.IsCA || cert.KeyUsage != 0 && cert.KeyUsage&x509.KeyUsageCertSign == 0 {
		return nil, errors.New("its certificate is not that of a CA: the issuer must be one that issues CAs, such as those of type CA, SelfSigned and Vault")
	}
	key, err := parseKey(pair.Key)
	if err != nil {
		return nil, fmt.Errorf("its key cannot be used: %w", err)
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, errors.New("its key is not that of its certificate")
	}
	return &CA{CertPEM: encodePEM(blockCertificate, cert.Raw), KeyPEM: pair.Key, cert: cert, key: key}, nil
}
