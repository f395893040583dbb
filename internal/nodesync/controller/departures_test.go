// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
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
func (l *leavingWorld) cleaned(t *testing.T, machines int) (took time.Duration, most int) {
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
		pass(time.Second)
	}
}

// Beyond the grace period no timer holds up what was watched but a second between two reads: 1,500 machines at once, which are six times what is read at a
// time, and machines that go one after the other. Machines whose deletion was not watched go in fives, five seconds apart.
func TestWatchedDeparturesWaitForNoTimer(t *testing.T) {
	for name, test := range map[string]struct {
		machines int
		watched  bool
		apart    time.Duration
		atMost   time.Duration // beyond the grace period
		most     int           // within five seconds
	}{
		"at once":               {machines: 1500, watched: true, atMost: 20 * time.Second, most: 1500},
		"one after the other":   {machines: 10, watched: true, apart: 2 * time.Second, atMost: 10*2*time.Second + 5*time.Second, most: 10},
		"not watched":           {machines: 100, atMost: 30 * 5 * time.Second, most: 5},
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
				gone := func(machines int) {
					l.leave(machines, test.watched)
					select {
					case wake <- struct{}{}:
					default:
					}
				}
				if test.apart == 0 {
					gone(test.machines)
				} else {
					for range test.machines {
						gone(1)
						pass(test.apart)
					}
				}
				took, most := l.cleaned(t, test.machines)
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
