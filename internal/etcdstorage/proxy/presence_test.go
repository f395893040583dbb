// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

const ownRecords = tenancy.DefaultSystemPrefix + "tenants/a/"

// readsWithin reads a key for so long, and returns the last error; nil once it was read.
func readsWithin(t *testing.T, s *served, d time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	_, err := etcdserverpb.NewKVClient(raw(t, s.Endpoint)).Range(ctx, &etcdserverpb.RangeRequest{Key: []byte("k")})
	return err
}

// TestRaisedOffsetWaitsForReplicas: no replica serves with a raised offset while the record of another shows a lower
// one, whether it served before or begins now; it has recorded by then that it serves with no lower one itself.
func TestRaisedOffsetWaitsForReplicas(t *testing.T) {
	t.Parallel()
	const offset = 5_000_000
	raised := fmt.Sprint(offset+1, " ", offset)
	for name, agrees := range map[string]func(t *testing.T, core *clientv3.Client, key string, lease clientv3.LeaseID){
		"records it": func(t *testing.T, core *clientv3.Client, key string, lease clientv3.LeaseID) {
			must.Get(core.Put(t.Context(), key, fmt.Sprint("17 ", offset), clientv3.WithLease(lease))).Or(t)
		},
		"records a higher one": func(t *testing.T, core *clientv3.Client, key string, lease clientv3.LeaseID) {
			must.Get(core.Put(t.Context(), key, fmt.Sprint("0 ", 2*offset), clientv3.WithLease(lease))).Or(t)
		},
		"goes": func(t *testing.T, core *clientv3.Client, _ string, lease clientv3.LeaseID) {
			must.Get(core.Revoke(t.Context(), lease)).Or(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			etcd := testkit.NewEtcd(t)
			core := client(t, etcd.Endpoint)
			cfg := configure(t, etcd.Endpoint)
			cfg.ReplicaExpiry = time.Hour
			before := start(t, cfg)
			testkit.Eventually(t, "the replica to serve", func() string { return text(before.Ready(t.Context())) })
			lease := must.Get(core.Grant(t.Context(), 600)).Or(t).ID
			other := ownRecords + "replicas/0"
			for _, value := range []string{"", "500", fmt.Sprint("500 ", offset-1), "500 x"} {
				must.Get(core.Put(t.Context(), other, value, clientv3.WithLease(lease))).Or(t)
				must.Get(core.Put(t.Context(), ownRecords+"compact-revision", raised)).Or(t)
				testkit.Eventually(t, "the replica to record the offset", func() string {
					for _, record := range recordsOf(t, core) {
						if string(record.Key) != other && strings.HasSuffix(string(record.Value), fmt.Sprint(" ", offset)) {
							return ""
						}
					}
					return fmt.Sprint(recordsOf(t, core))
				})
				for what, s := range map[string]*served{"the replica": before, "one that begins": start(t, cfg)} {
					if err := readsWithin(t, s, time.Second); status.Code(err) != codes.DeadlineExceeded {
						t.Errorf("%s serves alongside one that has recorded %q: %v", what, value, err)
					}
				}
			}
			after := start(t, cfg)
			agrees(t, core, other, lease)
			for what, s := range map[string]*served{"the replica": before, "one that begins": after} {
				if err := readsWithin(t, s, patience); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
}

// TestReplicaThatNoticesLate: while one replica has not noticed that the offset was raised, and serves with the one
// before, the other serves nothing. Afterwards both serve with the new one.
func TestReplicaThatNoticesLate(t *testing.T) {
	t.Parallel()
	const offset = 5_000_000
	etcd := testkit.NewEtcd(t)
	cfg := configure(t, etcd.Endpoint)
	cfg.ReplicaExpiry = time.Hour
	first := start(t, cfg)
	held := newHeldCore(t, etcd.Endpoint)
	release := held.hold(etcdserverpb.Watch_Watch_FullMethodName, false)
	cfg.Upstream.Endpoints = []string{held.Endpoint}
	late := start(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	for _, s := range []*served{first, late} {
		testkit.Eventually(t, "a replica to serve", func() string { return text(s.Ready(ctx)) })
	}
	testkit.Eventually(t, "the late one to watch both records, which follows reading them", func() string {
		if n := held.working.Load(); n != 2 {
			return fmt.Sprint(n)
		}
		return ""
	})
	must.Get(etcd.Client.Put(ctx, ownRecords+"compact-revision", fmt.Sprint(offset+1, " ", offset))).Or(t)
	testkit.Eventually(t, "the first to notice", func() string {
		if got := metric(t, first.Registry, "mooring_etcdstorage_proxy_core_went_back_total"); got != 1 {
			return fmt.Sprint(got)
		}
		return ""
	})
	if err := readsWithin(t, first, time.Second); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("it serves while the other may serve with a lower offset: %v", err)
	}
	if got := must.Get(late.Client.Get(ctx, "k")).Or(t).Header.Revision; got > offset {
		t.Errorf("the late one has noticed: the test shows nothing, at %d", got)
	}
	release()
	for i, s := range []*served{first, late} { // the late one has noticed once the first serves
		testkit.Eventually(t, "a replica to serve", func() string { return text(s.Ready(ctx)) })
		if got := must.Get(s.Client.Get(ctx, "k")).Or(t).Header.Revision; got <= offset {
			t.Errorf("replica %d serves revision %d", i, got)
		}
	}
}

// TestRaisedOffsetWaitsNotForever: a replica of a version that records no offset does not keep others from serving
// forever.
func TestRaisedOffsetWaitsNotForever(t *testing.T) {
	t.Parallel()
	etcd := testkit.NewEtcd(t)
	core := client(t, etcd.Endpoint)
	lease := must.Get(core.Grant(t.Context(), 600)).Or(t).ID
	must.Get(core.Put(t.Context(), ownRecords+"replicas/0", "500", clientv3.WithLease(lease))).Or(t)
	must.Get(core.Put(t.Context(), ownRecords+"compact-revision", "8 7")).Or(t)
	cfg := configure(t, etcd.Endpoint)
	cfg.ReplicaExpiry = 2 * time.Second
	began := time.Now()
	s := start(t, cfg)
	if err := readsWithin(t, s, patience); err != nil {
		t.Fatal(err)
	}
	if waited := time.Since(began); waited < 2*cfg.ReplicaExpiry {
		t.Errorf("it waited %v for the other, want %v", waited, 2*cfg.ReplicaExpiry)
	}
}

// TestNothingIsServedWithoutALease: a replica whose record may have expired, so that others may raise the offset
// without it, serves nothing until it is recorded again; nor does one that has no record yet.
func TestNothingIsServedWithoutALease(t *testing.T) {
	t.Parallel()
	core := newHeldCore(t, testkit.NewEtcd(t).Endpoint)
	cfg := configure(t, core.Endpoint)
	cfg.ReplicaExpiry = 2 * time.Second
	release := core.hold(etcdserverpb.Lease_LeaseGrant_FullMethodName, false)
	s := start(t, cfg)
	if err := readsWithin(t, s, time.Second); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("it serves without a lease: %v", err)
	}
	unwatch := core.hold(etcdserverpb.Watch_Watch_FullMethodName, false) // it does not see that its record has gone
	release()
	if err := readsWithin(t, s, patience); err != nil {
		t.Fatal(err)
	}
	methods := etcdserverpb.Watch_Watch_FullMethodName + " " + etcdserverpb.Lease_LeaseKeepAlive_FullMethodName
	release = core.hold(methods, false)
	testkit.Eventually(t, "a replica that cannot renew its lease to stop serving", func() string {
		if err := readsWithin(t, s, time.Second); status.Code(err) != codes.DeadlineExceeded {
			return fmt.Sprint("it serves: ", err)
		}
		return ""
	})
	release()
	unwatch()
	if err := readsWithin(t, s, patience); err != nil {
		t.Fatal(err)
	}
}

// TestALeaseOutlivesItsWatches: a replica whose watches of the core always end soon, as when connections are replaced
// all the time, renews its lease all the same, or calls would fail when that expires.
func TestALeaseOutlivesItsWatches(t *testing.T) {
	t.Parallel()
	etcd := testkit.NewEtcd(t)
	held := newHeldCore(t, etcd.Endpoint)
	cfg := configure(t, held.Endpoint)
	cfg.ReplicaExpiry = 12 * time.Second // pauses between watches reach 5 s, beats come after 4
	held.hold(etcdserverpb.Watch_Watch_FullMethodName, true)()
	s := start(t, cfg)
	must.Do(t, s.Ready(t.Context()))
	core := client(t, etcd.Endpoint)
	first := recordsOf(t, core)
	<-time.After(2 * cfg.ReplicaExpiry)
	must.Do(t, readsWithin(t, s, patience))
	records := recordsOf(t, core)
	if len(first) != 1 || len(records) != 1 || records[0].CreateRevision != first[0].CreateRevision {
		t.Errorf("it has another lease now: %v, %v before", records, first)
	}
}

// TestFullCoreIsServed: a core without space refuses records of replicas, and its tenants can read and delete all the
// same, or there would never be space again.
func TestFullCoreIsServed(t *testing.T) {
	t.Parallel()
	etcd := testkit.NewEtcd(t)
	core := client(t, etcd.Endpoint)
	id := must.Get(core.Status(t.Context(), etcd.Endpoint)).Or(t).Header.MemberId
	maintenance := etcdserverpb.NewMaintenanceClient(raw(t, strings.TrimPrefix(etcd.Endpoint, "http://")))
	alarm := func(action etcdserverpb.AlarmRequest_AlarmAction) {
		request := &etcdserverpb.AlarmRequest{Action: action, MemberID: id, Alarm: etcdserverpb.AlarmType_NOSPACE}
		must.Get(maintenance.Alarm(t.Context(), request)).Or(t)
	}
	must.Get(core.Put(t.Context(), ownRecords+"compact-revision", "8 7")).Or(t)
	alarm(etcdserverpb.AlarmRequest_ACTIVATE)
	s := start(t, configure(t, etcd.Endpoint))
	if err := readsWithin(t, s, patience); err != nil {
		t.Fatal(err)
	}
	must.Get(s.Client.Delete(t.Context(), "k")).Or(t)
	alarm(etcdserverpb.AlarmRequest_DEACTIVATE)
	testkit.Eventually(t, "a record once there is space", func() string {
		if records := recordsOf(t, core); len(records) != 1 || string(records[0].Value) != "0 7" {
			return fmt.Sprint(records)
		}
		return ""
	})
}
