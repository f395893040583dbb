// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// When an EtcdStorage is looked at again: soon while pods or the core are waited for, later while somebody has something to do, late
// otherwise, and in time for each certificate.
func TestWhenTheNextLookIs(t *testing.T) {
	t.Parallel()
	r := New(Options{Timing: DefaultTiming()})
	for name, c := range map[string]struct {
		change func(*sight)
		want   time.Duration
	}{
		"nothing to do":             {func(*sight) {}, r.Timing.Resync},
		"a refusal":                 {func(g *sight) { g.plan.Refusals = []operator.Refusal{{Reason: operator.ReasonMissingPermission}} }, r.Timing.Retry},
		"a certificate is missing":  {func(g *sight) { g.failed = trouble{operator.MakeCA{}, "x"} }, r.Timing.Retry},
		"pods are waited for":       {func(g *sight) { g.deleted(); g.plan.Waiting = "2 proxies still exist" }, r.Timing.Poll},
		"a renewal within that":     {func(g *sight) { g.plan.Certificates[1].Plan.Next = g.s.world.Now.Add(time.Minute) }, time.Minute},
		"a renewal after that":      {func(g *sight) { g.plan.Certificates[1].Plan.Next = g.s.world.Now.Add(time.Hour) }, r.Timing.Resync},
		"a renewal that is overdue": {func(g *sight) { g.plan.Certificates[0].Plan.Next = g.s.world.Now.Add(-time.Hour) }, time.Millisecond},
	} {
		g := serving(t)
		c.change(g)
		setConditions(&g.is, g.s, g.plan, g.failed)
		if got := r.next(g.s, g.plan, g.is); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// A look begins when the spec changes and when the EtcdStorage is deleted, not when the operator has written the status; and when one of its
// own objects changes, which says whose it is by its label.
func TestWhatStartsALook(t *testing.T) {
	t.Parallel()
	storage := func(generation int64, deleted bool) *unstructured.Unstructured {
		o := &unstructured.Unstructured{}
		o.SetGeneration(generation)
		if deleted {
			now := metav1.Now()
			o.SetDeletionTimestamp(&now)
		}
		return o
	}
	for name, c := range map[string]struct {
		before, after *unstructured.Unstructured
		want          bool
	}{
		"the status": {storage(1, false), storage(1, false), false}, "the spec": {storage(1, false), storage(2, false), true}, "a deletion": {storage(1, false), storage(1, true), true},
	} {
		if got := specChanged(c.before, c.after); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "etcd-a", Labels: map[string]string{v1alpha1.StorageLabel: "a"}}}
	if got := storageOf(o); got != "a" || !specChanged(o, o) {
		t.Errorf("%v", got)
	}
	r, spec := New(Options{Clock: clock.RealClock{}}), storage(1, false)
	spec.SetName("b")
	r.handler().OnAdd(spec, true)
	r.handler().OnUpdate(spec, spec)
	r.handler().OnDelete(cache.DeletedFinalStateUnknown{Obj: o})
	testkit.Eventually(t, "a creation and an end to lead to looks at 2 EtcdStorages", func() string {
		if n := r.rounds.Len(); n != 2 {
			return fmt.Sprint(n)
		}
		return ""
	})
}

// Of the operator's namespace only what is labeled is kept in memory, and of that the metadata, so that no key of a Secret is there.
func TestWhatIsKeptInMemory(t *testing.T) {
	t.Parallel()
	options := must.Get(CacheOptions("storage")).Or(t)
	var kinds []string
	for kind, one := range options.ByObject {
		if _, metadata := kind.(*metav1.PartialObjectMetadata); !metadata {
			t.Errorf("%T", kind)
		}
		kinds = append(kinds, kind.GetObjectKind().GroupVersionKind().Kind)
		if _, here := one.Namespaces["storage"]; !here || len(one.Namespaces) != 1 || one.Label == nil ||
			one.Label.Matches(labels.Set{}) || !one.Label.Matches(labels.Set{v1alpha1.StorageLabel: "a"}) {
			t.Errorf("%s: %+v", kind.GetObjectKind().GroupVersionKind(), one)
		}
	}
	slices.Sort(kinds)
	if want := []string{"ConfigMap", "Deployment", "NetworkPolicy", "PodDisruptionBudget", "Secret", "Service"}; !slices.Equal(kinds, want) {
		t.Errorf("%v", kinds)
	}
}
