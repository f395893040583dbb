// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxyapp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// Who comes without a certificate of the tenant's CA that is valid now and made for clients, or without TLS 1.3, does not get as far as a request;
// each refusal is counted by its reason and is in the log. Who has one of another identity is told so. The program takes no harm.
func TestRefusedClients(t *testing.T) {
	t.Parallel()
	etcd := testkit.NewEtcd(t)
	ca, foreign := testkit.NewAuthority(t, "ca"), testkit.NewAuthority(t, "foreign")
	folder := testkit.NewTLSFolder(t, ca.Issue(t, testkit.Leaf{CommonName: "proxy"}), ca.PEM)
	p := start(t, slices.Concat(plainCore(etcd), serveTLS(folder), []string{"--tenant=team-a"})...)
	good := ca.Issue(t, testkit.Leaf{CommonName: "team-a"}).Client(t, ca)
	conn := dial(t, p.address, good)
	must.Do(t, write(t.Context(), conn, "k", "v"))

	old := good.Clone()
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	distrust := good.Clone()
	distrust.RootCAs = foreign.Issue(t, testkit.Leaf{}).Client(t, foreign).RootCAs
	tests := map[string]struct {
		config *tls.Config
		reason string
	}{
		"none":         {testkit.Pair{}.Client(t, ca), reasonNoCertificate},
		"a namesake's": {testkit.NewAuthority(t, "ca").Issue(t, testkit.Leaf{CommonName: "team-a"}).Client(t, ca), reasonUntrusted},
		"foreign":      {always(foreign.Issue(t, testkit.Leaf{CommonName: "team-a"}).Client(t, ca)), reasonUntrusted},
		// Clients in Go keep a certificate to themselves that no announced CA has signed.
		"foreign, kept":    {foreign.Issue(t, testkit.Leaf{CommonName: "team-a"}).Client(t, ca), reasonNoCertificate},
		"expired":          {ca.Issue(t, testkit.Leaf{CommonName: "team-a", NotBefore: -2 * time.Hour, NotAfter: -time.Hour}).Client(t, ca), reasonExpired},
		"not yet valid":    {ca.Issue(t, testkit.Leaf{CommonName: "team-a", NotBefore: time.Hour, NotAfter: 2 * time.Hour}).Client(t, ca), reasonExpired},
		"a server's":       {ca.Issue(t, testkit.Leaf{CommonName: "team-a", Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}).Client(t, ca), reasonUsage},
		"TLS 1.2":          {old, reasonVersion},
		"plaintext":        {nil, reasonNotTLS},
		"distrusts us":     {distrust, reasonRefusedByPeer},
		"another's (ALPN)": {func() *tls.Config { c := good.Clone(); c.NextProtos = []string{"http/1.1"}; return c }(), reasonOther},
	}
	for name, tt := range tests {
		series := fmt.Sprintf("mooring_etcdstorage_proxy_client_handshakes_refused_total{reason=%q,tenant=\"team-a\"}", tt.reason)
		before := p.metric(t, series)
		if err := knock(t.Context(), p.address, tt.config); err == nil {
			t.Errorf("%s: the connection is good", name)
		}
		testkit.Eventually(t, name+": the metric", func() string {
			if got := p.metric(t, series); got != before+1 {
				return fmt.Sprintf("got %v, want %v", got, before+1)
			}
			return ""
		})
		testkit.Eventually(t, name+": the log", func() string { // it is written after the metric, and by another process
			if log := p.Output(); !strings.Contains(log, fmt.Sprintf("%q", tt.reason)) {
				return log
			}
			return ""
		})
	}

	other := dial(t, p.address, ca.Issue(t, testkit.Leaf{CommonName: "team-b"}).Client(t, ca))
	const refused = `the client certificate does not belong to this tenant: it is "dns:localhost", "cn:team-b"`
	for range 2 {
		if _, err := read(t.Context(), other, "k"); status.Code(err) != codes.PermissionDenied || status.Convert(err).Message() != refused {
			t.Errorf("another tenant: got %v", err)
		}
	}
	if got := p.metric(t, `mooring_etcdstorage_proxy_client_identities_refused_total{tenant="team-a"}`); got < 1 || got > 2 {
		t.Errorf("refused identities: got %v, want a connection, or one for each request", got)
	}
	if line := p.logged("Refused a client of another identity; more are only counted for a minute"); line == nil || line["error"] != refused || !strings.HasPrefix(fmt.Sprint(line["client"]), "127.0.0.1:") {
		t.Errorf("log of the refusal: %v", line)
	}
	for _, leaf := range []testkit.Leaf{
		{}, {CommonName: "team-ab"}, {CommonName: "team"}, {URI: TenantURI + "team-b"}, {CommonName: "team-a", URI: TenantURI + "team-b"},
	} {
		if _, err := read(t.Context(), dial(t, p.address, ca.Issue(t, leaf).Client(t, ca)), "k"); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%+v: %v", leaf, err)
		}
	}
	if got, err := read(t.Context(), conn, "k"); err != nil || len(got.Kvs) != 1 {
		t.Errorf("afterwards: got %v, %v", got, err)
	}
	// A new certificate is another connection, not another program.
	uri := dial(t, p.address, ca.Issue(t, testkit.Leaf{URI: TenantURI + "team-a"}).Client(t, ca))
	if _, err := read(t.Context(), uri, "k"); err != nil {
		t.Errorf("with the tenant's URI: %v", err)
	}
}

// always sends the certificate, whatever authorities the server says it trusts.
func always(config *tls.Config) *tls.Config {
	pair := config.Certificates[0]
	config.Certificates = nil
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	return config
}

// preface is the client's and an empty SETTINGS frame (RFC 9113, 3.4); the server answers with a SETTINGS frame.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// knock connects and reads what the server says first; nil means that a handshake succeeded and that the server answered with HTTP/2.
func knock(ctx context.Context, address string, config *tls.Config) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if config != nil {
		config = config.Clone()
		config.ServerName = "127.0.0.1"
		if config.NextProtos == nil {
			config.NextProtos = []string{"h2"}
		}
		secure := tls.Client(conn, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			return err
		}
		conn = secure
	}
	end, _ := ctx.Deadline()
	if err := conn.SetDeadline(end); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, preface); err != nil {
		return err
	}
	var header [9]byte
	if _, err := io.ReadFull(conn, header[:]); err != nil {
		return err
	}
	if header[3] != 4 {
		return fmt.Errorf("the server answered %q", header)
	}
	return nil
}
