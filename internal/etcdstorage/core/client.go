// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// Credentials are how the operator shows itself to the core, PEM throughout. Username and Password may be empty: then the certificate says who it is.
type Credentials struct {
	CA, Cert, Key      []byte
	Username, Password string
}

// Equal reports whether two are the same.
func (c Credentials) Equal(o Credentials) bool {
	return bytes.Equal(c.CA, o.CA) && bytes.Equal(c.Cert, o.Cert) && bytes.Equal(c.Key, o.Key) && c.Username == o.Username && c.Password == o.Password
}

// CommonName is the common name of a certificate in PEM, by which etcd finds a user when its client has logged in as nobody (--client-cert-auth).
func CommonName(certPEM []byte) string {
	pair, err := x509Leaf(certPEM)
	if err != nil {
		return ""
	}
	return pair.Subject.CommonName
}

// Patience bounds one call of the operator's.
const Patience = 5 * time.Second

// Client is a connection to the core. It is safe for concurrent use.
type Client struct {
	urls string // for people
	etcd *clientv3.Client
	tls  *tls.Config // nil for plaintext, and where it is not known
	kv   clientv3.KV
	auth clientv3.Auth

	patience time.Duration // bounds one call
}

// SilentError is the error of [Dial] where the core did not respond, rather than refuse. It is one sentence.
type SilentError string

// Error implements error.
func (e SilentError) Error() string { return string(e) }

// Dial connects; each call on the connection may take as long as patience. It waits for the core only if it must log in, and returns a
// [SilentError] if it waits in vain; the context is for finding out why. The error is one sentence without credentials.
func Dial(ctx context.Context, urls []string, c Credentials, patience time.Duration) (*Client, error) {
	config := clientv3.Config{
		Endpoints: urls, DialTimeout: patience, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: patience,
		Username: c.Username, Password: c.Password, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(refuseUndeclared)},
	}
	if strings.HasPrefix(urls[0], "https://") {
		settings, err := c.tls()
		if err != nil {
			return nil, err
		}
		config.TLS = settings
	}
	where := strings.Join(urls, ",")
	etcd, err := clientv3.New(config)
	if err != nil {
		message := (&Client{urls: where, tls: config.TLS, patience: patience}).explain(ctx, urls, fmt.Errorf("connecting to the core etcd %s: %w", where, err))
		if silent(err) {
			return nil, SilentError(message)
		}
		return nil, errors.New(message)
	}
	out := Over(etcd)
	out.tls, out.patience = config.TLS, patience
	return out, nil
}

// Over returns a Client that uses a connection of etcd's client, for calls that may take [Patience] each.
func Over(etcd *clientv3.Client) *Client {
	return &Client{urls: strings.Join(etcd.Endpoints(), ","), etcd: etcd, kv: etcd.KV, auth: etcd.Auth, patience: Patience}
}

// Close ends the connection.
func (c *Client) Close() error { return c.etcd.Close() }

func (c Credentials) tls() (*tls.Config, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(c.CA) {
		return nil, errors.New("the core's CA bundle holds no certificate in PEM")
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	if len(c.Cert) > 0 {
		pair, err := tls.X509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, fmt.Errorf("the client certificate for the core: %w", err)
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}

func x509Leaf(certPEM []byte) (*x509.Certificate, error) {
	der, err := firstCertificate(certPEM)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

func (c *Client) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.patience)
}
