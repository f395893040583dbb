// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
)

// The ConfigMap in the operator's namespace with what is kept of the core outside of the core, and its key. MUST NOT change: an operator of another version
// reads it.
const (
	coreRecordName = "etcd-storage-core"
	coreRecordKey  = "record.json"
)

// coreRecord reads the record; the object is nil if there is none.
func (r *Reconciler) coreRecord(ctx context.Context) (record operator.CoreRecord, object *unstructured.Unstructured, err error) {
	object, err = r.get(ctx, corev1.SchemeGroupVersion.WithKind(operator.KindConfigMap), r.Settings.Namespace, coreRecordName)
	if err != nil || object == nil {
		return record, nil, err
	}
	text, _, _ := unstructured.NestedString(object.Object, "data", coreRecordKey)
	if err := json.Unmarshal([]byte(text), &record); err != nil {
		return record, nil, fmt.Errorf("reading ConfigMap %s/%s, which may be deleted: %w", r.Settings.Namespace, coreRecordName, err)
	}
	return record, object, nil
}

// watchCore compares the core's revision with the highest that was seen, and keeps it. If the core went back all EtcdStorages are reconciled.
func (r *Reconciler) watchCore(ctx context.Context) error {
	record, object, err := r.coreRecord(ctx)
	if err != nil {
		return err
	}
	r.remember(record)
	core := r.Core.current()
	if core == nil {
		return nil
	}
	id, revision, err := core.Revision(ctx)
	if err != nil || !r.bound(id) {
		return err // it may be somebody else's
	}
	next := record.Observe(r.Clock.Now(), id, revision)
	if next == record || r.Mode == outputs.Report {
		return nil
	}
	if err := r.writeCoreRecord(ctx, next, object); err != nil {
		return err
	}
	r.remember(next)
	if next.WentBack != record.WentBack {
		r.Log.Info("The core went back to an earlier revision: restart the tenants' API servers", "from", next.WentBack.From, "to", next.WentBack.To)
		return r.requeueAll(ctx)
	}
	return nil
}

// writeCoreRecord writes the record unless somebody else has written it since it was read.
func (r *Reconciler) writeCoreRecord(ctx context.Context, record operator.CoreRecord, object *unstructured.Unstructured) error {
	text, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("encoding the record of the core: %w", err)
	}
	data := map[string]any{coreRecordKey: string(text)}
	out := blank(corev1.SchemeGroupVersion.WithKind(operator.KindConfigMap), r.Settings.Namespace, coreRecordName)
	if object == nil {
		out.Object["data"] = data
		err = r.Client.Create(ctx, out, FieldOwner)
	} else {
		var patch []byte
		patch, err = json.Marshal([]map[string]any{
			{"op": "test", "path": "/metadata/resourceVersion", "value": object.GetResourceVersion()}, {"op": "add", "path": "/data", "value": data},
		})
		if err == nil {
			err = r.Client.Patch(ctx, out, client.RawPatch(types.JSONPatchType, patch), FieldOwner)
		}
	}
	if err != nil {
		return fmt.Errorf("writing ConfigMap %s/%s: %w", r.Settings.Namespace, coreRecordName, err)
	}
	return nil
}

// remember keeps the record for the conditions.
func (r *Reconciler) remember(record operator.CoreRecord) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record = &record
}

// coreHistory is the record, which a process reads before its first report; nil if it cannot be read.
func (r *Reconciler) coreHistory(ctx context.Context) *operator.CoreRecord {
	r.mu.Lock()
	known := r.record
	r.mu.Unlock()
	if known != nil {
		return known
	}
	record, _, err := r.coreRecord(ctx)
	if err != nil {
		return nil
	}
	r.remember(record)
	return &record
}

// requeueAll has all EtcdStorages reconciled.
func (r *Reconciler) requeueAll(ctx context.Context) error {
	list, err := r.storages(ctx)
	if err != nil {
		return err
	}
	for _, item := range list.Items {
		r.requeue(item.GetName())
	}
	return nil
}

// requeue has EtcdStorages reconciled from a new reading.
func (r *Reconciler) requeue(names ...string) {
	for _, name := range names {
		r.forgetReadings()
		r.rounds.Add(name)
	}
}

// storages lists all EtcdStorages from the informer, whose objects they are: nobody may change them.
func (r *Reconciler) storages(ctx context.Context) (*unstructured.UnstructuredList, error) {
	list := &unstructured.UnstructuredList{}
	gvk := StorageKind()
	gvk.Kind += "List"
	list.SetGroupVersionKind(gvk)
	if err := r.Reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing EtcdStorages: %w", err)
	}
	return list, nil
}
