// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	structuraldefaulting "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	structuralpruning "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	objectvalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/utils/ptr"
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
	w.name = object.GetName()
	if object.GetResourceVersion() != "" && !applied {
		return nil, errors.New("resourceVersion should not be set on objects to be created")
	}
	if err := s.admitNamespace(w); err != nil {
		return nil, err
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
	unstructured.RemoveNestedField(object.Object, "metadata", "selfLink")
	if w.k.generation {
		object.SetGeneration(1)
	}
	if w.k.status && w.k.Kind != "Node" { // only a Node keeps the status that it is created with
		unstructured.RemoveNestedField(object.Object, "status")
	}
	rule := w.k.nameRule()
	if errs := objectvalidation.ValidateObjectMetaAccessor(object, w.k.namespaced, rule, field.NewPath("metadata")); len(errs) > 0 {
		return nil, w.invalid(errs...)
	}
	if err := w.shape(nil, object); err != nil {
		return nil, err
	}
	if s.table(w.k).objects[w.key()] != nil {
		return nil, apierrors.NewAlreadyExists(w.k.groupResource(), w.name)
	}
	if w.dryRun {
		return recordOf(object), nil
	}
	return s.put(w.k, object, w.manager), nil
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

// shape prunes, defaults and validates an object; old is nil for a new one.
func (w write) shape(old, object *unstructured.Unstructured) error {
	if !w.k.custom {
		return w.shapeBuiltIn(old, object)
	}
	if w.k.structural == nil {
		return nil
	}
	structuraldefaulting.PruneNonNullableNullsWithoutDefaults(object.Object, w.k.structural)
	structuralpruning.Prune(object.Object, w.k.structural, true)
	structuraldefaulting.Default(object.Object, w.k.structural)
	errs := validation.ValidateCustomResource(nil, object.UnstructuredContent(), w.k.validator)
	if rules := w.k.rules(); rules != nil {
		errs = append(errs, w.checkRules(rules, old, object, errs)...)
	}
	if len(errs) > 0 {
		return w.invalid(errs...)
	}
	return nil
}

// checkRules evaluates the rules in CEL of a custom kind, unless what was found before keeps a server from it.
func (w write) checkRules(rules *cel.Validator, old, object *unstructured.Unstructured, found field.ErrorList) field.ErrorList {
	for _, e := range found {
		switch e.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			return field.ErrorList{field.Invalid(nil, nil, "some validation rules were not checked because the object was invalid")}
		default:
		}
	}
	var before any
	if old != nil {
		before = old.Object
	}
	errs, _ := rules.Validate(context.Background(), nil, w.k.structural, object.Object, before, celconfig.RuntimeCELCostBudget)
	return errs
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
		s.remove(w.k, old)
		return recordOf(object), nil
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
	if n := object.GetNamespace(); n != "" && n != w.namespace {
		return nil, apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	if err := w.expect(old, object); err != nil {
		return nil, err
	}
	object = w.part(old, object)
	keep(old, object)
	if errs := objectvalidation.ValidateObjectMetaAccessorUpdate(object, old, field.NewPath("metadata")); len(errs) > 0 {
		return nil, w.invalid(errs...)
	}
	if err := w.shape(old, object); err != nil {
		return nil, err
	}
	if w.k.generation && w.subresource == "" && !equality.Semantic.DeepEqual(w.content(old), w.content(object)) {
		object.SetGeneration(old.GetGeneration() + 1)
	}
	return object, nil
}

// expect compares the UID and the resourceVersion that an update names with those of the object.
func (w write) expect(old, object *unstructured.Unstructured) error {
	// The UID in a patch is no precondition: a wrong one is a change of a field that cannot change.
	if uid := object.GetUID(); uid != "" && uid != old.GetUID() && !w.unconditional {
		return w.conflict("Precondition failed: UID in precondition: %v, UID in object meta: %v", uid, old.GetUID())
	}
	switch rv := object.GetResourceVersion(); {
	case rv == "" && w.k.conditional && !w.unconditional:
		return apierrors.NewInvalid(schema.GroupKind{Group: w.k.Group, Kind: w.k.plural}, w.name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update"),
		})
	case rv != "" && !isRevision(rv):
		return fmt.Errorf("resourceVersion %q is not a number", rv)
	case rv != "" && rv != old.GetResourceVersion():
		return w.modified()
	}
	return nil
}

func isRevision(rv string) bool {
	_, err := strconv.ParseUint(rv, 10, 64)
	return err == nil
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
	object.SetUID(orDefault(object.GetUID(), old.GetUID()))
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
func (w write) content(object *unstructured.Unstructured) map[string]any {
	out := maps.Clone(object.Object)
	delete(out, "metadata")
	if w.k.groupResource().String() == "deployments.apps" {
		out["metadata"] = object.GetAnnotations() // they count for this kind alone
	}
	if w.k.status {
		delete(out, "status")
	}
	return out
}

// delete deletes an object, or only says so in it while finalizers or a pod's grace keep it. whole reports that the
// response is the object rather than a Status.
func (s *store) delete(w write, options *metav1.DeleteOptions) (r *record, whole bool, err error) { //nolint:gocyclo // the order of the checks is the server's
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.table(w.k).objects[w.key()]
	if old == nil {
		return nil, false, w.notFound()
	}
	if w.k.Kind == "Namespace" && slices.Contains(immortal(), w.name) {
		return nil, false, apierrors.NewForbidden(w.k.groupResource(), w.name, errors.New("this namespace may not be deleted"))
	}
	object := old.object.DeepCopy()
	if err := w.check(options.Preconditions, object); err != nil {
		return nil, false, err
	}
	switch ptr.Deref(options.PropagationPolicy, "") {
	case metav1.DeletePropagationBackground: // as without a policy
	case metav1.DeletePropagationForeground:
		object.SetFinalizers(append(object.GetFinalizers(), metav1.FinalizerDeleteDependents))
	case metav1.DeletePropagationOrphan:
		object.SetFinalizers(append(object.GetFinalizers(), metav1.FinalizerOrphanDependents))
	}
	grace := graceOf(w.k, object, options)
	if before := object.GetDeletionTimestamp(); before == nil {
		now := metav1.Now()
		object.SetDeletionTimestamp(&now)
		if w.k.Kind != "Namespace" {
			object.SetDeletionGracePeriodSeconds(&grace)
		}
		if g := object.GetGeneration(); g > 0 {
			object.SetGeneration(g + 1)
		}
	} else if had := object.GetDeletionGracePeriodSeconds(); had != nil && grace < *had {
		object.SetDeletionGracePeriodSeconds(&grace)
	}
	if w.k.Kind == "Namespace" {
		_ = unstructured.SetNestedField(object.Object, "Terminating", "status", "phase")
	}
	if !ended(w.k, object) {
		r, err = s.store(w, old, object)
		return r, true, err
	}
	whole = slices.Contains(returned(), w.k.groupResource().String())
	switch {
	case w.dryRun:
		return recordOf(object), whole, nil
	case w.k.Kind == "Pod": // its deletion is always graceful: without grace it is written for no time
		r = s.put(w.k, object, old.writer)
		s.remove(w.k, r)
		return r, true, nil
	}
	return s.remove(w.k, old), whole, nil
}

// returned are the kinds of which a deletion returns the object rather than a Status.
func returned() []string {
	return []string{"pods", "services", "serviceaccounts", "persistentvolumes", "persistentvolumeclaims"}
}

// immortal are the namespaces that nobody may delete.
func immortal() []string {
	return []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic}
}

// check compares an object with the preconditions of its deletion. A refusal names the kind where others name the resource.
func (w write) check(p *metav1.Preconditions, object *unstructured.Unstructured) error {
	conflict := func(format string, args ...any) error {
		return apierrors.NewConflict(schema.GroupResource{Group: w.k.Group, Resource: w.k.Kind}, w.name, fmt.Errorf(format, args...))
	}
	switch {
	case p == nil:
		return nil
	case p.UID != nil && *p.UID != object.GetUID():
		return conflict("Precondition failed: UID in precondition: %v, UID in object meta: %v", *p.UID, object.GetUID())
	case p.ResourceVersion != nil && *p.ResourceVersion != object.GetResourceVersion():
		return conflict("Precondition failed: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v", *p.ResourceVersion,
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
		if seconds := *options.GracePeriodSeconds; seconds >= 0 {
			return seconds
		}
		return 1
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
