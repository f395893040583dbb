// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"fmt"

	"google.golang.org/grpc/mem"
)

// Bytes is a gRPC codec that carries messages as they are, as *[]byte. Its name is protobuf's, which the content type on the wire says then.
type Bytes struct{}

// Name implements encoding.CodecV2.
func (Bytes) Name() string { return "proto" }

// Marshal implements encoding.CodecV2.
func (Bytes) Marshal(v any) (mem.BufferSlice, error) {
	if b, ok := v.(*[]byte); ok {
		return mem.BufferSlice{mem.SliceBuffer(*b)}, nil
	}
	return nil, fmt.Errorf("%T is not a message in bytes", v)
}

// Unmarshal implements encoding.CodecV2.
func (Bytes) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("%T is not a message in bytes", v)
	}
	*b = data.Materialize()
	return nil
}
