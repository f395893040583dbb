// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"context"
	"fmt"
	"maps"
	"net"
	"runtime"
	"slices"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/attacks"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/internal/testkit/tenantproxy"
)

// TestNoKnownAttackSucceeds makes the attacks that etcd's own grpc-proxy falls for.
func TestNoKnownAttackSucceeds(t *testing.T) {
	t.Parallel()
	etcd := testkit.NewEtcd(t)
	address := tenantproxy.InProcess(t, etcd.Endpoint, tenantPrefix, tenantName)
	got := must.Get(attacks.Probe(t.Context(), worlds(etcd.Client), dial(t, address, 1, nil)[0], alive)).Or(t)
	for _, name := range slices.Sorted(maps.Keys(got)) {
		t.Errorf("a tenant can %s: %s", name, got[name])
	}
	for path, answer := range attacks.PlainHTTP(t.Context(), address) {
		t.Errorf("the tenant's port serves %s to HTTP/1.1: %s", path, answer)
	}
}

// TestNoRequestEscapes makes requests by chance, many of which no client library would send.
func TestNoRequestEscapes(t *testing.T) {
	t.Parallel()
	etcd := testkit.NewEtcd(t)
	address := tenantproxy.InProcess(t, etcd.Endpoint, tenantPrefix, tenantName)
	campaign := attacks.Campaign{
		Conns: dial(t, address, 4, nil), Workers: 24, Batch: 10_000, Alive: alive,
		Seed:     cases.Seed(t),
		From:     cases.FromEnv(t, "MOORING_ISOLATION_FROM", uint64(0)),
		Requests: uint64(cases.Number(t, 4000, 50_000, 1_000_000)),
	}
	world := must.Get(worlds(etcd.Client)(t.Context())).Or(t)
	report := must.Get(world.Run(t.Context(), campaign)).Or(t)
	t.Log(report)
	for _, v := range report.Violations {
		t.Error(v)
	}
}

// TestNoConnectionEscapesOrStopsOthers breaks the rules of HTTP/2 and of gRPC on many connections, alongside one that is honest. It runs alone,
// so that it can count what is left of them.
func TestNoConnectionEscapesOrStopsOthers(t *testing.T) {
	etcd := testkit.NewEtcd(t)
	address := tenantproxy.InProcess(t, etcd.Endpoint, tenantPrefix, tenantName)
	world := must.Get(worlds(etcd.Client)(t.Context())).Or(t)
	dialer := func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "tcp", address) }
	frames := attacks.Frames{
		Dial: dialer, Workers: 8, Served: attacks.Served(dialer),
		Seed:        cases.Seed(t),
		From:        cases.FromEnv(t, "MOORING_ISOLATION_FROM", uint64(0)),
		Connections: uint64(cases.Number(t, 200, 3000, 40_000)),
	}
	if what := frames.Served(t.Context()); what != "" {
		t.Fatal(what)
	}
	before := runtime.NumGoroutine()
	for _, v := range world.RunFrames(t.Context(), frames) {
		t.Error(v)
	}
	testkit.Eventually(t, "what served the connections to end", func() string {
		if now := runtime.NumGoroutine(); now > before+20 {
			return fmt.Sprintf("%d goroutines, %d before", now, before)
		}
		return ""
	})
	var memory runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&memory)
	t.Logf("%d goroutines before, %d after; %d MiB in use", before, runtime.NumGoroutine(), memory.HeapInuse>>20)
	found := must.Get(world.Judge(t.Context())).Or(t)
	for _, what := range found {
		t.Error(what)
	}
}
