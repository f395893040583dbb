// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// aftermath draws a universe in which much has happened and nothing happens any more, with limits that let a controller finish its work.
// What several processes make of it can be compared then.
func aftermath(t *rapid.T, metrics *Metrics) *trial {
	x := newTrial(t, metrics)
	x.u.config.MaxUnwitnessed, x.u.config.MinOverlapPercent, x.u.config.AdoptUnreferenced = 100, 0, false
	s := &story{trial: x}
	s.addLeaders(t, 1, false)
	t.Repeat(s.actions())
	x.end()
	s.repairs()
	x.u.collectsPods()
	for _, m := range x.u.machines[1:] {
		switch rapid.IntRange(0, 3).Draw(t, "in the end") {
		case 3:
			x.u.registers(m)
			x.u.startsCalicoNode(m)
			x.u.startsPod(m)
			x.u.leaves(m)
			if !x.u.exists(m) && m.host == m.kube && m.identity == byReference {
				x.u.otherCleaner(m, rapid.IntRange(1, 5).Draw(t, "before it stops"), rapid.Bool().Draw(t, "node first"))
			}
		case 0:
			x.u.registers(m)
			x.u.startsCalicoNode(m)
			x.u.startsPod(m)
			x.u.leaves(m)
		case 1:
			x.u.leaves(m)
		}
	}
	x.u.collectsPods()
	return x.fork()
}

// alike checks, of many aftermaths, that what comes of two ways to go on from it is the same. The trials are counted and ended.
func alike(t *testing.T, pair func(t *rapid.T, fork func() *trial) (want, got any)) {
	t.Helper()
	t.Parallel()
	stats := newShare(t, "clean-ups completed")
	cases.CheckTimes(t, 20, 40, 1000, func(t *rapid.T) {
		x := aftermath(t, stats.metrics)
		var trials []*trial
		want, got := pair(t, func() *trial {
			trials = append(trials, x.fork())
			return trials[len(trials)-1]
		})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("it ends elsewhere (-want +got):\n%s", diff)
		}
		for _, y := range trials {
			stats.add(y.counts)
			y.end()
		}
	})
}

// I5: a process that dies before or after any of its calls, with a new one in its place, ends where one ends that does not die.
func TestAnyHistoryEndsAlikeAfterACrash(t *testing.T) {
	alike(t, func(t *rapid.T, fork func() *trial) (want, got any) {
		whole := fork()
		p := whole.newProcess("leader", whole.u.api, processOptions{journal: true})
		whole.settle(t, p, false)
		whole.checkRest(t, p, false)
		var ends []map[string]string
		for range 2 {
			at := rapid.SampledFrom(crashPoints(t, p.trace)).Draw(t, "dies at call")
			fatal := rapid.SampledFrom([]order{dieBefore, dieAfter}).Draw(t, "dies")
			t.Logf("it %s at call %d (%v)", fatal, at, p.trace[at])
			dying := fork()
			q := dying.newProcess("leader", dying.u.api, processOptions{journal: true})
			n := -1
			q.fate = func(portCall) order {
				if n++; n == at {
					return fatal
				}
				return proceed
			}
			dying.settle(t, q, false)
			ends = append(ends, dying.u.dump())
			dying.counts["crashes"]++
			if p.trace[at].writes() {
				dying.counts["crashes at a write"]++
			}
		}
		return []map[string]string{whole.u.dump(), whole.u.dump()}, ends
	})
}

// crashPoints are the numbers of the calls at which it is worth to die: the writes, or all calls of the rounds that wrote, or any.
func crashPoints(t *rapid.T, trace []tracedCall) []int {
	wrote := map[int]bool{}
	for _, c := range trace {
		wrote[c.round] = wrote[c.round] || c.writes()
	}
	var writes, rounds, all []int
	for i, c := range trace {
		all = append(all, i)
		if wrote[c.round] {
			rounds = append(rounds, i)
		}
		if c.writes() {
			writes = append(writes, i)
		}
	}
	if len(writes) == 0 {
		return all
	}
	return rapid.SampledFrom([][]int{writes, rounds}).Draw(t, "points")
}

// I13: two processes that both believe to lead, whose calls mix in any way, end where one alone ends.
func TestAnyHistoryEndsAlikeWithTwoReplicas(t *testing.T) {
	alike(t, func(t *rapid.T, fork func() *trial) (want, got any) {
		one, two := fork(), fork()
		one.settle(t, one.newProcess("leader-1", one.u.api, processOptions{journal: true}), false)
		for i := range 2 {
			two.leaders = append(two.leaders, two.newProcess(fmt.Sprintf("leader-%d", i+1), two.u.api, processOptions{journal: true}))
		}
		for range rapid.IntRange(5, 40).Draw(t, "turns") {
			p := two.leaders[rapid.IntRange(0, 1).Draw(t, "whose")]
			if !p.inRound() {
				p.watchAll()
				p.begin()
			}
			for range rapid.SampledFrom([]int{1, 2, 3, 5, 100}).Draw(t, "calls") {
				if p.inRound() {
					p.goOn(proceed)
				}
			}
			two.must(t)
			if !two.leaders[0].inRound() && !two.leaders[1].inRound() {
				two.u.pass(rapid.SampledFrom([]*process{two.leaders[0], two.leaders[1]}).Draw(t, "next").wait())
			}
		}
		two.leaders[1].finish()
		two.settle(t, two.leaders[0], false)
		return one.u.dump(), two.u.dump()
	})
}

// I12, of what happens: news of different machines leads to the same end in whatever order it comes.
func TestAnyHistoryEndsAlikeInAnyOrderOfNews(t *testing.T) {
	alike(t, func(t *rapid.T, fork func() *trial) (want, got any) {
		ends := make([]map[string]string, 2)
		var machines, news []int
		for i := range ends {
			y := fork()
			for len(machines) < len(y.u.machines)-1 {
				machines, news = append(machines, len(machines)+1), append(news, rapid.IntRange(0, 4).Draw(t, "news"))
			}
			p := y.newProcess("leader", y.u.api, processOptions{})
			p.watchAll()
			p.round()
			for _, m := range rapid.Permutation(machines).Draw(t, "order") {
				y.news(y.u.machines[m], news[m-1])
				if rapid.Bool().Draw(t, "comes at once") {
					p.watchAll()
				}
			}
			y.settle(t, p, false)
			y.checkRest(t, p, false)
			ends[i] = y.u.dump()
		}
		return ends[0], ends[1]
	})
}

// news is an event that is about one machine alone.
func (x *trial) news(m *modelMachine, what int) {
	switch what {
	case 0, 1:
		x.u.leaves(m)
	case 2:
		x.u.registers(m)
	case 3:
		x.u.editsNode(m.host, func(n modelNode) modelNode { return n })
	}
}

// I12, of what is read: a process that gets every list in the reverse order makes the same writes, one by one.
func TestAnyHistoryIsReadAlikeInAnyOrder(t *testing.T) {
	alike(t, func(t *rapid.T, fork func() *trial) (want, got any) {
		var histories []map[string][]string
		for _, reversed := range []bool{false, true} {
			y := fork()
			y.settle(t, y.newProcess("leader", y.u.api, processOptions{reversed: reversed}), false)
			histories = append(histories, y.u.etcd.history())
		}
		return histories[0], histories[1]
	})
}

// plainTrial is a trial of so many machines with a pod each, and a process in it.
func plainTrial(machines int) (*trial, *process) {
	x := &trial{watcher: newWatcher(newUniverse(200), NewMetrics(prometheus.NewRegistry()))}
	x.u.config = nodesync.DefaultConfig()
	for i := range machines {
		m := &modelMachine{host: fmt.Sprintf("m%d", i), kube: fmt.Sprintf("m%d", i), identity: byReference, up: true}
		x.u.machines = append(x.u.machines, m)
		x.u.registers(m)
		x.u.startsCalicoNode(m)
		x.u.startsPod(m)
	}
	p := x.newProcess("leader", x.u.api, processOptions{journal: true})
	p.watchAll()
	return x, p
}

// As many broken machines as one round may clean do not keep a healthy one from its turn, and are tried less and less.
func TestBrokenMachinesDoNotStarveOthers(t *testing.T) {
	t.Parallel()
	x, p := plainTrial(6)
	defer x.end()
	p.r.Config.NodesPerRound = 2
	p.round()
	for _, m := range x.u.machines[:3] {
		x.u.leaves(m)
	}
	x.u.collectsPods()
	p.fate = func(c portCall) order {
		if c.name == "DeleteEndpoints" && c.about != "m2" {
			return failBefore
		}
		return proceed
	}
	pass := func(rounds int) {
		for range rounds {
			p.watchAll()
			p.round()
			x.u.pass(p.wait())
		}
	}
	pass(12)
	for i, m := range x.u.machines[:3] {
		if node, _ := x.u.etcd.get(modelNodeKey(m.host)); (node == nil) != (i == 2) {
			t.Errorf("machine %d: %v; want the healthy one, 2, to be gone", i, node)
		}
	}
	rounds, end := 0, x.u.age+time.Hour
	for ; x.u.age < end; rounds++ {
		pass(1)
	}
	if rounds > 60 || len(x.violations) > 0 {
		t.Errorf("%d rounds in an hour for machines that always fail, want at most one a minute; %v", rounds, x.violations)
	}
}

// I15: what a round costs follows what has changed, not the size of the cluster. The watcher bounds the calls of every round in addition.
func TestCallsFollowChange(t *testing.T) {
	t.Parallel()
	cost := func(machines, gone int) (idle, cleaning map[string]int) {
		x, p := plainTrial(machines)
		defer x.end()
		p.round() // binds the datastore and sweeps
		p.round()
		idle = maps.Clone(p.calls)
		for i := range gone {
			x.u.leaves(x.u.machines[i])
		}
		x.u.collectsPods()
		p.watchAll()
		p.round()
		x.u.pass(x.u.config.Grace)
		revision := x.u.etcd.revision
		p.round()
		cleaning = maps.Clone(p.calls)
		if len(x.violations) > 0 || x.counts["clean-ups completed"] != gone || (gone == 0) != (x.u.etcd.revision == revision) {
			t.Errorf("%d of %d machines were cleaned: %v", x.counts["clean-ups completed"], gone, x.violations)
		}
		return idle, cleaning
	}
	idle, none := cost(5, 0)
	idleLarge, noneLarge := cost(100, 0)
	if diff := cmp.Diff(idle, idleLarge); diff != "" {
		t.Errorf("a round with nothing to do costs other calls with 100 machines (+) than with 5 (-):\n%s", diff)
	}
	if diff := cmp.Diff(idle, none) + cmp.Diff(none, noneLarge); diff != "" {
		t.Errorf("idle rounds cost this and that:\n%s", diff)
	}
	_, one := cost(5, 1)
	_, oneLarge := cost(100, 1)
	if diff := cmp.Diff(one, oneLarge); diff != "" {
		t.Errorf("removing a machine costs other calls in a cluster of 100 (+) than of 5 (-):\n%s", diff)
	}
	_, four := cost(100, 4)
	for name, calls := range four {
		if base := none[name]; calls-base > 4*(one[name]-base) {
			t.Errorf("four machines cost %d calls of %s, one costs %d, none %d", calls, name, one[name], base)
		}
	}
	// Fence 2, endpoints 1, addresses 2, affinity and block 2, Felix's configuration 1, Calico Node 1: what is read of the datastore is read together.
	if each := float64(four["etcd"]-one["etcd"]) / 3; each > 10 {
		t.Errorf("%.2f requests to etcd for each further machine, want at most 10: %d for one, %d for four", each, one["etcd"], four["etcd"])
	}
	// Is it gone, do pods run, and before each write once more: is it gone.
	ofAPI := func(calls map[string]int) int { return calls["LookUp"] + calls["RunningPods"] }
	if each := float64(ofAPI(four)-ofAPI(one)) / 3; each > 8 {
		t.Errorf("%.2f requests to the API server for each further machine, want at most 8", each)
	}
}
