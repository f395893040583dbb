// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// dial returns a client of an etcd that nobody else uses.
func dial(t *testing.T) (*Client, *testkit.Etcd) {
	t.Helper()
	etcd := testkit.NewEtcd(t)
	c := must.Get(Dial(t.Context(), []string{etcd.Endpoint}, Credentials{}, Patience)).Or(t)
	t.Cleanup(func() { _ = c.Close() })
	return c, etcd
}

func owner(tenant, prefix string) operator.Owner {
	return operator.Owner{Tenant: tenant, Prefix: prefix, LeaseSpace: "77", Cluster: "this", UID: "uid-" + tenant}
}

// see observes a tenant, with all there is to see.
func see(t *testing.T, c *Client, tenant, prefix string) operator.Core {
	t.Helper()
	got := c.Observe(t.Context(), Question{Tenant: tenant, Prefix: prefix, Users: true, Exiting: true})
	if got.Problem != "" {
		t.Fatal(got.Problem)
	}
	return got
}

// claimed claims a prefix and returns the record as it is then.
func claimed(t *testing.T, c *Client, tenant, prefix string) operator.Owner {
	t.Helper()
	if _, err := c.Claim(t.Context(), operator.Claim{Record: operator.Record{Owner: owner(tenant, prefix)}, Revision: see(t, c, tenant, prefix).Revision}); err != nil {
		t.Fatal(err)
	}
	owners := see(t, c, tenant, prefix).Owners
	return owners[slices.IndexFunc(owners, func(o operator.Owner) bool { return o.Tenant == tenant })]
}

// leaseAll makes leases with these IDs. The etcd is used again by other tests and by other runs of this one, so they are revoked before and
// afterwards.
func leaseAll(t *testing.T, etcd *testkit.Etcd, ids ...int64) {
	t.Helper()
	lease := etcdserverpb.NewLeaseClient(etcd.Client.ActiveConnection())
	revoke := func(ctx context.Context) {
		for _, id := range ids {
			_, _ = lease.LeaseRevoke(ctx, &etcdserverpb.LeaseRevokeRequest{ID: id})
		}
	}
	revoke(t.Context())
	t.Cleanup(func() { revoke(context.WithoutCancel(t.Context())) })
	for _, id := range ids {
		must.Get(lease.LeaseGrant(t.Context(), &etcdserverpb.LeaseGrantRequest{TTL: 600, ID: id})).Or(t)
	}
}

// Of two that claim at the same time one gets its prefix, whatever the names: nobody has seen the other's record.
func TestTwoClaimsAtOnce(t *testing.T) {
	t.Parallel()
	c, _ := dial(t)
	at := see(t, c, "a", "/a/").Revision
	must.Get(c.Claim(t.Context(), operator.Claim{Record: operator.Record{Owner: owner("a", "/a/")}, Revision: at})).Or(t)
	if _, err := c.Claim(t.Context(), operator.Claim{Record: operator.Record{Owner: owner("b", "/a/b/")}, Revision: at}); !errors.Is(err, ErrConflict) {
		t.Errorf("the second claim: %v", err)
	}
	now := see(t, c, "a", "/a/")
	if len(now.Owners) != 1 || now.Owners[0].UID != "uid-a" {
		t.Errorf("%+v", now.Owners)
	}
	// Keys of tenants that are written meanwhile hold no claim back.
	must.Get(c.kv.Put(t.Context(), "/other/x", "x")).Or(t)
	if _, err := c.Claim(t.Context(), operator.Claim{Record: operator.Record{Owner: owner("c", "/c/")}, Revision: now.Revision}); err != nil {
		t.Error(err)
	}
}

// Which etcd answers is known from its cluster ID: a deed that was decided at another is not done, and URLs that lead to two are a problem.
func TestWhichCoreAnswers(t *testing.T) {
	t.Parallel()
	c, etcd := dial(t)
	here := see(t, c, "a", "/a/").ClusterID
	if err := c.At(t.Context(), here); err != nil {
		t.Errorf("at %s: %v", here, err)
	}
	if err := c.At(t.Context(), "5742"); !errors.Is(err, ErrConflict) {
		t.Errorf("at another one: %v", err)
	}
	other := testkit.NewEtcdWith(t, "--listen-peer", "http://127.0.0.2:0") // the ID is made of the URLs of peers
	both := must.Get(Dial(t.Context(), []string{etcd.Endpoint, other.Endpoint}, Credentials{}, Patience)).Or(t)
	t.Cleanup(func() { _ = both.Close() })
	testkit.Eventually(t, "answers of both", func() string {
		problem := both.Observe(t.Context(), Question{Tenant: "a", Prefix: "/a/"}).Problem
		if !strings.Contains(problem, "the URLs of --etcd-core-url belong to several etcds, with cluster IDs ") {
			return "the problem is " + problem
		}
		return ""
	})
}

// The health of a core of which one member answers and another does not: what is known of the one is there, and nothing was written.
func TestHealthOfACoreWithASilentMember(t *testing.T) {
	t.Parallel()
	_, etcd := dial(t)
	gone := testkit.NewEtcdWith(t)
	c := must.Get(Dial(t.Context(), []string{etcd.Endpoint, gone.Endpoint}, Credentials{}, 2*inVain)).Or(t)
	t.Cleanup(func() { _ = c.Close() })
	gone.Kill()
	before := etcd.Revision(t)
	h := c.Health(t.Context(), time.Unix(1, 0))
	if reason, words := h.Judge(); reason != operator.ReasonMemberUnreachable || !strings.Contains(words, gone.Endpoint) || strings.Contains(words, etcd.Endpoint) {
		t.Errorf("%s %s: %+v", reason, words, h)
	}
	if m := h.Members[0]; !m.Leader || m.Size <= 0 || m.InUse <= 0 || m.Quota <= 0 || etcd.Revision(t) != before {
		t.Errorf("%+v", m)
	}
}

// A record is removed only when neither a key nor a lease nor a note of the proxies is left, and pages never reach beyond the prefix.
func TestForgetNeedsThatNothingIsLeft(t *testing.T) {
	t.Parallel()
	c, etcd := dial(t)
	o := claimed(t, c, "a", "/a/")
	ctx := t.Context()
	for i := range 1203 {
		must.Get(c.kv.Put(ctx, fmt.Sprintf("/a/%04d", i), "x")).Or(t)
	}
	for _, key := range []string{"/a", "/a0", "/b/x", operator.SystemPrefix("a") + "compact-revision", operator.SystemPrefix("a0") + "x"} {
		must.Get(c.kv.Put(ctx, key, "x")).Or(t)
	}
	lease := etcdserverpb.NewLeaseClient(etcd.Client.ActiveConnection())
	leaseAll(t, etcd, 77<<32|5, 78<<32|5)
	if err := c.Forget(ctx, o); !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "1 leases") {
		t.Errorf("with a lease: %v", err)
	}
	if got := see(t, c, "a", "/a/").Leases; !slices.Equal(got, []int64{77<<32 | 5}) {
		t.Errorf("%v", got)
	}
	must.Do(t, c.RevokeLeases(ctx, o, []int64{77<<32 | 5}))
	for _, step := range []func(context.Context, operator.Owner) error{c.DeleteKeys, c.DeleteRecords} {
		if err := c.Forget(ctx, o); !errors.Is(err, ErrConflict) {
			t.Errorf("with keys: %v", err)
		}
		must.Do(t, step(ctx, o))
	}
	must.Do(t, c.Forget(ctx, o))
	var left []string
	for key := range etcd.Dump(t) {
		left = append(left, key)
	}
	slices.Sort(left)
	if want := []string{operator.SystemPrefix("a0") + "x", "/a", "/a0", "/b/x"}; !slices.Equal(left, want) {
		t.Errorf("%v", left)
	}
	if _, err := lease.LeaseRevoke(ctx, &etcdserverpb.LeaseRevokeRequest{ID: 78<<32 | 5}); err != nil {
		t.Errorf("the lease of another tenant: %v", err)
	}
}

// Who has lost the record deletes nothing.
func TestDeletionNeedsTheRecord(t *testing.T) {
	t.Parallel()
	c, _ := dial(t)
	o := claimed(t, c, "a", "/a/")
	must.Get(c.kv.Put(t.Context(), "/a/x", "x")).Or(t)
	must.Get(c.kv.Put(t.Context(), operator.SystemPrefix("a")+"x", "x")).Or(t)
	must.Do(t, c.Release(t.Context(), o))
	for name, deed := range map[string]func(context.Context, operator.Owner) error{
		"DeleteKeys": c.DeleteKeys, "DeleteRecords": c.DeleteRecords, "Release": c.Release, "Forget": c.Forget,
	} {
		if err := deed(t.Context(), o); !errors.Is(err, ErrConflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := see(t, c, "a", "/a/"); got.Keys != 1 || got.Records != 1 || !got.Owners[0].Released {
		t.Errorf("%+v", got)
	}
}

// A lease of the tenant's space to which somebody has attached a key of another is not revoked: that would delete the key.
func TestALeaseWithAForeignKeyStays(t *testing.T) {
	t.Parallel()
	c, etcd := dial(t)
	o := claimed(t, c, "a", "/a/")
	o.LeaseSpace = "88"
	const id = 88<<32 | 5 // the etcd is used again by other tests, with its leases
	leaseAll(t, etcd, id)
	must.Get(c.kv.Put(t.Context(), "/b/x", "x", clientv3.WithLease(id))).Or(t)
	if err := c.RevokeLeases(t.Context(), o, []int64{id}); err == nil || !strings.Contains(err.Error(), "but a key outside of /a/ is attached to it; revoke it by hand") {
		t.Errorf("%v", err)
	}
	if _, found := etcd.Dump(t)["/b/x"]; !found {
		t.Error("the key of another is gone")
	}
}

// What a tenant stores is counted over many pages, and of its prefix alone.
func TestMeasure(t *testing.T) {
	t.Parallel()
	c, etcd := dial(t)
	o := claimed(t, c, "a", "/a/")
	for i := range 100 {
		must.Get(c.kv.Put(t.Context(), fmt.Sprintf("/a/%02d", i), strings.Repeat("x", 95))).Or(t)
	}
	must.Get(c.kv.Put(t.Context(), "/a0", "x")).Or(t)
	o.LeaseSpace = "99"
	leaseAll(t, etcd, 99<<32|5, 99<<32|6, 98<<32|5)
	got, err := c.Measure(t.Context(), clock.RealClock{}, o)
	if err != nil || got != (Usage{Keys: 100, Bytes: 10000, Leases: 2}) {
		t.Errorf("%+v %v", got, err)
	}
}

// A record that cannot be read stops everything, since whose the prefixes are is not known then.
func TestAnUnreadableRecord(t *testing.T) {
	t.Parallel()
	c, _ := dial(t)
	must.Get(c.kv.Put(t.Context(), operator.OwnersPrefix+"z", "{")).Or(t)
	got := c.Observe(t.Context(), Question{Tenant: "a", Prefix: "/a/"})
	if !strings.Contains(got.Problem, "the record /.etcd.mooring.dev/owners/z in the core etcd cannot be read, and its owner must be found first") {
		t.Errorf("%q", got.Problem)
	}
}
