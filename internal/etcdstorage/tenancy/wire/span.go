// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
)

// span is a tenant's key and range_end, as parts of its request.
type span struct{ key, end []byte }

// append appends the core's key and range_end as the fields num and endNum, and then judges what stands in dst.
func (s span) append(dst []byte, t *tenancy.Tenant, num, endNum protowire.Number) ([]byte, error) {
	dst, from := appendJoined(dst, num, t.Prefix.String(), s.key)
	to := len(dst)
	end := to
	if head, tail := t.Prefix.EndParts(s.end); head != "" {
		dst, end = appendJoined(dst, endNum, head, tail)
	}
	if !t.Prefix.ContainsRange(dst[from:to], dst[end:]) {
		return dst, errEscape
	}
	return dst, nil
}

// appendJoined appends a bytes field of two parts and tells where in dst its content begins.
func appendJoined(dst []byte, num protowire.Number, head string, tail []byte) (out []byte, begin int) {
	dst = protowire.AppendTag(dst, num, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(len(head)+len(tail)))
	begin = len(dst)
	return append(append(dst, head...), tail...), begin
}
