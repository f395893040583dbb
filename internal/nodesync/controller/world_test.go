// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"net/netip"
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

// world is what stories in simulated time need of both sides: every port of a Reconciler, of machines that hold nothing but their Calico Nodes. What
// is stored and what happens in between is for the histories of the state machines; the embedded ports, which are nil, are what no story comes to.
type world struct {
	Datastore
	Cluster

	// before is called before each call, which its error is the answer to; nil for nothing.
	before func(ctx context.Context, call, about string) error

	mu      sync.Mutex // guards all below
	calls   map[string]int
	stored  []calico.Node
	listed  []nodesync.KubernetesNode
	left    []nodesync.Sighting
	removed []time.Time
	// swept is what a sweep finds, and held what each host that is read holds.
	swept    calico.Sweep
	held     nodesync.Host
	unsynced bool
	// memory and confirmation are the State.
	memory       nodesync.Memory
	confirmation string
	// asked is what a person asks for, and answers are those that were given; last is the one that stands.
	asked     string
	last      Answer
	answers   []Answer
	withdrawn bool
	// entries are what was journaled.
	entries []Entry
}

// named are so many Calico Nodes with the Kubernetes Nodes of the same names.
func (w *world) named(names ...string) *world {
	for _, name := range names {
		w.stored = append(w.stored, calico.Node{Name: name, Revision: 1, OrchRefs: []calico.OrchRef{{Orchestrator: nodesync.OrchestratorKubernetes, NodeName: name}}})
		w.listed = append(w.listed, nodesync.KubernetesNode{Name: name, UID: name})
	}
	return w
}

// listing is a world in which there are Kubernetes Nodes, and sweeps find hosts.
func listing(found ...string) *world {
	w := &world{swept: calico.Sweep{Hosts: found, NamesPods: true}}
	for _, name := range []string{"n1", "n2", "short.example.com"} {
		w.listed = append(w.listed, nodesync.KubernetesNode{Name: name})
	}
	return w
}

// reconciler is a controller of the world, without a state, requests and leftovers of pods.
func (w *world) reconciler() *Reconciler {
	return &Reconciler{
		Datastore: w, Cluster: w, Config: nodesync.DefaultConfig(), Writes: Writes(), Clock: clock.RealClock{}, Log: logr.Discard(),
		Metrics: NewMetrics(prometheus.NewRegistry()),
	}
}

// run lets a reconciler run in a bubble of simulated time, with what may wake it.
func run(t *testing.T, r *Reconciler, story func(t *testing.T, wake func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		events := make(chan struct{}, 1)
		r.Wake = events
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Start(ctx) }()
		synctest.Wait()
		story(t, func() {
			select {
			case events <- struct{}{}:
			default:
			}
		})
		stop()
		if err := <-done; err != nil {
			t.Errorf("Start returned %v, want nothing", err)
		}
	})
}

// pass lets simulated time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// call counts a call, and returns what it is to be answered with.
func (w *world) call(ctx context.Context, call, about string) error {
	w.mu.Lock()
	if w.calls == nil {
		w.calls = map[string]int{}
	}
	w.calls[call]++
	w.mu.Unlock()
	if w.before == nil {
		return nil
	}
	return w.before(ctx, call, about)
}

// count is how often a call was made.
func (w *world) count(call string) int { return get(w, func() int { return w.calls[call] }) }

// get reads or changes something of the world.
func get[T any](w *world, read func() T) T {
	w.mu.Lock()
	defer w.mu.Unlock()
	return read()
}

func (w *world) Snapshot(ctx context.Context) (calico.Snapshot, error) {
	err := w.call(ctx, "Snapshot", "")
	return get(w, func() calico.Snapshot {
		return calico.Snapshot{Revision: 1, DatastoreReady: true, OwnCluster: true, Nodes: slices.Clone(w.stored)}
	}), err
}

func (w *world) Hosts(ctx context.Context, _ int64, names []string) (out []calico.Host, err error) {
	for _, name := range names {
		host := w.held
		host.Name = name
		out = append(out, calico.Host{Host: host})
	}
	return out, w.call(ctx, "Hosts", "")
}

func (w *world) Sweep(ctx context.Context, _ int64) (calico.Sweep, error) {
	return w.swept, w.call(ctx, "Sweep", "")
}

func (w *world) Reports(ctx context.Context, _ int64, _ []string) ([]calico.Report, error) {
	return nil, w.call(ctx, "Reports", "")
}

func (w *world) AnnotateNode(ctx context.Context, name string, revision int64, _, value string) (int64, error) {
	if err := w.call(ctx, "AnnotateNode", name); err != nil {
		return 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.IndexFunc(w.stored, func(n calico.Node) bool { return n.Name == name && n.Revision == revision })
	if i < 0 {
		return 0, &calico.ConflictError{Key: name}
	}
	w.stored[i].Revision++
	w.stored[i].Annotations = map[string]string{nodesync.FenceAnnotation: value}
	return w.stored[i].Revision, nil
}

func (w *world) DeleteNode(ctx context.Context, guard calico.Guard) error {
	err := w.call(ctx, "DeleteNode", guard.Host)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stored = slices.DeleteFunc(w.stored, func(n calico.Node) bool { return n.Name == guard.Host })
	w.removed = append(w.removed, time.Now())
	return err
}

func (w *world) ReleaseAddresses(ctx context.Context, _ calico.Guard, block netip.Prefix, _ []calico.Assignment) error {
	return w.call(ctx, "ReleaseAddresses", block.String())
}

func (w *world) DeleteAffinity(ctx context.Context, guard calico.Guard, _ netip.Prefix, _ int64, _ bool) error {
	return w.call(ctx, "DeleteAffinity", guard.Host)
}

func (w *world) Synced() bool                    { return get(w, func() bool { return !w.unsynced }) }
func (w *world) ForgetSightings(map[string]bool) {}

func (w *world) Sightings() []nodesync.Sighting {
	return get(w, func() []nodesync.Sighting { return slices.Clone(w.left) })
}

func (w *world) ListNodes(ctx context.Context) ([]nodesync.KubernetesNode, error) {
	err := w.call(ctx, "ListNodes", "")
	return get(w, func() []nodesync.KubernetesNode { return slices.Clone(w.listed) }), err
}

// LookUp finds every machine that is looked up gone, and RunningPods none of its pods.
func (w *world) LookUp(ctx context.Context, name string) nodesync.Lookup {
	if err := w.call(ctx, "LookUp", name); err != nil {
		return nodesync.Lookup{Node: name, Verdict: nodesync.VerdictUnknown, Detail: err.Error()}
	}
	return nodesync.Lookup{Node: name, Verdict: nodesync.VerdictGone}
}

func (w *world) RunningPods(ctx context.Context, name string) (nodesync.RunningPods, error) {
	return nodesync.RunningPods{Node: name}, w.call(ctx, "RunningPods", name)
}

func (w *world) PodsWithAddresses(ctx context.Context, _ []netip.Addr) ([]nodesync.PodAddress, error) {
	return nil, w.call(ctx, "PodsWithAddresses", "")
}

func (w *world) EachPod(ctx context.Context, _ func(namespace, name string)) error {
	return w.call(ctx, "EachPod", "")
}

func (w *world) Heartbeat(context.Context, string) nodesync.Heartbeat { return nodesync.Heartbeat{} }

func (w *world) PodHoldings(ctx context.Context, _ int64, _ func(namespace, name string) bool) (calico.PodHoldings, error) {
	return calico.PodHoldings{}, w.call(ctx, "PodHoldings", "")
}

func (w *world) Read(ctx context.Context) (memory nodesync.Memory, confirmation string, err error) {
	err = w.call(ctx, "Read", "")
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.memory, w.confirmation, err
}

func (w *world) Save(ctx context.Context, memory nodesync.Memory) error {
	err := w.call(ctx, "Save", "")
	return get(w, func() error { w.memory = memory; return err })
}

func (w *world) Pending(ctx context.Context) (text string, answer Answer, err error) {
	err = w.call(ctx, "Pending", "")
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked, w.last, err
}

func (w *world) Answer(_ context.Context, _ string, answer Answer) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.withdrawn {
		return errWithdrawn
	}
	w.answers, w.last = append(w.answers, answer), answer
	return nil
}

func (w *world) Record(ctx context.Context, entry Entry) error {
	err := w.call(ctx, "Record", entry.Host)
	return get(w, func() error {
		if err == nil {
			w.entries = append(w.entries, entry)
		}
		return err
	})
}
