// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package certreload

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
)

var errNoCertificate = errors.New("no certificate is configured")

// ServerConfig returns a TLS configuration whose certificate and client CAs follow the files: each
// handshake uses the snapshot of that moment. base gives the rest (ClientAuth, NextProtos, MinVersion,
// …), is not modified and may be nil; its Certificates and ClientCAs are replaced, TLS 1.2 is the
// least. Set NextProtos in base for HTTP/2, because net/http cannot add it to a per-connection
// configuration. Session resumption is off: a resumed session would outlive the CA that admitted it.
func (r *Reloader) ServerConfig(base *tls.Config) *tls.Config {
	if base == nil {
		base = &tls.Config{} //nolint:gosec // MinVersion is set below
	}
	base = base.Clone()
	base.MinVersion = max(base.MinVersion, tls.VersionTLS12)
	base.SessionTicketsDisabled = true
	base.Certificates = nil
	base.GetCertificate = r.GetCertificate
	base.Time = r.now

	out := base.Clone()
	out.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := r.Current()
		connection := base.Clone()
		if now.Certificate != nil {
			// The pair and the CAs of one snapshot: GetCertificate could already answer with the next.
			connection.GetCertificate = nil
			connection.Certificates = []tls.Certificate{*now.Certificate}
		}
		connection.ClientCAs = now.CAs
		return connection, nil
	}
	return out
}

// ClientConfig returns a TLS configuration for clients whose certificate and trusted CAs follow the
// files. serverName is the name or IP address that the server's certificate must carry; empty means
// the host name being dialed, as net/http and gRPC fill it in, and then servers addressed by IP are
// refused, since the handshake does not tell which address was meant. Without a CA bundle the
// system's roots are used.
func (r *Reloader) ClientConfig(serverName string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		ServerName: serverName,
		// crypto/tls can check only against a fixed RootCAs; VerifyConnection below makes the same
		// check against the current bundle, and is also called for resumed sessions.
		InsecureSkipVerify:   true, //nolint:gosec // see above
		VerifyConnection:     r.verifyServer(serverName),
		GetClientCertificate: r.GetClientCertificate,
		Time:                 r.now,
	}
}

// HandshakeConfig returns a configuration for one handshake with the server called serverName (a host name or an IP address): the CAs and the key pair
// of this moment, checked by crypto/tls itself. For clients that make a configuration for each connection, which then need none of
// ClientConfig's detours and may address servers by IP. TLS 1.3 is the least. The snapshot is what the configuration was made of: when it is not Current
// any more, another handshake would be made with something else.
func (r *Reloader) HandshakeConfig(serverName string) (*tls.Config, *Snapshot) {
	now := r.Current()
	out := &tls.Config{MinVersion: tls.VersionTLS13, ServerName: serverName, RootCAs: now.CAs, Time: r.now}
	if now.Certificate != nil {
		out.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return now.Certificate, nil }
	}
	return out, now
}

func (r *Reloader) verifyServer(serverName string) func(tls.ConnectionState) error {
	return func(cs tls.ConnectionState) error {
		name := serverName
		if name == "" {
			name = cs.ServerName
		}
		if name == "" {
			return errors.New("verifying the server: it was addressed by IP and no server name is configured")
		}
		if len(cs.PeerCertificates) == 0 {
			return errors.New("verifying the server: it sent no certificate")
		}
		intermediates := x509.NewCertPool()
		for _, c := range cs.PeerCertificates[1:] {
			intermediates.AddCert(c)
		}
		_, err := cs.PeerCertificates[0].Verify(x509.VerifyOptions{
			DNSName:       name,
			Roots:         r.Current().CAs, // nil means the system's roots
			Intermediates: intermediates,
			CurrentTime:   r.now(),
			KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		})
		if err != nil {
			return fmt.Errorf("verifying the server's certificate: %w", err)
		}
		return nil
	}
}

// GetCertificate serves the current key pair; it fits tls.Config.GetCertificate.
func (r *Reloader) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := r.Current().Certificate; c != nil {
		return c, nil
	}
	return nil, errNoCertificate
}

// GetClientCertificate offers the current key pair, or none at all when none is configured; it fits
// tls.Config.GetClientCertificate.
func (r *Reloader) GetClientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if c := r.Current().Certificate; c != nil {
		return c, nil
	}
	return &tls.Certificate{}, nil
}
