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
	"google.golang.org/grpc/credentials"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/attacks"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
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
	s.client = s.authority.Issue(t, testkit.Leaf{CommonName: tenantName}).Client(t, s.authority)
	testkit.Eventually(t, "the proxy to answer", func() string {
		select {
		case <-s.Done():
			t.Fatalf("the proxy ended:\n%s", s.Output())
		default:
		}
		return s.ask(t)
	})
	return s
}

// ask reads a key and returns what went wrong.
func (s *secured) ask(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	conn := dial(t, s.Address, 1, credentials.NewTLS(s.client))[0]
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
	must.Do(t, err)
	for name, what := range got {
		t.Errorf("a tenant can %s: %s", name, what)
	}
	world := must.Get(worlds(client)(t.Context())).Or(t)
	seed := cases.Seed(t)
	report := must.Get(world.Run(t.Context(), attacks.Campaign{
		Conns: dial(t, s.Address, 3, credentials.NewTLS(s.client)), Workers: 12, Batch: 4000, Seed: seed,
		Requests: uint64(cases.Number(t, 4000, 12_000, 12_000)), Alive: s.alive,
	})).Or(t)
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
	frames := attacks.Frames{Dial: dialer, Workers: 4, Connections: uint64(cases.Number(t, 100, 300, 300)), Seed: seed, Served: attacks.Served(dialer)}
	for _, v := range world.RunFrames(t.Context(), frames) {
		t.Error(v)
	}
}
