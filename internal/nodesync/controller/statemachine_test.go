// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// Whatever happens, in whatever order, in the middle of whatever round: the invariants hold of every single write (see watcher), and when the
// trouble is over the controller comes to rest within the time that it promises, with nothing left that could go, and then stays at rest.
func TestAnyHistoryKeepsTheInvariants(t *testing.T) {
	t.Parallel()
	for name, crew := range map[string]struct {
		leaders int
		blind   bool
	}{"one leader": {1, false}, "two leaders": {2, false}, "two leaders without a watch": {2, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stats := newShare(t, "clean-ups completed", "crashes during a clean-up", "rejoins during a clean-up", "conflict", "fences withdrawn", "moved addresses", "borrowed addresses",
				"mass-guard holds", "overlap holds", "confirmations", "rounds of another cluster", "partial lists", "dry runs", "unreadable values",
				"other cleaners", "accidents", "two rounds at once", "requests by name", "removals by name", "killed pods", "dead kubelets", "pods that come again",
				"interrupted removals of leftovers", "leftovers removed", "old sandboxes removed", "leftovers in the end")
			cases.Check(t, func(t *rapid.T) {
				x := newTrial(t, stats.metrics)
				defer x.end()
				x.serves = true
				x.watchesPods(t)
				x.addLeaders(t, crew.leaders, crew.blind)
				s := &story{trial: x}
				if rapid.IntRange(0, 9).Draw(t, "another cluster first") == 0 {
					s.strayRound(t)
				}
				for range 3 { // of 30 actions each, as rapid draws them
					t.Repeat(s.actions())
				}
				s.rest(t)
				stats.add(x.counts)
			})
		})
	}
}

// share counts in how many cases a thing happened.
type share struct {
	metrics *Metrics
	cases   int
	with    map[string]int
}

// newShare logs the shares in the end. A property to which what it is about does not happen shows nothing: of many cases, some must have had
// each of the things.
func newShare(t *testing.T, things ...string) *share {
	t.Helper()
	c := &share{metrics: NewMetrics(prometheus.NewRegistry()), with: map[string]int{}}
	t.Cleanup(func() {
		var lines []string
		for _, what := range slices.Sorted(maps.Keys(c.with)) {
			lines = append(lines, fmt.Sprintf("%5.1f %% %s", 100*float64(c.with[what])/float64(c.cases), what))
		}
		t.Logf("in %d cases:\n%s", c.cases, strings.Join(lines, "\n"))
		for _, thing := range things {
			if !t.Failed() && c.cases >= 1000 && c.with[thing] == 0 {
				t.Errorf("%q never happened in %d cases", thing, c.cases)
			}
		}
	})
	return c
}

func (c *share) add(counts map[string]int) {
	c.cases++
	for what := range counts {
		c.with[what]++
	}
}

// story is what happens in a trial.
type story struct{ *trial }

func (s *story) actions() map[string]func(*rapid.T) {
	actions := map[string]func(*rapid.T){
		"":                       s.must,
		"something rare happens": s.rarely,
		"a person confirms": func(t *rapid.T) {
			if s.confirms(s.leader(t)) {
				s.count("confirmations")
			}
		},
		"a person repairs": func(*rapid.T) { s.repairs() },
	}
	if s.leftovers {
		actions["what a pod left goes"], actions["pods make trouble"], actions["pods make more trouble"] = s.leftoversGo, s.podTrouble, s.podTrouble
	}
	if s.serves {
		actions["a person names machines"] = s.asks
	}
	more := func(weight int, name string, action func(*rapid.T)) {
		for i := range weight {
			actions[fmt.Sprintf("%s (%d)", name, i)] = action
		}
	}
	more(5, "something happens", func(t *rapid.T) { s.happens(t, nil) })
	more(3, "a machine leaves", s.leaves)
	more(2, "a machine comes", s.comes)
	more(3, "time passes", s.timePasses)
	more(3, "the watch brings news", s.watches)
	more(4, "a round", func(t *rapid.T) { s.leader(t).round() })
	more(3, "some calls", s.someCalls)
	more(6, "a clean-up is interrupted", s.interrupted)
	return actions
}

func (s *story) rarely(t *rapid.T) {
	switch rapid.IntRange(0, 3).Draw(t, "rare") {
	case 0:
		s.strayRound(t)
	case 1:
		s.clockJumps(t)
	default:
		s.leader(t).start()
		s.count("restarts")
	}
}

func (s *story) leader(t *rapid.T) *process {
	return s.leaders[rapid.IntRange(0, len(s.leaders)-1).Draw(t, "leader")]
}

// machine draws a machine that may come and go.
func (s *story) machine(t *rapid.T) *modelMachine {
	return s.u.machines[rapid.IntRange(1, len(s.u.machines)-1).Draw(t, "machine")]
}

func (s *story) leaves(t *rapid.T) {
	s.u.leaves(s.machine(t))
	if rapid.IntRange(0, 3).Draw(t, "pods stay") > 0 {
		s.u.collectsPods()
	}
}

// comes is a machine that starts: its kubelet registers, its calico-node writes, in any order, or only one of them for now.
func (s *story) comes(t *rapid.T) { s.rejoins(t, s.machine(t)) }

func (s *story) rejoins(t *rapid.T, m *modelMachine) {
	for _, p := range s.processes {
		if p.inRound() && p.seen.removed[m.host] {
			s.count("rejoins during a clean-up")
		}
	}
	m.up = true
	switch rapid.IntRange(0, 3).Draw(t, "how") {
	case 0:
		s.u.registers(m)
	case 1:
		s.u.startsCalicoNode(m)
	case 2:
		s.u.startsCalicoNode(m)
		s.u.registers(m)
	default:
		s.u.registers(m)
		s.u.startsCalicoNode(m)
		s.u.startsPod(m)
	}
}

func (s *story) watches(t *rapid.T) {
	p := s.leader(t)
	switch rapid.IntRange(0, 4).Draw(t, "watch") {
	case 0:
		p.watch.breaks()
	case 1:
		if !p.options.blind {
			p.watch.deliver(p.cluster, 1)
		}
	default:
		p.watchAll()
	}
}

func (s *story) timePasses(t *rapid.T) {
	c := s.u.config
	s.u.pass(rapid.SampledFrom([]time.Duration{
		time.Second, c.Pace, 20 * time.Second, c.Grace / 2, c.Grace, c.Grace + time.Second, c.Resync, 2*c.Resync + time.Minute, c.MassWindow,
	}).Draw(t, "time"))
}

// clockJumps sets the clock. Go compares times of one process by a clock that cannot be set; what is set back by much is met by processes that
// start, who have only what was saved.
func (s *story) clockJumps(t *rapid.T) {
	jump := rapid.SampledFrom([]time.Duration{-time.Hour, -smallJump, smallJump, 25 * time.Hour}).Draw(t, "jump")
	s.u.pass(jump)
	s.jumped = true
	for _, p := range s.leaders {
		if jump < -smallJump {
			p.start()
		}
	}
	s.count("clock jumps")
}

const smallJump = time.Minute

// repairs unlocks the datastore and writes what could not be read as it was.
func (s *story) repairs() {
	value, _ := s.u.etcd.get(modelInformation)
	info := value.(modelClusterInformation)
	if !info.Ready {
		info.Ready = true
		s.u.write("a person", modelInformation, info)
	}
	for _, kv := range s.u.etcd.scan("", s.u.etcd.revision) {
		if garbage, ok := kv.value.(modelGarbage); ok {
			s.u.write("a person", kv.key, garbage.was)
		}
	}
}

// strayRound is a round of a process whose kubeconfig is of another cluster, or whose endpoints are of this datastore by mistake.
func (s *story) strayRound(t *rapid.T) {
	if s.stray == nil {
		s.stray = s.newProcess("stray", s.u.foreign, processOptions{journal: true})
	}
	if value, _ := s.u.etcd.get(modelInformation); value.(modelClusterInformation).Annotations[nodesync.BindingAnnotation] == "" &&
		s.u.config.MinOverlapPercent == 0 {
		return // nothing tells clusters apart in a datastore without a record and with a minimal overlap of 0
	}
	s.stray.watchAll()
	s.stray.round()
	if rapid.Bool().Draw(t, "goes on") {
		s.u.pass(s.u.config.Grace)
		s.stray.round()
	}
	s.count("rounds of another cluster")
}

// someCalls lets a round go on for some calls, the last of which may go wrong.
func (s *story) someCalls(t *rapid.T) {
	p := s.leader(t)
	if !p.inRound() {
		p.watchAll()
		p.begin()
	}
	for range rapid.IntRange(0, 12).Draw(t, "calls") {
		if !p.goOn(proceed) {
			return
		}
	}
	s.goesWrong(t, p)
}

// goesWrong lets something become of the call that waits.
func (s *story) goesWrong(t *rapid.T, p *process) {
	orders := []order{proceed, failBefore, failAfter, dieBefore, dieAfter}
	switch p.waiting.port {
	case "write":
		orders = append(orders, refused, dieBefore, dieAfter)
	case "kubernetes":
		orders = append(orders, order(timesOut), order(forbidden), order(other404))
		if p.waiting.name == "ListNodes" || p.waiting.name == "EachPod" {
			orders = append(orders, order(emptyList), order(partly), order(emptyList), order(partly))
		}
	}
	o := rapid.SampledFrom(orders).Draw(t, "order")
	if (o == dieBefore || o == dieAfter) && len(p.seen.removed) > 0 {
		s.count("crashes during a clean-up")
	}
	if o == order(emptyList) || o == order(partly) {
		s.count("partial lists")
	}
	about := slices.IndexFunc(s.u.machines, func(m *modelMachine) bool { return p.waiting.name == "LookUp" && m.kube == p.waiting.about })
	if about >= 0 && rapid.Bool().Draw(t, "and it lives") {
		s.u.registers(s.u.machines[about]) // what it is not to be told wrongly
	}
	p.goOn(o)
}

// interrupted brings a process to clean up, stops it before one of its writes, and lets something happen there; perhaps twice.
func (s *story) interrupted(t *rapid.T) {
	p := s.leader(t)
	s.somethingToDo(t)
	p.watchAll()
	p.round()
	s.u.pass(s.u.config.Grace)
	p.watchAll()
	p.begin()
	for range rapid.IntRange(1, 2).Draw(t, "interruptions") {
		writes, after := rapid.IntRange(1, 8).Draw(t, "writes"), rapid.Bool().Draw(t, "before the next look")
		for i := range writes {
			if !p.until(portCall.writes) || (i < writes-1 || after) && !p.goOn(proceed) {
				return
			}
		}
		s.count("interrupted clean-ups")
		of := slices.IndexFunc(s.u.machines, func(m *modelMachine) bool { return p.seen.removed[m.host] })
		if rapid.Bool().Draw(t, "the call itself") {
			s.goesWrong(t, p)
		} else {
			s.happens(t, s.u.at(of))
		}
		s.must(t)
		if !p.inRound() {
			return
		}
	}
	if rapid.Bool().Draw(t, "finish") {
		p.finish()
	}
}

// somethingToDo sees to it that a machine is gone and has left something.
func (s *story) somethingToDo(t *rapid.T) {
	var ours []*modelMachine
	for _, m := range s.u.machines[1:] {
		if m.identity == byReference && !s.u.exists(m) && len(s.u.left(m.host)) > 0 {
			return
		}
		if m.identity == byReference {
			ours = append(ours, m)
		}
	}
	if len(ours) == 0 {
		return
	}
	m := rapid.SampledFrom(ours).Draw(t, "comes and leaves")
	s.u.registers(m)
	s.u.startsCalicoNode(m)
	s.u.startsPod(m)
	s.u.leaves(m)
	s.u.collectsPods()
}

// happens is one event outside of the processes, or a round of the other leader. of is the machine that is being cleaned up, if one is.
func (s *story) happens(t *rapid.T, of *modelMachine) {
	m := of
	if m == nil || rapid.IntRange(0, 3).Draw(t, "another machine") == 0 {
		m = s.machine(t)
	}
	u := s.u
	u.stopAfter = -1
	if rapid.IntRange(0, 4).Draw(t, "dies on the way") == 0 {
		u.stopAfter = rapid.IntRange(0, 3).Draw(t, "writes")
	}
	defer func() { u.stopAfter = -1 }()
	switch rapid.IntRange(0, 17+4*len(s.leaders)).Draw(t, "event") {
	case 0, 1, 2:
		s.rejoins(t, m)
	case 3:
		if m.up {
			u.startsCalicoNode(m)
		}
	case 4:
		u.startsPod(m)
	case 5:
		s.stopAPod(t)
	case 6:
		if !u.exists(m) && m.host == m.kube && m.identity == byReference {
			u.otherCleaner(m, rapid.IntRange(0, 6).Draw(t, "before it stops"), rapid.Bool().Draw(t, "node first"))
			s.count("other cleaners")
		}
	case 7:
		keep := rapid.SampledFrom([]string{"", "", "true"}).Draw(t, "keep")
		u.editsNode(m.host, func(n modelNode) modelNode { return n.annotated(nodesync.KeepAnnotation, keep) })
	case 8:
		u.startsPod(s.u.machines[0])
	case 9:
		s.lock()
	case 10:
		u.etcd.compact()
	case 11:
		s.spoils(t, m)
	case 12:
		if other := slices.IndexFunc(u.machines, func(m *modelMachine) bool { return !slices.Contains(u.spellings(m.kube), m.host) }); other >= 0 {
			m = u.machines[other]
		}
		s.accident(m)
	case 13:
		u.leaves(m)
		u.collectsPods()
	case 14:
		s.timePasses(t)
	case 15, 16, 17:
		s.addressesMove(t, of)
	default:
		p := s.leader(t)
		if p.inRound() && rapid.Bool().Draw(t, "goes on") {
			p.finish()
			return
		}
		p.watchAll()
		p.round()
	}
}

// addressesMove gives addresses of a machine that is gone, or that is being cleaned up, to others, or to its own calico-node again.
func (s *story) addressesMove(t *rapid.T, of *modelMachine) {
	u, to := s.u, s.u.machines[0]
	if other := s.machine(t); u.runsPods(other) {
		to = other
	}
	from := of
	if i := slices.IndexFunc(u.machines, func(m *modelMachine) bool { return !m.up && u.leftAddress(m.host) }); from == nil && i >= 0 {
		from = u.machines[i]
	}
	if from == nil || from == to || u.exists(from) {
		return
	}
	switch rapid.IntRange(0, 3).Draw(t, "address") {
	case 0:
		if u.borrows(from, to) {
			s.count("borrowed addresses")
		}
	case 1:
		u.renewsTunnel(from)
	default:
		if u.movesAddress(from, to) {
			s.count("moved addresses")
		}
	}
}

func (s *story) stopAPod(t *rapid.T) {
	var stoppable []string
	pinned := map[string]bool{}
	for _, m := range s.u.machines {
		pinned[m.kube] = m.pinned
	}
	for _, name := range slices.Sorted(maps.Keys(s.u.api.pods)) {
		if node := s.u.api.pods[name].node; s.u.api.nodes[node] != "" && !pinned[node] {
			stoppable = append(stoppable, name)
		}
	}
	if len(stoppable) > 0 {
		s.u.stopsPod(rapid.SampledFrom(stoppable).Draw(t, "pod"))
	}
}

func (s *story) lock() {
	value, _ := s.u.etcd.get(modelInformation)
	info := value.(modelClusterInformation)
	info.Ready = false
	s.u.write("a person", modelInformation, info)
}

// spoils makes a value of a machine unreadable.
func (s *story) spoils(t *rapid.T, m *modelMachine) {
	keys := s.u.leftovers(m.host)
	if value, _ := s.u.etcd.get(modelNodeKey(m.host)); value != nil {
		keys = append(keys, modelNodeKey(m.host))
	}
	for _, kv := range s.u.etcd.scan(modelBlocks, s.u.etcd.revision) {
		if block, ok := kv.value.(modelBlock); ok && block.AffineTo == m.host {
			keys = append(keys, kv.key)
		}
	}
	if len(keys) == 0 {
		return
	}
	key := rapid.SampledFrom(keys).Draw(t, "key")
	value, _ := s.u.etcd.get(key)
	if _, already := value.(modelGarbage); already {
		return
	}
	hosts := []string{m.host}
	if block, ok := value.(modelBlock); ok {
		for _, a := range block.Assigned {
			hosts = append(hosts, a.Host)
		}
	}
	s.u.write("a disk", key, modelGarbage{Hosts: hosts, was: value})
	s.count("unreadable values")
}

// accident is somebody who deletes the Calico Node of an existing machine. Where the machine's names differ, what shows then that it lives is
// its running pods; without any nothing would, and that is left out.
func (s *story) accident(m *modelMachine) {
	value, _ := s.u.etcd.get(modelNodeKey(m.host))
	if value == nil || m.identity != byReference || !s.u.exists(m) {
		return
	}
	if !slices.Contains(s.u.spellings(m.kube), m.host) {
		if m.pinned = s.u.runsAny(m.kube); !m.pinned {
			return
		}
		s.count("accidents where names differ")
	}
	s.u.write("a person", modelNodeKey(m.host), nil)
	s.count("accidents")
}

// rest ends all trouble, lets the controller come to rest and checks what it leaves.
func (s *story) rest(t *rapid.T) {
	for _, p := range s.leaders {
		if p.inRound() {
			p.finish()
		}
		s.must(t)
	}
	s.repairs()
	s.u.collectsPods()
	p := s.leaders[0]
	for _, other := range s.leaders[1:] {
		other.stop()
	}
	if p.options.dryRun {
		s.checkDryRun(t, p)
		p = s.newProcess("successor", s.u.api, processOptions{journal: true, leftovers: s.leftovers})
	}
	if p.watch.broken {
		p.watch.relist(p.cluster)
		p.watch.broken = p.options.blind
	}
	confirming := rapid.Bool().Draw(t, "a person confirms in the end")
	s.checkTime(t, p, s.settle(t, p, confirming))
	s.checkRest(t, p, confirming)
	revision := s.u.etcd.revision
	p.round()
	s.must(t)
	if s.u.etcd.revision != revision || testutil.ToFloat64(p.r.Metrics.planned) > 0 {
		t.Errorf("I6: a round after the last one wrote again, or wanted to")
	}
	if t.Failed() {
		t.Logf("%s\nrefused: %v\nleft: %v", s.describe(), refusals(p), slices.Sorted(maps.Keys(s.u.dump())))
	}
}

// checkDryRun lets a process that must not write run for a while.
func (s *story) checkDryRun(t *rapid.T, p *process) {
	for range 5 {
		p.watchAll()
		revision := s.u.etcd.revision
		p.round()
		s.must(t)
		if s.u.etcd.revision != revision {
			t.Errorf("I10: the datastore went from revision %d to %d in a dry run", revision, s.u.etcd.revision)
		}
		s.u.pass(max(p.wait(), s.u.config.Grace))
	}
	s.count("dry runs")
}

// checkTime is I4: how long it may take until the last leftover is gone, where no mass guard holds anything up. The grace period may begin again
// at the first round; a machine may be held for a resync period, and so may the one whose block it has an address in, and again when
// names differ; what only a sweep finds is found a sweep period later, and waits for a grace period of its own then. Timers last up to a tenth
// longer.
func (s *story) checkTime(t *rapid.T, p *process, took time.Duration) {
	for _, r := range refusals(p) {
		if r.Gate == nodesync.GateMass {
			return
		}
	}
	c := p.r.Config
	bound := 2*c.Grace + 4*c.Resync + 2*c.SweepPeriod + time.Duration(len(s.u.machines))*c.Pace + time.Second + time.Duration(s.counts["clock jumps"])*smallJump
	if limit := bound + bound/10 + 2*p.slowness(); took > limit && s.counts["mass-guard holds"] == 0 {
		t.Errorf("I4: the last write came %s after the trouble was over, %s is the limit", took, limit)
	}
}
