// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// workersAtOnce are those of a process that make calls at the same time. One call is made at a time, so that the watcher sees
// every write with all that is true then; which worker makes the next one is up to Go's scheduler.
type workersAtOnce struct {
	p  *process
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

// turn waits until it is the caller's turn to make a call, where several workers may.
func (p *process) turn() (end func()) {
	if p.crew == nil {
		return func() {}
	}
	runtime.Gosched()
	p.crew.mu.Lock()
	return p.crew.mu.Unlock
}

// decide is what becomes of a call that is about to be made.
func (x *workersAtOnce) decide(c portCall) bool {
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
