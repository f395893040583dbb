// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// base is the store's revision after two writes.
func base(tb testing.TB, c *clientv3.Client) int64 {
	tb.Helper()
	for range 2 {
		must.Get(c.Put(tb.Context(), "k", "v")).Or(tb)
	}
	got := must.Get(c.Get(tb.Context(), "k")).Or(tb)
	return got.Header.Revision
}

// TestCompactionIsShared shows that replicas follow each other's compactions, that a restart forgets none, and that another tenant is not concerned.
func TestCompactionIsShared(t *testing.T) {
	t.Parallel()
	core := testkit.NewEtcd(t)
	one, two := start(t, configure(t, core.Endpoint)), start(t, configure(t, core.Endpoint))
	ctx := t.Context()
	now := base(t, one.Client)
	must.Get(two.Client.Get(ctx, "k", clientv3.WithRev(now-1))).Or(t)
	must.Get(one.Client.Compact(ctx, now)).Or(t)
	testkit.Eventually(t, "the other replica", func() string {
		if _, err := two.Client.Get(ctx, "k", clientv3.WithRev(now-1)); err == nil {
			return "a compacted revision can still be read"
		}
		return ""
	})
	if _, err := two.Client.Compact(ctx, now); err == nil {
		t.Error("the other replica compacts the same revision again")
	}
	if _, err := two.Client.Get(ctx, "k", clientv3.WithRev(now)); err != nil {
		t.Error(err)
	}
	one.stop()
	again := start(t, configure(t, core.Endpoint))
	if _, err := again.Client.Get(ctx, "k", clientv3.WithRev(now-1)); err == nil {
		t.Error("after a restart the first read of a compacted revision succeeds")
	}
	neighbor := configure(t, core.Endpoint)
	neighbor.TenantName, neighbor.Tenant = "b", tenant(t, "/b/")
	n := start(t, neighbor)
	if _, err := n.Client.Get(ctx, "k", clientv3.WithRev(now-1)); err != nil {
		t.Errorf("another tenant's read: %v", err)
	}
}

// TestCompactionRecordInTheWay shows that a proxy that starts with a record that was damaged by hand serves nothing, and says why: the record may have had
// an offset of revisions.
func TestCompactionRecordInTheWay(t *testing.T) {
	t.Parallel()
	core := testkit.NewEtcd(t)
	must.Get(core.Client.Put(t.Context(), "/.etcd.mooring.dev/tenants/a/compact-revision", "many")).Or(t)
	p := start(t, configure(t, core.Endpoint))
	_, err := etcdserverpb.NewKVClient(raw(t, p.Endpoint)).Put(t.Context(), &etcdserverpb.PutRequest{Key: []byte("k")})
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "the record of the tenant's compact revision cannot be read") {
		t.Error(err)
	}
	if err := p.Ready(t.Context()); err == nil {
		t.Error("the proxy is ready though it cannot read the record")
	}
}
