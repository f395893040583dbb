// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/calico"
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
	return Timing{Coalesce: time.Second, Settle: 5 * time.Second, Poll: 2 * time.Second, Resync: time.Minute, MeshStays: routereflector.MeshStays}
}

// Reconciler keeps topologies. Its key is the topology's name; every event of any kind that is watched leads to a round of every topology.
type Reconciler struct {
	// Reader reads from the informers, Live from the API server.
	Reader, Live client.Reader
	// Client writes topologies.
	Client client.Client
	// Calico reads and writes Calico's objects, and the roles of nodes.
	Calico Datastore
	// Workloads counts pods; nil where nobody needs to know.
	Workloads *Workloads
	// Events records Events; nil for none.
	Events  events.EventRecorder
	Metrics *Metrics
	Clock   clock.PassiveClock
	Timing  Timing
	// Stop ends the program with an error that only a new start can cure.
	Stop func(error)

	mu       sync.Mutex // guards memories
	memories map[string]*memory
}

// SetupWithManager makes the controller run in the manager, one round at a time.
func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	skip := true // tests run several in one process
	c, err := ctrlcontroller.New("routereflectortopology", mgr, ctrlcontroller.Options{
		Reconciler: r, MaxConcurrentReconciles: 1, SkipNameValidation: &skip,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](r.Timing.Coalesce/2, time.Minute),
	})
	if err != nil {
		return fmt.Errorf("making the controller: %w", err)
	}
	for _, kind := range r.Calico.Informers() {
		if err := c.Watch(source.Kind[client.Object](mgr.GetCache(), kind, r.wake())); err != nil {
			return fmt.Errorf("watching %T: %w", kind, err)
		}
	}
	return c.Watch(source.Func(func(ctx context.Context, q queue) error {
		r.Calico.OnChange(func() {
			if ctx.Err() == nil {
				r.wakeAll(ctx, q)
			}
		})
		return nil
	}))
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// wakeAll lets every topology have a round a little later, so that many events make one. No event is in more of a hurry: a BGPPeer that is deleted or edited by
// hand must not be put back before every BIRD has taken that up. One that has not refuses those that have, and waits for longer (measured: 8.2 s instead of 4 to 5).
func (r *Reconciler) wakeAll(ctx context.Context, q queue) {
	var topologies v1alpha1.RouteReflectorTopologyList
	if err := r.Reader.List(ctx, &topologies); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Reading RouteReflectorTopologies")
		return
	}
	for _, t := range topologies.Items {
		q.AddAfter(reconcile.Request{NamespacedName: apitypes.NamespacedName{Name: t.Name}}, r.Timing.Coalesce)
	}
}

// wake wakes all topologies on what informers tell, if it can change a plan.
func (r *Reconciler) wake() handler.TypedEventHandler[client.Object, reconcile.Request] {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, _ event.CreateEvent, q queue) { r.wakeAll(ctx, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			if relevant(e.ObjectOld, e.ObjectNew) {
				r.wakeAll(ctx, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			if t, ok := e.Object.(*v1alpha1.RouteReflectorTopology); ok {
				// Its own round forgets it.
				q.Add(reconcile.Request{NamespacedName: apitypes.NamespacedName{Name: t.Name}})
			}
			r.wakeAll(ctx, q)
		},
	}
}

// relevant reports whether an update can change a plan: of Nodes most are heartbeats, of topologies many are our own reports.
func relevant(before, after client.Object) bool {
	switch is := after.(type) {
	case *corev1.Node:
		was, ok := before.(*corev1.Node)
		if !ok {
			return true
		}
		a, b := routereflector.NodeFrom(was, 0, 0), routereflector.NodeFrom(is, 0, 0)
		a.ResourceVersion, b.ResourceVersion = "", ""
		return !reflect.DeepEqual(a, b)
	case *v1alpha1.RouteReflectorTopology:
		return before.GetGeneration() != after.GetGeneration() || before.GetDeletionTimestamp() == nil && after.GetDeletionTimestamp() != nil ||
			!slices.Equal(before.GetFinalizers(), after.GetFinalizers()) || !maps.Equal(before.GetAnnotations(), after.GetAnnotations())
	}
	return before.GetResourceVersion() != after.GetResourceVersion()
}

// Reconcile is one round of one topology.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	next, err := r.round(ctx, request.Name)
	switch {
	case err == nil:
		return reconcile.Result{RequeueAfter: next}, nil
	case errors.Is(err, calico.ErrNotSynced):
		logr.FromContextOrDiscard(ctx).V(1).Info("Waiting for Calico's datastore", "because", err.Error())
		return reconcile.Result{RequeueAfter: r.Timing.Poll}, nil
	case errors.Is(err, calico.ErrConflict):
		// The informers will tell. If it was somebody else's write that they have shown already, the next round finds out.
		logr.FromContextOrDiscard(ctx).V(1).Info("Deciding again", "because", err.Error())
		return reconcile.Result{RequeueAfter: r.Timing.Coalesce}, nil
	case calico.NotServed(err) || meta.IsNoMatchError(err):
		if moved := r.Calico.Rediscover(ctx); errors.Is(moved, calico.ErrGroupMoved) && r.Stop != nil {
			r.Stop(moved)
		}
	}
	return reconcile.Result{}, err
}

func (r *Reconciler) memory(name string) *memory {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.memories == nil {
		r.memories = map[string]*memory{}
	}
	m := r.memories[name]
	if m == nil {
		m = &memory{done: r.Clock.Now()}
		r.memories[name] = m
	}
	return m
}

func (r *Reconciler) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.memories, name)
	r.Metrics.forget(name)
}

// round observes, plans, reports, asks, and carries out at most one step, or several that are about one client each. It returns the time
// until the next round.
func (r *Reconciler) round(ctx context.Context, name string) (time.Duration, error) {
	s, err := r.observe(ctx, name)
	if err != nil {
		return 0, err
	}
	if s == nil {
		r.forget(name)
		return 0, nil
	}
	if s.topology.DeletionTimestamp != nil && !slices.Contains(s.topology.Finalizers, Finalizer) {
		return 0, nil // nothing was ever done for it
	}
	m := r.memory(name)
	m.catchUp(s)
	m.enter(s)
	s.world.Suspects, s.world.Promoted = m.suspects(s, r.Timing.Resync), m.justPromoted(s)
	plan, err := r.plan(ctx, s)
	if err != nil {
		return 0, err
	}
	if err := r.doubt(ctx, s, m, plan); err != nil {
		return 0, err
	}
	m.prove(s, plan)
	o := decide(s, m, plan)
	o.silent, o.silentCount = m.silent(s, r.Timing.Settle)
	m.begin(o, s.world.Now)
	later, err := r.report(ctx, s, m, o)
	if err != nil {
		return 0, err
	}
	if freeze(plan) != nil {
		m.talk(s.world.Now, nil)
		return r.Timing.Resync, nil // not even our own questions are cleared away now
	}
	return r.proceed(ctx, s, m, o, later)
}

// proceed asks and carries out, with the finalizer put on before the first write and taken away after the last. later is when a report is due.
func (r *Reconciler) proceed(ctx context.Context, s *scene, m *memory, o outcome, later time.Duration) (time.Duration, error) {
	plan, exiting, held := o.permitted(), s.topology.DeletionTimestamp != nil, slices.Contains(s.topology.Finalizers, Finalizer)
	if (busy(plan) || o.act && owns(plan)) && !exiting && !held {
		return r.Timing.Coalesce, r.hold(ctx, s, m, true)
	}
	next, err := r.carryOut(ctx, s, m, plan)
	if err != nil || next > 0 {
		return next, err
	}
	if exiting && o.act {
		return 0, r.release(ctx, s, m)
	}
	return r.idle(s, later), nil
}

// idle is the time until the next round while nothing is under way: sooner if a report waits, and at once when pods have been read.
func (r *Reconciler) idle(s *scene, later time.Duration) time.Duration {
	if !s.podsRead {
		return r.Timing.Poll
	}
	return min(cmp.Or(later, r.Timing.Resync), r.Timing.Resync)
}

// busy reports that there is something to do or to ask.
func busy(plan routereflector.Plan) bool { return len(plan.Steps) > 0 || len(plan.Witnesses) > 0 }

// owns reports that there are reflectors that a deletion must demote, even if there is nothing to do for now: the topology may have come back from a
// backup without its finalizer.
func owns(plan routereflector.Plan) bool {
	return slices.ContainsFunc(plan.Reflectors, func(r routereflector.Reflector) bool { return r.Role != routereflector.RoleJoining })
}

// carryOut asks who must be asked and carries out the steps that wait for nothing. It returns 0 if nothing is under way.
func (r *Reconciler) carryOut(ctx context.Context, s *scene, m *memory, plan routereflector.Plan) (next time.Duration, err error) {
	if busy(plan) {
		if err := r.Calico.Claim(ctx, s.view, s.world.Binding); err != nil {
			return 0, m.failed(err)
		}
	}
	due := len(plan.Steps) > 0 && plan.Waiting == ""
	if due && plan.Steps[0].Kind == routereflector.MeshOn && !m.repeats(plan.Steps[0], s.world.Now) {
		// Nothing that a question may fail with holds up the mesh.
		if err := r.steps(ctx, s, m, plan); err != nil {
			return 0, m.failed(errors.Join(err, r.ask(ctx, s, m, plan)))
		}
		return r.Timing.Poll, m.failed(nil)
	}
	if err := r.ask(ctx, s, m, plan); err != nil {
		return 0, m.failed(err)
	}
	if due {
		if m.repeats(plan.Steps[0], s.world.Now) {
			return r.Timing.Poll, nil
		}
		return r.Timing.Poll, m.failed(r.steps(ctx, s, m, plan))
	}
	m.trouble = ""
	if busy(plan) || len(s.statuses) > 0 {
		return r.Timing.Poll, nil
	}
	return 0, nil
}

// lag is how long the informers are given to show what was written before it is tried again.
const lag = 5 * time.Second

// repeats reports that a step is the last one, or a promotion that has just been carried out: the informers do not show it yet, or somebody takes a role away
// again and again.
func (m *memory) repeats(step routereflector.Step, now time.Time) bool {
	if step.Kind == routereflector.Promote {
		at, done := m.promoted[step.UID]
		return done && now.Sub(at) < lag
	}
	return m.last.Kind == step.Kind && m.last.Object == step.Object && m.last.UID == step.UID &&
		m.last.ResourceVersion == step.ResourceVersion && now.Sub(m.done) < lag
}

// carriedOut remembers a step.
func (m *memory) carriedOut(step routereflector.Step, now time.Time) {
	m.done, m.last = now, step
	maps.DeleteFunc(m.promoted, func(_ string, at time.Time) bool { return now.Sub(at) >= lag })
	if step.Kind != routereflector.Promote {
		return
	}
	if m.promoted == nil {
		m.promoted = map[string]time.Time{}
	}
	m.promoted[step.UID] = now
}

// justPromoted lists, by name, the nodes whose promotion would be a repetition.
func (m *memory) justPromoted(s *scene) []string {
	var out []string
	for _, n := range s.world.Nodes {
		if m.repeats(routereflector.Step{Kind: routereflector.Promote, UID: n.UID}, s.world.Now) {
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

// failed remembers why a write failed, for the next report. That somebody else was faster is not a failure.
func (m *memory) failed(err error) error {
	m.trouble = ""
	if err != nil && !errors.Is(err, calico.ErrConflict) {
		m.trouble = err.Error()
	}
	return err
}

// steps carries out the first step, and those after it that need not wait for it ([routereflector.Plan.AtOnce]). Each is a write of its own,
// on what the one before has left behind.
func (r *Reconciler) steps(ctx context.Context, s *scene, m *memory, plan routereflector.Plan) error {
	now := slices.DeleteFunc(slices.Clone(plan.Steps[:max(plan.AtOnce, 1)]), func(step routereflector.Step) bool { return m.repeats(step, s.world.Now) })
	if err := r.record(ctx, s, m, slices.DeleteFunc(slices.Clone(now), func(step routereflector.Step) bool { return step.Kind == routereflector.Demote })); err != nil {
		return err
	}
	for _, step := range now {
		if err := r.step(ctx, s, m, step); err != nil {
			return err
		}
		s.world = s.world.After(step)
		if err := r.record(ctx, s, m, []routereflector.Step{step}); err != nil {
			return err
		}
	}
	return nil
}

// step carries out one step and tells of it.
func (r *Reconciler) step(ctx context.Context, s *scene, m *memory, step routereflector.Step) error {
	err := r.apply(ctx, s, step)
	r.Metrics.wrote(string(step.Kind), err)
	if err != nil {
		return err
	}
	now := r.Clock.Now()
	r.Metrics.stepped(step.Kind, min(now.Sub(m.done), now.Sub(m.begun)))
	m.carriedOut(step, now)
	logr.FromContextOrDiscard(ctx).Info("Done", "step", step.String())
	if reason := told(step.Kind); reason != "" {
		r.event(s.topology, corev1.EventTypeNormal, reason, fmt.Sprintf("%s: %s", step.Object, step.Reason))
	}
	return nil
}
