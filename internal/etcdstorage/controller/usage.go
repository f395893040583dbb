// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/etcdstorage/core"
)

// measured is what a tenant stored at some time.
type measured struct {
	uid   types.UID // an EtcdStorage that was made again has not been counted
	usage core.Usage
	at    time.Time
}

// usageOf is the last count of a tenant. While its numbers are those of the status, the status stays as it is.
func (r *Reconciler) usageOf(o *unstructured.Unstructured, was *v1alpha1.Usage) *v1alpha1.Usage {
	r.mu.Lock()
	m, ok := r.usage[o.GetName()]
	r.mu.Unlock()
	if !ok || m.uid != o.GetUID() {
		return was
	}
	limit := r.defaultLimit(o)
	if was != nil && was.Keys == m.usage.Keys && was.Bytes.Value() == m.usage.Bytes && was.Leases == m.usage.Leases && limit.Cmp(ptr.Deref(was.BytesLimit, resource.Quantity{})) == 0 {
		return was
	}
	out := &v1alpha1.Usage{
		Keys: m.usage.Keys, Bytes: *resource.NewQuantity(m.usage.Bytes, resource.BinarySI), Leases: m.usage.Leases,
		ObservedAt: metav1.NewTime(m.at.UTC().Truncate(time.Second)),
	}
	if !limit.IsZero() {
		out.BytesLimit = &limit
	}
	return out
}

// defaultLimit is the bound of bytes that an EtcdStorage has though it sets none; zero if there is none.
func (r *Reconciler) defaultLimit(o *unstructured.Unstructured) resource.Quantity {
	if _, set, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "quota", "bytes"); set {
		return resource.Quantity{}
	}
	return *resource.NewQuantity(r.Settings.QuotaBytes, resource.BinarySI)
}

// measure counts what tenants store, one after the other.
func (r *Reconciler) measure(ctx context.Context) {
	list, err := r.storages(ctx)
	if err != nil {
		return
	}
	for _, item := range list.Items {
		if err := r.measureOne(ctx, &item); err != nil && ctx.Err() == nil {
			r.Log.V(1).Info("Not measured", "etcdStorage", item.GetName(), "reason", err.Error())
		}
	}
}

// measureOne counts what one tenant stores, if its prefix is its own, and tells in its status what has changed.
func (r *Reconciler) measureOne(ctx context.Context, item *unstructured.Unstructured) error {
	s, err := r.read(ctx, item.GetName())
	if err != nil || s == nil || s.malformed != "" || s.core == nil || s.object.GetDeletionTimestamp() != nil {
		return err
	}
	remaining := decide(s).Steps
	if s.plan.Owner.Tenant == "" {
		return nil
	}
	usage, err := s.core.Measure(ctx, r.Clock, s.plan.Owner)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.usage[s.object.GetName()] = measured{s.object.GetUID(), usage, r.Clock.Now()}
	r.mu.Unlock()
	if len(remaining) > 0 {
		return nil // a round is due anyway
	}
	_, err = r.report(ctx, s, trouble{})
	return err
}

// forget drops what is kept of an EtcdStorage that is gone.
func (r *Reconciler) forget(name string) {
	r.Metrics.forget(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.usage, name)
	delete(r.cores, name)
}
