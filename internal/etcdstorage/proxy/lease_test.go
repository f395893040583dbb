// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// leases are the bare clients of one side, with what they saw.
type leases struct {
	ctx   context.Context //nolint:containedctx // the test's
	lease pb.LeaseClient
	kv    pb.KVClient
	log   []string
}

func newLeases(t *testing.T, endpoint string) *leases {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	conn := raw(t, strings.TrimPrefix(endpoint, "http://"))
	return &leases{ctx: ctx, lease: pb.NewLeaseClient(conn), kv: pb.NewKVClient(conn)}
}

func (l *leases) note(what string, err error, answer ...any) {
	text := what + ": " + fmt.Sprint(answer...)
	if err != nil {
		text = what + ": " + status.Code(err).String() + " " + status.Convert(err).Message()
	}
	l.log = append(l.log, text)
}

func (l *leases) grant(id, ttl int64) int64 {
	r, err := l.lease.LeaseGrant(l.ctx, &pb.LeaseGrantRequest{ID: id, TTL: ttl})
	given := r.GetID()
	if id == 0 && given > 0 {
		given = -1 // the server's choice
	}
	l.note(fmt.Sprintf("grant %d %d", id, ttl), err, given, " ", r.GetTTL(), " ", r.GetError(), " ", r.GetHeader().GetRevision() > 0)
	return r.GetID()
}

func (l *leases) revoke(id int64) {
	r, err := l.lease.LeaseRevoke(l.ctx, &pb.LeaseRevokeRequest{ID: id})
	l.note(fmt.Sprint("revoke ", id), err, r.GetHeader().GetRevision() > 0)
}

func (l *leases) timeToLive(id int64, keys bool) {
	r, err := l.lease.LeaseTimeToLive(l.ctx, &pb.LeaseTimeToLiveRequest{ID: id, Keys: keys})
	ttl := r.GetTTL()
	if ttl > 0 {
		ttl = 1 // a little less than granted
	}
	names := make([]string, 0, len(r.GetKeys()))
	for _, k := range r.GetKeys() {
		names = append(names, string(k))
	}
	slices.Sort(names)
	l.note(fmt.Sprint("time to live ", id), err, r.GetID(), " ", ttl, " ", r.GetGrantedTTL(), " ", names)
}

func (l *leases) list() {
	r, err := l.lease.LeaseLeases(l.ctx, &pb.LeaseLeasesRequest{})
	var ids []int64
	for _, s := range r.GetLeases() {
		ids = append(ids, s.ID)
	}
	slices.Sort(ids)
	l.note("list", err, ids)
}

func (l *leases) put(key string, lease int64) {
	_, err := l.kv.Put(l.ctx, &pb.PutRequest{Key: []byte(key), Lease: lease})
	l.note(fmt.Sprintf("put %s %d", key, lease), err)
}

func (l *leases) keepAlive(t *testing.T, ids ...int64) {
	t.Helper()
	c, err := l.lease.LeaseKeepAlive(l.ctx)
	must.Do(t, err)
	for _, id := range ids { // all at once: the answers come in order
		must.Do(t, c.Send(&pb.LeaseKeepAliveRequest{ID: id}))
	}
	for _, id := range ids {
		r, err := c.Recv()
		l.note(fmt.Sprint("keep alive ", id), err, r.GetID(), " ", r.GetTTL())
	}
	must.Do(t, c.CloseSend())
	_, err = c.Recv()
	l.log = append(l.log, fmt.Sprint("end: ", err))
}

// withoutLeases is an etcd that has none left from the tests before.
func withoutLeases(t *testing.T) *testkit.Etcd {
	t.Helper()
	etcd := testkit.NewEtcd(t)
	all := must.Get(etcd.Client.Leases(t.Context())).Or(t)
	for _, l := range all.Leases {
		_, _ = etcd.Client.Revoke(t.Context(), l.ID) // it may just have expired
	}
	return etcd
}

// TestLeasesAreEtcds runs the same calls on etcd and on the proxy.
func TestLeasesAreEtcds(t *testing.T) {
	t.Parallel()
	direct := newLeases(t, withoutLeases(t).Endpoint)
	proxied := newLeases(t, start(t, configure(t, withoutLeases(t).Endpoint)).Endpoint)
	for _, l := range []*leases{direct, proxied} {
		l.list()
		l.grant(7, 100)
		l.grant(7, 100)
		l.grant(math.MaxUint32, 50)
		l.grant(0, 60)
		for _, ttl := range []int64{0, -1, 1, 9_000_000_000, 9_000_000_001} {
			l.grant(100+ttl%90, ttl)
		}
		l.put("k1", 7)
		l.put("k2", 7)
		l.put("k3", 8) // no such lease
		l.put("k2", 0)
		l.put("k1/x", 7)
		for _, id := range []int64{7, 8, 0, -1, math.MinInt64, math.MaxInt64, 1 << 32, 1<<32 | 7} {
			l.timeToLive(id, id != 0)
		}
		l.keepAlive(t, 7, 8, 7, 0, -5, math.MaxInt64, math.MaxUint32)
		l.revoke(7)
		l.timeToLive(7, true)
		for _, id := range []int64{7, 8, 0, -1, math.MaxInt64} {
			l.revoke(id)
		}
		l.keepAlive(t, 7)
		l.grant(7, 30) // free again
		l.put("k9", 7)
		l.timeToLive(7, true)
	}
	for i, want := range direct.log {
		if proxied.log[i] != want {
			t.Errorf("call %d\n etcd:  %s\n proxy: %s", i, want, proxied.log[i])
		}
	}
	if t.Failed() || testing.Verbose() {
		t.Logf("etcd:\n%s", strings.Join(direct.log, "\n"))
	}
}

// notOwn are the leases that are not the proxies' own.
func notOwn(leases []clientv3.LeaseStatus) []clientv3.LeaseStatus {
	return slices.DeleteFunc(leases, func(l clientv3.LeaseStatus) bool { return int64(l.ID)>>32 == tenancy.OwnLease(0)>>32 })
}

// TestLeasesOfOthers shows that leases of another tenant, or of nobody, can be neither seen nor touched nor named.
func TestLeasesOfOthers(t *testing.T) {
	t.Parallel()
	etcd := withoutLeases(t)
	a := start(t, configure(t, etcd.Endpoint))
	other := configure(t, etcd.Endpoint)
	prefix := must.Get(tenancy.ParsePrefix("/b/")).Or(t)
	other.Tenant = tenancy.Tenant{Prefix: prefix, Leases: tenancy.DeriveLeaseSpace(prefix)}
	other.TenantName = "b"
	b := start(t, other)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	nobodys := must.Get(etcd.Client.Grant(ctx, 500)).Or(t)
	mine := must.Get(a.Client.Grant(ctx, 500)).Or(t)
	must.Get(a.Client.Put(ctx, "k", "v", clientv3.WithLease(mine.ID))).Or(t)
	all, err := etcd.Client.Leases(ctx)
	must.Do(t, err)
	all.Leases = notOwn(all.Leases)
	if len(all.Leases) != 2 {
		t.Fatal(all, err)
	}
	ids := []clientv3.LeaseID{mine.ID, nobodys.ID}
	for _, l := range all.Leases { // as the core names them
		ids = append(ids, l.ID)
	}
	for _, id := range ids {
		if r, err := b.Client.TimeToLive(ctx, id, clientv3.WithAttachedKeys()); err != nil || r.TTL != -1 || len(r.Keys) > 0 || r.GrantedTTL != 0 {
			t.Errorf("time to live of %d: %+v, %v", id, r, err)
		}
		if r, err := b.Client.KeepAliveOnce(ctx, id); err == nil || !strings.Contains(err.Error(), "requested lease not found") {
			t.Errorf("keep alive of %d: %v, %v", id, r, err)
		}
		if _, err := b.Client.Revoke(ctx, id); status.Code(err) != codes.NotFound && !strings.Contains(fmt.Sprint(err), "requested lease not found") {
			t.Errorf("revoke of %d: %v", id, err)
		}
		if _, err := b.Client.Put(ctx, "k", "v", clientv3.WithLease(id)); err == nil || !strings.Contains(err.Error(), "requested lease not found") {
			t.Errorf("put with %d: %v", id, err)
		}
	}
	for _, tenant := range []struct {
		client *clientv3.Client
		want   int
	}{{a.Client, 1}, {b.Client, 0}, {etcd.Client, 2}} {
		if r, err := tenant.client.Leases(ctx); err != nil || len(notOwn(r.Leases)) != tenant.want {
			t.Errorf("leases: %+v, %v, not %d", r, err, tenant.want)
		}
	}
	if r, err := a.Client.TimeToLive(ctx, mine.ID, clientv3.WithAttachedKeys()); err != nil || r.TTL < 400 || len(r.Keys) != 1 || string(r.Keys[0]) != "k" {
		t.Errorf("its own lease: %+v, %v", r, err)
	}
	// A lease that a key of another holds too: its keys cannot all be shown.
	core := all.Leases[slices.IndexFunc(all.Leases, func(l clientv3.LeaseStatus) bool { return l.ID != nobodys.ID })].ID
	must.Get(etcd.Client.Put(ctx, "/b/secret", "", clientv3.WithLease(core))).Or(t)
	if r, err := a.Client.TimeToLive(ctx, mine.ID, clientv3.WithAttachedKeys()); err == nil || strings.Contains(fmt.Sprint(r, err), "secret") {
		t.Errorf("a lease with the key of another: %+v, %v", r, err)
	}
	_, err = a.Client.Grant(ctx, 500)
	if err != nil {
		t.Error(err)
	}
	if _, err := pb.NewLeaseClient(raw(t, a.Endpoint)).LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: 1 << 32, TTL: 5}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("an ID of another space: %v", err)
	}
}

// TestKeepAliveEnds shows that a stream of keep-alives ends with the core's connection, even while nothing is asked.
func TestKeepAliveEnds(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var conns []net.Conn
	cfg := configure(t, withoutLeases(t).Endpoint)
	cfg.Upstream.Dialer = func(ctx context.Context, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			conns = append(conns, c)
		}
		return c, err
	}
	l := newLeases(t, start(t, cfg).Endpoint)
	l.grant(7, 100)
	c := must.Get(l.lease.LeaseKeepAlive(l.ctx)).Or(t)
	must.Do(t, c.Send(&pb.LeaseKeepAliveRequest{ID: 7}))
	if r, err := c.Recv(); err != nil || r.TTL != 100 {
		t.Fatal(r, err)
	}
	mu.Lock()
	for _, conn := range conns {
		_ = conn.Close()
	}
	mu.Unlock()
	ended := make(chan error, 1)
	go func() {
		_, err := c.Recv()
		ended <- err
	}()
	select {
	case err := <-ended:
		if status.Code(err) != codes.Unavailable {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(patience):
		t.Error("it goes on")
	}
}
