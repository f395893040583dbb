// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/etcdstorage/core"
	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
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
}

// DefaultTiming fits hundreds of tenants.
func DefaultTiming() Timing {
	return Timing{Retry: 15 * time.Second, Poll: time.Second, Resync: 10 * time.Minute, Measure: 5 * time.Minute, History: 5 * time.Minute, Glance: time.Minute}
}

// rest is how long a core that did not respond is left alone by all: half of what passes until the next look at any of them, so that each
// asks one that is back.
func (t Timing) rest() time.Duration { return t.Retry / 2 }

// fresh is how long what the members of the core said of themselves is used: half of what passes until the next look at any tenant, so that each look
// shows what was so after the one before it.
func (t Timing) fresh() time.Duration { return min(t.Resync, t.Measure) / 2 }

// mostRounds bounds how often one Reconcile looks and writes. A new tenant takes about ten.
const mostRounds = 60

// Reconciler keeps EtcdStorages. Its key is the EtcdStorage's name.
type Reconciler struct {
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
	Clock   clock.Clock
	// Random is where keys, serial numbers and passwords come from.
	Random io.Reader
	Timing Timing
	// Wrote is told of each step before and after it is carried out; nil for nobody. Tests end the process there.
	Wrote func(step operator.Step, done bool)

	mu    sync.Mutex          // guards what follows
	usage map[string]measured // by the EtcdStorage's name
	cores map[string]string   // cluster IDs of the cores that they are bound to, by the same
	// record is what is kept of the core outside of the core; nil before it was read.
	record *operator.CoreRecord
	// lackedCore is when the kind that is served did not keep status.core, the zero time if it did.
	lackedCore time.Time

	// changed starts a check of an EtcdStorage; nil without a manager.
	changed chan event.GenericEvent
}

// StorageKind is the kind of EtcdStorage.
func StorageKind() schema.GroupVersionKind { return v1alpha1.GroupVersion.WithKind("EtcdStorage") }

// SetupWithManager makes the controller run in the manager.
func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	skip := true // tests run several in one process
	c, err := ctrlcontroller.New("etcdstorage", mgr, ctrlcontroller.Options{
		Reconciler: r, MaxConcurrentReconciles: 4, SkipNameValidation: &skip,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](200*time.Millisecond, time.Minute),
	})
	if err != nil {
		return fmt.Errorf("making the controller: %w", err)
	}
	storages := &unstructured.Unstructured{}
	storages.SetGroupVersionKind(StorageKind())
	own := handler.TypedEnqueueRequestsFromMapFunc(storageOf)
	if err := c.Watch(source.Kind[client.Object](mgr.GetCache(), storages, &handler.EnqueueRequestForObject{}, specChanged())); err != nil {
		return fmt.Errorf("watching EtcdStorages: %w", err)
	}
	for _, kind := range OwnKinds() {
		if err := c.Watch(source.Kind[client.Object](mgr.GetCache(), kind, own)); err != nil {
			return fmt.Errorf("watching %s: %w", kind.GetObjectKind().GroupVersionKind().Kind, err)
		}
	}
	r.changed = make(chan event.GenericEvent)
	if err := c.Watch(source.Channel(r.changed, &handler.EnqueueRequestForObject{})); err != nil {
		return fmt.Errorf("watching for what changed unwatched: %w", err)
	}
	return errors.Join(mgr.Add(manager.RunnableFunc(r.glance)), mgr.Add(manager.RunnableFunc(r.measure)), mgr.Add(manager.RunnableFunc(r.compact)), mgr.Add(manager.RunnableFunc(r.upkeep)))
}

// storageOf is the EtcdStorage to which one of the operator's own objects belongs.
func storageOf(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: o.GetLabels()[v1alpha1.StorageLabel]}}}
}

// specChanged leaves out what the operator itself reports. An annotation may accept a core.
func specChanged() predicate.Predicate {
	return predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetDeletionTimestamp() != nil }))
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

// Reconcile looks, plans and writes until nothing remains, and reports once.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	answers := map[string]string{} // destinations whose patch or creation was forbidden in this Reconcile, and the verb
	for range mostRounds {
		s, err := r.observe(ctx, request.Name, answers)
		if err != nil {
			return reconcile.Result{}, err
		}
		if s == nil {
			r.forget(request.Name)
			return reconcile.Result{}, nil
		}
		if s.malformed != "" {
			return reconcile.Result{RequeueAfter: r.Timing.Resync}, r.reportMalformed(ctx, s)
		}
		plan := operator.Make(s.world)
		r.bindsTo(request.Name, s.world.Core, plan)
		if len(plan.Steps) == 0 {
			next, err := r.report(ctx, s, plan, trouble{})
			return reconcile.Result{RequeueAfter: next}, ignoreConflict(err)
		}
		failed, err := r.carryOut(ctx, s, plan.Steps, answers)
		switch {
		case err == nil:
		case isConflict(err):
			logr.FromContextOrDiscard(ctx).V(1).Info("Deciding again", "because", err.Error())
			return reconcile.Result{RequeueAfter: r.Timing.Poll}, nil
		default:
			_, reported := r.report(ctx, s, plan, trouble{failed, err.Error()})
			return reconcile.Result{}, errors.Join(err, ignoreConflict(reported))
		}
	}
	return reconcile.Result{RequeueAfter: r.Timing.Poll}, nil
}

// isConflict says of a write that the world was not as it was when it was decided, and that nothing was written.
func isConflict(err error) bool {
	return errors.Is(err, core.ErrConflict) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
}

// ignoreConflict: anyone who changed the object makes another round begin.
func ignoreConflict(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// carryOut writes the steps in order, up to the first that fails, which it returns with the error. A destination that may not be written to
// is noted, and the rest is planned again.
func (r *Reconciler) carryOut(ctx context.Context, s *scene, steps []operator.Step, answers map[string]string) (failed operator.Step, err error) {
	log := logr.FromContextOrDiscard(ctx)
	for _, step := range steps {
		if r.Wrote != nil {
			r.Wrote(step, false)
		}
		err := r.apply(ctx, s, step)
		r.Metrics.wrote(string(step.Kind), step.Destination.Name != "", err)
		if verb := forbiddenVerb(step, err); verb != "" {
			answers[step.Destination.String()] = verb
			return operator.Step{}, nil
		}
		if err != nil {
			return step, err
		}
		if r.Wrote != nil {
			r.Wrote(step, true)
		}
		log.Info("Done", "step", string(step.Kind), "object", step.Object, "reason", step.Reason)
		r.event(s.object, step)
	}
	return operator.Step{}, nil
}

// forbiddenVerb is the verb that the operator lacks for a destination, "" if that is not why a step failed.
func forbiddenVerb(step operator.Step, err error) string {
	switch {
	case step.Destination.Name == "" || !apierrors.IsForbidden(err):
		return ""
	case step.Destination.State == operator.Missing:
		return "create"
	}
	return "patch"
}
