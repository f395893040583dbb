// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mooring-dev/mooring/internal/etcdstorage/quota"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// alone waits until replicas take the tenant for alone at the core, or not.
func alone(t *testing.T, when string, want float64, proxies ...*served) {
	t.Helper()
	for i, p := range proxies {
		testkit.Eventually(t, fmt.Sprintf("replica %d to have alone %v %s", i, want, when), func() string {
			if got := metric(t, p.Registry, "mooring_etcdstorage_proxy_alone"); got != want {
				return fmt.Sprint("it has ", got)
			}
			return ""
		})
	}
}

// busy writes, deletes and reads all the time until the test ends.
func busy(t *testing.T, p *served) {
	t.Helper()
	go func() {
		for n := 0; t.Context().Err() == nil; n++ {
			key := fmt.Sprint("busy/", n%10)
			_, _ = p.Client.Put(t.Context(), key, "v")
			_, _ = p.Client.Delete(t.Context(), key)
			_, _ = p.Client.Get(t.Context(), "busy/", clientv3.WithPrefix())
			select {
			case <-t.Context().Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
}

// A tenant is alone at the core whatever it writes through its replicas, and is not once anybody else writes, or
// another tenant only reads through its proxy.
func TestAloneAtTheCore(t *testing.T) {
	t.Parallel()
	etcd := testkit.NewEtcd(t)
	core := client(t, etcd.Endpoint)
	cfg := configure(t, etcd.Endpoint)
	cfg.UnitsPerSecond, cfg.ReplicaExpiry, cfg.Quota = 1000, 3*time.Second, quota.Limits{Bytes: 1 << 20}
	first, second := start(t, cfg), start(t, cfg)
	second.knows(t, 2)
	busy(t, first)
	busy(t, second)
	alone(t, "with writes of its own", 1, first, second)

	cfg.Tenant, cfg.TenantName = tenant(t, "/b/"), "b"
	neighbor := start(t, cfg)
	neighbor.knows(t, 1)
	alone(t, "as another tenant's proxy begins", 0, first, second)
	alone(t, "while that has nothing to do", 1, first, second)

	marks := core.Watch(t.Context(), tenancy.DefaultSystemPrefix+"tenants/b/reads/", clientv3.WithPrefix())
	ctx, end := context.WithCancel(t.Context())
	go func() {
		for ctx.Err() == nil {
			_, _ = neighbor.Client.Get(ctx, "k")
		}
	}()
	for n := 0; n < 3; {
		answer := <-marks
		if err := answer.Err(); err != nil {
			t.Fatal(err)
		}
		for _, event := range answer.Events {
			n++
			if event.Type != mvccpb.Event_PUT {
				t.Errorf("the key that tells that it reads is gone while it does: %v", event)
			}
		}
		alone(t, "while that only reads", 0, first, second)
	}
	end()
	alone(t, "when that reads no more", 1, first, second)

	must.Get(core.Put(t.Context(), "/elsewhere", "v")).Or(t)
	alone(t, "when a client writes without a proxy", 0, first, second)
	alone(t, "while none does", 1, first, second)
}
