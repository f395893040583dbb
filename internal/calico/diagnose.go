// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"
)

// ErrUntrusted is the kind of error that no waiting cures: the certificates do not fit.
var ErrUntrusted = errors.New("the certificates do not fit")

const diagnoseTimeout = 2 * time.Second

// diagnose finds out why etcd does not respond. Its client says no more than that a deadline has passed; one plain TLS handshake with each
// endpoint says the rest. It returns the plainest reason, or the given error if the handshakes succeed.
func (d *Etcd) diagnose(ctx context.Context, failure error) error {
	for _, endpoint := range d.config.Endpoints {
		u, err := url.Parse(endpoint)
		if err != nil {
			continue
		}
		if err := d.handshake(ctx, u); err != nil {
			return err
		}
	}
	return failure
}

func (d *Etcd) handshake(ctx context.Context, u *url.URL) error {
	ctx, cancel := context.WithTimeout(ctx, diagnoseTimeout)
	defer cancel()
	if d.tls == nil {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", u.Host)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	conn, err := (&tls.Dialer{Config: d.tls.Clone()}).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return explainTLS(err)
	}
	defer func() { _ = conn.Close() }()
	// With TLS 1.3 a server refuses a client's certificate only after the handshake: its alert comes with the first read, which the end
	// of ctx cuts short when no alert comes.
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_, err = conn.Read(make([]byte, 1))
	return explainAlert(err)
}

func explainTLS(err error) error {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		return fmt.Errorf("%w: %w (renew etcd's server certificate, or correct this machine's clock)", ErrUntrusted, err)
	}
	if errors.As(err, &unknown) || errors.As(err, &name) || errors.As(err, &invalid) {
		return fmt.Errorf("%w: %w (check ETCD_CA_CERT_FILE and the host names in ETCD_ENDPOINTS)", ErrUntrusted, err)
	}
	if alerted := explainAlert(err); alerted != nil {
		return alerted
	}
	return err
}

// explainAlert recognizes a TLS alert from the server; anything else it reads or does not read is not a sign of a wrong certificate.
func explainAlert(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "remote error" {
		return fmt.Errorf("%w: etcd refuses our client certificate: %w (check ETCD_CERT_FILE and ETCD_KEY_FILE)", ErrUntrusted, op.Err)
	}
	return nil
}
