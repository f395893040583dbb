// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// workerPorts are the ports of a process whose workers call them at the same time. One call is made at a time, so that
// the watcher sees every write with all that is true then; which worker makes the next one is up to Go's scheduler.
type workerPorts struct {
	*ports
	mu sync.Mutex // guards the process and the universe
	// calls are those since the machines were read, and mishaps is what becomes of them, by their number.
	calls   int
	reading bool
	mishaps map[int]mishap
	// working are the hosts whose removal has begun and has not ended, and most how many they were at a time.
	working map[string]bool
	most    int
}

// mishap is what happens in the universe before a call, and what becomes of the call.
type mishap struct {
	before func()
	order  order
}

// turn waits until it is the caller's turn to make a call.
func (x *workerPorts) turn() (end func()) {
	runtime.Gosched()
	x.mu.Lock()
	return x.mu.Unlock
}

// decide is what becomes of a call that is about to be made.
func (x *workerPorts) decide(c portCall) bool {
	x.p.order = proceed
	if x.reading = x.reading || c.name == "Snapshot"; c.name == "Hosts" {
		x.reading = false
	}
	if x.reading {
		return true
	}
	x.calls++
	m := x.mishaps[x.calls]
	if m.before != nil {
		m.before()
	}
	if m.order != "" {
		x.p.order = m.order
	}
	if c.writes() {
		x.working[c.about] = true
		x.most = max(x.most, len(x.working))
	}
	if c.name == "DeleteNode" {
		delete(x.working, c.about)
	}
	return true
}

func (x *workerPorts) LookUp(ctx context.Context, name string) nodesync.Lookup {
	defer x.turn()()
	return x.ports.LookUp(ctx, name)
}

func (x *workerPorts) RunningPods(ctx context.Context, name string) (nodesync.RunningPods, error) {
	defer x.turn()()
	return x.ports.RunningPods(ctx, name)
}

func (x *workerPorts) CalicoPods(ctx context.Context, node string) ([]nodesync.CalicoPod, error) {
	defer x.turn()()
	return x.ports.CalicoPods(ctx, node)
}

func (x *workerPorts) AnnotateNode(ctx context.Context, name string, revision int64, annotation, value string) (int64, error) {
	defer x.turn()()
	return x.ports.AnnotateNode(ctx, name, revision, annotation, value)
}

func (x *workerPorts) DeleteEndpoints(ctx context.Context, guard calico.Guard, endpoints []calico.EndpointRef) error {
	defer x.turn()()
	return x.ports.DeleteEndpoints(ctx, guard, endpoints)
}

func (x *workerPorts) ReleaseAddresses(ctx context.Context, guard calico.Guard, block netip.Prefix, assignments []calico.Assignment) error {
	defer x.turn()()
	return x.ports.ReleaseAddresses(ctx, guard, block, assignments)
}

func (x *workerPorts) DeleteAffinity(ctx context.Context, guard calico.Guard, block netip.Prefix, revision int64, deleteBlock bool) error {
	defer x.turn()()
	return x.ports.DeleteAffinity(ctx, guard, block, revision, deleteBlock)
}

func (x *workerPorts) DeleteResource(ctx context.Context, guard calico.Guard, kind, name string, revision int64) error {
	defer x.turn()()
	return x.ports.DeleteResource(ctx, guard, kind, name, revision)
}

func (x *workerPorts) DeleteNode(ctx context.Context, guard calico.Guard) error {
	defer x.turn()()
	return x.ports.DeleteNode(ctx, guard)
}

func (x *workerPorts) DeleteHandles(ctx context.Context, handles []calico.Handle) error {
	defer x.turn()()
	return x.ports.DeleteHandles(ctx, handles)
}

func (x *workerPorts) LookUpPod(ctx context.Context, namespace, name string) nodesync.PodLookup {
	defer x.turn()()
	return x.ports.LookUpPod(ctx, namespace, name)
}

func (x *workerPorts) Heartbeat(ctx context.Context, node string) nodesync.Heartbeat {
	defer x.turn()()
	return x.ports.Heartbeat(ctx, node)
}

func (x *workerPorts) DescribeLeftovers(ctx context.Context, leftovers []calico.Leftover) ([]calico.Object, []calico.HeldAddress, error) {
	defer x.turn()()
	return x.ports.DescribeLeftovers(ctx, leftovers)
}

func (x *workerPorts) MachineUID(ctx context.Context, host string) (string, error) {
	defer x.turn()()
	return x.ports.MachineUID(ctx, host)
}

func (x *workerPorts) RemoveLeftovers(ctx context.Context, guard calico.Guard, leftovers []calico.Leftover) error {
	defer x.turn()()
	return x.ports.RemoveLeftovers(ctx, guard, leftovers)
}

// workerJournal is the journal of a process with workers.
type workerJournal struct {
	Journal
	ports *workerPorts
}

func (j workerJournal) Record(ctx context.Context, entry Entry) error {
	defer j.ports.turn()()
	return j.Journal.Record(ctx, entry)
}

// employ gives a process that has just started its workers.
func (p *process) employ(ports *ports) {
	p.crew = &workerPorts{ports: ports, working: map[string]bool{}}
	p.r.Datastore, p.r.Cluster, p.r.Workers = p.crew, p.crew, p.options.workers
	if p.options.leftovers {
		p.r.LeftoverStore, p.r.LeftoverCluster = p.crew, p.crew
	}
	if p.options.journal {
		p.r.Journal = workerJournal{Journal: p.r.Journal, ports: p.crew}
	}
}

// work is a whole round of a process with workers.
func (p *process) work(mishaps map[int]mishap) (sideBySide int) {
	crew := p.crew
	crew.calls, crew.reading, crew.mishaps, crew.most = 0, true, mishaps, 0
	clear(crew.working)
	p.prepare()
	p.yield = crew.decide
	p.due, p.err = p.r.pass(context.Background())
	p.watcher.ended(p)
	if p.dead {
		p.start()
	}
	return crew.most
}

// inside draws what happens while workers are at work.
func (s *story) inside(t *rapid.T) map[int]mishap {
	out := map[int]mishap{}
	for range rapid.IntRange(0, 3).Draw(t, "mishaps") {
		m := mishap{order: rapid.SampledFrom([]order{"", "", "", failBefore, failAfter, refused, dieBefore, dieAfter, order(timesOut)}).Draw(t, "order")}
		if m.order == dieBefore || m.order == dieAfter {
			s.count("deaths")
		}
		if m.order == "" || rapid.Bool().Draw(t, "and a surprise") {
			m.before = s.surprise(t)
		}
		out[rapid.IntRange(1, 40).Draw(t, "before call")] = m
	}
	return out
}

// surprise draws what happens to a machine, without drawing anything when it happens.
func (s *story) surprise(t *rapid.T) func() {
	m, u := s.machine(t), s.u
	switch rapid.IntRange(0, 7).Draw(t, "surprise") {
	case 0:
		return func() { u.registers(m) }
	case 1:
		return func() { m.up = true; u.startsCalicoNode(m) }
	case 2:
		return func() {
			s.count("rejoins")
			u.registers(m)
			u.startsCalicoNode(m)
			u.startsPod(m)
		}
	case 3:
		return func() {
			if !u.exists(m) && u.movesAddress(m, u.machines[0]) {
				s.count("moved addresses")
			}
		}
	case 4:
		return func() {
			if !u.exists(m) && u.borrows(m, u.machines[0]) {
				s.count("borrowed addresses")
			}
		}
	case 5:
		return s.lock
	case 6:
		return func() {
			u.editsNode(m.host, func(n modelNode) modelNode { return n.annotated(nodesync.KeepAnnotation, "true") })
		}
	default:
		return func() {
			if !u.exists(m) && m.host == m.kube && m.identity == byReference {
				u.otherCleaner(m, 3, false)
			}
		}
	}
}

// workersAct lets machines leave and a process with workers clean up, with mishaps in the middle.
func (s *story) workersAct(t *rapid.T, p *process) {
	for _, m := range s.u.machines[1:] {
		s.u.registers(m)
		s.u.startsCalicoNode(m)
		s.u.startsPod(m)
		if rapid.IntRange(0, 4).Draw(t, "leaves") > 0 {
			s.u.leaves(m)
		}
	}
	s.u.collectsPods()
	p.watchAll()
	p.work(nil)
	s.must(t)
	s.u.pass(s.u.config.Grace + time.Second)
	for range rapid.IntRange(1, 3).Draw(t, "rounds") {
		p.watchAll()
		if p.work(s.inside(t)) > 1 {
			s.count("machines side by side")
		}
		s.must(t)
		s.u.pass(firstHold)
	}
	s.repairs()
}

// firstHold is for how long a machine whose step failed is left alone at first.
const firstHold = 16 * time.Second

// Whatever the order in which workers make the calls of several machines, and wherever in the middle calls fail,
// machines come back or the process dies: the same invariants hold of every write, and when the trouble is over nothing
// is left that could go.
func TestWorkersKeepTheInvariants(t *testing.T) {
	t.Parallel()
	stats := newShare(t, "clean-ups completed", "deaths", "rejoins", "machines side by side", "conflict", "moved addresses", "borrowed addresses")
	cases.Check(t, func(t *rapid.T) {
		x := newTrial(t, stats.metrics)
		defer x.end()
		x.watchesPods(t)
		p := x.newProcess("leader", x.u.api, processOptions{
			journal: rapid.Bool().Draw(t, "journal"), leftovers: true, workers: rapid.IntRange(2, 6).Draw(t, "workers"),
		})
		x.leaders = []*process{p}
		s := &story{trial: x}
		for range rapid.IntRange(1, 4).Draw(t, "times") {
			s.workersAct(t, p)
		}
		s.rest(t)
		stats.add(x.counts)
	})
}

// Workers that believe every machine gone, or that are told so after it has come back, are found out by the same
// checks.
func TestTheWatcherFindsWrongWorkers(t *testing.T) {
	t.Parallel()
	metrics := NewMetrics(prometheus.NewRegistry())
	history := rapid.Custom(func(t *rapid.T) []string {
		x := newTrial(t, metrics)
		defer x.end()
		p := x.newProcess("leader", x.u.api, processOptions{workers: 4})
		x.leaders, p.wrongly = []*process{p}, believesEachGone
		s := &story{trial: x}
		for _, m := range x.u.machines[1:] {
			x.u.leaves(m)
		}
		x.u.collectsPods()
		p.watchAll()
		p.work(nil)
		x.u.pass(x.u.config.Grace + time.Second)
		m := s.machine(t)
		p.work(map[int]mishap{rapid.IntRange(1, 20).Draw(t, "before call"): {before: func() { x.u.registers(m) }}})
		return x.violations
	})
	for seed := range 200 {
		if violations := history.Example(seed); slices.ContainsFunc(violations, func(v string) bool { return len(v) > 3 && v[:3] == "I1:" }) {
			t.Logf("after %d histories: %s", seed, violations[0])
			return
		}
	}
	t.Error("200 histories have not found it")
}

// believesEachGone takes every machine that is looked up for gone.
const believesEachGone wrongly = "believes each gone"
