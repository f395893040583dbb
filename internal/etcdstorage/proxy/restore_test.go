// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// TestOffsetIsShared: a replica that has seen nothing of a restore takes over the offset that another has recorded, and ends what began before; one that
// starts afterwards begins with it. Every kind of response has it, and a revision from before is compacted for every kind of request.
func TestOffsetIsShared(t *testing.T) {
	t.Parallel()
	core := testkit.NewEtcdWith(t)
	replica := start(t, configure(t, core.Endpoint))
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	before := must.Get(replica.Client.Put(ctx, "k", "v")).Or(t).Header.Revision
	const offset = 5_000_000
	must.Get(core.Client.Put(ctx, "/.etcd.mooring.dev/tenants/a/compact-revision", fmt.Sprint(offset+1, " ", offset))).Or(t)
	testkit.Eventually(t, "the replica to follow", func() string {
		if got := metric(t, replica.Registry, "mooring_etcdstorage_proxy_revision_offset"); got != offset {
			return fmt.Sprint(got)
		}
		return ""
	})
	for name, s := range map[string]*served{"the replica": replica, "one that starts afterwards": start(t, configure(t, core.Endpoint))} {
		s.knows(t, 2) // all records of replicas are written
		c := s.Client
		put := must.Get(c.Put(ctx, "k", "v")).Or(t)
		got := must.Get(c.Get(ctx, "k")).Or(t)
		lease := must.Get(c.Grant(ctx, 60)).Or(t)
		event := <-c.Watch(ctx, "k", clientv3.WithRev(got.Kvs[0].ModRevision))
		for kind, revision := range map[string]int64{
			"a put": put.Header.Revision, "a range": got.Header.Revision, "a key": got.Kvs[0].ModRevision, "a lease": lease.Revision,
			"its renewal": must.Get(c.KeepAliveOnce(ctx, lease.ID)).Or(t).Revision, "its time to live": must.Get(c.TimeToLive(ctx, lease.ID)).Or(t).Revision,
			"its end": must.Get(c.Revoke(ctx, lease.ID)).Or(t).Header.Revision, "the status": must.Get(c.Status(ctx, s.Endpoint)).Or(t).Header.Revision,
			"the members": must.Get(c.MemberList(ctx)).Or(t).Header.Revision, "the alarms": must.Get(c.AlarmList(ctx)).Or(t).Header.Revision,
			"a watch": event.Header.Revision, "a Txn": must.Get(c.Txn(ctx).Commit()).Or(t).Header.Revision,
		} {
			if want := offset + core.Revision(t); revision != want {
				t.Errorf("%s: %s has revision %d, want %d", name, kind, revision, want)
			}
		}
		if e := event.Events[0].Kv; e.ModRevision != put.Header.Revision || e.CreateRevision != offset+before {
			t.Errorf("%s: an event is of revisions %d, %d", name, e.CreateRevision, e.ModRevision)
		}
		lost := <-c.Watch(ctx, "k", clientv3.WithRev(before))
		_, read := c.Get(ctx, "k", clientv3.WithRev(before))
		_, inTxn := c.Txn(ctx).Then(clientv3.OpGet("k", clientv3.WithRev(before))).Commit()
		_, compact := c.Compact(ctx, before)
		for kind, err := range map[string]error{"a read": read, "a read in a Txn": inTxn, "a compaction": compact, "a watch": lost.Err()} {
			if !errors.Is(err, rpctypes.ErrCompacted) {
				t.Errorf("%s: %s at a revision from before: %v", name, kind, err)
			}
		}
		if lost.CompactRevision <= offset {
			t.Errorf("%s: a watch was compacted at %d", name, lost.CompactRevision)
		}
		if r := must.Get(c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision("k"), "=", before)).Commit()).Or(t); r.Succeeded {
			t.Errorf("%s: a comparison with a revision from before holds", name)
		}
		now := got.Header.Revision
		must.Get(c.Compact(ctx, now)).Or(t)
		if _, err := c.Get(ctx, "k", clientv3.WithRev(now-1)); !errors.Is(err, rpctypes.ErrCompacted) {
			t.Errorf("%s: a read below a compaction: %v", name, err)
		}
	}
}

// restores are the flags of etcdutl for the four ways.
func restores() map[string][]string {
	const token = "--initial-cluster-token=restored"
	return map[string][]string{
		"the same cluster ID":        nil,
		"another cluster ID":         {token},
		"bumped":                     {"--bump-revision=1000000", "--mark-compacted"},
		"bumped, another cluster ID": {"--bump-revision=1000000", "--mark-compacted", token},
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
