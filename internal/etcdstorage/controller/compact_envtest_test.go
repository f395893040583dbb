// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// readable reports whether the core still has a revision.
func (g *stage) readable(c *clientv3.Client, revision int64) bool {
	g.t.Helper()
	_, err := c.Get(g.t.Context(), "/any", clientv3.WithRev(revision))
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		g.t.Fatal(err)
	}
	return err == nil
}

// What a tenant has written over and over is dropped by the operator once it is old enough, and nothing younger; on an etcd to which no EtcdStorage is
// bound nothing is.
func TestTheCoreIsCompacted(t *testing.T) {
	t.Parallel()
	g := newStage(t, server(t))
	name := "overwritten"
	g.storage(name, "{}")
	g.sync(name)
	g.r.Timing.History = 5 * time.Minute
	value := strings.Repeat("x", 100<<10)
	var revisions []int64 // by minute
	was := remembered{}
	for range 12 {
		was = g.r.compactOnce(t.Context(), was)
		for range 20 {
			answer := must.Get(g.root.Put(t.Context(), "/"+name+"/key", value)).Or(t)
			revisions = append(revisions, answer.Header.Revision)
		}
		g.clock.Step(time.Minute)
	}
	g.r.compactOnce(t.Context(), was)
	const perMinute = 20
	for minute := range 12 {
		first := revisions[minute*perMinute]
		if want := minute >= 7; g.readable(g.root, first) != want { // those of the last five minutes, which have begun 12 minutes after the start
			t.Errorf("revision %d of minute %d can be read: %v", first, minute, !want)
		}
	}
	// Another etcd has the same history, and belongs to nobody here.
	stranger := g.stranger("/theirs")
	g.at(stranger)
	g.r.Timing.History = 5 * time.Minute
	g.sync(name)
	old := stranger.Revision(t)
	was = remembered{}
	for i := range 12 {
		was = g.r.compactOnce(t.Context(), was)
		must.Get(stranger.Client.Put(t.Context(), "/theirs", fmt.Sprint(i))).Or(t)
		g.clock.Step(time.Minute)
	}
	if !g.readable(stranger.Client, old) || was.core != "" {
		t.Errorf("the stranger's history was compacted, or is remembered: %+v", was)
	}
}
