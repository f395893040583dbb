// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
)

// quietWorld is a cluster and a datastore in which nothing happens, or which do not respond; it counts the rounds.
type quietWorld struct {
	Datastore
	rounds atomic.Int64
	down   atomic.Bool
	nodes  []calico.Node
}

func (q *quietWorld) Snapshot(context.Context) (calico.Snapshot, error) {
	q.rounds.Add(1)
	if q.down.Load() {
		return calico.Snapshot{}, errors.New("connection refused")
	}
	return calico.Snapshot{Revision: 1, DatastoreReady: true, OwnCluster: true, Nodes: q.nodes}, nil
}

func (q *quietWorld) Sweep(context.Context, int64) (calico.Sweep, error) { return calico.Sweep{}, nil }

func (q *quietWorld) Synced() bool                                   { return true }
func (q *quietWorld) Sightings() []nodesync.Sighting                 { return nil }
func (q *quietWorld) ForgetSightings(map[string]bool)                {}
func (q *quietWorld) UID(context.Context) (string, error)            { return "uid", nil }
func (q *quietWorld) LookUp(context.Context, string) nodesync.Lookup { return nodesync.Lookup{} }

func (q *quietWorld) ListNodes(context.Context) ([]nodesync.KubernetesNode, error) {
	return []nodesync.KubernetesNode{{Name: "n1"}}, nil
}

func (q *quietWorld) RunningPods(context.Context, string) (nodesync.RunningPods, error) {
	return nodesync.RunningPods{}, nil
}

func (q *quietWorld) Reports(context.Context, int64, []string) ([]calico.Report, error) {
	return nil, nil
}

func (q *quietWorld) CalicoPods(context.Context, string) ([]nodesync.CalicoPod, error) {
	return nil, nil
}

func (q *quietWorld) PodsWithAddresses(context.Context, []netip.Addr) ([]nodesync.PodAddress, error) {
	return nil, nil
}

// run starts a reconciler on the quiet world in a bubble of virtual time, and passes on what may wake it.
func run(t *testing.T, test func(q *quietWorld, wake chan<- struct{})) {
	t.Helper()
	runOn(t, &quietWorld{}, nil, test)
}

// runOn is run on a world as given, with a state.
func runOn(t *testing.T, q *quietWorld, state State, test func(q *quietWorld, wake chan<- struct{})) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		wake := make(chan struct{}, 1)
		r := &Reconciler{
			Datastore: q, Cluster: q, State: state, Config: nodesync.DefaultConfig(), Clock: clock.RealClock{}, Log: logr.Discard(),
			Metrics: NewMetrics(prometheus.NewRegistry()), Wake: wake,
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Start(ctx) }()
		synctest.Wait()
		test(q, wake)
		stop()
		if err := <-done; err != nil {
			t.Errorf("Start returned %v, want nothing", err)
		}
	})
}

// pass lets virtual time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// When nothing happens nothing is asked but once every resync period, however long.
func TestIdleCost(t *testing.T) {
	run(t, func(q *quietWorld, _ chan<- struct{}) {
		pass(24 * time.Hour)
		// The period is spread by up to a tenth.
		if got := q.rounds.Load(); got < 24*60/6 || got > 24*60/5+1 {
			t.Errorf("%d rounds in a day, want one every 5 to 5.5 minutes", got)
		}
	})
}

func TestAnEventStartsARound(t *testing.T) {
	run(t, func(q *quietWorld, wake chan<- struct{}) {
		before := q.rounds.Load()
		wake <- struct{}{}
		pass(settleDelay / 2)
		if got := q.rounds.Load(); got != before {
			t.Errorf("%d rounds within the settle delay, want none", got-before)
		}
		pass(settleDelay)
		if got := q.rounds.Load(); got != before+1 {
			t.Errorf("%d rounds after an event, want one", got-before)
		}
	})
}

// A world that does not respond is asked less and less, at most once a minute in the end, and events do not hurry it.
func TestBackOff(t *testing.T) {
	run(t, func(q *quietWorld, wake chan<- struct{}) {
		q.down.Store(true)
		pass(10 * time.Minute)
		before := q.rounds.Load()
		for range 60 {
			select {
			case wake <- struct{}{}:
			default:
			}
			pass(time.Minute)
		}
		if got := q.rounds.Load() - before; got < 50 || got > 61 {
			t.Errorf("%d rounds in an hour of outage, want about one a minute", got)
		}
		q.down.Store(false)
		pass(2 * time.Minute)
		before = q.rounds.Load()
		pass(time.Hour)
		if got := q.rounds.Load() - before; got > 13 {
			t.Errorf("%d rounds in the hour after the outage, want one every five minutes", got)
		}
	})
}

// note is a state in memory, and counts how often it is read.
type note struct {
	mu           sync.Mutex
	memory       nodesync.Memory
	confirmation string
	reads        int
}

func (n *note) Read(context.Context) (nodesync.Memory, string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reads++
	return n.memory, n.confirmation, nil
}

func (n *note) Save(_ context.Context, memory nodesync.Memory) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.memory = memory
	return nil
}

// seen is what is kept, and how often it has been read since the last time.
func (n *note) seen() (memory nodesync.Memory, reads int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	reads, n.reads = n.reads, 0
	return n.memory, reads
}

func (n *note) confirm(confirmation string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.confirmation = confirmation
}

// While something waits for a person one object is read every ten seconds, and nothing else; what the person writes starts a round, right or wrong.
func TestAConfirmationStartsARound(t *testing.T) {
	const machines = 20
	q, state := &quietWorld{}, &note{}
	for i := range machines {
		name := fmt.Sprintf("n%d", i)
		q.nodes = append(q.nodes, calico.Node{Name: name, Revision: 1, OrchRefs: []calico.OrchRef{{Orchestrator: nodesync.OrchestratorKubernetes, NodeName: name}}})
	}
	runOn(t, q, state, func(q *quietWorld, _ chan<- struct{}) {
		pass(time.Second)
		memory, _ := state.seen()
		waits := memory.Awaiting
		if rounds := q.rounds.Load(); waits.Gate != nodesync.GateOverlap || waits.Count != machines-1 || rounds != 1 {
			t.Fatalf("after %d rounds %+v waits", rounds, waits)
		}
		pass(time.Minute)
		if _, reads := state.seen(); q.rounds.Load() != 1 || reads != 6 {
			t.Errorf("within a minute of waiting: %d rounds and %d reads of the state, want 1 and 6", q.rounds.Load(), reads)
		}
		state.confirm("0123456789ab/" + time.Now().Add(time.Hour).Format(time.RFC3339))
		pass(confirmationPeriod)
		if memory, _ := state.seen(); q.rounds.Load() != 2 || memory.Awaiting.Hash != waits.Hash {
			t.Errorf("a confirmation of other machines: %d rounds, and %+v waits", q.rounds.Load(), memory.Awaiting)
		}
		state.confirm(waits.Confirmation(time.Now().Add(time.Hour)))
		pass(confirmationPeriod)
		if memory, _ := state.seen(); q.rounds.Load() != 3 || memory.Awaiting.Hash != "" {
			t.Errorf("confirmed: %d rounds, and %+v waits", q.rounds.Load(), memory.Awaiting)
		}
		pass(time.Minute)
		if _, reads := state.seen(); reads != 0 {
			t.Errorf("nothing waits, and the state is read %d times in a minute", reads)
		}
	})
}
