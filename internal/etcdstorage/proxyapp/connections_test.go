// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxyapp

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// hold opens connections until that many got through the handshake, and reads from each until it is closed. open counts those that are.
func hold(t *testing.T, address string, config *tls.Config, count int) (open *atomic.Int64) {
	t.Helper()
	open = &atomic.Int64{}
	config = config.Clone()
	config.ServerName, config.NextProtos = "127.0.0.1", []string{"h2"}
	for range count {
		raw := must.Get(new(net.Dialer).DialContext(t.Context(), "tcp", address)).Or(t)
		t.Cleanup(func() { _ = raw.Close() })
		conn := tls.Client(raw, config)
		must.Do(t, conn.HandshakeContext(t.Context()))
		if _, err := io.WriteString(conn, preface); err != nil {
			continue // it was closed already
		}
		open.Add(1)
		go func() {
			_, _ = io.Copy(io.Discard, conn)
			open.Add(-1)
		}()
	}
	return open
}

// An identity that is not the tenant's cannot hold connections, however many it opens: they are closed, and the tenant gets in meanwhile.
func TestRefusedIdentityHoldsNoConnections(t *testing.T) {
	t.Parallel()
	etcd := testkit.NewEtcd(t)
	ca := testkit.NewAuthority(t, "ca")
	folder := testkit.NewTLSFolder(t, ca.Issue(t, testkit.Leaf{CommonName: "proxy"}), ca.PEM)
	p := start(t, slices.Concat(plainCore(etcd), serveTLS(folder), []string{"--tenant=team-a"})...)
	const many = 400 // more than may be in the handshake
	began := time.Now()
	open := hold(t, p.address, ca.Issue(t, testkit.Leaf{CommonName: "team-b"}).Client(t, ca), many)
	if err := write(t.Context(), dial(t, p.address, ca.Issue(t, testkit.Leaf{CommonName: "team-a"}).Client(t, ca)), "k", "v"); err != nil {
		t.Errorf("the tenant meanwhile: %v", err)
	}
	testkit.Eventually(t, "all of them to be closed", func() string {
		if n := open.Load(); n > 0 {
			return fmt.Sprint(n, " are open")
		}
		return ""
	})
	if got := p.metric(t, `mooring_etcdstorage_proxy_client_identities_refused_total{tenant="team-a"}`); got != many {
		t.Errorf("refused identities: got %v, want %d", got, many)
	}
	if n := strings.Count(p.Output(), "Refused a client of another identity"); n < 1 || n > 1+int(time.Since(began).Minutes()) {
		t.Errorf("%d log lines, want one a minute", n)
	}
}

// An identity of the tenant's has its share of the connections and no more; others of the tenant's get in. Connections that are not used are closed.
func TestConnectionsAreShared(t *testing.T) {
	t.Parallel()
	etcd := testkit.NewEtcd(t)
	ca := testkit.NewAuthority(t, "ca")
	folder := testkit.NewTLSFolder(t, ca.Issue(t, testkit.Leaf{CommonName: "proxy"}), ca.PEM)
	p := start(t, slices.Concat(plainCore(etcd), serveTLS(folder), []string{
		"--tenant=team-a", "--allowed-identity=cn:one", "--allowed-identity=cn:two", "--max-connections-per-identity=20", "--idle-timeout=15s", // longer than fifty handshakes take
	})...)
	open := hold(t, p.address, ca.Issue(t, testkit.Leaf{CommonName: "one"}).Client(t, ca), 50)
	if n := open.Load(); n < 20 {
		t.Errorf("%d connections, want 20", n)
	}
	if err := write(t.Context(), dial(t, p.address, ca.Issue(t, testkit.Leaf{CommonName: "two"}).Client(t, ca)), "k", "v"); err != nil {
		t.Errorf("another identity meanwhile: %v", err)
	}
	series := `mooring_etcdstorage_proxy_refused_total{limit="connections",tenant="team-a"}`
	testkit.Eventually(t, "the refusals to be counted", func() string {
		if got := p.metric(t, series); got != 30 {
			return fmt.Sprint(got)
		}
		return ""
	})
	if p.logged("Closed a connection of an identity that has too many; more are only counted for a minute") == nil {
		t.Error("it is not in the log")
	}
	testkit.Eventually(t, "those that are not used to be closed", func() string {
		if n := open.Load(); n > 0 {
			return fmt.Sprint(n, " are open")
		}
		return ""
	})
}
