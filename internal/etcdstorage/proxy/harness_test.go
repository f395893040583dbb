// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/mooring-dev/mooring/internal/etcdstorage/proxy"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// patience is how long a call of a test may take; on the busiest machine it takes less.
const patience = 20 * time.Second

func TestMain(m *testing.M) { testkit.Main(m) }

// served is a proxy that listens, with a client of it.
type served struct {
	*proxy.Proxy
	Endpoint string
	Client   *clientv3.Client
	Registry *prometheus.Registry
	stop     func()
}

// tenant is a tenant of a prefix.
func tenant(tb testing.TB, text string) tenancy.Tenant {
	tb.Helper()
	prefix := must.Get(tenancy.ParsePrefix(text)).Or(tb)
	return tenancy.Tenant{Prefix: prefix, Leases: tenancy.DeriveLeaseSpace(prefix)}
}

// refused is New's error for these endpoints.
func refused(tb testing.TB, endpoints ...string) error {
	tb.Helper()
	_, err := proxy.New(tb.Context(), configure(tb, endpoints...))
	return err
}

// configure returns the usual configuration of the tenant "a" below /a/.
func configure(tb testing.TB, endpoints ...string) proxy.Config {
	tb.Helper()
	return proxy.Config{
		Tenant:       tenant(tb, "/a/"),
		TenantName:   "a",
		Upstream:     proxy.UpstreamConfig{Endpoints: endpoints},
		SystemPrefix: tenancy.DefaultSystemPrefix,
		AdvertiseURL: "http://proxy.example:2379",
	}
}

// start runs a proxy until the test ends.
func start(tb testing.TB, cfg proxy.Config) *served {
	tb.Helper()
	s := &served{Registry: prometheus.NewRegistry()}
	if cfg.Registry == nil {
		cfg.Registry = s.Registry
	}
	ctx, cancel := context.WithCancel(context.Background())
	p, err := proxy.New(ctx, cfg)
	if err != nil {
		cancel()
		tb.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		cancel()
		tb.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- p.Serve(l) }()
	s.Proxy, s.Endpoint = p, l.Addr().String()
	stopped := false
	s.stop = func() {
		if stopped {
			return
		}
		stopped = true
		end, done := context.WithTimeout(context.Background(), 5*time.Second)
		defer done()
		p.Shutdown(end)
		cancel()
		if err := <-ended; err != nil {
			tb.Error(err)
		}
	}
	tb.Cleanup(s.stop)
	s.Client = client(tb, s.Endpoint)
	return s
}

// client is an etcd client of an endpoint.
func client(tb testing.TB, endpoint string) *clientv3.Client {
	tb.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	must.Do(tb, err)
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// raw is a bare gRPC connection, without an etcd client's retries.
func raw(tb testing.TB, endpoint string) *grpc.ClientConn {
	tb.Helper()
	c, err := grpc.NewClient("passthrough:///"+endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Do(tb, err)
	tb.Cleanup(func() { _ = c.Close() })
	return c
}
