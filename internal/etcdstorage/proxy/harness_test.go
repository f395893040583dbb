// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/mooring-dev/mooring/internal/etcdstorage/proxy"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/internal/testkit/tenantproxy"
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
	started := tenantproxy.Start(tb, cfg)
	s.Proxy, s.Endpoint, s.stop = started.Proxy, started.Address, started.Stop
	s.Client = client(tb, s.Endpoint)
	return s
}

// client is an etcd client of an endpoint.
func client(tb testing.TB, endpoint string) *clientv3.Client {
	tb.Helper()
	return tenantproxy.Dial(tb, endpoint)
}

// raw is a bare gRPC connection, without an etcd client's retries.
func raw(tb testing.TB, endpoint string) *grpc.ClientConn {
	tb.Helper()
	return tenantproxy.Connections(tb, endpoint, 1)[0]
}
