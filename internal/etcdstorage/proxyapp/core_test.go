// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxyapp

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// Whatever keeps the proxy from the core: it runs, says no and why at /readyz and in the log, and answers Unavailable to clients at once.
func TestCoreThatCannotBeReached(t *testing.T) {
	t.Parallel()
	ca, foreign := testkit.NewAuthority(t, "ca"), testkit.NewAuthority(t, "foreign")
	serving := func(pair testkit.Pair) *tls.Config {
		out := pair.Client(t)
		out.NextProtos = []string{"h2"}
		return out
	}
	fine := serving(ca.Issue(t, testkit.Leaf{}))
	old := fine.Clone()
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	demanding := fine.Clone()
	demanding.ClientAuth, demanding.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	demanding.ClientCAs.AppendCertsFromPEM(foreign.PEM)
	tests := map[string]struct {
		endpoint string
		want     string
		reason   string // by which its handshakes are counted
	}{
		"nobody there": {"https://127.0.0.1:1", `core 127.0.0.1:1 cannot be connected to (connect: connection refused): check --core-endpoints, the network and whether etcd runs there`, ""},
		"no such name": {"https://nobody.invalid:1", `check --core-endpoints, the network and whether etcd runs there`, ""},
		"another CA":   {imitation(t, serving(foreign.Issue(t, testkit.Leaf{}))), `the connection to core ADDRESS fails, its certificate is not signed by an authority in --core-ca-file: check the file`, reasonUntrusted},
		"another name": {imitation(t, serving(ca.Issue(t, testkit.Leaf{DNSNames: []string{"core"}, IP: []net.IP{net.IPv4(10, 0, 0, 1)}}))), `core ADDRESS has an unexpected identity (certificate is valid for 10.0.0.1, not 127.0.0.1): use a name that its certificate has in --core-endpoints`, reasonOther},
		"expired":      {imitation(t, serving(ca.Issue(t, testkit.Leaf{NotBefore: -2 * time.Hour, NotAfter: -time.Hour}))), `the connection to core ADDRESS fails, its certificate has expired or is not valid yet: renew it`, reasonExpired},
		"a client's":   {imitation(t, serving(ca.Issue(t, testkit.Leaf{Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}))), `the connection to core ADDRESS fails, its certificate is not for servers: issue one with serverAuth`, reasonUsage},
		"TLS 1.2":      {imitation(t, old), `the connection to core ADDRESS fails, it does not speak TLS 1.3: do not limit its TLS versions`, reasonVersion},
		"no TLS":       {imitation(t, nil), `the connection to core ADDRESS fails, it does not speak TLS: check the port, and whether etcd serves https there`, reasonNotTLS},
		"refuses us":   {imitation(t, demanding), `the connection to core ADDRESS fails, it refuses the proxy's client certificate (`, reasonRefusedByPeer},
		"says nothing": {imitation(t, fine), `the core does not respond to a linearizable read in /team-a/: `, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := testkit.NewTLSFolder(t, ca.Issue(t, testkit.Leaf{CommonName: "team-a"}), ca.PEM)
			p := start(t, slices.Concat(coreTLS(folder, tt.endpoint), serveTLS(folder), []string{"--tenant=team-a"})...)
			p.awaitReady(t, strings.ReplaceAll(tt.want, "ADDRESS", strings.TrimPrefix(tt.endpoint, "https://")))
			conn := dial(t, p.address, ca.Issue(t, testkit.Leaf{CommonName: "team-a"}).Client(t, ca))
			_, err := read(t.Context(), conn, "k")
			if status.Code(err) != codes.Unavailable {
				t.Errorf("a client gets %v", err)
			}
			if text := status.Convert(err).Message(); strings.Contains(text, "127.0.0.1") || strings.Contains(text, "certificate") {
				t.Errorf("a tenant is told %q, which is none of its business", text)
			}
			if code, _ := p.get(t, "/healthz"); code != http.StatusOK {
				t.Errorf("/healthz: %d; restarting the proxy would not help the core", code)
			}
			if reason := tt.reason; reason != "" && p.metric(t, fmt.Sprintf(`mooring_etcdstorage_proxy_core_handshakes_failed_total{reason=%q,tenant="team-a"}`, reason)) == 0 {
				t.Errorf("no handshake that failed for %s is counted", reason)
			}
			if p.logged("Not ready") == nil || p.metric(t, `mooring_etcdstorage_proxy_ready{tenant="team-a"}`) != 0 {
				t.Errorf("it is silent: %s", p.Output())
			}
		})
	}
}

// imitation is a core that gets no further than the TLS handshake, or that answers in plaintext.
func imitation(t *testing.T, config *tls.Config) string {
	t.Helper()
	var listen net.ListenConfig
	listener := must.Get(listen.Listen(t.Context(), "tcp", "127.0.0.1:0")).Or(t)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			raw, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer raw.Close()
				conn := raw
				if config == nil {
					_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
				} else {
					conn = tls.Server(raw, config)
				}
				_, _ = conn.Read(make([]byte, 1)) // makes the handshake; anyone who closes now takes its alert along
			}()
		}
	}()
	return "https://" + listener.Addr().String()
}

// With authentication on in the core, the proxy is a user that may do no more than its tenant: by certificate or by password, over restarts of
// the core and changes of the password (which end logins). What that user is, the core itself holds to its range.
func TestCoreWithAuthentication(t *testing.T) {
	t.Parallel()
	ca := testkit.NewAuthority(t, "ca")
	folder := testkit.NewTLSFolder(t, ca.Issue(t, testkit.Leaf{CommonName: "etcd"}), ca.PEM)
	nameless := ca.Issue(t, testkit.Leaf{DNSNames: []string{"proxy"}})
	etcd := testkit.NewTLSEtcd(t, folder, nameless.Client(t, ca))
	ranges := []string{"/team-a/", "/.etcd.mooring.dev/tenants/team-a/"}
	root := etcd.EnableAuth(t, clientv3.Config{TLS: nameless.Client(t, ca)}, "root",
		testkit.Grant{User: "proxy-of-team-a", Prefixes: ranges},
		testkit.Grant{User: "proxy-by-password", Password: "first", Prefixes: ranges},
	)
	for _, key := range []string{"/team-b/k", "/.etcd.mooring.dev/tenants/team-b/compact-revision"} {
		must.Get(root.Put(t.Context(), key, "v")).Or(t)
	}
	password := filepath.Join(t.TempDir(), "password")
	setPassword := func(text string) {
		t.Helper()
		must.Do(t, os.WriteFile(password, []byte(text+"\n"), 0o600))
	}
	setPassword("first")
	own := ca.Issue(t, testkit.Leaf{CommonName: "proxy-of-team-a"})
	byCert := testkit.NewTLSFolder(t, own, ca.PEM)
	byPassword := testkit.NewTLSFolder(t, nameless, ca.PEM)
	client := ca.Issue(t, testkit.Leaf{CommonName: "team-a"}).Client(t, ca)
	proxies := []*running{
		start(t, slices.Concat(coreTLS(byCert, etcd.Endpoint), serveTLS(folder), []string{"--tenant=team-a"})...),
		start(t, slices.Concat(coreTLS(byPassword, etcd.Endpoint), serveTLS(folder), []string{"--tenant=team-a", "--core-username=proxy-by-password", "--core-password-file=" + password})...),
	}
	works := func(when string) {
		t.Helper()
		for i, p := range proxies {
			p.awaitReady(t, "")
			conn := dial(t, p.address, client)
			if err := write(t.Context(), conn, "k", "v"); err != nil {
				t.Errorf("%s, proxy %d: %v", when, i, err)
			}
			compacts(t, when, etcdserverpb.NewKVClient(conn))
			if p.metric(t, `mooring_etcdstorage_proxy_ready{tenant="team-a"}`) != 1 {
				t.Errorf("%s, proxy %d: the metric does not say ready", when, i)
			}
		}
	}
	works("at first")
	const hint = ": the core has authentication on, so the proxy needs --core-cert-file of a user, or --core-username, that may read and write there"
	for _, with := range []testkit.TLSFolder{byCert, byPassword} {
		beyond := start(t, slices.Concat(coreTLS(with, etcd.Endpoint), serveTLS(folder), []string{"--tenant=team-b"})...)
		beyond.awaitReady(t, "etcdserver: permission denied"+hint)
	}

	direct := etcd.Connect(t, clientv3.Config{TLS: own.Client(t, ca)})
	denied := map[string]func() error{
		"another tenant's key":   func() error { _, err := direct.Get(t.Context(), "/team-b/k"); return err },
		"a write there":          func() error { _, err := direct.Put(t.Context(), "/team-b/k", "x"); return err },
		"a range beyond its own": func() error { _, err := direct.Get(t.Context(), "/", clientv3.WithPrefix()); return err },
		"another tenant's record": func() error {
			_, err := direct.Get(t.Context(), "/.etcd.mooring.dev/", clientv3.WithPrefix())
			return err
		},
		"a watch of everything": func() error { r := <-direct.Watch(t.Context(), "", clientv3.WithPrefix()); return r.Err() },
		"compaction":            func() error { _, err := direct.Compact(t.Context(), 1); return err },
		"a new user":            func() error { _, err := direct.UserAdd(t.Context(), "x", "y"); return err },
		"authentication off":    func() error { _, err := direct.AuthDisable(t.Context()); return err },
	}
	for name, try := range denied {
		if err := try(); err == nil || !strings.Contains(err.Error(), rpctypes.ErrPermissionDenied.Error()) {
			t.Errorf("the core allows the proxy's user %s: %v", name, err)
		}
	}

	etcd.Kill()
	for _, p := range proxies {
		p.awaitReady(t, "the core does not respond") // else what is said below could be from before
	}
	etcd.Restart(t)
	works("after a restart of the core")

	must.Get(root.UserChangePassword(t.Context(), "proxy-by-password", "second")).Or(t)
	setPassword("second")
	works("with another password")
	must.Get(root.UserChangePassword(t.Context(), "proxy-by-password", "third")).Or(t)
	proxies[1].awaitReady(t, "the core etcd refused the proxy's user name or password")
}

// compacts makes the proxy write its own record, which the user must be allowed to.
func compacts(t *testing.T, when string, kv etcdserverpb.KVClient) {
	t.Helper()
	put := must.Get(kv.Put(t.Context(), &etcdserverpb.PutRequest{Key: []byte("k"), Value: []byte("w")})).Or(t)
	if _, err := kv.Compact(t.Context(), &etcdserverpb.CompactionRequest{Revision: put.Header.Revision}); err != nil {
		t.Errorf("%s: compacting: %v", when, err)
	}
}
