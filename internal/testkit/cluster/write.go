// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	structuraldefaulting "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	structuralpruning "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A write is one request that changes an object.
type write struct {
	k               *kind
	namespace, name string
	// subresource is "" or "status".
	subresource string
	manager     string
	dryRun      bool
	// unconditional allows that the object lacks a resourceVersion: for patches, and for built-in kinds.
	unconditional bool
}

func (w write) key() string { return keyOf(w.namespace, w.name) }

func (w write) notFound() error { return apierrors.NewNotFound(w.k.groupResource(), w.name) }

func (w write) conflict(format string, args ...any) error {
	return apierrors.NewConflict(w.k.groupResource(), w.name, fmt.Errorf(format, args...))
}

// modified is what a stale resourceVersion leads to.
func (w write) modified() error {
	return apierrors.NewConflict(w.k.groupResource(), w.name, errors.New(
		"the object has been modified; please apply your changes to the latest version and try again"))
}

func (w write) invalid(errs ...*field.Error) error {
	return apierrors.NewInvalid(w.k.GroupVersionKind.GroupKind(), w.name, errs)
}

// create stores a new object.
func (s *store) create(w write, object *unstructured.Unstructured, applied bool) (*record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.createLocked(w, object, applied)
}

// createLocked is create for callers that hold mu. An applied object may name a resourceVersion, which is ignored, and has its managed fields already.
func (s *store) createLocked(w write, object *unstructured.Unstructured, applied bool) (*record, error) {
	if object.GetName() == "" && object.GetGenerateName() != "" {
		object.SetName(object.GetGenerateName() + rand.String(5))
	}
	if w.name = object.GetName(); w.name == "" {
		return nil, w.invalid(field.Required(field.NewPath("metadata", "name"), "name or generateName is required"))
	}
	if object.GetResourceVersion() != "" && !applied {
		return nil, apierrors.NewInternalError(errors.New("resourceVersion should not be set on objects to be created"))
	}
	if err := s.admitNamespace(w); err != nil {
		return nil, err
	}
	t := s.table(w.k)
	if t.objects[w.key()] != nil {
		return nil, apierrors.NewAlreadyExists(w.k.groupResource(), w.name)
	}
	s.uids++
	object.SetNamespace(w.namespace)
	object.SetUID(types.UID(fmt.Sprintf("%08x-0000-4000-8000-%012x", s.uids, s.uids)))
	object.SetCreationTimestamp(metav1.Now())
	object.SetDeletionTimestamp(nil)
	object.SetDeletionGracePeriodSeconds(nil)
	if !applied {
		object.SetManagedFields(nil)
	}
	unstructured.RemoveNestedField(object.Object, "metadata", "generation")
	if w.k.generation {
		object.SetGeneration(1)
	}
	w.prepareStatus(object)
	if err := w.shape(object); err != nil {
		return nil, err
	}
	if w.dryRun {
		return recordOf(object), nil
	}
	return s.put(w.k, object, w.manager), nil
}

// prepareStatus sets the status that a new object has. Only a Node keeps the one that it is created with.
func (w write) prepareStatus(object *unstructured.Unstructured) {
	if !w.k.status || w.k.Kind == "Node" {
		return
	}
	unstructured.RemoveNestedField(object.Object, "status")
	switch {
	case w.k.custom:
	case w.k.Kind == "Pod":
		object.Object["status"] = map[string]any{"phase": "Pending", "qosClass": "BestEffort"}
	case w.k.Kind == "Namespace":
		object.Object["spec"] = map[string]any{"finalizers": []any{"kubernetes"}}
		object.Object["status"] = map[string]any{"phase": "Active"}
	case w.k.Kind == "Service":
		object.Object["status"] = map[string]any{"loadBalancer": map[string]any{}}
	default:
		object.Object["status"] = map[string]any{}
	}
}

// admitNamespace refuses objects in namespaces that do not exist or that are ending.
func (s *store) admitNamespace(w write) error {
	if !w.k.namespaced {
		return nil
	}
	have := s.tables["namespaces"].objects[keyOf("", w.namespace)]
	if have == nil {
		return apierrors.NewNotFound(metav1.SchemeGroupVersion.WithResource("namespaces").GroupResource(), w.namespace)
	}
	if have.object.GetDeletionTimestamp() != nil {
		return apierrors.NewForbidden(w.k.groupResource(), w.name, fmt.Errorf(
			"unable to create new content in namespace %s because it is being terminated", w.namespace))
	}
	return nil
}

// shape prunes, defaults and validates an object whose kind is custom.
func (w write) shape(object *unstructured.Unstructured) error {
	if w.k.structural == nil {
		return nil
	}
	structuraldefaulting.PruneNonNullableNullsWithoutDefaults(object.Object, w.k.structural)
	structuralpruning.Prune(object.Object, w.k.structural, true)
	structuraldefaulting.Default(object.Object, w.k.structural)
	if errs := validation.ValidateCustomResource(nil, object.UnstructuredContent(), w.k.validator); len(errs) > 0 {
		return w.invalid(errs...)
	}
	return nil
}

// update changes an object. change returns what it becomes, from a copy.
func (s *store) update(w write, change func(old *unstructured.Unstructured, writer string) (*unstructured.Unstructured, error)) (*record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.table(w.k).objects[w.key()]
	if old == nil {
		return nil, w.notFound()
	}
	object, err := change(old.object.DeepCopy(), old.writer)
	if err != nil {
		return nil, err
	}
	if object, err = w.merge(old.object, object); err != nil {
		return nil, err
	}
	return s.store(w, old, object)
}

// store keeps what an update made of an object; the caller holds mu.
func (s *store) store(w write, old *record, object *unstructured.Unstructured) (*record, error) {
	switch {
	case w.dryRun:
		return recordOf(object), nil
	case ended(w.k, object):
		return s.remove(w.k, old, object), nil
	case sameButFields(old.object, object):
		return old, nil
	}
	return s.put(w.k, object, old.writer), nil
}

// ended reports that nothing keeps an object that was deleted.
func ended(k *kind, object *unstructured.Unstructured) bool {
	if object.GetDeletionTimestamp() == nil || len(object.GetFinalizers()) > 0 {
		return false
	}
	if k.Kind == "Namespace" {
		keep, _, _ := unstructured.NestedSlice(object.Object, "spec", "finalizers")
		return len(keep) == 0
	}
	grace := object.GetDeletionGracePeriodSeconds()
	return grace == nil || *grace == 0
}

// sameButFields reports that a write changes nothing: it leaves the resourceVersion as it is, and the times in managed fields as well.
func sameButFields(a, b *unstructured.Unstructured) bool {
	strip := func(u *unstructured.Unstructured) map[string]any {
		content := maps.Clone(u.Object)
		metadata, _ := content["metadata"].(map[string]any)
		metadata = maps.Clone(metadata)
		var owners strings.Builder
		for _, f := range u.GetManagedFields() {
			fmt.Fprint(&owners, f.Manager, f.Operation, f.Subresource, f.FieldsV1, ";")
		}
		metadata["managedFields"] = owners.String()
		delete(metadata, "resourceVersion")
		content["metadata"] = metadata
		return content
	}
	return equality.Semantic.DeepEqual(strip(a), strip(b))
}

// merge checks the preconditions of an update, and returns the object with all that the request may not change as it was.
func (w write) merge(old, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if object.GetName() != w.name && object.GetName() != "" {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", object.GetName(), w.name))
	}
	if err := w.expect(old, object); err != nil {
		return nil, err
	}
	object = w.part(old, object)
	keep(old, object)
	if added := newFinalizers(old, object); old.GetDeletionTimestamp() != nil && len(added) > 0 {
		return nil, w.invalid(field.Forbidden(field.NewPath("metadata", "finalizers"), fmt.Sprintf(
			"no new finalizers can be added if the object is being deleted, found new finalizers %q", added)))
	}
	if err := w.shape(object); err != nil {
		return nil, err
	}
	if w.k.generation && w.subresource == "" && !equality.Semantic.DeepEqual(content(old), content(object)) {
		object.SetGeneration(old.GetGeneration() + 1)
	}
	return object, nil
}

// expect compares the UID and the resourceVersion that an update names with those of the object.
func (w write) expect(old, object *unstructured.Unstructured) error {
	if uid := object.GetUID(); uid != "" && uid != old.GetUID() {
		return w.conflict("Precondition failed: UID in precondition: %v, UID in object meta: %v", uid, old.GetUID())
	}
	switch rv := object.GetResourceVersion(); {
	case rv == "" && w.k.custom && !w.unconditional:
		return w.invalid(field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update"))
	case rv != "" && rv != old.GetResourceVersion():
		return w.modified()
	}
	return nil
}

func newFinalizers(old, object *unstructured.Unstructured) []string {
	return slices.DeleteFunc(object.GetFinalizers(), func(f string) bool { return slices.Contains(old.GetFinalizers(), f) })
}

// part takes what the endpoint of the request is for: all but the status, or the status.
func (w write) part(old, object *unstructured.Unstructured) *unstructured.Unstructured {
	if !w.k.status {
		return object
	}
	from, to := old, object
	if w.subresource == "status" {
		from, to = object, old.DeepCopy()
		if w.k.custom {
			to.SetManagedFields(object.GetManagedFields())
		} else {
			to.Object["metadata"] = object.Object["metadata"]
		}
	}
	if status, there := from.Object["status"]; there {
		to.Object["status"] = runtime.DeepCopyJSONValue(status)
	} else {
		delete(to.Object, "status")
	}
	return to
}

// keep restores what no update changes.
func keep(old, object *unstructured.Unstructured) {
	object.SetGroupVersionKind(old.GroupVersionKind())
	object.SetName(old.GetName())
	object.SetNamespace(old.GetNamespace())
	object.SetGenerateName(old.GetGenerateName())
	object.SetUID(old.GetUID())
	object.SetResourceVersion(old.GetResourceVersion())
	object.SetCreationTimestamp(old.GetCreationTimestamp())
	object.SetDeletionTimestamp(old.GetDeletionTimestamp())
	object.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	unstructured.RemoveNestedField(object.Object, "metadata", "generation")
	if g := old.GetGeneration(); g != 0 {
		object.SetGeneration(g)
	}
}

// content is what a generation counts the changes of.
func content(object *unstructured.Unstructured) map[string]any {
	out := maps.Clone(object.Object)
	delete(out, "metadata")
	delete(out, "status")
	return out
}

// delete deletes an object, or only says so in it while finalizers or a pod's grace keep it.
func (s *store) delete(w write, options *metav1.DeleteOptions) (*record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.table(w.k).objects[w.key()]
	if old == nil {
		return nil, w.notFound()
	}
	object := old.object.DeepCopy()
	if err := w.check(options.Preconditions, object); err != nil {
		return nil, err
	}
	if options.PropagationPolicy != nil && *options.PropagationPolicy == metav1.DeletePropagationForeground {
		object.SetFinalizers(append(object.GetFinalizers(), metav1.FinalizerDeleteDependents))
	}
	grace := graceOf(w.k, object, options)
	if before := object.GetDeletionTimestamp(); before == nil {
		now := metav1.Now()
		object.SetDeletionTimestamp(&now)
		object.SetDeletionGracePeriodSeconds(&grace)
		if g := object.GetGeneration(); g > 0 {
			object.SetGeneration(g + 1)
		}
	} else if had := object.GetDeletionGracePeriodSeconds(); had != nil && grace < *had {
		object.SetDeletionGracePeriodSeconds(&grace)
	}
	if w.k.Kind == "Namespace" {
		_ = unstructured.SetNestedField(object.Object, "Terminating", "status", "phase")
	}
	if !w.dryRun && ended(w.k, object) {
		return s.remove(w.k, old, old.object), nil
	}
	return s.store(w, old, object)
}

// check compares an object with the preconditions of its deletion.
func (w write) check(p *metav1.Preconditions, object *unstructured.Unstructured) error {
	switch {
	case p == nil:
		return nil
	case p.UID != nil && *p.UID != object.GetUID():
		return w.conflict("Precondition failed: UID in precondition: %v, UID in object meta: %v", *p.UID, object.GetUID())
	case p.ResourceVersion != nil && *p.ResourceVersion != object.GetResourceVersion():
		return w.conflict("Precondition failed: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v", *p.ResourceVersion,
			object.GetResourceVersion())
	}
	return nil
}

// graceOf is how long a deleted object may stay, in seconds: only a pod that a kubelet has to stop stays.
func graceOf(k *kind, object *unstructured.Unstructured, options *metav1.DeleteOptions) int64 {
	node, _, _ := unstructured.NestedString(object.Object, "spec", "nodeName")
	phase, _, _ := unstructured.NestedString(object.Object, "status", "phase")
	if k.Kind != "Pod" || node == "" || phase == "Succeeded" || phase == "Failed" {
		return 0
	}
	if options.GracePeriodSeconds != nil {
		return *options.GracePeriodSeconds
	}
	if own, there, _ := unstructured.NestedInt64(object.Object, "spec", "terminationGracePeriodSeconds"); there {
		return own
	}
	return 30
}

// deletionOptions are those of a collection: preconditions are of one object.
func deletionOptions(options *metav1.DeleteOptions) *metav1.DeleteOptions {
	out := options.DeepCopy()
	out.Preconditions = nil
	return out
}

func recordOf(object *unstructured.Unstructured) *record {
	return &record{object: object, text: mustJSON(object.Object)}
}

// managerOf is who a request says it is by its field manager, or by the program's name in its user agent.
func managerOf(given, agent string) string {
	if given != "" {
		return given
	}
	program, _, _ := strings.Cut(agent, "/")
	return program
}
