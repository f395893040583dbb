// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxyapp

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// sides are the TLS folders of both sides, fine until a test spoils them.
type sides struct {
	ca           *testkit.Authority
	listen, core testkit.TLSFolder
}

func newSides(t *testing.T) sides {
	t.Helper()
	ca := testkit.NewAuthority(t, "ca")
	return sides{
		ca:     ca,
		listen: testkit.NewTLSFolder(t, ca.Issue(t, testkit.Leaf{CommonName: "proxy"}), ca.PEM),
		core:   testkit.NewTLSFolder(t, ca.Issue(t, testkit.Leaf{CommonName: "team-a"}), ca.PEM),
	}
}

// flags name the files; the core is one that nobody answers for.
func (s sides) flags(more ...string) []string {
	return append([]string{
		"--tenant=team-a", "--core-endpoints=https://127.0.0.1:1", "--core-ca-file=" + s.core.CA(), "--core-cert-file=" + s.core.Cert(), "--core-key-file=" + s.core.Key(),
		"--tls-cert-file=" + s.listen.Cert(), "--tls-private-key-file=" + s.listen.Key(), "--client-ca-file=" + s.listen.CA(),
		"--listen-address=127.0.0.1:0", "--health-address=127.0.0.1:0", "--metrics-address=127.0.0.1:0",
	}, more...)
}

// moments are the times in messages about validity, which no test can know.
var moments = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// Each way in which TLS files cannot work ends the program at the start, with the flag, the file and what is wrong with it.
func TestRefusedFiles(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		spoil func(t *testing.T, s sides)
		want  string
	}{
		"missing": {
			func(_ *testing.T, s sides) { _ = os.Remove(s.listen.Cert()) },
			`--tls-cert-file "LISTEN/tls.crt" cannot be read: no such file or directory`,
		},
		"missing, several": {
			func(_ *testing.T, s sides) { _ = os.Remove(s.core.Key()); _ = os.Remove(s.listen.CA()) },
			`--client-ca-file "LISTEN/ca.crt" cannot be read: no such file or directory; --core-key-file "CORE/tls.key" cannot be read: no such file or directory`,
		},
		"a folder": {
			func(_ *testing.T, s sides) { _ = os.Remove(s.core.CA()); _ = os.Mkdir(s.core.CA(), 0o700) },
			`--core-ca-file "CORE/ca.crt" cannot be read: is a directory`,
		},
		"no certificate": {
			func(t *testing.T, s sides) { t.Helper(); s.listen.Put(t, "tls.crt", []byte("hello\n")) },
			`--tls-cert-file: certificate file LISTEN/tls.crt: no PEM certificate found`,
		},
		"half a certificate": {
			func(t *testing.T, s sides) { t.Helper(); s.listen.Put(t, "tls.crt", s.ca.PEM[:200]) },
			`--tls-cert-file: certificate file LISTEN/tls.crt: the last PEM block is incomplete`,
		},
		"no key": {
			func(t *testing.T, s sides) { t.Helper(); s.core.Put(t, "tls.key", nil) },
			`--core-cert-file and --core-key-file: certificate CORE/tls.crt with key CORE/tls.key: tls: failed to find any PEM data in key input`,
		},
		"another key": {
			func(t *testing.T, s sides) {
				t.Helper()
				s.listen.Put(t, "tls.key", s.ca.Issue(t, testkit.Leaf{}).Key)
			},
			`--tls-cert-file and --tls-private-key-file: certificate LISTEN/tls.crt with key LISTEN/tls.key: tls: private key does not match public key`,
		},
		"expired": {
			func(t *testing.T, s sides) {
				t.Helper()
				s.listen.PutPair(t, s.ca.Issue(t, testkit.Leaf{NotBefore: -2 * time.Hour, NotAfter: -time.Hour}))
			},
			`--tls-cert-file: certificate file LISTEN/tls.crt: the certificate expired at TIME, and it is TIME now`,
		},
		"not yet valid": {
			func(t *testing.T, s sides) {
				t.Helper()
				s.core.PutPair(t, s.ca.Issue(t, testkit.Leaf{NotBefore: time.Hour, NotAfter: 2 * time.Hour}))
			},
			`--core-cert-file: certificate file CORE/tls.crt: the certificate is not valid before TIME, and it is TIME now`,
		},
		"a client's certificate to serve with": {
			func(t *testing.T, s sides) {
				t.Helper()
				s.listen.PutPair(t, s.ca.Issue(t, testkit.Leaf{Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}))
			},
			`--tls-cert-file: certificate file LISTEN/tls.crt: the certificate is not for servers: its extended key usage must have serverAuth`,
		},
		"a server's certificate towards the core": {
			func(t *testing.T, s sides) {
				t.Helper()
				s.core.PutPair(t, s.ca.Issue(t, testkit.Leaf{Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}))
			},
			`--core-cert-file: certificate file CORE/tls.crt: the certificate is not for clients: its extended key usage must have clientAuth`,
		},
		"a certificate without names": {
			func(t *testing.T, s sides) {
				t.Helper()
				s.listen.PutPair(t, s.ca.Issue(t, testkit.Leaf{CommonName: "localhost", DNSNames: []string{}, IP: []net.IP{}}))
			},
			`--tls-cert-file: certificate file LISTEN/tls.crt: the certificate has no DNS name or IP address among its subject alternative names, so no client would accept it`,
		},
		"no CA": {
			func(t *testing.T, s sides) { t.Helper(); s.core.Put(t, "ca.crt", nil) },
			`--core-ca-file: CA bundle CORE/ca.crt: no PEM certificate found`,
		},
		"a leaf as CA": {
			func(t *testing.T, s sides) {
				t.Helper()
				s.listen.Put(t, "ca.crt", s.ca.Issue(t, testkit.Leaf{CommonName: "leaf"}).Cert)
			},
			`--client-ca-file: CA bundle LISTEN/ca.crt: the certificate of "CN=leaf" in it is not a certificate authority`,
		},
		"a CA of the past": {
			func(t *testing.T, s sides) {
				t.Helper()
				s.listen.Put(t, "ca.crt", testkit.NewAuthorityFor(t, "old", -2*time.Hour, -time.Hour).PEM)
			},
			`--client-ca-file: CA bundle LISTEN/ca.crt: every certificate authority in it has expired or is not valid yet`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSides(t)
			tt.spoil(t, s)
			got := refusal(t, s.flags()...)
			got = strings.NewReplacer(string(s.listen), "LISTEN", string(s.core), "CORE").Replace(got)
			if diff := cmp.Diff(tt.want, moments.ReplaceAllString(got, "TIME")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestRefusedPassword(t *testing.T) {
	t.Parallel()
	s := newSides(t)
	path := filepath.Join(t.TempDir(), "password")
	flags := s.flags("--core-username=u", "--core-password-file="+path)
	if got, want := refusal(t, flags...), `--core-password-file "`+path+`" cannot be read: no such file or directory`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	must.Do(t, os.WriteFile(path, []byte("\n"), 0o600))
	if got, want := refusal(t, flags...), `--core-password-file "`+path+`" is empty`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	must.Do(t, os.WriteFile(path, []byte(" secret \r\n"), 0o600))
	if got, err := passwordFile(path)(); got != " secret " || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestRefusedPorts(t *testing.T) {
	t.Parallel()
	s := newSides(t)
	var config net.ListenConfig
	taken := must.Get(config.Listen(t.Context(), "tcp", "127.0.0.1:0")).Or(t)
	defer func() { _ = taken.Close() }()
	for _, flag := range []string{"--listen-address", "--health-address", "--metrics-address"} {
		addr := taken.Addr().String()
		want := flag + ` "` + addr + `" cannot be listened on, choose another address: bind: address already in use`
		if got := refusal(t, s.flags(flag+"="+addr)...); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A key that everybody may read is worth a warning and no more, as Secrets are mounted so unless one says otherwise.
func TestWarnsOfOpenKeys(t *testing.T) {
	t.Parallel()
	for mode, want := range map[os.FileMode]bool{0o600: false, 0o440: false, 0o644: true, 0o604: true} {
		s := newSides(t)
		must.Do(t, os.Chmod(s.listen.Key(), mode))
		var log bytes.Buffer
		warnOfOpenSecret(s.listen.Key(), logr.FromSlogHandler(slog.NewJSONHandler(&log, nil)))
		if got := log.Len() > 0; got != want {
			t.Errorf("mode %s: logged %q", mode, log.String())
		}
		var line map[string]any
		if want && (json.Unmarshal(log.Bytes(), &line) != nil || line["file"] != s.listen.Key()) {
			t.Errorf("mode %s: logged %q", mode, log.String())
		}
	}
}

// During a rotation of the CA the old one runs out; that must not make the bundle bad.
func TestBundles(t *testing.T) {
	t.Parallel()
	old, now := testkit.NewAuthorityFor(t, "old", -2*time.Hour, -time.Hour), testkit.NewAuthority(t, "now")
	s := newSides(t)
	s.listen.Put(t, "ca.crt", testkit.Bundle(old, now))
	if _, err := newProgram(parsed(t, s.flags()), mustSettings(t, s.flags()), logr.Discard()); err != nil {
		t.Error(err)
	}
	if err := checkBundle([]*x509.Certificate{{}}, time.Now()); err == nil {
		t.Error("a certificate without basic constraints is taken for an authority")
	}
}

func mustSettings(t *testing.T, args []string) *settings {
	t.Helper()
	s := must.Get(parsed(t, args).settings()).Or(t)
	return s
}

// The judge of certificates, kind by kind.
func TestAuthorizer(t *testing.T) {
	t.Parallel()
	ca := testkit.NewAuthority(t, "ca")
	tests := map[string]struct {
		leaf    testkit.Leaf
		allowed []string
		want    string // the refusal
	}{
		"the tenant's URI":                  {testkit.Leaf{URI: TenantURI + "team-a"}, nil, ""},
		"the tenant's common name":          {testkit.Leaf{CommonName: "team-a"}, nil, ""},
		"the URI, another common name":      {testkit.Leaf{CommonName: "x", URI: TenantURI + "team-a"}, nil, ""},
		"another URI, the common name":      {testkit.Leaf{CommonName: "team-a", URI: TenantURI + "team-b"}, nil, `it is "uri:urn:mooring:etcd-tenant:team-b", "dns:localhost", "cn:team-a"`},
		"a foreign URI, the common name":    {testkit.Leaf{CommonName: "team-a", URI: "spiffe://a/b"}, nil, ""},
		"another common name":               {testkit.Leaf{CommonName: "team-b"}, nil, `it is "dns:localhost", "cn:team-b"`},
		"the beginning of the name":         {testkit.Leaf{CommonName: "team-a2"}, nil, `"cn:team-a2"`},
		"another case":                      {testkit.Leaf{CommonName: "Team-a"}, nil, `"cn:Team-a"`},
		"the tenant's name as DNS name":     {testkit.Leaf{DNSNames: []string{"team-a"}}, nil, `it is "dns:team-a"`},
		"no name":                           {testkit.Leaf{DNSNames: []string{}}, nil, "it is without any name"},
		"many names":                        {testkit.Leaf{DNSNames: []string{"a", "b", "c", "d", "e"}}, nil, `it is "dns:a", "dns:b", "dns:c", "dns:d", and 1 more`},
		"a listed common name":              {testkit.Leaf{CommonName: "client-ns-name"}, []string{"cn:x", "cn:client-ns-name"}, ""},
		"a list replaces the default":       {testkit.Leaf{CommonName: "team-a"}, []string{"cn:x"}, `"cn:team-a"`},
		"a listed DNS name":                 {testkit.Leaf{DNSNames: []string{"API.example.com."}}, []string{"dns:api.Example.com"}, ""},
		"a listed DNS name as common name":  {testkit.Leaf{CommonName: "api.example.com"}, []string{"dns:api.example.com"}, `"cn:api.example.com"`},
		"a listed URI":                      {testkit.Leaf{URI: "spiffe://cluster/ns/a"}, []string{"uri:spiffe://cluster/ns/a"}, ""},
		"the URI of another, a listed name": {testkit.Leaf{CommonName: "x", URI: TenantURI + "team-b"}, []string{"cn:x"}, "team-b"},
		"the URI of another, listed":        {testkit.Leaf{URI: TenantURI + "team-b"}, []string{"uri:" + TenantURI + "team-b"}, ""},
	}
	for name, tt := range tests {
		allowed := defaultIdentities("team-a")
		if tt.allowed != nil {
			allowed = nil
			for _, text := range tt.allowed {
				id := must.Get(parseIdentity("--allowed-identity", text)).Or(t)
				allowed = append(allowed, id)
			}
		}
		pair := ca.Issue(t, tt.leaf).Client(t).Certificates[0]
		err := authorizer("team-a", allowed, func(*x509.Certificate) bool { return false })(pair.Leaf)
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tt.want != "" && (err == nil || !errors.Is(err, errNotAdmitted) || !strings.HasSuffix(err.Error(), tt.want) && !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: got %v, want %q in it", name, err, tt.want)
		}
	}
}
