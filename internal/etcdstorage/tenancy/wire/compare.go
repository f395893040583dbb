// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"google.golang.org/protobuf/encoding/protowire"
)

// compareRequest is etcdserverpb.Compare.
type compareRequest struct {
	span
	result, target int32
	// union is the member of target_union that is there, 0 if none is: 4 to 6 and 8 are numbers, 7 is bytes.
	union  protowire.Number
	number int64
	value  []byte
}

const nameCompare = "Compare"

// Fields of Compare.
const (
	compareUnion    protowire.Number = 4
	compareCreate   protowire.Number = 5
	compareMod      protowire.Number = 6
	compareValue    protowire.Number = 7
	compareLease    protowire.Number = 8
	compareRangeEnd protowire.Number = 64
)

func parseCompare(message []byte) (q compareRequest, err error) {
	var before seen
	for len(message) > 0 {
		r, rest, ok := next(message)
		if !ok {
			return q, malformed(nameCompare)
		}
		message = rest
		num := r.num()
		switch r.key {
		case 1<<3 | varint:
			q.result = enum(r.value)
		case 2<<3 | varint:
			q.target = enum(r.value)
		case 3<<3 | length:
			q.key = r.data
		case 4<<3 | varint, 5<<3 | varint, 6<<3 | varint, 8<<3 | varint:
			q.union, q.number, num = num, int64(r.value), compareUnion
		case 7<<3 | length:
			q.union, q.value, num = num, r.data, compareUnion
		case 64<<3 | length:
			q.end = r.data
		default:
			return q, unknown(nameCompare, r)
		}
		if before.again(num) { // all members of the union count as one field
			return q, repeated(nameCompare, r.num())
		}
	}
	return q, nil
}

// compare appends one Compare as a field of a Txn. Targets, results and missing members of the union are passed as they are: etcd has a
// meaning for each (etcdserver/txn compareKV).
func (w *txnWriter) compare(dst, message []byte) ([]byte, error) {
	q, err := parseCompare(message)
	if err != nil {
		return dst, err
	}
	if len(q.key) == 0 {
		return dst, errEmptyKey
	}
	w.info.Compares++
	w.touch(q.span)
	dst, m := open(dst, txnCompare, len(message)+2*len(w.tenant.Prefix.String()))
	dst = appendInt(dst, 1, int64(q.result))
	dst = appendInt(dst, 2, int64(q.target))
	dst, err = q.span.append(dst, w.tenant, 3, compareRangeEnd)
	if err != nil {
		return dst, err
	}
	return shut(q.appendUnion(dst, w), m), nil
}

// appendUnion appends the member of the union, which is there even if it is zero.
func (q *compareRequest) appendUnion(dst []byte, w *txnWriter) []byte {
	if q.union == 0 {
		return dst
	}
	if q.union == compareValue {
		dst = protowire.AppendTag(dst, q.union, protowire.BytesType)
		return protowire.AppendBytes(dst, q.value)
	}
	if q.union == compareLease {
		q.number = w.tenant.Leases.Compare(q.number)
	}
	if q.union == compareCreate || q.union == compareMod {
		q.number = w.tenant.Revisions.Core(q.number)
	}
	dst = protowire.AppendTag(dst, q.union, protowire.VarintType)
	return protowire.AppendVarint(dst, uint64(q.number))
}
