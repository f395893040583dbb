// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxyapp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/mooring-dev/mooring/internal/etcdstorage/proxy"
	"github.com/mooring-dev/mooring/internal/platform/certreload"
)

// clientSide is TLS towards clients: 1.3 only, a certificate of the client required, certificate and CAs of the moment for each handshake. What
// is refused is counted and logged, which gRPC does not do.
type clientSide struct {
	credentials.TransportCredentials
	files  *certreload.Reloader
	report *reporter
}

func newClientSide(files *certreload.Reloader, report *reporter) credentials.TransportCredentials {
	config := files.ServerConfig(&tls.Config{
		MinVersion: tls.VersionTLS13,
		ClientAuth: tls.RequireAndVerifyClientCert,
		NextProtos: []string{"h2"},
	})
	return clientSide{TransportCredentials: credentials.NewTLS(config), files: files, report: report}
}

// ServerHandshake implements credentials.TransportCredentials. The end of the certificate is noted before: should another be taken over
// meanwhile, the connection is made again a little earlier than it must.
func (c clientSide) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	end := c.files.Current().NotAfter()
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		c.report.clientHandshake(raw.RemoteAddr(), err)
	}
	if state, ok := info.(credentials.TLSInfo); ok {
		info = proxy.ConnectionInfo{TLSInfo: state, ServingEnd: end}
	}
	return conn, info, err
}

// Clone implements credentials.TransportCredentials.
func (c clientSide) Clone() credentials.TransportCredentials {
	return clientSide{TransportCredentials: c.TransportCredentials.Clone(), files: c.files, report: c.report}
}

// Reasons of refused handshakes, the values of the label reason. They MUST NOT change: alerts name them.
const (
	reasonNoCertificate  = "no-certificate"    // the client sent none
	reasonUntrusted      = "unknown-authority" // of a CA that is not in --client-ca-file
	reasonExpired        = "expired"           // or not valid yet
	reasonUsage          = "wrong-usage"       // not made for clients
	reasonVersion        = "tls-version"       // it does not speak TLS 1.3
	reasonNotTLS         = "not-tls"           // plaintext on the TLS port
	reasonRefusedByPeer  = "refused-by-peer"   // it does not like our certificate
	reasonClosed         = "closed"            // it went away in the middle, as port probes do
	reasonOther          = "other"
	tlsRemoteErrorPrefix = "remote error: tls: "
)

func reasons() []string {
	return []string{
		reasonNoCertificate, reasonUntrusted, reasonExpired, reasonUsage, reasonVersion, reasonNotTLS, reasonRefusedByPeer, reasonClosed, reasonOther,
	}
}

// reasonOf classifies the error of a handshake. crypto/tls has types for some of them and texts for others; the tests make each of them happen.
func reasonOf(err error) string {
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		switch invalid.Reason {
		case x509.Expired:
			return reasonExpired
		case x509.IncompatibleUsage:
			return reasonUsage
		default:
			return reasonOther
		}
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return reasonUntrusted
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return reasonNotTLS
	}
	text := err.Error()
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return reasonClosed
	case strings.Contains(text, "didn't provide a certificate"):
		return reasonNoCertificate
	case strings.Contains(text, "unsupported versions"), strings.Contains(text, "protocol version"):
		return reasonVersion
	case strings.Contains(text, tlsRemoteErrorPrefix):
		return reasonRefusedByPeer
	}
	return reasonOther
}

// coreSide is TLS towards the core: 1.3 only, CAs and client certificate of the moment for each handshake, checked against the name or IP address of
// the very endpoint.
type coreSide struct {
	files *certreload.Reloader
	state *coreState
}

// ClientHandshake implements credentials.TransportCredentials.
func (c coreSide) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	host, _, err := net.SplitHostPort(authority)
	if err != nil {
		host = authority
	}
	config, with := c.files.HandshakeConfig(host)
	conn, info, err := credentials.NewTLS(config).ClientHandshake(ctx, authority, raw)
	address := raw.RemoteAddr().String()
	if err != nil {
		c.state.failed(address, err)
		return nil, nil, err
	}
	if state, ok := info.(credentials.TLSInfo); ok {
		info = coreInfo{TLSInfo: state, files: c.files, with: with}
	}
	return &verdictConn{Conn: conn, heard: func(err error) { c.state.heard(address, err) }}, info, nil
}

// coreInfo says of a connection to the core what it was made with. It is a h2.Renewable: once there are other files the connection is made again.
// Handshakes alone look at certificates, and connections live for months: without this the proxy would be known to the core by certificates that have
// ended or were withdrawn, and an error in new ones would be found out by the next outage.
type coreInfo struct {
	credentials.TLSInfo
	files *certreload.Reloader
	with  *certreload.Snapshot
}

// Outdated implements h2.Renewable. Files that were read again and are the same are the same snapshot.
func (c coreInfo) Outdated() bool { return c.files.Current() != c.with }

// Left implements h2.Renewable: until the end of our certificate, or of the last CA that was trusted.
func (c coreInfo) Left() time.Duration {
	end := c.with.CANotAfter()
	if own := c.with.NotAfter(); end.IsZero() || !own.IsZero() && own.Before(end) {
		end = own
	}
	if end.IsZero() {
		return math.MaxInt64
	}
	return end.Sub(c.files.Now())
}

// verdictConn tells what the first read brought: in TLS 1.3 a server's verdict on the client's certificate comes after the handshake.
type verdictConn struct {
	net.Conn
	heard func(error)
	once  sync.Once
}

func (c *verdictConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.once.Do(func() { c.heard(nil) })
	} else if err != nil {
		c.once.Do(func() { c.heard(err) })
	}
	return n, err
}

// ServerHandshake implements credentials.TransportCredentials.
func (coreSide) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are for the core only")
}

// Info implements credentials.TransportCredentials.
func (coreSide) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements credentials.TransportCredentials.
func (c coreSide) Clone() credentials.TransportCredentials { return c }

// OverrideServerName implements credentials.TransportCredentials; the name is always the endpoint's.
func (coreSide) OverrideServerName(string) error {
	return errors.New("the server name is the endpoint's")
}
