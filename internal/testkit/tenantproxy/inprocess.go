// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package tenantproxy

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/etcdstorage/proxy"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// Configure returns the configuration of a tenant's proxy in front of a plaintext core, itself plaintext.
func Configure(core, prefix, tenant string) (proxy.Config, error) {
	parsed, err := tenancy.ParsePrefix(prefix)
	if err != nil {
		return proxy.Config{}, err
	}
	return proxy.Config{
		Tenant:       tenancy.Tenant{Prefix: parsed, Leases: tenancy.DeriveLeaseSpace(parsed)},
		TenantName:   tenant,
		Upstream:     proxy.UpstreamConfig{Endpoints: []string{strings.TrimPrefix(core, "http://")}},
		SystemPrefix: tenancy.DefaultSystemPrefix,
		AdvertiseURL: "http://127.0.0.1:2379",
	}, nil
}

// InProcess serves a tenant in this process until the test ends, and returns the address.
func InProcess(tb testing.TB, core, prefix, tenant string) string {
	tb.Helper()
	cfg := must.Get(Configure(core, prefix, tenant)).Or(tb)
	return Serve(tb, cfg)
}

// Serve serves a tenant as configured until the test ends, and returns the address.
func Serve(tb testing.TB, cfg proxy.Config) string {
	tb.Helper()
	return Start(tb, cfg).Address
}

// Started is a proxy in this process.
type Started struct {
	*proxy.Proxy
	Address string
	// Stop ends it, as the end of the test does.
	Stop func()
}

// Start serves a tenant as configured until the test ends, or Stop is called.
func Start(tb testing.TB, cfg proxy.Config) Started {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	tb.Cleanup(cancel)
	p := must.Get(proxy.New(ctx, cfg)).Or(tb)
	listener := must.Get(new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")).Or(tb)
	ended := make(chan error, 1)
	go func() { ended <- p.Serve(listener) }()
	stop := sync.OnceFunc(func() {
		end, done := context.WithTimeout(context.Background(), 5*time.Second)
		defer done()
		p.Shutdown(end)
		cancel()
		if err := <-ended; err != nil {
			tb.Error(err)
		}
	})
	tb.Cleanup(stop)
	return Started{Proxy: p, Address: listener.Addr().String(), Stop: stop}
}
