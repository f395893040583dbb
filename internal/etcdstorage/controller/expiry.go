// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/platform/conditions"
)

// expired names the certificate that has expired, "" if none has.
func expired(ends *v1alpha1.CertificateTimes, now time.Time) string {
	if ends == nil {
		return ""
	}
	for _, c := range []struct {
		name string
		end  *metav1.Time
	}{{"serving CA", ends.ServingCA}, {"client CA", ends.ClientCA}, {"serving certificate", ends.Serving}, {"client certificate", ends.Client}} {
		if c.end != nil && !now.Before(c.end.Time) {
			return fmt.Sprintf("the %s expired at %s, and the operator has not renewed it yet: if this persists, see its log", c.name, c.end.UTC().Format(time.RFC3339))
		}
	}
	return ""
}

// reportExpired reports certificates that have expired while their EtcdStorage waits for its turn, as with hundreds of new tenants: no reconcile has found
// them. It reads the informer alone, and writes what has changed.
func (r *Reconciler) reportExpired(ctx context.Context) {
	list, err := r.storages(ctx)
	if err != nil {
		return
	}
	now := r.Clock.Now()
	for _, item := range list.Items {
		storage, err := typed(&item)
		if err != nil || item.GetDeletionTimestamp() != nil || !conditions.IsTrue(storage.Status.Conditions, v1alpha1.ConditionCertificatesReady, storage.Generation) {
			continue
		}
		message := expired(storage.Status.Certificates, now)
		if message == "" {
			continue
		}
		is := storage.Status.DeepCopy()
		conditions.Set(&is.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionCertificatesReady, Status: metav1.ConditionFalse, Reason: reasonExpired, Message: message, ObservedGeneration: storage.Generation,
		}, now)
		setReady(&is.Conditions, summarize(is.Conditions, storage.Generation), now)
		if err := r.writeStatus(ctx, &item, is); err != nil {
			r.Log.V(1).Info("An expired certificate was not reported, will try again", "etcdStorage", item.GetName(), "reason", err.Error())
			continue
		}
		r.announce(&item, slices.Clone(storage.Status.Conditions), is.Conditions)
		r.requeue(item.GetName())
	}
}
