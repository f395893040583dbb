// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"errors"
	"testing"

	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// What a round does not declare is not sent to the core, and what it reads is.
func TestWhatIsNotDeclaredIsNotWritten(t *testing.T) {
	t.Parallel()
	c, etcd := dial(t)
	o := claimed(t, c, "a", "/a/")
	o.LeaseSpace = "87"
	const lease = 87<<32 | 5
	leaseAll(t, etcd, lease)
	must.Get(c.kv.Put(t.Context(), "/a/x", "x")).Or(t)
	seen := see(t, c, "a", "/a/")
	id, before := seen.ClusterID, etcd.Revision(t)
	none := outputs.Within(t.Context(), "reader", nil)
	for what, write := range map[string]func(context.Context) error{
		"a claim": func(ctx context.Context) error {
			_, err := c.Claim(ctx, operator.Claim{Record: operator.Record{Owner: owner("b", "/b/")}, Revision: seen.Revision})
			return err
		},
		"a release":         func(ctx context.Context) error { return c.Release(ctx, o) },
		"a deletion":        func(ctx context.Context) error { return c.DeleteKeys(ctx, o) },
		"a lease":           func(ctx context.Context) error { return c.RevokeLeases(ctx, o, []int64{lease}) },
		"a user":            func(ctx context.Context) error { return c.EnsureUser(ctx, "a", "/a/", "declared-a", "x") },
		"a user that goes":  func(ctx context.Context) error { return c.RetireUsers(ctx, "a", []string{"declared-a"}, false) },
		"a compaction":      func(ctx context.Context) error { return c.Compact(ctx, id, before) },
		"a defragmentation": func(ctx context.Context) error { return c.Defragment(ctx, id, etcd.Endpoint) },
		"an alarm":          func(ctx context.Context) error { return c.Disarm(ctx, id, []string{"1"}) },
	} {
		if err := write(none); !errors.Is(err, outputs.ErrUndeclared) {
			t.Errorf("%s, which is not declared: %v", what, err)
		}
	}
	if after := etcd.Revision(t); after != before {
		t.Errorf("the core's revision was %d and is %d", before, after)
	}
	if got := c.Observe(none, Question{Tenant: "a", Prefix: "/a/", Users: true}); got.Problem != "" {
		t.Errorf("a round that writes nothing cannot read: %s", got.Problem)
	}
	some := outputs.Within(t.Context(), "releaser", []outputs.Write{{System: outputs.CoreEtcd, Kind: "KV", Verbs: []string{"Txn"}}})
	if err := c.Release(some, o); err != nil {
		t.Errorf("a release, which is declared: %v", err)
	}
}
