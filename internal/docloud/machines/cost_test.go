// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// hour plays the framework's part for an hour of simulated time: it describes all Nodes every five minutes (the default of
// --node-status-update-frequency), and asks every five seconds (that of --node-monitor-period) for the existence of those that are not ready.
type hour struct {
	t        testing.TB
	clock    *clocktesting.FakeClock
	cloud    *sim.Simulator
	machines *Instances
	nodes    []*corev1.Node
	indexer  cache.Indexer
	client   *fake.Clientset
}

func newHour(tb testing.TB, nodes int) *hour {
	tb.Helper()
	h := &hour{t: tb, clock: clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))}
	h.cloud = sim.New(sim.Options{Seed: 1, Clock: h.clock, Accounts: []sim.AccountOptions{ // with DigitalOcean's own rate limits
		{Name: "ours", Tokens: []sim.Token{{Value: sim.DefaultToken}}}, {Name: "theirs"},
	}})
	h.indexer = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	client := fake.NewClientset()
	for i := range nodes {
		d := must.Get(h.cloud.Account("").CreateDroplet(sim.DropletSpec{Name: fmt.Sprintf("node-%d", i)})).Or(tb)
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: d.Name, UID: "uid-of-" + "a-node"},
			Spec:       corev1.NodeSpec{ProviderID: fmt.Sprintf("digitalocean://%d", d.ID)},
		}
		h.nodes = append(h.nodes, node)
		must.Do(tb, h.indexer.Add(node))
		must.Do(tb, client.Tracker().Add(node))
	}
	h.client = client
	h.restart()
	return h
}

// restart begins with nothing but what a new process has.
func (h *hour) restart() {
	h.t.Helper()
	api, err := doapi.New(doapi.Options{URL: "https://api.digitalocean.com", Token: doapi.StaticToken(sim.DefaultToken), Transport: h.cloud.Transport(), Clock: h.clock})
	must.Do(h.t, err)
	m := New(api, NewSnapshot(api, h.clock), DefaultConfig(), h.clock, prometheus.NewRegistry())
	m.client, m.guard.ledger.leases = h.client, h.client.CoordinationV1().Leases(RecordNamespace)
	m.lister, m.synced = corelisters.NewNodeLister(h.indexer), func() bool { return true }
	h.machines = m
}

// pass lets an hour pass, and returns how many calls were made to DigitalOcean. The first so many Nodes are not ready; those that are gone leave
// the cluster.
func (h *hour) pass(notReady int) (calls, gone int) {
	h.t.Helper()
	before := h.cloud.Stats().Total
	doubtful := append([]*corev1.Node{}, h.nodes[:notReady]...)
	for elapsed := time.Duration(0); elapsed < time.Hour; elapsed += 5 * time.Second {
		if elapsed%(5*time.Minute) == 0 {
			for _, node := range h.nodes {
				_, _ = h.machines.InstanceMetadata(h.t.Context(), node) // of one that is gone it is an error
			}
		}
		doubtful = h.monitor(h.t.Context(), doubtful, &gone)
		h.clock.Step(5 * time.Second)
	}
	return h.cloud.Stats().Total - before, gone
}

func (h *hour) monitor(ctx context.Context, doubtful []*corev1.Node, gone *int) (left []*corev1.Node) {
	for _, node := range doubtful {
		exists, err := h.machines.InstanceExists(ctx, node)
		if err == nil && !exists {
			*gone++
			must.Do(h.t, h.indexer.Delete(node))
			continue
		}
		left = append(left, node)
		if err == nil {
			_, _ = h.machines.InstanceShutdown(ctx, node)
		}
	}
	return left
}

// An hour costs as many calls as there are pages, not as there are Nodes.
func TestCallsPerHour(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		nodes, notReady, most int
		predecessor           int // 12 for each Node, 1440 for each that is not ready
	}{
		{nodes: 10, most: 12 + 5 + 1, predecessor: 120},
		{nodes: 1000, most: 12*5 + 5 + 1, predecessor: 12000},
		{nodes: 10, notReady: 4, most: 240 + 5 + 1, predecessor: 120 + 4*1440},
		{nodes: 1000, notReady: 50, most: 240 + 12*5 + 5 + 1, predecessor: 12000 + 50*1440},
	} {
		t.Run(fmt.Sprintf("%d nodes, %d not ready", tt.nodes, tt.notReady), func(t *testing.T) {
			t.Parallel()
			h := newHour(t, tt.nodes)
			calls, gone := h.pass(tt.notReady)
			t.Logf("%d calls, the upstream project would make %d", calls, tt.predecessor)
			if calls > tt.most {
				t.Errorf("%d calls in an hour, want %d at most: %v", calls, tt.most, h.cloud.Stats().Routes)
			}
			if gone != 0 {
				t.Errorf("%d Nodes were given up, and all droplets are there", gone)
			}
			if n := h.cloud.Stats().Count("GET /v2/droplets/{droplet_id}"); n != 0 {
				t.Errorf("%d GETs by ID although the list has all droplets", n)
			}
		})
	}
}

// Ninety of a hundred go at once: that is over within the hour, and what waits for its turn does not use up the account's limit.
func TestCallsOfALargeLoss(t *testing.T) {
	t.Parallel()
	h := newHour(t, 100)
	h.pass(0)
	for _, node := range h.nodes[:90] {
		must.Do(t, h.cloud.Account("").DeleteDroplet(node.Name))
	}
	calls, gone := h.pass(90)
	t.Logf("%d calls, %d Nodes given up", calls, gone)
	if gone != 90 {
		t.Errorf("%d of 90 Nodes were given up within an hour", gone)
	}
	if most := 12 + 5 + 600; calls > most {
		t.Errorf("%d calls, want %d at most: %v", calls, most, h.cloud.Stats().Routes)
	}
}
