// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/etcdstorage/core"
	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
)

// FieldOwner is the operator's name in managedFields. MUST NOT change: what another owner applied would stay for ever.
const FieldOwner = client.FieldOwner("etcd-storage-operator")

// Timing says how long things take. Start from [DefaultTiming].
type Timing struct {
	// Retry is the time until the next look while somebody else has something to do, such as to grant a right; Poll while something is under
	// way; Resync while nothing is.
	Retry, Poll, Resync time.Duration
	// Measure is the time between two counts of what a tenant stores.
	Measure time.Duration
	// History is how long the core's history is kept before it is compacted; 0 leaves that to the core.
	History time.Duration
	// Upkeep is the time between two looks at the space of the core's members, which are defragmented where that is worth it; 0 means never.
	Upkeep time.Duration
	// Glance is the time between two looks at the versions of what is not watched; 0 means never.
	Glance time.Duration
	// Settle is how long the next reconciles use what one has read, and read only those of the operator's own objects that
	// have changed since; 0 for never. The proxies of a new tenant become ready meanwhile.
	Settle time.Duration
}

// DefaultTiming fits hundreds of tenants.
func DefaultTiming() Timing {
	return Timing{
		Retry: 15 * time.Second, Poll: time.Second, Resync: 10 * time.Minute, Measure: 5 * time.Minute,
		History: 5 * time.Minute, Glance: time.Minute, Settle: 15 * time.Second,
	}
}

// rest is how long a core that did not respond is left alone by all: half of what passes until the next look at any of them, so that each
// asks one that is back.
func (t Timing) rest() time.Duration { return t.Retry / 2 }

// fresh is how long what the members of the core said of themselves is used: half of what passes until the next look at any tenant, so that each look
// shows what was so after the one before it.
func (t Timing) fresh() time.Duration { return min(t.Resync, t.Measure) / 2 }

// ripple is how long a change waits for others: those of a Deployment, and of what a reconcile writes, come in groups.
const ripple = 200 * time.Millisecond

// again is the time until the next round of an EtcdStorage of which a step was made. It goes to the end of the queue, so that all have their turn.
const again = time.Nanosecond

// Options are what [New] needs.
type Options struct {
	// Reader reads EtcdStorages from the informer.
	Reader client.Reader
	// Client reads and writes live.
	Client client.Client
	Core   *Core
	// Settings are the flags; what is found out at the start is in them.
	Settings operator.Settings
	// AdminSecret names the Secret with the operator's own credentials for the core; "" if they are those of the proxies.
	AdminSecret string
	// Events records Events; nil for none.
	Events  events.EventRecorder
	Metrics *Metrics
	Clock   clock.WithTicker
	Log     logr.Logger
	// Random is where keys, serial numbers and passwords come from.
	Random io.Reader
	Timing Timing
	// Mode is whether plans are applied. In mode report EtcdStorages keep their status, and the core is neither compacted
	// nor defragmented.
	Mode outputs.Mode
	// Wrote is told of each step before and after it is carried out; nil for nobody. Tests end the process there.
	Wrote func(step operator.Step, done bool)
}

// Names of the kernel's types for this controller, whose key is the EtcdStorage's name.
type (
	runner  = reconcile.Runner[*scene, reconcile.None, operator.Step, reconcile.None]
	options = reconcile.Options[*scene, reconcile.None, operator.Step, reconcile.None]
	round   = reconcile.Round[*scene, reconcile.None, operator.Step, reconcile.None]
	plan    = reconcile.Plan[reconcile.None, operator.Step, reconcile.None]
)

// Reconciler keeps EtcdStorages.
type Reconciler struct {
	Options

	rounds *runner
	shown  shown

	// What follows was read or answered outside of the round that uses it, and is kept no longer than by this process: another one reads it again.
	mu    sync.Mutex          // guards all below but denied
	usage map[string]measured // by the EtcdStorage's name
	cores map[string]string   // cluster IDs of the cores that they are bound to, by the same
	kept  map[string]*scene   // what the last reconcile of each has read, by the same; see [Timing]
	// others are all EtcdStorages, by UID and resourceVersion: to read each again for each costs most with hundreds.
	others map[string]v1alpha1.EtcdStorage
	// forgotten is since when all must be read again.
	forgotten time.Time
	// secrets are the credentials for the core as they were read last; nil if they must be read again.
	secrets *shownCredentials
	// record is what is kept of the core outside of the core; nil before it was read.
	record *operator.CoreRecord
	// lackedCore is when the kind that is served did not keep status.core, the zero time if it did.
	lackedCore time.Time
	// denied are the verbs that were forbidden on destinations, until nothing else remains to be done for the EtcdStorage: by [denial].
	denied sync.Map
}

// denial is a write to a destination that was forbidden.
type denial struct{ storage, destination string }

// New makes a Reconciler that does nothing until its manager runs.
func New(o Options) *Reconciler {
	if o.Mode == outputs.Report {
		o.Events, o.Timing.History, o.Timing.Upkeep = nil, 0, 0
	}
	r := &Reconciler{Options: o, usage: map[string]measured{}, cores: map[string]string{}, kept: map[string]*scene{}}
	r.rounds = reconcile.New(options{
		LoopOptions: reconcile.LoopOptions{Name: "etcdstorage", Clock: o.Clock, Workers: 4, FirstRetry: 200 * time.Millisecond, LastRetry: time.Minute},
		Log:         o.Log, Failure: "An EtcdStorage was not reconciled, will try again", Writes: Writes(), Mode: o.Mode,
		Time:    time.Hour, // the slowest step deletes all keys of a tenant
		Observe: r.observe, Plan: decide, Apply: r.step, Report: r.conclude,
	})
	return r
}

// StorageKind is the kind of EtcdStorage.
func StorageKind() schema.GroupVersionKind { return v1alpha1.GroupVersion.WithKind("EtcdStorage") }

// SetupWithManager makes the controller run in the manager.
func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	r.shown.gone = map[types.UID]time.Time{}
	run := func(ctx context.Context) error {
		for _, kind := range Informers() {
			informer, err := mgr.GetCache().GetInformer(ctx, kind)
			if err == nil {
				_, err = informer.AddEventHandler(r.handler())
			}
			if err != nil && ctx.Err() == nil {
				return fmt.Errorf("watching %s: %w", kind.GetObjectKind().GroupVersionKind().Kind, err)
			}
		}
		r.rounds.Run(ctx)
		return nil
	}
	defragmented, history, seen := operator.Defragmented{}, remembered{}, map[types.UID]versions{}
	return errors.Join(
		mgr.Add(manager.RunnableFunc(run)),
		mgr.Add(r.every(r.Timing.Glance, func(ctx context.Context) { seen = r.glance(ctx, seen) })),
		mgr.Add(r.every(r.Timing.Measure, r.measure)),
		mgr.Add(r.every(r.Timing.History/operator.MomentsKept, func(ctx context.Context) { history = r.compactOnce(ctx, history) })),
		mgr.Add(r.every(r.Timing.Upkeep, func(ctx context.Context) { defragmented = r.upkeepOnce(ctx, defragmented) })),
	)
}

// every does something once in each period for as long as the manager runs; never if it is 0. It writes what the controller declares and nothing else.
func (r *Reconciler) every(period time.Duration, do func(context.Context)) manager.RunnableFunc {
	return func(ctx context.Context) error {
		ctx = outputs.Within(ctx, "etcdstorage", Writes())
		for period > 0 {
			select {
			case <-ctx.Done():
				return nil
			case <-r.Clock.After(period):
				do(ctx)
			}
		}
		return nil
	}
}

// handler begins rounds where something has changed.
func (r *Reconciler) handler() toolscache.ResourceEventHandlerFuncs {
	look := func(o any) {
		if name := storageOf(o); name != "" {
			r.rounds.AddAfter(name, ripple)
		}
	}
	appeared := func(o any) {
		r.shown.tell(o.(client.Object), time.Time{}) //nolint:forcetypeassert // informers have nothing else
		look(o)
	}
	left := func(o any) {
		if gone, late := o.(toolscache.DeletedFinalStateUnknown); late {
			o = gone.Obj
		}
		r.shown.tell(o.(client.Object), r.Clock.Now()) //nolint:forcetypeassert // as above
		look(o)
	}
	return toolscache.ResourceEventHandlerFuncs{AddFunc: appeared, DeleteFunc: left, UpdateFunc: func(was, is any) {
		if specChanged(was, is) {
			look(was)
			look(is)
		}
	}}
}

// storageOf is the name of the EtcdStorage to which an object belongs, which one of the operator's own says by its label.
func storageOf(o any) string {
	switch o := o.(type) {
	case *unstructured.Unstructured:
		return o.GetName()
	case client.Object:
		return o.GetLabels()[v1alpha1.StorageLabel]
	}
	return ""
}

// specChanged leaves out what the operator itself reports of an EtcdStorage. An annotation may accept a core.
func specChanged(before, after any) bool {
	was, is := before.(client.Object), after.(client.Object) //nolint:forcetypeassert // informers have nothing else
	_, storage := is.(*unstructured.Unstructured)
	return !storage || was.GetGeneration() != is.GetGeneration() || is.GetDeletionTimestamp() != nil || !maps.Equal(was.GetAnnotations(), is.GetAnnotations())
}

// OwnKinds are the kinds of the operator's own objects. Only their metadata is kept in memory, so that no key is.
func OwnKinds() []client.Object {
	var out []client.Object
	seen := map[string]bool{}
	for _, ref := range operator.Refs("x") {
		if seen[ref.Kind] {
			continue
		}
		seen[ref.Kind] = true
		kind := &metav1.PartialObjectMetadata{}
		kind.SetGroupVersionKind(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind))
		out = append(out, kind)
	}
	return out
}

// decide is what remains to be done.
func decide(s *scene) plan {
	if s == nil || s.malformed != "" {
		return plan{}
	}
	if s.outdated {
		return plan{Unread: s.failed}
	}
	s.plan = operator.MakePlan(s.world)
	return plan{Steps: s.plan.Steps, Again: true}
}

// step makes one step. What it made becomes part of the scene, from which the rest is planned; an error, or a step of
// which that is not known, makes the scene outdated.
func (r *Reconciler) step(ctx context.Context, s *scene, step operator.Step) error {
	err := r.try(ctx, s, step)
	if s.steps++; err != nil || !foldable(step) || s.steps >= mostSteps {
		s.outdated = true
	}
	if o := reconcile.OutcomeOf(err); err != nil && o != reconcile.Conflict && o != reconcile.Gone {
		s.failed = append(s.failed, fmt.Errorf("%s: %w", step, err))
	}
	return err
}

// try makes one step, and tells of it. A destination that may not be written to is noted, and the rest is planned again.
func (r *Reconciler) try(ctx context.Context, s *scene, step operator.Step) error {
	if r.Wrote != nil {
		r.Wrote(step, false)
	}
	err := r.apply(ctx, s, step)
	if errors.Is(err, core.ErrConflict) {
		err = reconcile.As(reconcile.Conflict, err)
	}
	d := operator.DestinationOf(step)
	r.Metrics.wrote(operator.Kind(step), d.Name != "", err)
	switch {
	case d.Name != "" && apierrors.IsForbidden(err):
		verb := "patch"
		if d.State == operator.Missing {
			verb = "create"
		}
		r.denied.Store(denial{s.object.GetName(), d.String()}, verb)
		return reconcile.As(reconcile.Conflict, err)
	case apierrors.IsNotFound(err):
		return reconcile.As(reconcile.Failed, err) // such as the namespace of a destination, which somebody must make
	case err != nil:
		return err
	}
	if r.Wrote != nil {
		r.Wrote(step, true)
	}
	r.Log.Info("Done", "etcdStorage", s.object.GetName(), "step", operator.Kind(step), "object", step.What().Object, "reason", step.What().Reason)
	r.event(s.object, step)
	return nil
}
