// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mooring-dev/mooring/internal/testkit"
)

// TestLaggingMember shows that a member that lags is not taken for a core that went back: of a core of three members one is frozen again and again while the
// others write, and read when it runs again. Its serializable responses have lower revisions than were seen before.
func TestLaggingMember(t *testing.T) {
	t.Parallel()
	core := testkit.NewEtcdMembers(t)
	cfg := configure(t, core.URLs...)
	cfg.Upstream.Connections = len(core.URLs)
	s := start(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), 6*patience)
	defer cancel()
	testkit.Eventually(t, "the core to serve", func() string { return text(s.Ready(ctx)) })
	frozen, writer := followerOf(ctx, t, core)
	lower := 0
	for round := 0; round < 30 && lower < 5; round++ {
		frozen.Signal(syscall.SIGSTOP)
		var last int64
		for i := range 100 {
			answer, err := writer.Put(ctx, fmt.Sprintf("/a/%d", i), "x")
			if err != nil {
				t.Fatal(err)
			}
			last = answer.Header.Revision
		}
		frozen.Signal(syscall.SIGCONT)
		lower += readsAll(ctx, t, s, last)
	}
	if lower == 0 {
		t.Error("no member lagged: the test shows nothing")
	}
	if got := metric(t, s.Registry, "mooring_etcdstorage_proxy_core_went_back_total"); got != 0 {
		t.Errorf("a lagging member was taken for a core that went back %v times", got)
	}
	t.Logf("%d responses were lower than the revision that was seen before", lower)
}

// readsAll reads through all members by turns, and returns how many responses had lower revisions than one before them.
func readsAll(ctx context.Context, tb testing.TB, s *served, highest int64) (lower int) {
	tb.Helper()
	for range 60 {
		answer, err := s.Client.Get(ctx, "1", clientv3.WithSerializable())
		if err != nil {
			tb.Fatal(err)
		}
		if answer.Header.Revision < highest {
			lower++
		}
		read, err := s.Client.Get(ctx, "1")
		if err != nil {
			tb.Fatal(err)
		}
		if read.Header.Revision < highest {
			tb.Fatalf("a linearizable read at revision %d after %d", read.Header.Revision, highest)
		}
		highest = read.Header.Revision
	}
	return lower
}

// followerOf is a member that is not the leader, and a client of the leader.
func followerOf(ctx context.Context, tb testing.TB, core *testkit.EtcdMembers) (follower *testkit.Process, leader *clientv3.Client) {
	tb.Helper()
	for i, url := range core.URLs {
		answer, err := core.Client.Status(ctx, url)
		if err != nil {
			tb.Fatal(err)
		}
		if answer.Leader == answer.Header.MemberId {
			leader = client(tb, strings.TrimPrefix(url, "http://"))
		} else {
			follower = core.Processes[i]
		}
	}
	return follower, leader
}
