// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/etcdstorage/predecessor"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
)

// fieldManager is under whose name the plugin applies objects. MUST NOT change: another name would leave fields behind that nobody removes.
const fieldManager = observe.Name

// mostInput bounds what is read into memory at once.
const mostInput = 64 << 20

// readOldStorages reads EtcdStorages of etcdproxy-controller from YAML or JSON documents. There must be one at least. Documents of other kinds are
// passed over; EtcdStorages of other groups are named on notes, since they are what people confuse.
func readOldStorages(where string, r io.Reader, notes io.Writer) ([]map[string]any, error) {
	data, err := io.ReadAll(io.LimitReader(r, mostInput+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", where, err)
	}
	if len(data) > mostInput {
		return nil, fmt.Errorf("%s is larger than %d MiB: give the EtcdStorages alone", where, mostInput>>20)
	}
	var found []map[string]any
	err = observe.Documents(where, bytes.NewReader(data), func(document []byte) error {
		objects, err := decodeOldStorages(document, notes)
		found = append(found, objects...)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("there is no %s of %s in %s", predecessor.Kind, predecessor.Group, where)
	}
	return found, nil
}

// decodeOldStorages returns the old EtcdStorages in one document.
func decodeOldStorages(document []byte, notes io.Writer) ([]map[string]any, error) {
	data, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return nil, fmt.Errorf("it is neither YAML nor JSON: %w", err)
	}
	if bytes.Equal(bytes.TrimSpace(data), []byte("null")) {
		return nil, nil
	}
	var object map[string]any
	if err := json.Unmarshal(data, &object); err != nil {
		return nil, fmt.Errorf("it is not a Kubernetes object: %w", observe.Readable(err))
	}
	kind, _ := object["kind"].(string)
	version, _ := object["apiVersion"].(string)
	switch {
	case kind == "":
		return nil, errors.New("it is not a Kubernetes object: it has no kind")
	case predecessor.Is(object):
		return []map[string]any{object}, nil
	case kind == predecessor.Kind:
		fmt.Fprintf(notes, "note: EtcdStorage %s is of %s and is skipped\n", nameOf(object), version)
	case kind == "List" || kind == predecessor.Kind+"List":
		return oldStoragesIn(object, version, kind, notes)
	}
	return nil, nil
}

// oldStoragesIn returns the old EtcdStorages of a List. In a list of that very kind the items may leave kind and version out.
func oldStoragesIn(list map[string]any, version, kind string, notes io.Writer) ([]map[string]any, error) {
	items, ok := list["items"].([]any)
	if !ok && list["items"] != nil {
		return nil, errors.New("items of the list must be a list of objects")
	}
	var out []map[string]any
	for i, item := range items {
		object, ok := item.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("item %d of the list is not a Kubernetes object", i+1)
		}
		if kind != "List" && object["kind"] == nil && object["apiVersion"] == nil {
			object["kind"], object["apiVersion"] = predecessor.Kind, version
		}
		switch {
		case predecessor.Is(object):
			out = append(out, object)
		case object["kind"] == predecessor.Kind:
			fmt.Fprintf(notes, "note: EtcdStorage %s is of %v and is skipped\n", nameOf(object), object["apiVersion"])
		}
	}
	return out, nil
}

// listOldStorages reads the old EtcdStorages of a cluster, in pages. It needs nothing of their types.
func listOldStorages(ctx context.Context, client dynamic.Interface) ([]map[string]any, error) {
	resource := schema.GroupVersionResource{Group: predecessor.Group, Version: predecessor.Version, Resource: predecessor.Resource}
	items, err := observe.All[unstructured.Unstructured](
		ctx, resource.GroupResource().String(), client.Resource(resource).List,
	)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("the cluster serves no %s: there is nothing of etcdproxy-controller; give -f FILE for objects in a file", resource.GroupResource())
	case err != nil:
		return nil, err
	case len(items) == 0:
		return nil, fmt.Errorf("the cluster has no %s: there is nothing to convert", resource.GroupResource())
	}
	all := make([]map[string]any, len(items))
	for i, item := range items {
		all[i] = item.Object
	}
	return all, nil
}

// applyStorage applies one converted object and says, in kubectl's words, what that did.
func applyStorage(ctx context.Context, client dynamic.Interface, c predecessor.Conversion, dryRun bool) (string, error) {
	resource := client.Resource(observe.EtcdStorages())
	options := metav1.ApplyOptions{FieldManager: fieldManager}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	before, err := resource.Get(ctx, c.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("reading the one that there may be: %w", err)
	}
	existed := err == nil
	if existed && !dryRun && applied(before) {
		// A write in which nothing differs would still store the defaults that the object got when it was read.
		rehearsal := metav1.ApplyOptions{FieldManager: fieldManager, DryRun: []string{metav1.DryRunAll}}
		then, err := resource.Apply(ctx, c.Name, &unstructured.Unstructured{Object: c.Object}, rehearsal)
		if err == nil && alike(before, then) {
			return "unchanged", nil
		}
	}
	after, err := resource.Apply(ctx, c.Name, &unstructured.Unstructured{Object: c.Object}, options)
	switch {
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("the cluster does not serve %s: apply the CustomResourceDefinition of etcd-storage-operator first", v1alpha1.GroupVersion)
	case apierrors.IsConflict(err):
		return "", fmt.Errorf("it exists already, and another field manager has set %s to another value; it is not changed", conflictFields(err))
	case err != nil:
		return "", fmt.Errorf("applying it: %w", err)
	case !existed:
		return "created", nil
	case alike(before, after):
		return "unchanged", nil
	}
	return "configured", nil
}

// applied reports that this command has applied an object before.
func applied(object *unstructured.Unstructured) bool {
	return slices.ContainsFunc(object.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == fieldManager && f.Operation == metav1.ManagedFieldsOperationApply
	})
}

// conflictFields names the fields of others in a conflict of server-side apply.
func conflictFields(err error) string {
	fields := map[string]bool{}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			fields[strings.TrimPrefix(cause.Field, ".")] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(fields)), ", ")
}

// alike reports whether a person would see no difference.
func alike(a, b *unstructured.Unstructured) bool {
	return reflect.DeepEqual(a.Object["spec"], b.Object["spec"]) && reflect.DeepEqual(a.GetLabels(), b.GetLabels()) &&
		reflect.DeepEqual(a.GetAnnotations(), b.GetAnnotations())
}
