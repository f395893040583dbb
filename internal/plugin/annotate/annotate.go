// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package annotate is all that kubectl mooring writes for controllers: an annotation with what a person confirms or requests, on an object that is still as it
// was read.
package annotate

import (
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// mostAttempts is how often a confirmation is written again when the object has changed meanwhile; each time it is judged again.
const mostAttempts = 5

// Patch is a merge patch that sets an annotation, or with a nil value removes it, if the object has the UID and the version of this one.
func Patch(object metav1.Object, annotation string, value any) ([]byte, error) {
	return json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": object.GetUID(), "resourceVersion": object.GetResourceVersion(), "annotations": map[string]any{annotation: value},
	}})
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

// Written is the error of a write of an annotation: a conflict as it is, so that [Confirming] judges again, and else with the object's name.
func Written(err error, object string) error {
	if err == nil || apierrors.IsConflict(err) {
		return err
	}
	return fmt.Errorf("annotating %s: %w", object, err)
}
