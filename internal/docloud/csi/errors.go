// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/assumed"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/volume"
)

// wordCodes are the codes of refusals that DigitalOcean's words alone tell apart.
func wordCodes() []struct {
	words string
	code  codes.Code
} {
	return []struct {
		words string
		code  codes.Code
	}{
		{assumed.RefusedSize, codes.OutOfRange}, {assumed.RefusedAttachMore, codes.ResourceExhausted}, {assumed.RefusedLimit, codes.ResourceExhausted},
	}
}

// fail makes the error of a request: the code says to the caller what to do next, the text to a person.
func fail(err error) error {
	if err == nil {
		return nil
	}
	if s, ok := status.FromError(err); ok {
		return s.Err()
	}
	return status.Error(codeOf(err), err.Error())
}

// failAt is fail with what failed, unless the error is one of gRPC, which says it.
func failAt(what string, err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	return fail(fmt.Errorf("%s: %w", what, err))
}

// kinds are the codes of errors, the first that matches. A limit of calls is Unavailable: of an attachment
// ResourceExhausted means a full machine, and kubelet ends pods for it (k8s.io/kubernetes, pkg/kubelet,
// VolumeAttachmentLimitExceeded).
func kinds() []struct {
	err  error
	code codes.Code
} {
	return []struct {
		err  error
		code codes.Code
	}{
		{context.DeadlineExceeded, codes.DeadlineExceeded}, {context.Canceled, codes.Canceled}, {volume.ErrConflict, codes.AlreadyExists},
		{volume.ErrRange, codes.OutOfRange}, {volume.ErrElsewhere, codes.FailedPrecondition}, {doapi.ErrNotFound, codes.NotFound},
		{doapi.ErrUnauthorized, codes.Unauthenticated}, {doapi.ErrForbidden, codes.PermissionDenied}, {doapi.ErrTooSoon, codes.ResourceExhausted},
		{doapi.ErrPending, codes.Aborted},
	}
}

func codeOf(err error) codes.Code {
	if _, errored := errors.AsType[*actionError](err); errored {
		return codes.Internal
	}
	for _, kind := range kinds() {
		if errors.Is(err, kind.err) {
			return kind.code
		}
	}
	if !errors.Is(err, doapi.ErrRefused) {
		return codes.Unavailable
	}
	for _, known := range wordCodes() {
		if strings.Contains(err.Error(), known.words) {
			return known.code
		}
	}
	return codes.FailedPrecondition
}

// invalid makes the error of a request that is wrong by itself.
func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}
