// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/platform/conditions"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
)

// conclude ends a round: the status is reported when nothing remains to be done, or when a write has failed, and else the next round follows.
func (r *Reconciler) conclude(ctx context.Context, done *round) {
	s, failed := done.World, trouble{}
	if last := len(done.Applied) - 1; last >= 0 {
		switch a := done.Applied[last]; {
		case a.Outcome == reconcile.Done && !s.outdated:
		case a.Outcome == reconcile.Done, a.Outcome == reconcile.Conflict && apierrors.IsForbidden(a.Err):
			done.Plan.Next = again
			return
		case a.Outcome == reconcile.Conflict:
			done.Plan.Next = r.Timing.Poll
		default:
			failed = trouble{a.Step, a.Err.Error()}
		}
	}
	r.denied.Range(func(key, _ any) bool {
		if d, _ := key.(denial); d.storage == done.Key {
			r.denied.Delete(key)
		}
		return true
	})
	switch {
	case done.Plan.Next > 0 || s == nil && done.Err != nil: // it is decided again
	case s == nil:
		r.forget(done.Key)
	case s.malformed != "":
		done.Plan.Next = r.Timing.Resync
		done.Fail(r.reportMalformed(ctx, s))
	default:
		r.bindsTo(done.Key, s.world.Core, s.plan)
		next, err := r.report(ctx, s, failed)
		done.Plan.Next, done.Plan.Due = next, s.plan.Next()
		done.Fail(err)
		r.keep(done.Key, s, err)
	}
}

// report writes the status if it says something new, and returns the time until the next look.
func (r *Reconciler) report(ctx context.Context, s *scene, failed trouble) (time.Duration, error) {
	storage, err := typed(s.object)
	if err != nil {
		return 0, err
	}
	is := r.statusOf(s, storage.Status, s.plan, failed)
	r.Metrics.observe(s, is)
	next := r.next(s, s.plan, is)
	if r.Mode == outputs.Report || equality.Semantic.DeepEqual(storage.Status, is) || s.object.GetDeletionTimestamp() != nil && len(s.object.GetFinalizers()) == 0 {
		return next, nil
	}
	if err := r.writeStatus(ctx, s.object, is); err != nil {
		return next, err
	}
	r.announce(s.object, storage.Status.Conditions, is.Conditions)
	return next, nil
}

// writeStatus replaces the status. The resourceVersion is a precondition.
func (r *Reconciler) writeStatus(ctx context.Context, object *unstructured.Unstructured, is any) error {
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": object.GetUID()},
		{"op": "replace", "path": "/metadata/resourceVersion", "value": object.GetResourceVersion()},
		{"op": "add", "path": "/status", "value": is},
	})
	if err != nil {
		return err
	}
	out := blank(StorageKind(), "", object.GetName())
	err = r.Client.Status().Patch(ctx, out, client.RawPatch(types.JSONPatchType, patch), FieldOwner)
	r.Metrics.wrote("Status", false, err)
	if err != nil {
		return fmt.Errorf("writing the status of EtcdStorage %s: %w", object.GetName(), err)
	}
	object.Object = out.Object
	return nil
}

// reportMalformed says of an object that cannot be read that it cannot. Whatever else its status says is replaced, since it may be what
// cannot be read.
func (r *Reconciler) reportMalformed(ctx context.Context, s *scene) error {
	old, _, _ := unstructured.NestedSlice(s.object.Object, "status", "conditions")
	var list []metav1.Condition
	for _, c := range old {
		raw, err := json.Marshal(c)
		var one metav1.Condition
		if err == nil && json.Unmarshal(raw, &one) == nil {
			list = append(list, one)
		}
	}
	changed := false
	c := metav1.Condition{Reason: string(operator.ReasonInvalidSpec), ObservedGeneration: s.object.GetGeneration()}
	c.Status, c.Message = metav1.ConditionUnknown, "the EtcdStorage cannot be read, see Ready"
	for _, c.Type = range conditionKinds() {
		changed = conditions.Set(&list, c, r.Clock.Now()) || changed
	}
	c.Status, c.Message = metav1.ConditionFalse, s.malformed+"; correct it, nothing is done for it meanwhile"
	changed = setReady(&list, c, r.Clock.Now()) || changed
	r.Metrics.observe(s, v1alpha1.EtcdStorageStatus{Conditions: list})
	if r.Mode == outputs.Report || !changed {
		return nil
	}
	is := map[string]any{"observedGeneration": s.object.GetGeneration(), "conditions": list}
	if id, found, _ := unstructured.NestedString(s.object.Object, "status", "core", "clusterID"); found {
		is["core"] = v1alpha1.CoreBinding{ClusterID: id} // which core it is bound to must not be forgotten
	}
	return r.writeStatus(ctx, s.object, is)
}

// next is the time until the next look: soon while something is under way, later while somebody else has something to do, late otherwise, and
// whenever a certificate is due.
func (r *Reconciler) next(s *scene, plan operator.Plan, is v1alpha1.EtcdStorageStatus) time.Duration {
	out := r.Timing.Resync
	switch {
	case plan.Waiting != "":
		out = r.Timing.Poll
	case len(plan.Refusals) > 0 || !conditions.IsTrue(is.Conditions, v1alpha1.ConditionCertificatesReady, s.object.GetGeneration()):
		out = r.Timing.Retry
	}
	if due := plan.Next(); !due.IsZero() {
		out = min(out, max(due.Sub(s.world.Now), time.Millisecond))
	}
	return out
}

// statusOf is the status that the EtcdStorage should have.
func (r *Reconciler) statusOf(s *scene, was v1alpha1.EtcdStorageStatus, plan operator.Plan, failed trouble) v1alpha1.EtcdStorageStatus {
	ready, _ := s.world.Deployed()
	is := v1alpha1.EtcdStorageStatus{
		ObservedGeneration: s.object.GetGeneration(), Endpoint: s.world.Endpoint(), Prefix: operator.Prefix(&s.world.Storage),
		ReadyReplicas: ready, Proxies: fmt.Sprintf("%d/%d", ready, s.world.Storage.Spec.Replicas),
		Usage: r.usageOf(s.object, was.Usage), Core: was.Core, Certificates: times(plan), Conditions: slices.Clone(was.Conditions),
	}
	setConditions(&is, s, plan, failed)
	return is
}

// times are the ends of certificates.
func times(plan operator.Plan) *v1alpha1.CertificateTimes {
	out := &v1alpha1.CertificateTimes{}
	for _, c := range plan.Certificates {
		ca, leaf := &out.ServingCA, &out.Serving
		if c.Purpose == "client" {
			ca, leaf = &out.ClientCA, &out.Client
		}
		for _, signer := range c.Signers {
			if signer.Generation == c.Plan.Issuer {
				*ca = stamp(signer.NotAfter())
			}
		}
		for _, place := range c.Leaves {
			if end := place.Pair.NotAfter(); !end.IsZero() && (*leaf == nil || end.Before((*leaf).Time)) {
				*leaf = stamp(end)
			}
		}
	}
	if *out == (v1alpha1.CertificateTimes{}) {
		return nil
	}
	return out
}

func stamp(t time.Time) *metav1.Time {
	out := metav1.NewTime(t.UTC().Truncate(time.Second))
	return &out
}

// announce tells of conditions that changed for the worse.
func (r *Reconciler) announce(object *unstructured.Unstructured, was, is []metav1.Condition) {
	if r.Events == nil {
		return
	}
	for _, c := range is {
		i := slices.IndexFunc(was, func(b metav1.Condition) bool { return b.Type == c.Type })
		if i >= 0 && was[i].Status == c.Status && was[i].Reason == c.Reason || c.Reason == reasonDeleting {
			continue // nothing new, or what somebody has asked for
		}
		bad := metav1.ConditionFalse
		switch c.Type {
		case v1alpha1.ConditionConflict, v1alpha1.ConditionQuotaExceeded, v1alpha1.ConditionCoreWentBack, v1alpha1.ConditionCoreOvercommitted:
			bad = metav1.ConditionTrue
		case v1alpha1.ConditionCertificatesReady, v1alpha1.ConditionCoreReachable, v1alpha1.ConditionCoreHealthy:
		case v1alpha1.ConditionDeployed:
			if c.Reason != reasonWriteFailed {
				continue // ProxyReady tells of it
			}
		case v1alpha1.ConditionProxyReady:
			if i < 0 || was[i].Status != metav1.ConditionTrue {
				continue // a new tenant has no proxy yet
			}
		default:
			continue
		}
		if c.Status == bad {
			r.Events.Eventf(object, nil, corev1.EventTypeWarning, c.Reason, "Report", "%s", c.Message)
		}
	}
}

// Reasons of Events about steps. They are a contract with anyone who watches them: MUST NOT change.
const (
	// eventClaimed, Normal: the prefix in the core has been recorded as this tenant's.
	eventClaimed = "Claimed"
	// eventCACreated, Normal: a CA was created.
	eventCACreated = "CACreated"
	// eventCATaken, Normal: a CA of the issuer is trusted from now on.
	eventCATaken = "CATaken"
	// eventCertificateIssued, Normal: a certificate was issued, for the proxies or into a Secret of the tenant.
	eventCertificateIssued = "CertificateIssued"
	// eventCAKeysLost, Warning: the Secret with the CAs was deleted, and new CAs sign from now on; restart API servers before two thirds of the
	// validity of the proxies' certificate are over.
	eventCAKeysLost = "CAKeysLost"
	// eventClientRevoked, Normal: the spec no longer names a Secret, and proxies refuse the certificates that were issued into it.
	eventClientRevoked = "ClientRevoked"
	// eventUserCreated, Normal: role and user of the tenant were created in the core.
	eventUserCreated = "UserCreated"
	// eventUserRemoved, Normal: users that are no longer needed were removed from the core.
	eventUserRemoved = "UserRemoved"
	// eventDataRetained, Normal: the EtcdStorage is being deleted, and its data was kept in the core.
	eventDataRetained = "DataRetained"
	// eventDataDeleted, Normal: the EtcdStorage is being deleted, and its data was deleted.
	eventDataDeleted = "DataDeleted"
)

// event tells of a step that others should know of.
func (r *Reconciler) event(object *unstructured.Unstructured, step operator.Step) {
	if r.Events == nil {
		return
	}
	reason := map[string]string{
		"Claim": eventClaimed, "MakeCA": eventCACreated, "TakeCA": eventCATaken, "Recover": eventCAKeysLost, "Revoke": eventClientRevoked,
		"IssueServing": eventCertificateIssued, "DeliverClient": eventCertificateIssued,
		"EnsureUser": eventUserCreated, "RetireUsers": eventUserRemoved, "Release": eventDataRetained, "Forget": eventDataDeleted,
	}[operator.Kind(step)]
	kind := corev1.EventTypeNormal
	if reason == eventCAKeysLost {
		kind = corev1.EventTypeWarning
	}
	if reason != "" {
		r.Events.Eventf(object, nil, kind, reason, action(step), "%s: %s", step.What().Object, step.What().Reason)
	}
}

// action tells Events apart: those of one reason and action are one Event that is counted, with the text of the first.
func action(step operator.Step) string {
	const most = 128 // of the kind Event
	out := operator.Kind(step) + " " + operator.DestinationOf(step).Name
	if ca, ok := step.(operator.MakeCA); ok {
		out += string(ca.Purpose)
	}
	out = strings.TrimSpace(out)
	return out[:min(len(out), most)]
}
