// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package simulated_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// labeledFleet is a cluster whose droplets have tags, with labels of them or without, that has run for a quarter of an hour.
func labeledFleet(t *testing.T, nodes int, labels instance.TagLabels) *bubble {
	t.Helper()
	b := newBubble(t, likeDigitalOcean())
	b.labels = labels
	for i := range nodes {
		b.member(fmt.Sprintf("node-%d", i))
	}
	b.tagAll(nodes, "env:prod")
	b.start(death{})
	elapse(15 * time.Minute)
	return b
}

func (b *bubble) tagAll(nodes int, tags ...string) {
	b.t.Helper()
	for i := range nodes {
		must.Do(b.t, b.cloud.Account("").SetDropletTags(fmt.Sprintf("node-%d", i), tags...))
	}
}

// Labels of tags cost no call to DigitalOcean, and one write for each Node whose tags have changed: none while nothing does.
func TestLabelsOfTagsCostNoCalls(t *testing.T) {
	t.Parallel()
	const nodes = 90    // a fake watch holds a hundred changes, and here all are of one instant
	const most = 12 + 5 // lists of droplets, every five minutes, and of those with GPUs
	for name, labels := range map[string]instance.TagLabels{"without labels": nil, "with labels": {"env": "x.example/env"}} {
		synctest.Test(t, func(t *testing.T) {
			b := labeledFleet(t, nodes, labels)
			defer b.stop()
			changes := 0
			if len(labels) > 0 {
				changes = nodes
			}
			if n := b.process.writes.Load(); n != int64(changes) {
				t.Errorf("%s: %d writes at the start, want %d", name, n, changes)
			}
			stats := b.spent(func() { elapse(time.Hour) })
			if n := b.process.writes.Load(); n != int64(changes) || stats.Total > most {
				t.Errorf("%s: %d writes and %d calls in an hour in which nothing happened", name, n-int64(changes), stats.Total)
			}
			b.tagAll(nodes, "env:dev")
			stats = b.spent(func() { elapse(time.Hour) })
			if n := b.process.writes.Load(); n != int64(2*changes) || stats.Total > most {
				t.Errorf("%s: %d writes and %d calls for other tags, want %d and %d at most", name, n-int64(changes), stats.Total, changes, most)
			}
			if got := b.node("node-7").Labels["x.example/env"]; len(labels) > 0 && got != "dev" {
				t.Errorf("the label is %q", got)
			}
		})
	}
}
