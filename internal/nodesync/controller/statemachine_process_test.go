// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/go-logr/logr"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
)

// process is one replica that believes to lead: a real Reconciler whose every call of a port waits until it is told how to go on, so that
// anything may happen between any two calls, to the process or in the universe.
type process struct {
	name    string
	u       *universe
	api     *apiModel // of the cluster that its kubeconfig names
	watch   *watchModel
	cluster *KubernetesCluster
	r       *Reconciler
	options processOptions
	watcher *watcher

	// Of the round in progress.
	resume  func() (portCall, bool)
	cease   func()
	yield   func(portCall) bool
	waiting portCall // the call that is to be made next
	order   order
	dead    bool // nothing that it calls has an effect any more
	err     error
	due     time.Duration
	seen    roundView
	calls   map[string]int
	// fate says what becomes of each call when nothing else is ordered, nil for nothing. trace are all calls that were made.
	fate  func(portCall) order
	trace []tracedCall
	// serving is the request that it is at work on, nil for none; served says that there was one in this round.
	serving *Request
	served  bool
	wrongly wrongly
	// crew are the workers of a process that has some.
	crew *workersAtOnce
	// removing are the pods whose leftovers it is removing, nil for none.
	removing []string
	// recalledAt is the age at which it first read the memory of an earlier process, -1 for not yet, and stale is whether that was too old then.
	recalledAt time.Duration
	stale      bool
	// presentAt is the age of the last round that found a Node in the list, since the process started.
	presentAt map[string]time.Duration
}

// processOptions are what is chosen when it starts.
type processOptions struct {
	dryRun, journal, stateless bool
	// reversed turns the order of everything around that has none.
	reversed bool
	// serves says that it answers requests.
	serves bool
	// leftovers says that it looks for what pods have left on machines that live.
	leftovers bool
	// blind processes have no working watch: they are synced and never see a Node go.
	blind bool
	// workers is how many machines it works on side by side; up to 1 it is told of each of its calls how to go on.
	workers int
}

// portCall is a call of a port that is about to be made.
type portCall struct {
	port, name string
	// about is the Kubernetes Node or the host.
	about string
}

// tracedCall is a call that was made, with the number of its round.
type tracedCall struct {
	round int
	portCall
}

func (c portCall) writes() bool { return c.port == "write" }

// order is what becomes of a call.
type order string

const (
	proceed    order = "goes on"
	failBefore order = "fails before it is sent"
	failAfter  order = "takes effect, and the answer is lost"
	dieBefore  order = "the process dies before it is sent"
	dieAfter   order = "the process dies after it took effect"
	refused    order = "is refused for a conflict that is over by now"
)

var (
	errDied     = errors.New("the process has died")
	errInjected = errors.New("the connection broke")
)

// roundView is what a round has been told: what the checks hold its writes against.
type roundView struct {
	number     int
	age        time.Duration // when it began
	revision   int64         // of the snapshot
	ready      bool
	synced     bool
	binding    string
	listed     map[string]bool
	present    []string // the machines among them
	listAnswer answer
	listedAt   time.Duration // the age at which they were listed
	// looked are the live reads of Nodes since the last write, and existed is whether they existed when they were read.
	looked  map[string]nodesync.Verdict
	existed map[string]bool
	removed map[string]bool // hosts that it has begun to remove
	// running are, for the Nodes whose running pods it has asked for, whether there were any.
	running map[string]bool
	// pods are the live reads of pods since the last removal of leftovers: as they were, nil for one that did not exist.
	pods map[string]*modelPod
}

// start begins a process afresh: nothing is left of an earlier one but what is outside of it.
func (p *process) start() {
	p.stop()
	p.dead, p.presentAt, p.recalledAt, p.stale = false, map[string]time.Duration{}, -1, false
	clockOf := p.u.clock
	reader := &clientModel{api: p.api, answers: func() answer { return answer(p.orderedAnswer()) }}
	p.cluster = NewKubernetesCluster(reader, clockOf)
	p.api.watches = slices.DeleteFunc(p.api.watches, func(w *watchModel) bool { return w == p.watch })
	p.watch = &watchModel{api: p.api, known: map[string]string{}, witnessed: p.watcher.saw(p.api)}
	p.api.watches = append(p.api.watches, p.watch)
	p.cluster.synced = func() bool { return p.watch.synced }
	if p.options.blind {
		p.watch.relist(p.cluster)
		p.watch.broken = true
	}
	ports := &ports{p: p, datastore: calico.EtcdOver(&etcdPort{etcd: p.u.etcd, by: p.name, asked: func() { p.calls["etcd"]++ }})}
	p.r = &Reconciler{
		Datastore: ports, Cluster: ports, Config: p.u.config, Writes: Writes(), DryRun: p.options.dryRun, Leftovers: p.options.leftovers, Clock: clockOf, Log: logr.Discard(), Metrics: p.watcher.metrics,
		Workers: max(1, p.options.workers), // with one, one call is made at a time, in the order of the plan
	}
	if !p.options.stateless {
		state := &ConfigMapState{Client: reader, Namespace: "mooring-system", Name: StateName}
		p.r.State = &statePort{p: p, state: state}
		if p.options.serves && !p.options.dryRun {
			p.r.Requests = &requestsPort{p: p, state: state}
		}
	}
	if p.options.journal {
		p.r.Journal = &journalPort{p: p}
	}
	if p.crew = nil; p.options.workers > 1 {
		p.crew = &workersAtOnce{p: p, working: map[string]bool{}}
	}
}

// stop ends the process at once, wherever it is.
func (p *process) stop() {
	if p.cease == nil {
		return
	}
	p.dead = true
	p.cease()
	p.resume, p.cease = nil, nil
}

func (p *process) inRound() bool { return p.resume != nil }

// begin starts a round and stops before its first call.
func (p *process) begin() {
	for _, other := range p.watcher.processes {
		if other != p && other.inRound() {
			p.watcher.count("two rounds at once")
		}
	}
	p.prepare()
	p.resume, p.cease = pull(func(yield func(portCall) bool) {
		p.yield = yield
		p.due, p.err = p.r.pass(context.Background())
	})
	if p.waiting, _ = p.resume(); p.waiting == (portCall{}) {
		panic("a round without any call")
	}
}

// pull is as iter.Pull for calls that come from any goroutine, one at a time.
func pull(seq func(yield func(portCall) bool)) (next func() (portCall, bool), stop func()) {
	calls, goOn, done := make(chan portCall), make(chan bool), make(chan struct{})
	started, over := false, false
	wait := func() (portCall, bool) {
		select {
		case c := <-calls:
			return c, true
		case <-done:
			over = true
			return portCall{}, false
		}
	}
	next = func() (portCall, bool) {
		switch {
		case over:
			return portCall{}, false
		case started:
			goOn <- true
		default:
			started = true
			go func() {
				defer close(done)
				seq(func(c portCall) bool { calls <- c; return <-goOn })
			}()
		}
		return wait()
	}
	stop = func() {
		for started && !over {
			goOn <- false
			wait()
		}
	}
	return next, stop
}

// prepare forgets what was of the last round alone.
func (p *process) prepare() {
	p.seen = roundView{number: p.seen.number + 1, age: p.u.age, removed: map[string]bool{}, looked: map[string]nodesync.Verdict{}, existed: map[string]bool{}, running: map[string]bool{}, pods: map[string]*modelPod{}}
	p.order, p.calls, p.err, p.due, p.serving, p.served = proceed, map[string]int{}, nil, 0, nil, false
}

// goOn lets the call that waits happen as ordered and stops before the next one; it returns false when the round is over.
func (p *process) goOn(o order) bool {
	p.order = o
	p.trace = append(p.trace, tracedCall{p.seen.number, p.waiting})
	var ok bool
	if p.waiting, ok = p.resume(); ok {
		return true
	}
	p.cease()
	p.resume, p.cease = nil, nil
	p.watcher.ended(p)
	if p.dead {
		p.start()
	}
	return false
}

// until lets calls happen until one is to be made of which stop is true; it returns false when the round is over before.
func (p *process) until(stop func(portCall) bool) bool {
	for p.inRound() {
		if stop(p.waiting) {
			return true
		}
		o := proceed
		if p.fate != nil {
			o = p.fate(p.waiting)
		}
		p.goOn(o)
	}
	return false
}

// finish lets the round in progress go on to its end.
func (p *process) finish() { p.until(func(portCall) bool { return false }) }

// round is a whole round without anything in between.
func (p *process) round() {
	if p.crew != nil {
		p.work(nil)
		return
	}
	p.finish()
	p.begin()
	p.finish()
}

// call makes one call of a port as it is ordered.
func call[T any](p *process, c portCall, effect func() (T, error)) (T, error) {
	var none T
	p.calls[c.name]++
	if !p.dead && !p.yield(c) {
		p.dead = true // the test is over
	}
	if p.order == dieBefore {
		p.dead = true
	}
	switch {
	case p.dead:
		return none, errDied
	case p.order == failBefore:
		return none, errInjected
	case p.order == refused:
		p.watcher.count("conflict")
		return none, &calico.ConflictError{Key: c.name, Detail: "it was changed and changed back"}
	}
	v, err := effect()
	if errors.Is(err, calico.ErrConflict) {
		p.watcher.count("conflict")
	}
	switch p.order {
	case dieAfter:
		p.dead = true
		return none, errDied
	case failAfter:
		return none, errInjected
	default:
		return v, err
	}
}

// orderedAnswer is how Kubernetes answers the read in progress.
func (p *process) orderedAnswer() order {
	switch answer(p.order) {
	case timesOut, forbidden, other404, emptyList, partly:
		return p.order
	default:
		return order(truthful)
	}
}

// turned is a list in the order that the process gets it in.
func turned[T any](p *process, list []T) []T {
	if p.options.reversed {
		slices.Reverse(list)
	}
	return list
}

// ports are the Datastore and the Cluster of a process.
type ports struct {
	p         *process
	datastore *calico.Etcd
}

func (x *ports) write(name, about string, effect func() error) error {
	defer x.p.turn()()
	_, err := call(x.p, portCall{"write", name, about}, func() (struct{}, error) { return struct{}{}, effect() })
	x.p.forgetLooks(about)
	if name == "RemoveLeftovers" { // the next removal needs looks of its own
		maps.DeleteFunc(x.p.seen.pods, func(name string, _ *modelPod) bool { return x.p.crew == nil || slices.Contains(x.p.removing, name) })
		x.p.removing = nil
	}
	return err
}

// forgetLooks forgets the live reads of Nodes before a write, so that the next one needs its own. What workers have read
// of other machines still holds.
func (p *process) forgetLooks(host string) {
	if m := p.u.machineOf(host); p.crew == nil {
		p.seen.looked, p.seen.existed = map[string]nodesync.Verdict{}, map[string]bool{}
	} else if m != nil {
		for _, name := range append(p.u.spellings(m.kube), m.kube) {
			delete(p.seen.looked, name)
			delete(p.seen.existed, name)
		}
	}
}

func (x *ports) Snapshot(ctx context.Context) (calico.Snapshot, error) {
	s, err := call(x.p, portCall{"read", "Snapshot", ""}, func() (calico.Snapshot, error) { return x.datastore.Snapshot(ctx) })
	x.p.seen.revision, x.p.seen.ready = s.Revision, s.DatastoreReady
	x.p.seen.binding = s.ClusterInformation.Annotations[nodesync.BindingAnnotation]
	s.Nodes = turned(x.p, s.Nodes)
	return s, err
}

func (x *ports) Hosts(ctx context.Context, revision int64, names []string) ([]calico.Host, error) {
	hosts, err := call(x.p, portCall{"read", "Hosts", ""}, func() ([]calico.Host, error) { return x.datastore.Hosts(ctx, revision, names) })
	x.p.seen.looked, x.p.seen.existed = map[string]nodesync.Verdict{}, map[string]bool{} // they are for the plan; each write needs its own
	for _, h := range hosts {
		turned(x.p, h.Endpoints)
		turned(x.p, h.Affinities)
		turned(x.p, h.Resources)
		turned(x.p, h.Blocks)
		for _, b := range h.Blocks {
			turned(x.p, b.Allocations)
		}
	}
	return turned(x.p, hosts), err
}

func (x *ports) Sweep(ctx context.Context, revision int64) (calico.Sweep, error) {
	return call(x.p, portCall{"read", "Sweep", ""}, func() (calico.Sweep, error) { return x.datastore.Sweep(ctx, revision) })
}

func (x *ports) AnnotateNode(ctx context.Context, name string, revision int64, annotation, value string) (int64, error) {
	var made int64
	err := x.write("AnnotateNode", name, func() (err error) {
		made, err = x.datastore.AnnotateNode(ctx, name, revision, annotation, value)
		return err
	})
	if err != nil {
		return 0, err
	}
	return made, nil
}

func (x *ports) DeleteEndpoints(ctx context.Context, guard calico.Guard, endpoints []calico.EndpointRef) error {
	return x.write("DeleteEndpoints", guard.Host, func() error { return x.datastore.DeleteEndpoints(ctx, guard, endpoints) })
}

func (x *ports) ReleaseAddresses(ctx context.Context, guard calico.Guard, block netip.Prefix, assignments []calico.Assignment) error {
	return x.write("ReleaseAddresses", guard.Host, func() error { return x.datastore.ReleaseAddresses(ctx, guard, block, assignments) })
}

func (x *ports) DeleteAffinity(ctx context.Context, guard calico.Guard, block netip.Prefix, revision int64, deleteBlock bool) error {
	return x.write("DeleteAffinity", guard.Host, func() error { return x.datastore.DeleteAffinity(ctx, guard, block, revision, deleteBlock) })
}

func (x *ports) DeleteResource(ctx context.Context, guard calico.Guard, kind, name string, revision int64) error {
	return x.write("DeleteResource", guard.Host, func() error { return x.datastore.DeleteResource(ctx, guard, kind, name, revision) })
}

func (x *ports) DeleteNode(ctx context.Context, guard calico.Guard) error {
	return x.write("DeleteNode", guard.Host, func() error { return x.datastore.DeleteNode(ctx, guard) })
}

func (x *ports) Reports(ctx context.Context, revision int64, hosts []string) ([]calico.Report, error) {
	return call(x.p, portCall{"read", "Reports", ""}, func() ([]calico.Report, error) { return x.datastore.Reports(ctx, revision, hosts) })
}

// CalicoPods finds none that says its NODENAME.
func (x *ports) CalicoPods(context.Context, string) ([]nodesync.CalicoPod, error) {
	defer x.p.turn()()
	return call(x.p, portCall{"read", "CalicoPods", ""}, func() ([]nodesync.CalicoPod, error) { return nil, nil })
}

func (x *ports) DeleteHandles(ctx context.Context, handles []calico.Handle) error {
	return x.write("DeleteHandles", "", func() error { return x.datastore.DeleteHandles(ctx, handles) })
}

func (x *ports) AnnotateClusterInformation(ctx context.Context, revision int64, annotation, value string) error {
	return x.write("AnnotateClusterInformation", "", func() error {
		return x.datastore.AnnotateClusterInformation(ctx, revision, annotation, value)
	})
}

func (x *ports) UID(ctx context.Context) (string, error) {
	return call(x.p, portCall{"kubernetes", "UID", ""}, func() (string, error) { return x.p.cluster.UID(ctx) })
}

// Synced, Sightings and ForgetSightings ask the process's own memory: nothing can happen to the call.
func (x *ports) Synced() bool {
	x.p.seen.synced = x.p.cluster.Synced()
	return x.p.seen.synced
}

func (x *ports) Sightings() []nodesync.Sighting {
	x.p.calls["Sightings"]++
	return turned(x.p, x.p.cluster.Sightings())
}

func (x *ports) ForgetSightings(needed map[string]bool) {
	x.p.calls["ForgetSightings"]++
	x.p.cluster.ForgetSightings(needed)
}

func (x *ports) ListNodes(ctx context.Context) ([]nodesync.KubernetesNode, error) {
	c := portCall{"kubernetes", "ListNodes", ""}
	nodes, err := call(x.p, c, func() ([]nodesync.KubernetesNode, error) { return x.p.cluster.ListNodes(ctx) })
	nodes = x.p.wrongly.list(x.p, nodes)
	x.p.seen.listedAt = x.p.u.age
	x.p.seen.listAnswer, x.p.seen.listed = answer(x.p.orderedAnswer()), map[string]bool{}
	for _, n := range nodes {
		x.p.seen.listed[n.Name] = true
	}
	if err == nil {
		x.p.watcher.wasListed(x.p)
	}
	return turned(x.p, nodes), err
}

func (x *ports) LookUp(ctx context.Context, name string) nodesync.Lookup {
	defer x.p.turn()()
	lookup, err := call(x.p, portCall{"kubernetes", "LookUp", name}, func() (nodesync.Lookup, error) {
		x.p.seen.existed[name] = x.p.u.api.nodes[name] != ""
		return x.p.cluster.LookUp(ctx, name), nil
	})
	if err != nil {
		lookup = nodesync.Lookup{Node: name, Verdict: nodesync.VerdictUnknown, Detail: err.Error()}
	}
	lookup = x.p.wrongly.lie(x.p, lookup)
	x.p.seen.looked[name] = lookup.Verdict
	return lookup
}

func (x *ports) RunningPods(ctx context.Context, name string) (nodesync.RunningPods, error) {
	defer x.p.turn()()
	c := portCall{"kubernetes", "RunningPods", name}
	return call(x.p, c, func() (nodesync.RunningPods, error) {
		x.p.seen.running[name] = x.p.u.runsAny(name)
		return x.p.cluster.RunningPods(ctx, name)
	})
}

func (x *ports) PodsWithAddresses(ctx context.Context, addresses []netip.Addr) ([]nodesync.PodAddress, error) {
	c := portCall{"kubernetes", "PodsWithAddresses", fmt.Sprint(addresses)}
	return call(x.p, c, func() ([]nodesync.PodAddress, error) { return x.p.cluster.PodsWithAddresses(ctx, addresses) })
}

// statePort is the real ConfigMapState behind calls that can go wrong.
type statePort struct {
	p     *process
	state *ConfigMapState
}

func (s *statePort) Read(ctx context.Context) (memory nodesync.Memory, confirmation string, err error) {
	_, err = call(s.p, portCall{"state", "State.Read", ""}, func() (struct{}, error) {
		s.p.watcher.recalls(s.p)
		memory, confirmation, err = s.state.Read(ctx)
		return struct{}{}, err
	})
	if err != nil {
		return nodesync.Memory{}, "", err
	}
	return memory, confirmation, nil
}

func (s *statePort) Save(ctx context.Context, memory nodesync.Memory) error {
	_, err := call(s.p, portCall{"state", "State.Save", ""}, func() (struct{}, error) {
		if s.p.options.dryRun {
			s.p.watcher.violate("I10: %s saved its memory in a dry run", s.p.name)
		}
		err := s.state.Save(ctx, memory)
		if err == nil && s.p.api == s.p.u.api {
			s.p.watcher.savedAt = s.p.u.age
		}
		return struct{}{}, err
	})
	return err
}

// journalPort is a Journal in memory that outlives its process.
type journalPort struct{ p *process }

func (j *journalPort) Record(_ context.Context, entry Entry) error {
	defer j.p.turn()()
	_, err := call(j.p, portCall{"journal", "Journal.Record", entry.Host}, func() (struct{}, error) {
		if j.p.options.dryRun {
			j.p.watcher.violate("I10: %s wrote its journal in a dry run", j.p.name)
		}
		j.p.watcher.journal = append(j.p.watcher.journal, recorded{by: j.p.name, entry: entry})
		return struct{}{}, nil
	})
	return err
}

func (p *process) String() string {
	return fmt.Sprintf("%s (round %d, before %s %s)", p.name, p.seen.number, p.waiting.name, p.waiting.about)
}
