// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// MachineIsBack is false for every host: what is restored here is configuration that users wrote for a machine's name, and it is good for one
// that has joined again under that name. There is no Node of Calico's to be put over another.
func (d *KubernetesAPI) MachineIsBack(context.Context, string, []Object) (bool, error) {
	return false, nil
}

// Restore re-creates a resource as it was, but for what the API server itself writes into it; one that is there just so is left as it is
// (ErrUnchanged). It refuses (ErrNotRestored) what exists again in another form, what is IPAM's (addresses, once released, may be
// anybody's), and what is not a key of this datastore. Annotations named in without are left out.
func (d *KubernetesAPI) Restore(ctx context.Context, object Object, without ...string) error {
	return d.restore(ctx, object, without, false)
}

// CheckRestore says what Restore would say now, and writes nothing: nil if it would re-create the object.
// The API server validates the object as it would then.
func (d *KubernetesAPI) CheckRestore(ctx context.Context, object Object, without ...string) error {
	return d.restore(ctx, object, without, true)
}

func (d *KubernetesAPI) restore(ctx context.Context, object Object, without []string, dryRun bool) error {
	kind, name, err := restorable(object.Key)
	if err != nil {
		return err
	}
	want, err := recreated(kind, name, object, without)
	if err != nil {
		return err
	}
	body, err := json.Marshal(want)
	if err != nil {
		return fmt.Errorf("restoring %s: %w", object.Key, err)
	}
	request := d.client.Post().Resource(plural(kind)).Body(body).SetHeader("Content-Type", runtime.ContentTypeJSON)
	if dryRun {
		request = request.Param("dryRun", metav1.DryRunAll)
	}
	_, err = do(ctx, request)
	if apierrors.IsAlreadyExists(err) {
		return d.acceptExisting(ctx, object.Key, kind, name, want)
	}
	if err != nil {
		return fmt.Errorf("restoring %s: %w", object.Key, explainRestore(err))
	}
	return nil
}

// restorable returns kind and name of a key of the journal.
func restorable(key string) (kind, name string, err error) {
	path, ours := strings.CutPrefix(key, objectPath)
	collection, name, named := strings.Cut(path, "/")
	switch {
	case !ours || !named || name == "":
		return "", "", fmt.Errorf("%w: %q is not a key of the kubernetes datastore; check DATASTORE_TYPE", ErrNotRestored, key)
	case isCustomIPAM(key):
		return "", "", fmt.Errorf("%w: %s is IPAM's, which assigns addresses again", ErrNotRestored, key)
	}
	for kind, plural := range resourcePlurals() {
		if plural == collection {
			return kind, name, nil
		}
	}
	return "", "", fmt.Errorf("%w: %q is not a key of a kind that is restored", ErrNotRestored, key)
}

// isCustomIPAM is IsIPAM for the kubernetes datastore.
func isCustomIPAM(key string) bool {
	path, ours := strings.CutPrefix(key, objectPath)
	collection, _, _ := strings.Cut(path, "/")
	return ours && (collection == plural(kindAffinity) || collection == plural(kindBlock) || collection == plural(kindHandle))
}

// recreated is the object without what the API server gives each object again.
func recreated(kind, name string, object Object, without []string) (map[string]any, error) {
	var top map[string]any
	if err := utiljson.Unmarshal([]byte(object.Value), &top); err != nil {
		return nil, fmt.Errorf("%w: %s in the journal cannot be parsed: %w", ErrNotRestored, object.Key, err)
	}
	metadata, _ := top["metadata"].(map[string]any)
	if metadata["name"] != name || top["kind"] != kind {
		return nil, fmt.Errorf("%w: what the journal holds under %s is another object", ErrNotRestored, object.Key)
	}
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "deletionTimestamp", "deletionGracePeriodSeconds"} {
		delete(metadata, field)
	}
	annotations, _ := metadata["annotations"].(map[string]any)
	for _, annotation := range without {
		delete(annotations, annotation)
	}
	if len(annotations) == 0 {
		delete(metadata, "annotations")
	}
	top["apiVersion"] = crdGroup.String()
	return top, nil
}

// acceptExisting tells an object that is there just as it was (ErrUnchanged) from another.
func (d *KubernetesAPI) acceptExisting(ctx context.Context, key, kind, name string, want map[string]any) error {
	object, err := d.read(ctx, kind, name)
	if err != nil {
		return fmt.Errorf("reading %s: %w", key, err)
	}
	if object != nil {
		have, err := recreated(kind, name, Object{Key: key, Value: string(object.raw)}, nil)
		if err == nil && reflect.DeepEqual(have, want) {
			return fmt.Errorf("%w: %s is there just as it was", ErrUnchanged, key)
		}
	}
	return fmt.Errorf("%w: %s exists again and stays as it is", ErrNotRestored, key)
}
