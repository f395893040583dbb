// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
)

// What a reconcile has read is expensive: some twenty requests. It is used until all steps are made, each of which adds
// what the API server or the core returned, and for [Timing.Settle] by the reconciles that follow. All writes have what
// was read as their precondition.

// mostSteps is how many steps one reconcile makes, so that all EtcdStorages have their turn.
const mostSteps = 50

// foldable reports whether it is known what a step makes.
func foldable(step operator.Step) bool {
	switch step.(type) {
	case operator.Hold, operator.Claim, operator.Bind, operator.Apply, operator.MakeCA, operator.TakeCA, operator.Recover, operator.Revoke,
		operator.IssueServing, operator.DeliverBundle, operator.DeliverClient, operator.MakePassword, operator.EnsureUser:
		return true
	default:
		return false
	}
}

// delivered takes in a destination as the API server returned it.
func (s *scene) delivered(d operator.Destination, object *unstructured.Unstructured) {
	for i := range s.world.Destinations {
		if at := &s.world.Destinations[i]; at.String() == d.String() {
			fillIn(at, object)
		}
	}
}

// forgetReadings has all that is kept read again, and what is being read now as well.
func (r *Reconciler) forgetReadings() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgotten, r.secrets = r.Clock.Now(), nil
	clear(r.kept)
}

// knownCredentials returns the credentials as they were read last: a glance notices that they have changed.
func (r *Reconciler) knownCredentials(ctx context.Context) (shownCredentials, error) {
	r.mu.Lock()
	known, begun := r.secrets, r.Clock.Now()
	r.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	c, err := r.credentials(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && c.files.Problem == "" && begun.After(r.forgotten) && min(r.Timing.Settle, r.Timing.Glance) > 0 {
		r.secrets = &c
	}
	return c, err
}

// keep keeps what a reconcile has read if nothing remains to be done. What is too old goes: Secrets are part of it.
func (r *Reconciler) keep(name string, s *scene, err error) {
	r.shown.forget(r.Clock.Now().Add(-r.Timing.Settle))
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.kept, func(_ string, old *scene) bool { return !r.usable(old) })
	rests := err == nil && len(s.plan.Steps)+len(s.plan.Refusals) == 0 && s.object.GetDeletionTimestamp() == nil
	if rests && !s.world.IssuerConcerned() && r.usable(s) {
		r.kept[name] = s
	}
}

// usable reports whether what was read is still used.
func (r *Reconciler) usable(s *scene) bool {
	age := r.Clock.Since(s.at)
	return age >= 0 && age < r.Timing.Settle && s.at.After(r.forgotten) && !s.outdated
}

// resume returns what the reconcile before has read, and what has changed since of the operator's own objects; nil if
// all must be read.
func (r *Reconciler) resume(ctx context.Context, name string) *scene {
	r.mu.Lock()
	s := r.kept[name]
	delete(r.kept, name)
	usable := s != nil && r.usable(s)
	r.mu.Unlock()
	if !usable {
		return nil
	}
	is := blank(StorageKind(), "", name)
	err := r.Reader.Get(ctx, client.ObjectKeyFromObject(is), is)
	if err != nil || is.GetUID() != s.object.GetUID() || specChanged(s.object, is) || r.take(s, s.object) != nil {
		return nil
	}
	for _, ref := range operator.Refs(name) {
		if r.same(ctx, s, ref) {
			continue
		}
		s.world.Put(ref, nil)
		if r.readObject(ctx, s, ref) != nil {
			return nil
		}
	}
	s.steps, s.record = 0, r.coreHistory(ctx)
	return s
}

// same reports whether the informer knows nothing of an object that the scene does not. What the operator has just
// written comes to the informer later: until then that has an earlier version, or nothing of an object that it has
// never shown.
func (r *Reconciler) same(ctx context.Context, s *scene, ref operator.Ref) bool {
	is := &metav1.PartialObjectMetadata{}
	is.SetGroupVersionKind(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind))
	err := r.Reader.Get(ctx, client.ObjectKey{Namespace: r.Settings.Namespace, Name: ref.Name}, is)
	uid, version := s.world.Version(ref)
	if apierrors.IsNotFound(err) {
		return uid == "" || r.shown.never(types.UID(uid))
	}
	if err != nil || string(is.UID) != uid {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(is.ResourceVersion, version)
	return err == nil && order <= 0
}

// shown are the objects that informers have shown, until some time after they have shown them deleted.
type shown struct {
	mu   sync.Mutex
	gone map[types.UID]time.Time // the zero time of what is there; nil without informers
}

// tell notes that an informer has shown an object, and when it was deleted, the zero time if it was not.
func (s *shown) tell(o client.Object, deleted time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone != nil {
		s.gone[o.GetUID()] = deleted
	}
}

// never reports whether no informer has shown an object, as far as they tell.
func (s *shown) never(uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, found := s.gone[uid]
	return s.gone != nil && !found
}

// forget forgets what was deleted before a time.
func (s *shown) forget(before time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.gone, func(_ types.UID, at time.Time) bool { return !at.IsZero() && at.Before(before) })
}
