// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy/wire"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// TestAuthorize shows that a verified certificate that is not the tenant's gets the reason with each RPC, and is judged
// once.
func TestAuthorize(t *testing.T) {
	t.Parallel()
	core := testkit.NewEtcd(t)
	ca := testkit.NewAuthority(t, "tenants")
	server := ca.Issue(t, testkit.Leaf{})
	cfg := configure(t, core.Endpoint)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(testkit.Bundle(ca))
	pair := must.Get(tls.X509KeyPair(server.Cert, server.Key)).Or(t)
	cfg.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13}
	judged := make(chan string, 10)
	cfg.Authorize = func(c *x509.Certificate) error {
		judged <- c.Subject.CommonName
		if c.Subject.CommonName != "a" {
			return fmt.Errorf("the certificate is %s's", c.Subject.CommonName)
		}
		return nil
	}
	p := start(t, cfg)
	dial := func(name string) etcdserverpb.KVClient {
		config := ca.Issue(t, testkit.Leaf{CommonName: name}).Client(t, ca)
		config.ServerName = "localhost"
		c, err := grpc.NewClient("passthrough:///"+p.Endpoint, grpc.WithTransportCredentials(credentials.NewTLS(config)))
		must.Do(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return etcdserverpb.NewKVClient(c)
	}
	ours, theirs := dial("a"), dial("b")
	for range 3 {
		if _, err := ours.Put(t.Context(), &etcdserverpb.PutRequest{Key: []byte("k"), Value: make([]byte, 1<<20)}); err != nil {
			t.Error(err)
		}
		if got, err := ours.Range(t.Context(), &etcdserverpb.RangeRequest{Key: []byte("k")}); err != nil || len(got.Kvs[0].Value) != 1<<20 {
			t.Error(err)
		}
		_, err := theirs.Put(t.Context(), &etcdserverpb.PutRequest{Key: []byte("k")})
		if status.Code(err) != codes.PermissionDenied || status.Convert(err).Message() != "the certificate is b's" {
			t.Errorf("another tenant's certificate: %v", err)
		}
	}
	if len(judged) < 2 || len(judged) > 4 { // a connection that was refused is closed: each further call may make another
		t.Errorf("%d connections were judged, want one of ours, and no more of theirs than calls", len(judged))
	}
}

// TestMemory shows that memory does not grow with the number of distinct lists.
func TestMemory(t *testing.T) {
	core := testkit.NewEtcd(t)
	p := start(t, configure(t, core.Endpoint))
	value := strings.Repeat("v", 1024)
	for i := range 300 {
		must.Get(p.Client.Put(t.Context(), fmt.Sprintf("list/%04d", i), value)).Or(t)
	}
	lists := func(from, n int) uint64 {
		for i := range n {
			if _, err := p.Client.Get(t.Context(), fmt.Sprintf("list/%04d", (from+i)%300), clientv3.WithRange(fmt.Sprintf("list/~%d", from+i))); err != nil {
				t.Fatal(err)
			}
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	few := lists(0, 100)
	many := lists(100, 1500)
	if many > few+few/2+4<<20 {
		t.Errorf("100 lists left %d bytes in the heap, 1500 more left %d", few, many)
	}
}

// TestRefusedConfigurations are the sentences of New.
func TestRefusedConfigurations(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func() error{
		`endpoint "https://h:1" of the core etcd: the scheme must be http, as TLS to the core is off`:          func() error { return refused(t, "https://h:1") },
		`endpoint "h" of the core etcd is not host:port or a URL with both, such as https://etcd.example:2379`: func() error { return refused(t, "h") },
		`no endpoint of the core etcd is given`:                                                                func() error { return refused(t) },
	} {
		if err := change(); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestPanicsAreContained shows that a panic ends its own RPC, is counted, and tells the tenant nothing; and that
// nothing is left in flight.
func TestPanicsAreContained(t *testing.T) {
	t.Parallel()
	core := testkit.NewEtcd(t)
	p := start(t, configure(t, core.Endpoint))
	p.Poison(etcdserverpb.KV_DeleteRange_FullMethodName, etcdserverpb.KV_Range_FullMethodName, etcdserverpb.KV_Compact_FullMethodName,
		etcdserverpb.KV_RangeStream_FullMethodName)
	conn := raw(t, p.Endpoint)
	for method, request := range map[string]proto.Message{
		etcdserverpb.KV_DeleteRange_FullMethodName: &etcdserverpb.DeleteRangeRequest{Key: []byte("k")},
		etcdserverpb.KV_Range_FullMethodName:       &etcdserverpb.RangeRequest{Key: []byte("k")},
		etcdserverpb.KV_Compact_FullMethodName:     &etcdserverpb.CompactionRequest{Revision: 1},
		etcdserverpb.KV_RangeStream_FullMethodName: &etcdserverpb.RangeRequest{Key: []byte("k")},
	} {
		err := once(t, conn, method, request, &etcdserverpb.RangeResponse{})
		if status.Code(err) != codes.Internal || status.Convert(err).Message() != "etcd-storage-proxy: an internal error" {
			t.Errorf("%s: %v", method, err)
		}
	}
	if _, err := p.Client.Put(t.Context(), "k", "v"); err != nil {
		t.Error(err)
	}
	if n := sum(t, p.Registry, "mooring_etcdstorage_proxy_panics_total"); n != 4 {
		t.Errorf("%v panics were counted, want 4", n)
	}
	testkit.Eventually(t, "calls in flight", func() string {
		if n := sum(t, p.Registry, "mooring_etcdstorage_proxy_requests_in_flight"); n != 0 {
			return fmt.Sprint(n)
		}
		return ""
	})
}

// TestBoundaryViolation shows that an answer that is not the tenant's is withheld as a whole, and counted.
func TestBoundaryViolation(t *testing.T) {
	t.Parallel()
	core := testkit.NewEtcd(t)
	p := start(t, configure(t, core.Endpoint))
	p.Betray(etcdserverpb.KV_Range_FullMethodName, &wire.BoundaryError{Message: "a key of somebody"})
	_, err := etcdserverpb.NewKVClient(raw(t, p.Endpoint)).Range(t.Context(), &etcdserverpb.RangeRequest{Key: []byte("k")})
	if want := "etcd-storage-proxy: a message of KV.Range was withheld: it was not inside the tenant's boundary"; status.Code(err) != codes.Internal ||
		status.Convert(err).Message() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if n := sum(t, p.Registry, "mooring_etcdstorage_proxy_boundary_violations_total"); n != 1 {
		t.Errorf("%v violations were counted", n)
	}
}

// sum adds up the series of a metric.
func sum(tb testing.TB, registry *prometheus.Registry, name string) float64 {
	tb.Helper()
	families := must.Get(registry.Gather()).Or(tb)
	total := 0.0
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.Metric {
				total += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return total
}

// TestGivenUp shows that a call that the tenant gives up is over here too, though the core is stopped and answers
// nothing.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	core := testkit.NewEtcd(t)
	p := start(t, configure(t, core.Endpoint))
	must.Get(p.Client.Put(t.Context(), "k", "v")).Or(t)
	core.Pause(t)
	defer core.Resume()
	kv := etcdserverpb.NewKVClient(raw(t, p.Endpoint))
	canceled := func() bool {
		for _, f := range must.Get(p.Registry.Gather()).Or(t) {
			for _, m := range f.Metric {
				for _, l := range m.Label {
					if l.GetName() == "code" && l.GetValue() == "Canceled" && m.GetCounter().GetValue() > 0 {
						return true
					}
				}
			}
		}
		return false
	}
	// What ends a call must be the tenant, and not the loss of the connection that comes of the silence later. On a
	// busy machine the first may be over before they are there.
	for most := 300 * time.Millisecond; !canceled() && most < patience; most *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), most)
		if _, err := kv.Range(ctx, &etcdserverpb.RangeRequest{Key: []byte("k")}); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("%v", err)
		}
		cancel()
		testkit.Eventually(t, "calls in flight", func() string {
			if n := sum(t, p.Registry, "mooring_etcdstorage_proxy_requests_in_flight"); n != 0 {
				return fmt.Sprint(n)
			}
			return ""
		})
	}
	if !canceled() {
		t.Error("the call was not counted as canceled")
	}
}
