// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"syscall"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
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
		for i := range 100 {
			must.Get(writer.Put(ctx, fmt.Sprintf("/a/%d", i), "x")).Or(t)
		}
		highest := <-readsOf(ctx, s, 2*len(core.URLs)) // those through the frozen member end later
		stale := readsOf(ctx, s, 4*len(core.URLs), clientv3.WithSerializable())
		answered := 2 * len(core.URLs) // the others wait at the frozen member, which answers them before it has caught up
		for range answered {
			<-stale
		}
		frozen.Signal(syscall.SIGCONT)
		for range cap(stale) - answered {
			if <-stale < highest {
				lower++
			}
		}
		testkit.Eventually(t, "all members to serve", func() string { return text(s.Ready(ctx)) })
	}
	if lower == 0 {
		t.Error("no member lagged: the test shows nothing")
	}
	if got := metric(t, s.Registry, "mooring_etcdstorage_proxy_core_went_back_total"); got != 0 {
		t.Errorf("a lagging member was taken for a core that went back %v times", got)
	}
	t.Logf("%d responses were lower than the revision that was seen before", lower)
}

// readsOf reads at one time through all members, and returns the revisions of the responses as they come; an error is none that is low.
func readsOf(ctx context.Context, s *served, count int, options ...clientv3.OpOption) <-chan int64 {
	out := make(chan int64, count)
	for range count {
		go func() {
			answer, err := s.Client.Get(ctx, "1", options...)
			if err != nil {
				out <- math.MaxInt64
				return
			}
			out <- answer.Header.Revision
		}()
	}
	return out
}

// followerOf is a member that is not the leader, and a client of the leader.
func followerOf(ctx context.Context, tb testing.TB, core *testkit.EtcdMembers) (follower *testkit.Process, leader *clientv3.Client) {
	tb.Helper()
	for i, url := range core.URLs {
		answer := must.Get(core.Client.Status(ctx, url)).Or(tb)
		if answer.Leader == answer.Header.MemberId {
			leader = client(tb, strings.TrimPrefix(url, "http://"))
		} else {
			follower = core.Processes[i]
		}
	}
	return follower, leader
}
