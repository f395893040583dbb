// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// forget compacts all that there was.
func forget(t *testing.T, core *testkit.Etcd) {
	t.Helper()
	must.Get(core.Client.Compact(t.Context(), core.Revision(t), clientv3.WithCompactPhysical())).Or(t)
}

// A core that has run out of space gets it back once its history is compacted, with an operator that remembers nothing from one step to the next, as one that
// dies around each: the member is defragmented and its alarm taken back. At an etcd to which nothing is bound nothing is done, nor to one that is in order.
func TestTheCoreGetsItsSpaceBack(t *testing.T) {
	t.Parallel()
	g := newStage(t, server(t))
	core := g.smallCore()
	g.at(core)
	g.r.Metrics = NewMetrics(prometheus.NewRegistry())
	name := "spacious"
	g.storage(name, "{}")
	g.sync(name)
	step := func() operator.Health {
		t.Helper()
		g.r.upkeepOnce(t.Context(), operator.Defragmented{})
		return g.r.Core.current().Health(t.Context(), g.clock.Now())
	}
	defragmentations := func() float64 { return testutil.ToFloat64(g.r.Metrics.defragmentations.WithLabelValues("success")) }
	if is := step(); is.Problem != "" || defragmentations() != 0 {
		t.Errorf("a new core: %+v", is)
	}
	key := "/" + name + "/key"
	fill(t, core, key)
	forget(t, core)
	// etcd tells what is free some time after it is.
	testkit.Eventually(t, "the alarm to be taken back", func() string {
		if is := step(); len(is.NoSpace) > 0 {
			return fmt.Sprintf("%+v", is)
		}
		return ""
	})
	if is := step(); is.Members[0].Size >= 4<<20 || defragmentations() == 0 {
		t.Errorf("the alarm was taken back, but not the space: %+v", is)
	}
	if _, err := core.Client.Put(t.Context(), key, "again"); err != nil {
		t.Error(err)
	}
	did := defragmentations()
	if is := step(); defragmentations() != did {
		t.Errorf("a core in order was defragmented: %+v", is)
	}
	// Another etcd is no better off, and belongs to nobody here.
	stranger := g.smallCore()
	fill(t, stranger, "/theirs")
	forget(t, stranger)
	g.at(stranger)
	g.sync(name)
	large := g.r.Core.current().Health(t.Context(), g.clock.Now()).Members[0].Size
	if is := step(); len(is.NoSpace) != 1 || is.Members[0].Size < large {
		t.Errorf("the stranger was defragmented: %+v", is)
	}
}
