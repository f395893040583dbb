// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/etcdstorage/quota"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// A tenant that overwrites one key writes no more between two compactions of the core than its budget of history, through however many replicas; deletes
// pass; and when the core was compacted it may write again.
func TestHistoryIsCharged(t *testing.T) {
	t.Parallel()
	const limit = 8 << 20
	core := testkit.NewEtcd(t)
	direct := client(t, core.Endpoint)
	cfg := configure(t, core.Endpoint)
	cfg.HistoryBytes = limit
	cfg.Quota = quota.Limits{Bytes: 1 << 20}
	replicas := []*served{start(t, cfg), start(t, cfg)}
	value := strings.Repeat("v", 900<<10)
	var revision int64
	overwrite := func() (written int) {
		t.Helper()
		for n := 0; ; n++ {
			put, err := replicas[n%2].Client.Put(t.Context(), "key", value)
			switch {
			case err == nil:
				written += len(value)
				revision = put.Header.Revision
				if written > 2*limit {
					t.Fatalf("%d bytes are written", written)
				}
			case status.Code(err) == codes.ResourceExhausted || strings.Contains(err.Error(), "database space exceeded"):
				for _, part := range []string{`the tenant's budget "history" (--quota-history-bytes)`, "when the core is compacted", "try again in"} {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("%q is not in %v", part, err)
					}
				}
				return written
			default:
				t.Fatal(err)
			}
		}
	}
	// Each replica hears of the other's puts a moment later.
	if written := overwrite(); written < limit/2 || written > limit+2*len(value) {
		t.Errorf("%d bytes were written, with a budget of %d", written, limit)
	}
	for _, p := range replicas {
		testkit.Eventually(t, "an alarm", func() string {
			list, err := p.Client.AlarmList(t.Context())
			if err != nil || len(list.Alarms) != 1 {
				_, _ = p.Client.Put(t.Context(), "key", value)
				return fmt.Sprint(list, err)
			}
			return ""
		})
		if _, err := p.Client.Delete(t.Context(), "nothing"); err != nil {
			t.Errorf("a delete: %v", err)
		}
		if _, err := p.Client.Get(t.Context(), "key"); err != nil {
			t.Errorf("a get: %v", err)
		}
	}
	must.Get(direct.Compact(t.Context(), revision)).Or(t)
	written := 0
	testkit.Eventually(t, "room after the compaction", func() string {
		if written += overwrite(); written < limit/2 {
			return fmt.Sprint(written, " bytes were written")
		}
		return ""
	})
}

// A tenant sees that its core is out of space: in its own status, and in the list of alarms.
func TestNoSpaceOfTheCoreIsShown(t *testing.T) {
	t.Parallel()
	core := testkit.NewEtcd(t)
	direct := client(t, core.Endpoint)
	p := start(t, configure(t, core.Endpoint))
	alarms(t, p.Client, 0)
	members := must.Get(direct.MemberList(t.Context())).Or(t)
	maintenance := etcdserverpb.NewMaintenanceClient(raw(t, strings.TrimPrefix(core.Endpoint, "http://")))
	alarm := func(action etcdserverpb.AlarmRequest_AlarmAction) {
		request := &etcdserverpb.AlarmRequest{Action: action, MemberID: members.Members[0].ID, Alarm: etcdserverpb.AlarmType_NOSPACE}
		must.Get(maintenance.Alarm(t.Context(), request)).Or(t)
	}
	alarm(etcdserverpb.AlarmRequest_ACTIVATE)
	defer alarm(etcdserverpb.AlarmRequest_DEACTIVATE)
	answer, err := p.Client.Status(t.Context(), p.Endpoint)
	if err != nil || len(answer.Errors) != 1 || !strings.Contains(answer.Errors[0], "alarm:NOSPACE") {
		t.Errorf("the status: %v, %v", answer, err)
	}
	testkit.Eventually(t, "the alarm", func() string {
		list, err := p.Client.AlarmList(t.Context())
		if err != nil || len(list.Alarms) != 1 || list.Alarms[0].Alarm != etcdserverpb.AlarmType_NOSPACE {
			return fmt.Sprint(list, err)
		}
		return ""
	})
}

// The tenant's data is read once by a replica without a quota, however often the size is asked for, and followed from then on.
func TestStatusReadsTheDataOnce(t *testing.T) {
	t.Parallel()
	core := testkit.NewEtcd(t)
	fill(t, core.Endpoint, 2)
	cfg := configure(t, core.Endpoint)
	bytes := countingDialer(&cfg)
	p := start(t, cfg)
	size := func(want int64) {
		t.Helper()
		testkit.Eventually(t, "the size", func() string {
			answer, err := p.Client.Status(t.Context(), p.Endpoint)
			if err != nil || answer.DbSize != want {
				return fmt.Sprint(answer, err)
			}
			return ""
		})
	}
	each := int64(1<<20 + len("/a/fill/00000"))
	size(2 * each)
	must.Get(p.Client.Put(t.Context(), "key", "value")).Or(t)
	size(2*each + int64(len("/a/keyvalue")))
	must.Get(p.Client.Delete(t.Context(), "fill/00000")).Or(t)
	size(each + int64(len("/a/keyvalue")))
	if got := bytes.Load(); got > 3<<20 {
		t.Errorf("%d bytes were read of the core for 2 MiB of data", got)
	}
}
