// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/mooring-dev/mooring/internal/routereflector/health"
	"github.com/mooring-dev/mooring/internal/routereflector/planner"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/go-logr/logr"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

// Timing says how long things take. Start from [DefaultTiming].
type Timing struct {
	// Coalesce is how long events are collected before a round.
	Coalesce time.Duration
	// Settle is how long after a change of roles, BGPPeers or mesh the witnesses are asked: confd and BIRD must have taken it up by then, or
	// they would speak of the sessions before it.
	Settle time.Duration
	// Poll is the time between rounds while a step waits, Resync that while nothing does.
	Poll, Resync time.Duration
	// MeshStays is how long the mesh stays on after an emergency, once reflectors carry the clients again.
	MeshStays time.Duration
}

// DefaultTiming fits clusters of up to thousands of nodes.
func DefaultTiming() Timing {
	return Timing{Coalesce: time.Second, Settle: 5 * time.Second, Poll: 2 * time.Second, Resync: time.Minute, MeshStays: health.MeshStays}
}

// Reconciler keeps topologies. Its key is the topology's name; every event of any kind that is watched leads to a round of every topology.
type Reconciler struct {
	// Reader reads from the informers, Live from the API server.
	Reader, Live client.Reader
	// Client writes topologies.
	Client client.Client
	// Calico reads and writes Calico's objects, and the roles of nodes.
	Calico Datastore
	// Mode is whether plans are applied. In mode report all steps of a plan are logged; nobody is asked for sessions, and
	// topologies keep their status.
	Mode outputs.Mode
	// Workloads counts pods; nil where nobody needs to know.
	Workloads *Workloads
	// Kubelets connects to the kubelets of reflectors that are not heard from; nil where it shall not.
	Kubelets *Kubelets
	// Events records Events; nil for none.
	Events  events.EventRecorder
	Metrics *Metrics
	Clock   clock.WithTicker
	Timing  Timing
	// Stop ends the program with an error that only a new start can cure.
	Stop func(error)

	log logr.Logger
	// memories are by topology; the one worker uses them.
	memories map[string]*memory
}

// runner runs the rounds of topologies.
type runner = reconcile.Runner[*scene, need, step, saved]

// runner says what a round of a topology consists of.
func (r *Reconciler) runner() *runner {
	r.memories = map[string]*memory{}
	return reconcile.New(reconcile.Options[*scene, need, step, saved]{
		LoopOptions: reconcile.LoopOptions{
			Name: "routereflectortopology", Clock: r.Clock, Keys: r.topologies, Quiet: r.Timing.Coalesce, Most: r.Timing.Coalesce, Resync: r.Timing.Resync,
			FirstRetry: r.Timing.Coalesce, LastRetry: time.Minute,
		},
		Log: r.log, Failure: "Route reflectors are not as the topology wants them, will try again", Time: longest, Writes: r.Calico.Writes(),
		Mode:    r.Mode,
		Observe: r.observe, Plan: r.plan, Satisfy: r.look, Save: r.report, Subject: subject, Apply: r.apply, Report: r.conclude,
	})
}

// longest is how long a round may take: one moves many clients, each with a write.
const longest = 10 * time.Minute

// SetupWithManager makes the controller run in the manager, one round at a time.
func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	r.log = mgr.GetLogger()
	run := r.runner()
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		var synced []cache.InformerSynced
		for _, kind := range r.Calico.Informers() {
			informer, err := mgr.GetCache().GetInformer(ctx, kind)
			if err == nil {
				_, err = informer.AddEventHandler(wake(run))
			}
			if err != nil {
				return fmt.Errorf("watching %T: %w", kind, err)
			}
			synced = append(synced, informer.HasSynced)
		}
		r.Calico.OnChange(run.Mark)
		run.Run(ctx, synced...)
		return nil
	}))
}

// topologies are the names of all.
func (r *Reconciler) topologies() (names []string) {
	var all v1alpha1.RouteReflectorTopologyList
	if err := r.Reader.List(context.Background(), &all); err != nil { // of the informers, there is nothing to wait for
		r.log.Error(err, "Reading RouteReflectorTopologies")
	}
	for _, t := range all.Items {
		names = append(names, t.Name)
	}
	return names
}

// wake wakes all topologies a little later on what informers report, if it can change a plan, so that many events make one round. No event is in more of a
// hurry: a BGPPeer that is deleted or edited by hand must not be put back before every BIRD has taken that up. One that has not refuses those that have, and
// waits for longer (measured: 8.2 s instead of 4 to 5).
func wake(run *runner) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { run.Mark() },
		UpdateFunc: func(before, after any) {
			if !reflect.DeepEqual(relevant(before), relevant(after)) {
				run.Mark()
			}
		},
		DeleteFunc: func(gone any) {
			if last, unseen := gone.(cache.DeletedFinalStateUnknown); unseen {
				gone = last.Obj
			}
			if t, ok := gone.(*v1alpha1.RouteReflectorTopology); ok {
				run.Add(t.Name) // its own round forgets it
			}
			run.Mark()
		},
	}
}

// relevant is what of an object can change a plan: of Nodes most updates are heartbeats, of topologies many are our own reports.
func relevant(object any) any {
	switch is := object.(type) {
	case *corev1.Node:
		n := routereflector.NodeFrom(is, 0, 0)
		n.ResourceVersion = ""
		return n
	case *v1alpha1.RouteReflectorTopology:
		return []any{is.Generation, is.DeletionTimestamp != nil, is.Finalizers, is.Annotations}
	case client.Object:
		return is.GetResourceVersion()
	}
	return object
}

// need is what may have to be read live before a plan is believed.
type need string

const (
	// theNodes ends a doubt whether Nodes are gone ([routereflector.Plan.Confirm]).
	theNodes need = "which Nodes there are"
	// theLabels is read before a reflector is taken for somebody else's for the first time, or an entry of the record is given up: the informers of Nodes
	// and of topologies do not show the same moment. If they are behind, it is a conflict, and the next round decides.
	theLabels need = "who is labeled as a reflector"
	// theRoutes is read before a topology writes anything for the first time: whether BGP carries routes between nodes at all.
	theRoutes need = "who programs the routes between nodes"
)

// saved is what a plan remembers before its first step: the outcome in the topology's status, where the next process finds it, and what can be lost in memory.
type saved struct {
	*scene

	outcome outcome
	memory  memory
}

// plan decides what else is read, what is reported, and what is written now: at most one step of what package routereflector plans, or several that are
// about one client each.
func (r *Reconciler) plan(s *scene) (p reconcile.Plan[need, step, saved]) {
	if s.unsynced {
		p.Next = r.Timing.Poll
	}
	if s.memory == nil || s.exiting() && !s.held() { // nothing was ever done for it
		return p
	}
	made, m := planner.MakePlan(s.world), *s.memory
	if made.Confirm && !s.looked[theNodes] {
		p.Needs = []need{theNodes}
		return p
	}
	if !s.world.Begun() && len(made.Steps) > 0 && !s.looked[theRoutes] {
		p.Needs = []need{theRoutes}
		return p
	}
	if m.meet(made) && !s.looked[theLabels] {
		p.Needs = []need{theLabels}
		return p
	}
	m.prove(s, made)
	o := decide(s, &m, made)
	o.silent, o.silentCount = m.silent(s, r.Timing.Settle)
	m.begin(o, s.world.Now)
	switch {
	case freeze(made) != nil:
		m.talk(s.world.Now, nil) // not even our own questions are cleared away now
	case s.rehearsal:
		for _, step := range o.permitted().Steps {
			p.Steps = append(p.Steps, change{Step: step})
		}
	default:
		p.Steps, p.Next = r.steps(s, &m, o)
	}
	p.Memory = &saved{s, o, m}
	return p
}

// steps lists what is written now, with the finalizer put on before all and taken away after all. It returns the time until the next round.
func (r *Reconciler) steps(s *scene, m *memory, o outcome) (steps []step, next time.Duration) {
	plan := o.permitted()
	if (busy(plan) || o.act && owns(plan)) && !s.exiting() && !s.held() {
		return []step{finalizer(true)}, r.Timing.Coalesce
	}
	m.trouble = ""
	switch changes := m.changes(s, plan); {
	case len(changes) > 0 && routereflector.Is[routereflector.MeshOn](plan.Steps[0]): // no request that fails, or that has to wait, holds up the mesh
		steps = append(changes, r.requests(s, m, plan, "requests")...)
	default:
		steps = append(r.requests(s, m, plan, ""), changes...)
	}
	switch {
	case busy(plan) || len(steps) > 0 || len(s.statuses) > len(plan.Standing) || s.observing(plan):
		return steps, s.due(plan, r.Timing.Poll)
	case s.exiting() && o.act:
		return []step{finalizer(false)}, r.Timing.Coalesce
	case !s.podsRead:
		return nil, r.Timing.Poll
	}
	return nil, 0
}

// due is the time until the next round: until a spare can take the place of a reflector, if that is sooner than another
// time.
func (s *scene) due(plan routereflector.Plan, most time.Duration) time.Duration {
	for i := range plan.Troubles {
		left := plan.Troubles[i].Since.Add(s.world.PromoteAfter()).Sub(s.world.Now)
		if s.world.Spares() > 0 && left > 0 && left < most {
			most = left
		}
	}
	return most
}

// busy reports that there is something to do or to ask.
func busy(plan routereflector.Plan) bool { return len(plan.Steps) > 0 || len(plan.Witnesses) > 0 }

// owns reports that there are reflectors that a deletion must demote, even if there is nothing to do for now: the topology may have come back from a
// backup without its finalizer.
func owns(plan routereflector.Plan) bool {
	return slices.ContainsFunc(plan.Reflectors, func(r routereflector.Reflector) bool { return r.Role != routereflector.RoleJoining })
}

// changes lists the first step, if it waits for nothing, and those after it that need not wait for it ([routereflector.Plan.AtOnce]).
func (m *memory) changes(s *scene, plan routereflector.Plan) (out []step) {
	if len(plan.Steps) == 0 || plan.Waiting != "" || m.repeats(plan.Steps[0], s.world.Now) {
		return nil
	}
	now := slices.DeleteFunc(slices.Clone(plan.Steps[:max(plan.AtOnce, 1)]), func(step routereflector.Step) bool { return m.repeats(step, s.world.Now) })
	for _, step := range now {
		out = append(out, change{step, now})
	}
	return out
}

// meet remembers the labels of somebody else's, and reports whether there are new ones, or entries of the record are to be given up.
func (m *memory) meet(plan routereflector.Plan) (fresh bool) {
	seen := map[routereflector.Foreign]bool{}
	fresh = len(plan.Stale) > 0
	for _, f := range plan.Foreign {
		seen[f], fresh = true, fresh || !m.foreign[f]
	}
	m.foreign = seen
	return fresh
}

// lag is how long the informers are given to show what was written before it is tried again.
const lag = 5 * time.Second

// repeats reports that a step is the last one, or a promotion that has just been carried out: the informers do not show it yet, or somebody takes a role away
// again and again.
func (m *memory) repeats(step routereflector.Step, now time.Time) bool {
	if promote, is := step.(routereflector.Promote); is {
		at, done := m.promoted[promote.UID]
		return done && now.Sub(at) < lag
	}
	if m.last == nil || now.Sub(m.done) >= lag {
		return false
	}
	last := m.last.What()
	last.Reason = step.What().Reason
	return routereflector.Kind(m.last) == routereflector.Kind(step) && last == step.What()
}

// carriedOut remembers a step.
func (m *memory) carriedOut(step routereflector.Step, now time.Time) {
	m.done, m.last = now, step
	maps.DeleteFunc(m.promoted, func(_ string, at time.Time) bool { return now.Sub(at) >= lag })
	promote, is := step.(routereflector.Promote)
	if !is {
		return
	}
	if m.promoted == nil {
		m.promoted = map[string]time.Time{}
	}
	m.promoted[promote.UID] = now
}

// justPromoted lists, by name, the nodes whose promotion would be a repetition.
func (m *memory) justPromoted(s *scene) []string {
	var out []string
	for _, n := range s.world.Nodes {
		if at, done := m.promoted[n.UID]; done && s.world.Now.Sub(at) < lag {
			out = append(out, n.Name)
		}
	}
	return out
}

// begin notes since when there is something to do, so that days in which nothing was to be done do not count as a step's.
func (m *memory) begin(o outcome, now time.Time) {
	switch {
	case !o.act || len(o.plan.Steps) == 0:
		m.begun = time.Time{}
	case m.begun.IsZero():
		m.begun = now
	}
}
