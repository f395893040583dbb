// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/etcdstorage/quota"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// TestRestoredCore restores the core from a backup beneath a tenant with a quota, in four ways. Afterwards the tenant has what the backup had, can read it
// at the revision of the core, and can write as much as its quota leaves, without a restart of the proxy.
func TestRestoredCore(t *testing.T) {
	t.Parallel()
	const before, after, most = 5, 5, 12
	for name, c := range map[string]struct {
		flags   []string
		noticed float64
	}{
		"the same cluster ID":        {nil, 1},
		"another cluster ID":         {[]string{"--initial-cluster-token=restored"}, 1},
		"bumped":                     {[]string{"--bump-revision=1000000", "--mark-compacted"}, 0},
		"bumped, another cluster ID": {[]string{"--bump-revision=1000000", "--mark-compacted", "--initial-cluster-token=restored"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			core := testkit.NewEtcdWith(t)
			cfg := configure(t, core.Endpoint)
			cfg.Quota = quota.Limits{Keys: most}
			s := start(t, cfg)
			ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
			defer cancel()
			write := func(from, count int) {
				for i := from; i < from+count; i++ {
					must.Get(s.Client.Put(ctx, fmt.Sprintf("key-%02d", i), "x")).Or(t)
				}
			}
			write(0, before)
			backup := core.Backup(t)
			write(before, after)
			last, err := s.Client.Get(ctx, "key-", clientv3.WithPrefix())
			if err != nil || last.Count != before+after {
				t.Fatalf("%v, %v", last, err)
			}
			must.Get(s.Client.Compact(ctx, last.Header.Revision)).Or(t)
			keepAlive := must.Get(etcdserverpb.NewLeaseClient(raw(t, s.Endpoint)).LeaseKeepAlive(ctx)).Or(t)
			ended := make(chan error, 1)
			go func() {
				_, err := keepAlive.Recv()
				ended <- err
			}()

			core.Restore(t, backup, c.flags...)
			testkit.Eventually(t, "the proxy to serve the restored core", func() string { return text(s.Ready(ctx)) })
			if got := metric(t, s.Registry, "mooring_etcdstorage_proxy_core_went_back_total"); got != c.noticed {
				t.Errorf("noticed %v times, want %v", got, c.noticed)
			}
			if err := <-ended; status.Code(err) != codes.Unavailable {
				t.Error("a stream from before ended with", err)
			}
			restored, err := s.Client.Get(ctx, "key-", clientv3.WithPrefix())
			if err != nil || restored.Count != before {
				t.Fatalf("%v, %v", restored, err)
			}
			at, err := s.Client.Get(ctx, "key-", clientv3.WithPrefix(), clientv3.WithRev(restored.Header.Revision))
			if err != nil || at.Count != before {
				t.Errorf("a read at the revision of the core: %v, %v", at, err)
			}
			write(before, most-before)
			if _, err := s.Client.Put(ctx, "one more", "x"); !errors.Is(err, rpctypes.ErrNoSpace) {
				t.Error("beyond the quota:", err)
			}
			watchesAgain(ctx, t, s.Client, restored.Header.Revision+1, most-before)
		})
	}
}

// watchesAgain reads the changes since the relist.
func watchesAgain(ctx context.Context, tb testing.TB, c *clientv3.Client, from int64, count int) {
	tb.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for answer := range c.Watch(ctx, "key-", clientv3.WithPrefix(), clientv3.WithRev(from)) {
		must.Do(tb, answer.Err())
		if count -= len(answer.Events); count == 0 {
			return
		}
	}
	tb.Errorf("%d changes are missing: %v", count, ctx.Err())
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
