// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mooring-dev/mooring/internal/nodesync"
)

// Requests is where people ask the controller for something, one request at a time.
type Requests interface {
	// Pending returns the request as it is written, empty if there is none, and the answer that was given last.
	Pending(ctx context.Context) (text string, answer Answer, err error)
	// Answer gives an answer, unless the request was withdrawn or is another by now, which is errWithdrawn.
	Answer(ctx context.Context, text string, answer Answer) error
}

// errWithdrawn reports that a request is not what it was: nothing is to be done for it.
var errWithdrawn = errors.New("the request was withdrawn, or replaced by another one")

// Pending implements Requests. A ConfigMap that is not there is made, so that a person who may only patch it finds one.
func (s *ConfigMapState) Pending(ctx context.Context) (string, Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	object, err := s.stored(ctx)
	if apierrors.IsNotFound(err) {
		object = s.object()
		if err = s.Client.Create(ctx, object); err == nil && s.version == "" {
			s.version = object.GetResourceVersion()
		}
	}
	if err != nil {
		return "", Answer{}, fmt.Errorf("reading requests: %w", err)
	}
	annotations := object.GetAnnotations()
	return annotations[nodesync.RequestAnnotation], ParseAnswer(annotations[nodesync.AnswerAnnotation]), nil
}

// Answer implements Requests.
func (s *ConfigMapState) Answer(ctx context.Context, text string, answer Answer) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	value, err := answer.encode()
	if err != nil {
		return err
	}
	object, err := s.stored(ctx)
	if err != nil {
		return fmt.Errorf("responding to a request: %w", err)
	}
	before := object.GetResourceVersion()
	if object.GetAnnotations()[nodesync.RequestAnnotation] != text {
		return errWithdrawn
	}
	if err := unstructured.SetNestedField(object.Object, value, "metadata", "annotations", nodesync.AnswerAnnotation); err != nil {
		return fmt.Errorf("responding to a request: %w", err)
	}
	if err := s.Client.Update(ctx, object); err != nil {
		return fmt.Errorf("responding to a request: %w", err)
	}
	if s.version == before {
		s.version = object.GetResourceVersion()
	}
	return nil
}
