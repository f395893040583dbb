// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// patch changes an object by a patch that is not an apply.
func (s *store) patch(w write, kind types.PatchType, body []byte) (*record, error) {
	w.unconditional = true
	return s.update(w, func(old *unstructured.Unstructured, writer string) (*unstructured.Unstructured, error) {
		object, err := patched(w.k, old, kind, body)
		if err != nil {
			return nil, err
		}
		if !w.k.custom && object.GetKind() != old.GetKind() {
			return nil, unreadable(fmt.Errorf("the kind is %q", object.GetKind()))
		}
		return w.own(old, object, writer)
	})
}

// unreadable is what a patch leads to that makes an object unlike its type.
func unreadable(err error) error {
	return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), "the patched object", err.Error())})
}

// replace changes an object to the one that is sent.
func (s *store) replace(w write, object *unstructured.Unstructured) (*record, error) {
	return s.update(w, func(old *unstructured.Unstructured, writer string) (*unstructured.Unstructured, error) {
		return w.own(old, object, writer)
	})
}

// patched is what a patch makes of an object.
func patched(k *kind, old *unstructured.Unstructured, kind types.PatchType, body []byte) (*unstructured.Unstructured, error) {
	out := &unstructured.Unstructured{}
	if kind == types.MergePatchType {
		var patch map[string]any
		if err := json.Unmarshal(body, &patch); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		out.Object = mergePatch(old.DeepCopy().Object, patch)
		return out, nil
	}
	before, err := json.Marshal(old.Object)
	if err != nil {
		return nil, fmt.Errorf("encoding an object: %w", err)
	}
	var after []byte
	switch kind {
	case types.JSONPatchType:
		patch, bad := jsonpatch.DecodePatch(body)
		if bad != nil {
			return nil, apierrors.NewBadRequest(bad.Error())
		}
		if after, err = patch.Apply(before); err != nil {
			return nil, apierrors.NewGenericServerResponse(422, "", schema.GroupResource{}, "", err.Error(), 0, false)
		}
	case types.StrategicMergePatchType:
		typed, unknown := scheme.Scheme.New(k.GroupVersionKind)
		if k.custom || unknown != nil {
			return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
				Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
				Message: "strategic merge patches need a built-in kind",
			}}
		}
		if after, err = strategicpatch.StrategicMergePatch(before, body, typed); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	default:
		return nil, apierrors.NewGenericServerResponse(415, "patch", k.groupResource(), "", "unknown type of patch "+string(kind), 0, false)
	}
	if err := json.Unmarshal(after, &out.Object); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return out, nil
}

// mergePatch is RFC 7386.
func mergePatch(target, patch map[string]any) map[string]any {
	for key, value := range patch {
		switch value := value.(type) {
		case nil:
			delete(target, key)
		case map[string]any:
			inner, ok := target[key].(map[string]any)
			if !ok {
				inner = map[string]any{}
			}
			target[key] = mergePatch(inner, value)
		default:
			target[key] = value
		}
	}
	return target
}

// apply changes or creates an object by a server-side apply.
func (s *store) apply(w write, body []byte, force bool) (r *record, status int, err error) {
	w.unconditional = true
	text, err := yaml.YAMLToJSON(body)
	if err != nil {
		return nil, 0, apierrors.NewBadRequest(err.Error())
	}
	applied := &unstructured.Unstructured{}
	if err := json.Unmarshal(text, &applied.Object); err != nil {
		return nil, 0, apierrors.NewBadRequest(err.Error())
	}
	if len(applied.GetManagedFields()) > 0 {
		return nil, 0, apierrors.NewBadRequest("metadata.managedFields must be nil")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.table(w.k).objects[w.key()]
	if old == nil {
		r, err = s.applyNew(w, applied, force)
		return r, http.StatusCreated, err
	}
	if rv := applied.GetResourceVersion(); rv != "" && rv != old.object.GetResourceVersion() {
		return nil, 0, w.modified()
	}
	live, err := w.attributed(old.object.DeepCopy(), old.writer)
	if err != nil {
		return nil, 0, err
	}
	object, err := w.applyTo(live, applied, force)
	if err != nil {
		return nil, 0, err
	}
	if object, err = w.merge(old.object, object); err != nil {
		return nil, 0, err
	}
	r, err = s.store(w, old, object)
	return r, http.StatusOK, err
}

// applyNew creates what is applied.
func (s *store) applyNew(w write, applied *unstructured.Unstructured, force bool) (*record, error) {
	if uid := applied.GetUID(); uid != "" {
		return nil, w.conflict("uid mismatch: the provided object specified uid %s, and no existing object was found", uid)
	}
	if w.subresource != "" {
		return nil, w.notFound()
	}
	if applied.GetName() == "" {
		return nil, apierrors.NewBadRequest("name must be provided")
	}
	live := &unstructured.Unstructured{Object: map[string]any{}}
	live.SetGroupVersionKind(w.k.GroupVersionKind)
	object, err := w.applyTo(live, applied, force)
	if err != nil {
		return nil, err
	}
	return s.createLocked(w, object, true)
}

func (w write) applyTo(live, applied *unstructured.Unstructured, force bool) (*unstructured.Unstructured, error) {
	manager, err := w.fields()
	if err != nil {
		return nil, err
	}
	out, err := manager.Apply(live, applied, w.manager, force)
	if err != nil {
		return nil, err
	}
	return toUnstructured(out)
}

// own notes whose the fields are that an update changes, on objects of which somebody has applied a part.
func (w write) own(old, object *unstructured.Unstructured, writer string) (*unstructured.Unstructured, error) {
	for _, f := range []string{"finalizers", "labels", "annotations", "ownerReferences"} { // an empty one is none, and nobody's
		if value, _, _ := unstructured.NestedFieldNoCopy(object.Object, "metadata", f); value == nil || reflect.ValueOf(value).Len() == 0 {
			unstructured.RemoveNestedField(object.Object, "metadata", f)
		}
	}
	if len(old.GetManagedFields()) == 0 {
		object.SetManagedFields(nil)
		return object, nil
	}
	live, err := w.attributed(old, writer)
	if err != nil {
		return nil, err
	}
	manager, err := w.fields()
	if err != nil {
		return nil, err
	}
	object.SetGroupVersionKind(w.k.GroupVersionKind)
	out, err := manager.Update(live, object, w.manager)
	if err != nil {
		return nil, err
	}
	return toUnstructured(out)
}

// attributed gives all fields of an object of which nobody has applied a part to who created it: until then nobody needs to know.
func (w write) attributed(object *unstructured.Unstructured, writer string) (*unstructured.Unstructured, error) {
	if len(object.GetManagedFields()) > 0 {
		return object, nil
	}
	whole := w
	whole.subresource = ""
	manager, err := whole.fields()
	if err != nil {
		return nil, err
	}
	empty := &unstructured.Unstructured{Object: map[string]any{}}
	empty.SetGroupVersionKind(w.k.GroupVersionKind)
	out, err := manager.Update(empty, object, writer)
	if err != nil {
		return nil, err
	}
	return toUnstructured(out)
}

func toUnstructured(object runtime.Object) (*unstructured.Unstructured, error) {
	if u, ok := object.(*unstructured.Unstructured); ok {
		return u, nil
	}
	return nil, errors.New("the field manager returned a typed object")
}

// fields returns who merges applied configurations of the kind.
func (w write) fields() (*managedfields.FieldManager, error) {
	if w.k.custom {
		return managedfields.NewDefaultCRDFieldManager(managedfields.NewDeducedTypeConverter(), same{}, same{}, same{}, w.k.GroupVersionKind,
			w.k.GroupVersion(), w.subresource, nil)
	}
	return managedfields.NewDefaultFieldManager(applyconfigurations.NewTypeConverter(scheme.Scheme), same{}, same{}, same{}, w.k.GroupVersionKind,
		w.k.GroupVersion(), w.subresource, nil)
}

// same converts nothing: each kind is kept in the version that it is asked for in.
type same struct{}

// Convert implements runtime.ObjectConvertor.
func (same) Convert(_, _, _ any) error { return errors.New("nothing is converted") }

// ConvertToVersion implements runtime.ObjectConvertor.
func (same) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}

// ConvertFieldLabel implements runtime.ObjectConvertor.
func (same) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (field, val string, err error) {
	return label, value, nil
}

// Default implements runtime.ObjectDefaulter.
func (same) Default(runtime.Object) {}

// New implements runtime.ObjectCreater.
func (same) New(k schema.GroupVersionKind) (runtime.Object, error) {
	out := &unstructured.Unstructured{Object: map[string]any{}}
	out.SetGroupVersionKind(k)
	return out, nil
}

// renameFields renames fields of an object, for kinds that are served in two groups, without changing the given one.
func renameFields(object map[string]any, names map[string]string) map[string]any {
	out := maps.Clone(object)
	for from, to := range names {
		if value, there := out[from]; there {
			delete(out, from)
			out[to] = value
		}
	}
	return out
}

func mustJSON(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic("cluster: not JSON: " + err.Error())
	}
	return text
}
