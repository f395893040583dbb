// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
)

// An object that an informer does not know yet is not read again; one that another client has changed is.
func TestOwnWritesAreNotReadAgain(t *testing.T) {
	t.Parallel()
	ref := operator.Refs("a")[0]
	object := func(uid, version string) *metav1.PartialObjectMetadata {
		meta := metav1.ObjectMeta{Name: ref.Name, UID: types.UID(uid), ResourceVersion: version}
		return &metav1.PartialObjectMetadata{ObjectMeta: meta}
	}
	for name, c := range map[string]struct {
		has   *metav1.PartialObjectMetadata // by the informer; nil for nothing
		shown *metav1.PartialObjectMetadata // before
		told  bool                          // by informers at all
		want  bool
	}{
		"what was read":                  {has: object("u", "10"), told: true, want: true},
		"an earlier version":             {has: object("u", "9"), told: true, want: true},
		"a later version":                {has: object("u", "11"), told: true},
		"another object of the name":     {has: object("v", "9"), told: true},
		"a version that is no number":    {has: object("u", "x"), told: true},
		"nothing yet":                    {told: true, want: true},
		"nothing any more":               {shown: object("u", "10"), told: true},
		"nothing, where no informer is":  {},
		"nothing yet of a later version": {shown: object("v", "8"), told: true, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reader := interceptor.NewClient(nil, interceptor.Funcs{
				Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
					if c.has == nil {
						return apierrors.NewNotFound(schema.GroupResource{}, ref.Name)
					}
					c.has.DeepCopyInto(o.(*metav1.PartialObjectMetadata)) //nolint:forcetypeassert // metadata is what is asked for
					return nil
				},
			})
			r := New(Options{Clock: clock.RealClock{}, Reader: reader})
			if c.told {
				r.shown.gone = map[types.UID]time.Time{}
			}
			if c.shown != nil {
				r.handler().OnAdd(c.shown, false)
				r.handler().OnDelete(c.shown)
			}
			s := &scene{}
			s.world.Put(ref, map[string]any{"metadata": map[string]any{"name": ref.Name, "uid": "u", "resourceVersion": "10"}})
			if got := r.same(t.Context(), s, ref); got != c.want {
				t.Errorf("it is the same: %v, want %v", got, c.want)
			}
		})
	}
	var s shown
	s.gone = map[types.UID]time.Time{"there": {}, "long gone": time.Unix(1, 0), "just gone": time.Unix(9, 0)}
	if s.forget(time.Unix(5, 0)); len(s.gone) != 2 || s.never("there") || s.never("just gone") || !s.never("long gone") {
		t.Errorf("it knows %v", s.gone)
	}
}
