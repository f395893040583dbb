// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
)

// span is a tenant's key and range_end, as parts of its request.
type span struct{ key, end []byte }

// Span is a range of the core's keys that a request names, from Key to before End.
type Span struct{ Key, End string }

// SpanOf returns the range of a RangeRequest or DeleteRangeRequest that AppendRange or AppendDeleteRange has written.
func SpanOf(core []byte) Span {
	key, rest, _ := next(core)
	end, _, ok := next(rest)
	if !ok || end.key != 2<<3|length {
		return Span{Key: string(key.data)}
	}
	return Span{Key: string(key.data), End: string(end.data)}
}

// core returns the core's range, or nothing if one key alone is named.
func (s span) core(t *tenancy.Tenant) (out Span, several bool) {
	if len(s.end) == 0 {
		return Span{}, false
	}
	head, tail := t.Prefix.EndParts(s.end)
	return Span{Key: t.Prefix.String() + string(s.key), End: head + string(tail)}, true
}

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
