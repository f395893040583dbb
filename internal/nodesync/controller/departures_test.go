// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
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
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
)

// leavingWorld is a cluster whose machines hold nothing but their Calico Nodes, and of which some have left.
type leavingWorld struct {
	sweptWorld
	mu      sync.Mutex // guards all below
	stored  []calico.Node
	listed  []nodesync.KubernetesNode
	left    []nodesync.Sighting
	removed []time.Time
}

// newLeavingWorld is one of 2,000 machines.
func newLeavingWorld() *leavingWorld {
	l := &leavingWorld{sweptWorld: sweptWorld{synced: true}}
	for i := range 2000 {
		name := fmt.Sprintf("node-%04d", i)
		l.stored = append(l.stored, calico.Node{Name: name, Revision: 1, OrchRefs: []calico.OrchRef{{Orchestrator: nodesync.OrchestratorKubernetes, NodeName: name}}})
		l.listed = append(l.listed, nodesync.KubernetesNode{Name: name, UID: name})
	}
	return l
}

// leave takes so many machines away, watched or not.
func (l *leavingWorld) leave(machines int, watched bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.listed[:machines] {
		if watched {
			l.left = append(l.left, nodesync.Sighting{Node: n.Name, UID: n.UID})
		}
	}
	l.listed = l.listed[machines:]
}

func (l *leavingWorld) Snapshot(context.Context) (calico.Snapshot, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return calico.Snapshot{Revision: 1, DatastoreReady: true, OwnCluster: true, Nodes: slices.Clone(l.stored)}, nil
}

func (l *leavingWorld) ListNodes(context.Context) ([]nodesync.KubernetesNode, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.listed), nil
}

func (l *leavingWorld) Sightings() []nodesync.Sighting {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.left)
}

func (l *leavingWorld) AnnotateNode(_ context.Context, name string, revision int64, _, value string) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.stored {
		if l.stored[i].Name == name && l.stored[i].Revision == revision {
			l.stored[i].Revision++
			l.stored[i].Annotations = map[string]string{nodesync.FenceAnnotation: value}
			return l.stored[i].Revision, nil
		}
	}
	return 0, &calico.ConflictError{Key: name}
}

func (l *leavingWorld) DeleteNode(_ context.Context, guard calico.Guard) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stored = slices.DeleteFunc(l.stored, func(n calico.Node) bool { return n.Name == guard.Host })
	l.removed = append(l.removed, time.Now())
	return nil
}

// cleaned waits until so many machines are removed, and returns how long that took, and how many were removed within any five seconds at most.
func (l *leavingWorld) cleaned(t *testing.T, machines int, meanwhile func()) (took time.Duration, most int) {
	t.Helper()
	began := time.Now()
	for {
		l.mu.Lock()
		removed := slices.Clone(l.removed)
		l.mu.Unlock()
		for i, at := range removed {
			most = max(most, len(removed[i:])-len(slices.DeleteFunc(slices.Clone(removed[i:]), func(x time.Time) bool { return x.Sub(at) < 5*time.Second })))
		}
		if len(removed) == machines {
			return time.Since(began), most
		}
		if time.Since(began) > 24*time.Hour {
			t.Fatalf("%d of %d machines are removed after a day", len(removed), machines)
		}
		meanwhile()
		pass(time.Second)
	}
}

// Beyond the grace period no timer holds up what was watched but a second between two reads: 1,500 machines at once,
// which are three times what is read at a time, and machines that go one after the other. Machines whose deletion was
// not watched go in fives, five seconds apart, whatever happens meanwhile.
func TestWatchedDeparturesWaitForNoTimer(t *testing.T) {
	for name, test := range map[string]struct {
		machines int
		watched  bool
		events   bool // each second
		apart    time.Duration
		atMost   time.Duration // beyond the grace period
		most     int           // within five seconds
	}{
		"at once":               {machines: 1500, watched: true, atMost: 20 * time.Second, most: 1500},
		"one after the other":   {machines: 10, watched: true, apart: 2 * time.Second, atMost: 10*2*time.Second + 5*time.Second, most: 10},
		"not watched":           {machines: 100, atMost: 30 * 5 * time.Second, most: 5},
		"with events":           {machines: 100, events: true, atMost: 30 * 5 * time.Second, most: 5},
		"a node pool of twenty": {machines: 20, watched: true, atMost: 4 * time.Second, most: 20},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, wake := newLeavingWorld(), make(chan struct{}, 1)
				r := &Reconciler{
					Datastore: l, Cluster: l, Config: nodesync.DefaultConfig(), Clock: clock.RealClock{}, Log: logr.Discard(),
					Metrics: NewMetrics(prometheus.NewRegistry()), Wake: wake,
				}
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- r.Start(ctx) }()
				pass(time.Minute)
				event := func() {
					select {
					case wake <- struct{}{}:
					default:
					}
				}
				gone := func(machines int) {
					l.leave(machines, test.watched)
					event()
				}
				if test.apart == 0 {
					gone(test.machines)
				} else {
					for range test.machines {
						gone(1)
						pass(test.apart)
					}
				}
				if !test.events {
					event = func() {}
				}
				took, most := l.cleaned(t, test.machines, event)
				took += time.Duration(test.machines) * test.apart
				if took > r.Config.Grace+test.atMost || most > test.most {
					t.Errorf("it took %s, with up to %d machines in five seconds; want at most %s and %d", took, most, r.Config.Grace+test.atMost, test.most)
				}
				stop()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// slowWorld answers each call about a machine after a time, and is told of a request.
type slowWorld struct {
	*leavingWorld
	calls    atomic.Int64 // in progress
	most     atomic.Int64
	asked    atomic.Pointer[string]
	answered chan Answer
}

func (s *slowWorld) takes() {
	s.most.Store(max(s.most.Load(), s.calls.Add(1)))
	time.Sleep(20 * time.Millisecond)
	s.calls.Add(-1)
}

func (s *slowWorld) LookUp(ctx context.Context, name string) nodesync.Lookup {
	s.takes()
	return s.leavingWorld.LookUp(ctx, name)
}

func (s *slowWorld) RunningPods(ctx context.Context, name string) (nodesync.RunningPods, error) {
	s.takes()
	return s.leavingWorld.RunningPods(ctx, name)
}

func (s *slowWorld) AnnotateNode(ctx context.Context, name string, revision int64, annotation, value string) (int64, error) {
	s.takes()
	return s.leavingWorld.AnnotateNode(ctx, name, revision, annotation, value)
}

func (s *slowWorld) DeleteNode(ctx context.Context, guard calico.Guard) error {
	s.takes()
	return s.leavingWorld.DeleteNode(ctx, guard)
}

func (s *slowWorld) Pending(context.Context) (string, Answer, error) {
	if text := s.asked.Load(); text != nil {
		return *text, Answer{}, nil
	}
	return "", Answer{}, nil
}

func (s *slowWorld) Answer(_ context.Context, _ string, answer Answer) error {
	if answer.Final() {
		s.asked.Store(nil)
		s.answered <- answer
	}
	return nil
}

// 1,500 machines that leave at once are cleaned up within half a minute of the end of their grace period where each of
// six calls about a machine takes 20 ms, with no more calls at a time than there are workers. What a person asks for
// meanwhile is done long before the last of them is gone.
func TestManyDeparturesAreCleanedSideBySide(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const machines = 1500
		s, wake := &slowWorld{leavingWorld: newLeavingWorld(), answered: make(chan Answer, 1)}, make(chan struct{}, 1)
		stale := s.stored[0]
		stale.Name, stale.OrchRefs = "stale", []calico.OrchRef{{Orchestrator: nodesync.OrchestratorKubernetes, NodeName: "stale"}}
		s.stored = append(s.stored, stale)
		r := &Reconciler{
			Datastore: s, Cluster: s, Requests: s, Config: nodesync.DefaultConfig(), Clock: clock.RealClock{}, Log: logr.Discard(),
			Metrics: NewMetrics(prometheus.NewRegistry()), Wake: wake,
		}
		r.Config.MaxUnwitnessed, r.Config.MaxUnwitnessedPercent = 0, 0
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Start(ctx) }()
		pass(time.Minute)
		s.leave(machines, true)
		wake <- struct{}{}
		pass(r.Config.Grace + 3*time.Second)
		text := fmt.Sprintf(`{"id":"1","verb":"forget","names":["stale"],"until":%q}`, time.Now().Add(time.Hour).Format(time.RFC3339))
		s.asked.Store(&text)
		asked := time.Now()
		answer := <-s.answered
		waited := time.Since(asked)
		took, _ := s.cleaned(t, machines+1, func() {})
		if took += waited + 3*time.Second; took > 30*time.Second {
			t.Errorf("it took %s beyond the grace period", took)
		}
		if answer.State != AnswerDone || waited > 10*time.Second || waited > took/2 {
			t.Errorf("the request was answered with %+v after %s of %s", answer, waited, took)
		}
		if most := s.most.Load(); most > machinesAtOnce || most < machinesAtOnce/2 {
			t.Errorf("up to %d calls at a time, want up to %d", most, machinesAtOnce)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// blockWorld counts the writes to each block that are in progress.
type blockWorld struct {
	sweptWorld
	mu      sync.Mutex
	writing map[netip.Prefix]int
	most    int // to one block
	all     int // to all blocks, at a time
}

func (b *blockWorld) ReleaseAddresses(_ context.Context, _ calico.Guard, block netip.Prefix, _ []calico.Assignment) error {
	count := func(n int) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.writing[block] += n
		b.most = max(b.most, b.writing[block])
		now := 0
		for _, writes := range b.writing {
			now += writes
		}
		b.all = max(b.all, now)
	}
	count(1)
	time.Sleep(time.Second)
	count(-1)
	return nil
}

// Machines with addresses in one block would make each other's writes conflicts: the block is changed for one of them at
// a time, and other blocks meanwhile.
func TestABlockIsChangedForOneMachineAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &blockWorld{writing: map[netip.Prefix]int{}}
		r := &Reconciler{Datastore: w, Cluster: w, Config: nodesync.DefaultConfig(), Clock: clock.RealClock{}}
		var plan nodesync.Plan
		for i := range 6 {
			name := fmt.Sprintf("n%d", i)
			block := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i / 3), 0}), 26)
			plan.Steps = append(plan.Steps, nodesync.ReleaseAddresses{
				Of: nodesync.Subject{Host: name, KubernetesNode: name}, Block: block, Addresses: []nodesync.Reservation{{Address: block.Addr(), Handle: name}},
			})
		}
		o := r.options()
		o.Observe = func(context.Context, string) (*scene, error) { return &scene{plan: plan, work: &work{}}, nil }
		o.Plan = func(*scene) (p roundPlan) { p.Steps = plan.Steps; return p }
		o.Report = nil
		out := reconcile.New(o).Round(t.Context(), reconcile.Only).Applied
		if len(out) != 6 || w.most != 1 || w.all != 2 {
			t.Errorf("%d steps were tried, with up to %d writes to one block and %d to all at a time", len(out), w.most, w.all)
		}
		for i, a := range out {
			if a.Err != nil || a.Step.Subject() != plan.Steps[i].Subject() {
				t.Errorf("step %d: %+v", i, a)
			}
		}
	})
}
