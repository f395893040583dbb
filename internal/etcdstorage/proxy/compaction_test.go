// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// TestCompactionAsEtcd makes the same calls to an etcd of its own and to a tenant, and compares codes and texts.
func TestCompactionAsEtcd(t *testing.T) {
	t.Parallel()
	core, other := testkit.NewEtcd(t), testkit.NewEtcd(t)
	before := core.Revision(t) // etcds are lent: an earlier test may have compacted what lies before
	p := start(t, configure(t, core.Endpoint))
	inMemory := configure(t, core.Endpoint)
	inMemory.SystemPrefix = ""
	m := start(t, inMemory)
	for name, c := range map[string]*clientv3.Client{"with a record": p.Client, "in memory": m.Client} {
		for i, call := range compactionCalls() {
			want, got := call(t.Context(), other.Client, base(t, other.Client)), call(t.Context(), c, base(t, c))
			if status.Code(want) != status.Code(got) || status.Convert(want).Message() != status.Convert(got).Message() {
				t.Errorf("%s, call %d: etcd answers %v, the proxy %v", name, i, want, got)
			}
		}
	}
	if _, err := core.Client.Get(t.Context(), "/a/k", clientv3.WithRev(before)); err != nil {
		t.Errorf("the core itself was compacted: %v", err)
	}
}

// base is the store's revision after two writes.
func base(tb testing.TB, c *clientv3.Client) int64 {
	tb.Helper()
	for range 2 {
		must.Get(c.Put(tb.Context(), "k", "v")).Or(tb)
	}
	got := must.Get(c.Get(tb.Context(), "k")).Or(tb)
	return got.Header.Revision
}

// compactionCalls is a history around compactions; each call is given the revision of its store.
func compactionCalls() []func(ctx context.Context, c *clientv3.Client, now int64) error {
	get := func(ctx context.Context, c *clientv3.Client, revision int64) error {
		_, err := c.Get(ctx, "k", clientv3.WithRev(revision))
		return err
	}
	compact := func(ctx context.Context, c *clientv3.Client, revision int64) error {
		_, err := c.Compact(ctx, revision)
		return err
	}
	return []func(ctx context.Context, c *clientv3.Client, now int64) error{
		func(ctx context.Context, c *clientv3.Client, now int64) error { return get(ctx, c, now-1) },
		func(ctx context.Context, c *clientv3.Client, now int64) error { return compact(ctx, c, now-1) },
		func(ctx context.Context, c *clientv3.Client, now int64) error {
			if err := compact(ctx, c, now); err != nil {
				return err
			}
			return get(ctx, c, now)
		},
		func(ctx context.Context, c *clientv3.Client, now int64) error { return get(ctx, c, now-5) },
		func(ctx context.Context, c *clientv3.Client, now int64) error { return compact(ctx, c, now-8) },
		func(ctx context.Context, c *clientv3.Client, _ int64) error { return compact(ctx, c, 0) },
		func(ctx context.Context, c *clientv3.Client, now int64) error { return compact(ctx, c, now+100) },
		func(ctx context.Context, c *clientv3.Client, now int64) error { return get(ctx, c, now+100) },
		func(ctx context.Context, c *clientv3.Client, now int64) error {
			_, err := c.Txn(ctx).Then(clientv3.OpPut("x", ""), clientv3.OpGet("k", clientv3.WithRev(now-9))).Commit()
			return err
		},
		func(ctx context.Context, c *clientv3.Client, now int64) error {
			_, err := c.Txn(ctx).If(clientv3.Compare(clientv3.Version("k"), "=", 0)).Then(clientv3.OpGet("k", clientv3.WithRev(now-11))).Commit()
			return err // the branch does not run
		},
		func(ctx context.Context, c *clientv3.Client, now int64) error {
			stream, err := c.GetStream(ctx, "k", clientv3.WithRev(now-13))
			if err != nil {
				return err
			}
			_, err = clientv3.GetStreamToGetResponse(stream)
			return err
		},
	}
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
