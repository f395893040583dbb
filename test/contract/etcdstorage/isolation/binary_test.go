// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/attacks"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/tenantproxy"
)

// A secured endpoint is the real binary with TLS.
type secured struct {
	*tenantproxy.Binary
	authority *testkit.Authority
	// client is what the tenant's own clients have.
	client *tls.Config
}

func newSecured(t *testing.T, core string) *secured {
	t.Helper()
	s := &secured{authority: testkit.NewAuthority(t, "clients of a tenant")}
	files := testkit.NewTLSFolder(t, s.authority.Issue(t, testkit.Leaf{}), s.authority.PEM)
	s.Binary = tenantproxy.NewBinary(t, core, tenantPrefix, tenantName,
		"--tls-cert-file="+files.Cert(), "--tls-private-key-file="+files.Key(), "--client-ca-file="+files.CA())
	s.client = s.identity(t, testkit.Leaf{CommonName: tenantName})
	testkit.Eventually(t, "the proxy to answer", func() string {
		select {
		case <-s.Done():
			t.Fatalf("the proxy ended:\n%s", s.Output())
		default:
		}
		return s.ask(t, s.client)
	})
	return s
}

func (s *secured) identity(t *testing.T, leaf testkit.Leaf) *tls.Config {
	t.Helper()
	return s.authority.Issue(t, leaf).Client(t, s.authority)
}

// ask reads a key and returns what went wrong.
func (s *secured) ask(t *testing.T, config *tls.Config) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	conn := dial(t, s.Address, 1, credentials.NewTLS(config))[0]
	if _, err := pb.NewKVClient(conn).Range(ctx, &pb.RangeRequest{Key: []byte("a")}); err != nil {
		return err.Error()
	}
	return ""
}

func (s *secured) alive() string {
	select {
	case <-s.Done():
		return s.Output()
	default:
		return ""
	}
}

// TestTheBinaryWithTLSHolds attacks the program as it ships, over TLS, as a client with the right certificate.
func TestTheBinaryWithTLSHolds(t *testing.T) {
	t.Parallel()
	core, _ := tenantproxy.StartEtcd(t, false)
	s := newSecured(t, core)
	client := tenantproxy.Dial(t, core)
	got, err := attacks.Probe(t.Context(), worlds(client), dial(t, s.Address, 1, credentials.NewTLS(s.client))[0], s.alive)
	if err != nil {
		t.Fatal(err)
	}
	for name, what := range got {
		t.Errorf("a tenant can %s: %s", name, what)
	}
	world, err := worlds(client)(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seed := cases.Seed(t)
	report, err := world.Run(t.Context(), attacks.Campaign{
		Conns: dial(t, s.Address, 3, credentials.NewTLS(s.client)), Workers: 12, Batch: 4000, Requests: 12_000, Seed: seed, Alive: s.alive,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range report.Violations {
		t.Error(v)
	}
	s.frames(t, world, seed)
	if state := s.alive(); state != "" {
		t.Errorf("the process ended:\n%s", state)
	}
}

// frames breaks the rules of HTTP/2 within TLS, where nothing is looked at before the certificate is.
func (s *secured) frames(t *testing.T, world *attacks.World, seed uint64) {
	t.Helper()
	config := s.client.Clone()
	config.NextProtos, config.ServerName = []string{"h2"}, "localhost"
	dialer := func(ctx context.Context) (net.Conn, error) {
		return (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", s.Address)
	}
	frames := attacks.Frames{Dial: dialer, Workers: 4, Connections: 300, Seed: seed, Served: attacks.Served(dialer)}
	for _, v := range world.RunFrames(t.Context(), frames) {
		t.Error(v)
	}
}

// TestOnlyTheTenantsCertificateIsServed tries certificates that are wrong in one way each. None may read a single key.
func TestOnlyTheTenantsCertificateIsServed(t *testing.T) {
	t.Parallel()
	core, _ := tenantproxy.StartEtcd(t, false)
	s := newSecured(t, core)
	if _, err := tenantproxy.Dial(t, core).Put(t.Context(), tenantPrefix+"a", "secret"); err != nil {
		t.Fatal(err)
	}
	foreign := testkit.NewAuthority(t, "clients of a tenant") // of the same name
	expired := testkit.NewAuthorityFor(t, "an authority of yesterday", -48*time.Hour, -24*time.Hour)
	for name, config := range map[string]*tls.Config{
		"none":                    testkit.Pair{}.Client(t, s.authority),
		"another tenant's":        s.identity(t, testkit.Leaf{CommonName: "b-tenant"}),
		"a longer name":           s.identity(t, testkit.Leaf{CommonName: tenantName + "x"}),
		"no name":                 s.identity(t, testkit.Leaf{}),
		"a URI of another tenant": s.identity(t, testkit.Leaf{URI: "urn:mooring:etcd-tenant:b-tenant"}),
		"expired":                 s.identity(t, testkit.Leaf{CommonName: tenantName, NotBefore: -2 * time.Hour, NotAfter: -time.Hour}),
		"not yet valid":           s.identity(t, testkit.Leaf{CommonName: tenantName, NotBefore: time.Hour, NotAfter: 2 * time.Hour}),
		"of another authority":    foreign.Issue(t, testkit.Leaf{CommonName: tenantName}).Client(t, s.authority),
		"of an expired authority": expired.Issue(t, testkit.Leaf{CommonName: tenantName}).Client(t, s.authority),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			resp, err := pb.NewKVClient(dial(t, s.Address, 1, credentials.NewTLS(config))[0]).Range(ctx, &pb.RangeRequest{Key: []byte("a")})
			if code := status.Code(err); err == nil || (code != codes.Unavailable && code != codes.PermissionDenied && code != codes.Unauthenticated) {
				t.Errorf("answered with %v, %v", resp, err)
			}
		})
	}
	t.Run("the right one", func(t *testing.T) {
		t.Parallel()
		for _, leaf := range []testkit.Leaf{{CommonName: tenantName}, {URI: "urn:mooring:etcd-tenant:" + tenantName}} {
			if what := s.ask(t, s.identity(t, leaf)); what != "" {
				t.Errorf("%+v: %s", leaf, what)
			}
		}
	})
}
