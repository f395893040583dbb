// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/etcdstorage/pki"
)

// apply carries out one step.
func (r *Reconciler) apply(ctx context.Context, s *scene, step operator.Step) error {
	switch step := step.(type) {
	case operator.Hold:
		return r.hold(ctx, s, true)
	case operator.Unhold:
		return r.hold(ctx, s, false)
	case operator.Bind:
		return r.bind(ctx, s, step.Core)
	case operator.Apply, operator.MakeCA, operator.TakeCA, operator.Recover, operator.Revoke, operator.IssueServing, operator.MakePassword:
		return r.put(ctx, s, step)
	case operator.DeliverBundle, operator.DeliverClient:
		return r.deliver(ctx, s, step)
	case operator.Withdraw:
		return r.withdraw(ctx, step.Destination)
	case operator.Remove:
		return r.remove(ctx, step)
	case operator.Claim, operator.Release, operator.Forget, operator.EnsureUser, operator.RetireUsers, operator.DeleteKeys, operator.DeleteRecords,
		operator.RevokeLeases:
		return r.inCore(ctx, s, step)
	}
	return fmt.Errorf("%s: there is no such kind of step", operator.Kind(step))
}

// inCore carries out a step in the core etcd.
func (r *Reconciler) inCore(ctx context.Context, s *scene, step operator.Step) error {
	tenant := s.world.Storage.Name
	// The name of the core may lead elsewhere since it was observed, and not each of the writes has a precondition that another core does not meet.
	if err := s.core.At(ctx, s.world.Core.ClusterID); err != nil {
		return err
	}
	switch step := step.(type) {
	case operator.Claim:
		revision, err := s.core.Claim(ctx, step)
		if err == nil {
			s.world.Core.Claimed(step, revision)
		}
		return err
	case operator.Release:
		return s.core.Release(ctx, step.Owner)
	case operator.Forget:
		return s.core.Forget(ctx, step.Owner)
	case operator.EnsureUser:
		err := s.core.EnsureUser(ctx, tenant, operator.Prefix(&s.world.Storage), step.User, step.Password)
		if err == nil {
			s.world.Core.Ensured(step.User)
		}
		return err
	case operator.RetireUsers:
		return s.core.RetireUsers(ctx, tenant, step.Users, step.Role)
	case operator.DeleteKeys:
		return s.core.DeleteKeys(ctx, step.Owner)
	case operator.DeleteRecords:
		return s.core.DeleteRecords(ctx, step.Owner)
	case operator.RevokeLeases:
		return s.core.RevokeLeases(ctx, step.Owner, step.Leases)
	default:
		return fmt.Errorf("%s: this is not a step in the core", operator.Kind(step))
	}
}

// draw makes what a step needs that cannot be planned: keys, certificates, passwords.
func (r *Reconciler) draw(s *scene, step operator.Step) (map[string][]byte, error) {
	now := s.world.Now
	switch step := step.(type) {
	case operator.MakeCA:
		ca, err := pki.NewCA(r.Random, now, operator.ProxyName(s.world.Storage.Name), step.Purpose, step.Generation, step.Validity)
		if err != nil {
			return nil, err
		}
		return pki.Signers{ca}.Data(step.Purpose), nil
	case operator.MakePassword:
		raw := make([]byte, 32)
		if _, err := io.ReadFull(r.Random, raw); err != nil {
			return nil, fmt.Errorf("drawing a password: %w", err)
		}
		return map[string][]byte{
			operator.PasswordKey(step.Number): []byte(base64.RawURLEncoding.EncodeToString(raw)),
			operator.MadeKey(step.Number):     []byte(now.UTC().Format(time.RFC3339)),
		}, nil
	case operator.IssueServing:
		return step.Draw(r.Random, now)
	case operator.DeliverClient:
		return step.Draw(r.Random, now)
	case operator.DeliverBundle:
		return map[string][]byte{v1alpha1.ServingCAKey: step.Bundle}, nil
	default:
		return nil, nil // nothing is drawn
	}
}

// put applies an object of the operator's own (server-side apply). One that is there already must still be the one that was looked at; over that the
// operator's fields are enforced. One that was not there is not forced: if somebody has made one meanwhile with other contents, that is a conflict.
func (r *Reconciler) put(ctx context.Context, s *scene, step operator.Step) error {
	drawn, err := r.draw(s, step)
	if err != nil {
		return err
	}
	write := operator.WriteOf(step)
	object := (&unstructured.Unstructured{Object: write.Content}).DeepCopy()
	for key, value := range drawn {
		if err := unstructured.SetNestedField(object.Object, base64.StdEncoding.EncodeToString(value), "data", key); err != nil {
			return err
		}
	}
	options := []client.ApplyOption{FieldOwner}
	if write.UID != "" {
		object.SetUID(types.UID(write.UID))
		object.SetResourceVersion(write.ResourceVersion)
		options = append(options, client.ForceOwnership)
	}
	if err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), options...); err != nil {
		return fmt.Errorf("applying %s: %w", write.Object, err)
	}
	s.world.Put(write.Ref, object.Object)
	return nil
}

// remove deletes an object of the operator's own, that one and no other of its name.
func (r *Reconciler) remove(ctx context.Context, step operator.Remove) error {
	object := blank(schema.FromAPIVersionAndKind(step.Ref.APIVersion, step.Ref.Kind), r.Settings.Namespace, step.Ref.Name)
	uid := types.UID(step.UID)
	err := r.Client.Delete(ctx, object, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting %s: %w", step.Object, err)
	}
	return nil
}

// deliver writes the operator's own keys into a ConfigMap or Secret of the tenant, and its mark. Nothing else of the object is touched.
func (r *Reconciler) deliver(ctx context.Context, s *scene, step operator.Step) error {
	data, err := r.draw(s, step)
	if err != nil {
		return err
	}
	d, values := operator.DestinationOf(step), map[string]any{}
	for key, value := range data {
		values[key] = string(value)
		if d.Kind == operator.KindSecret {
			values[key] = base64.StdEncoding.EncodeToString(value)
		}
	}
	annotations := map[string]any{v1alpha1.DeliveredAnnotation: operator.Mark(&s.world.Storage)}
	if d.State != operator.Missing {
		object, err := r.patchDestination(ctx, d, annotations, values)
		if err == nil {
			s.delivered(d, object)
		}
		return err
	}
	object := destinationObject(d)
	object.Object["data"] = values
	object.SetAnnotations(map[string]string{v1alpha1.DeliveredAnnotation: operator.Mark(&s.world.Storage)})
	if err := r.Client.Create(ctx, object, FieldOwner); err != nil {
		return fmt.Errorf("creating %s: %w", d, err)
	}
	s.delivered(d, object)
	return nil
}

// withdraw takes away what was delivered. A Secret of type kubernetes.io/tls keeps its keys, empty. An object that is gone, or that may not
// be written to any more, needs nothing.
func (r *Reconciler) withdraw(ctx context.Context, d operator.Destination) error {
	values := map[string]any{}
	for _, key := range d.Keys() {
		values[key] = nil
		if d.TLS {
			values[key] = ""
		}
	}
	_, err := r.patchDestination(ctx, d, map[string]any{v1alpha1.DeliveredAnnotation: nil}, values)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// patchDestination is a merge patch (RFC 7396) of annotations and data, with UID and resourceVersion as preconditions.
func (r *Reconciler) patchDestination(
	ctx context.Context, d operator.Destination, annotations, data map[string]any,
) (*unstructured.Unstructured, error) {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": d.UID, "resourceVersion": d.ResourceVersion, "annotations": annotations}, "data": data,
	})
	if err != nil {
		return nil, err
	}
	object := destinationObject(d)
	if err := r.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch), FieldOwner); err != nil {
		return nil, fmt.Errorf("writing to %s: %w", d, err)
	}
	return object, nil
}

func destinationObject(d operator.Destination) *unstructured.Unstructured {
	return blank(corev1.SchemeGroupVersion.WithKind(d.Kind), d.Namespace, d.Name)
}

// hold puts the finalizer on the EtcdStorage, or takes it away.
func (r *Reconciler) hold(ctx context.Context, s *scene, held bool) error {
	finalizers := slices.DeleteFunc(slices.Clone(s.object.GetFinalizers()), func(f string) bool { return f == v1alpha1.Finalizer })
	if held {
		finalizers = append(finalizers, v1alpha1.Finalizer)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": s.object.GetUID(), "resourceVersion": s.object.GetResourceVersion(), "finalizers": finalizers,
	}})
	if err != nil {
		return err
	}
	object := blank(StorageKind(), "", s.object.GetName())
	if err := r.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch), FieldOwner); err != nil {
		return fmt.Errorf("writing the finalizer of EtcdStorage %s: %w", s.object.GetName(), err)
	}
	return r.take(s, object)
}

// bind records the core in the status, on its own and before the rest of the status: what is made from now on belongs to it.
func (r *Reconciler) bind(ctx context.Context, s *scene, core string) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": s.object.GetUID(), "resourceVersion": s.object.GetResourceVersion()},
		"status":   v1alpha1.EtcdStorageStatus{Core: &v1alpha1.CoreBinding{ClusterID: core}},
	})
	if err != nil {
		return err
	}
	object := blank(StorageKind(), "", s.object.GetName())
	if err := r.Client.Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, patch), FieldOwner); err != nil {
		return fmt.Errorf("recording the core in the status of EtcdStorage %s: %w", s.object.GetName(), err)
	}
	// Anyone who changes the image alone, or upgrades by Helm, which leaves kinds as they are, has a kind that drops what it does not know.
	if is, _, _ := unstructured.NestedString(object.Object, "status", "core", "clusterID"); is != core {
		r.Log.Info("The kind EtcdStorage is of an earlier version and keeps no status.core: only the record in the core binds it until its CustomResourceDefinition is updated")
		r.mu.Lock()
		r.lackedCore = r.Clock.Now()
		r.mu.Unlock()
	}
	return r.take(s, object)
}

// lacksCore reports whether the kind did not keep status.core when that was tried last, unless that was a resync ago: it may have been updated since.
func (r *Reconciler) lacksCore() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.lackedCore.IsZero() && r.Clock.Since(r.lackedCore) < r.Timing.Resync
}
