// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package annotate is all that kubectl mooring writes for controllers: an annotation with what a person confirms or requests, on an object that is still as it
// was read.
package annotate

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// mostAttempts is how often a confirmation is written again when the object has changed meanwhile; each time it is judged again.
const mostAttempts = 5

// Patch is how a client changes objects of a kind.
type Patch[T any] func(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (T, error)

// Set sets an annotation of an object that people call by a name, or with a nil value removes it, if the object has still the
// UID and the version of this one. A conflict is returned as it is, so that [Confirming] judges again.
func Set[T any](ctx context.Context, patch Patch[T], object metav1.Object, called, annotation string, value any) error {
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": object.GetUID(), "resourceVersion": object.GetResourceVersion(), "annotations": map[string]any{annotation: value},
	}})
	if err == nil {
		_, err = patch(ctx, object.GetName(), types.MergePatchType, text, metav1.PatchOptions{})
	}
	if err == nil || apierrors.IsConflict(err) {
		return err
	}
	return fmt.Errorf("annotating %s: %w", called, err)
}

// Confirming runs attempt, which writes a confirmation, and judges again when the object has changed since it was read: then something else may wait.
func Confirming(what string, attempt func() error) error {
	for range mostAttempts {
		if err := attempt(); !apierrors.IsConflict(err) {
			return err
		}
	}
	return fmt.Errorf("%s changes all the time, and nothing was confirmed: try again", what)
}
