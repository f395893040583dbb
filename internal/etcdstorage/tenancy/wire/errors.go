// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Code is a gRPC status code, with the numbers of google.golang.org/grpc/codes, so that codes.Code(c) is the same. The type is our own because
// this package does not know how it is served.
type Code uint32

// The codes that this package uses.
const (
	InvalidArgument Code = 3
	Unimplemented   Code = 12
)

// RequestError says why a tenant's request is refused. Code and Message are for the client as they are; they say nothing of the core.
type RequestError struct {
	Code    Code
	Message string
}

// Error returns the message.
func (e *RequestError) Error() string { return e.Message }

// BoundaryError reports that something that would have crossed the tenant's boundary, or could not be judged, was stopped: an answer of the core,
// or a request of our own making. For the client it is Internal; it is worth a metric and a log line, and Message, which holds no key, is for
// the latter.
type BoundaryError struct{ Message string }

// Error returns the message.
func (e *BoundaryError) Error() string { return e.Message }

// What etcd refuses, in etcd's words (api/v3rpc/rpctypes/error.go, v3.7.3; a test compares them with the linked one).
var (
	errEmptyKey      = &RequestError{Code: InvalidArgument, Message: "etcdserver: key is not provided"}
	errEmptyOp       = &RequestError{Code: InvalidArgument, Message: "etcdserver: key not found"}
	errValueProvided = &RequestError{Code: InvalidArgument, Message: "etcdserver: value is provided"}
	errLeaseProvided = &RequestError{Code: InvalidArgument, Message: "etcdserver: lease is provided"}
	errTooManyOps    = &RequestError{Code: InvalidArgument, Message: "etcdserver: too many operations in txn request"}
	errSortOption    = &RequestError{Code: InvalidArgument, Message: "etcdserver: invalid sort option"}
	// These two have no name in rpctypes (server etcdserver/api/v3rpc/key.go).
	errStreamSort    = &RequestError{Code: Unimplemented, Message: "RangeStream does not support custom sort orders"}
	errStreamFilters = &RequestError{Code: Unimplemented, Message: "RangeStream does not support revision filters"}
)

var (
	errNoTenant = &BoundaryError{Message: "a message was to be rewritten for no tenant"}
	errEscape   = &BoundaryError{Message: "a rewritten request would have left the tenant's prefix"}
)

// malformed refuses a request that is not the protobuf message it should be.
func malformed(message string) error {
	return &RequestError{Code: InvalidArgument, Message: "etcd-storage-proxy: the " + message + " cannot be decoded"}
}

// repeated refuses a request with a singular field that occurs more than once.
func repeated(message string, num protowire.Number) error {
	return &RequestError{Code: InvalidArgument,
		Message: fmt.Sprintf("etcd-storage-proxy: field %d of the %s, or one that excludes it, occurs twice", num, message)}
}

// unknown refuses a request with a field that this proxy does not know, or knows with another type.
func unknown(message string, r record) error {
	return &RequestError{Code: Unimplemented,
		Message: fmt.Sprintf("etcd-storage-proxy: field %d of the %s is not supported", r.num(), message)}
}

// undecodable is an answer of the core that is not the protobuf message it should be.
func undecodable(message string) error {
	return &BoundaryError{Message: "the core's " + message + " cannot be decoded"}
}

// foreign is an answer of the core that is not about the tenant.
func foreign(message, what string) error {
	return &BoundaryError{Message: "the core's " + message + " holds " + what}
}
