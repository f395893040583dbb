// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
)

// ResponseInfo is what a proxy needs to know of an answer to a KV RPC alongside its bytes; what an answer has not is zero.
type ResponseInfo struct {
	// Header is that of the answer itself, not of one inside a Txn's, as it came from the core. HasHeader tells whether there was one: of a
	// stream's chunks, only the last has one.
	Header    Header
	HasHeader bool
	// KVs counts all keys in the answer, previous ones and those inside a Txn's included.
	KVs int
	// Count and More are a Range's.
	Count int64
	More  bool
	// Deleted is a DeleteRange's.
	Deleted int64
	// Counted are the keys that all ranges had, whatever their limits, and Removed those that were deleted; both of all levels of a Txn.
	Counted, Removed int64
	// Wrote tells that a key was put or deleted, also by an operation of a Txn; the answer's revision is then that of the change.
	Wrote bool
	// Succeeded is a Txn's.
	Succeeded bool
}

const (
	nameRangeResponse  = "RangeResponse"
	nameStreamResponse = "RangeStreamResponse"
	namePutResponse    = "PutResponse"
	nameDeleteResponse = "DeleteRangeResponse"
)

// answer carries what does not change while an answer is walked.
type answer struct {
	tenant *tenancy.Tenant
	info   ResponseInfo
	// dst grows; anyone who began the walk forgets it on an error.
	dst []byte
}

// AppendRangeResponse appends the tenant's RangeResponse for the core's. On any error dst comes back as it was given. As for all answers of
// KV RPCs, dst may end where response begins, in one array, if the tenant has no offset of revisions: an answer never becomes longer, so that it
// can be rewritten where it is. What response held is gone then.
func AppendRangeResponse(dst []byte, t *tenancy.Tenant, response []byte) ([]byte, ResponseInfo, error) {
	return appendResponse(dst, t, nameRangeResponse, response)
}

// AppendRangeStreamResponse is AppendRangeResponse for one chunk of a RangeStream, whose header, count and more stand in the last one.
func AppendRangeStreamResponse(dst []byte, t *tenancy.Tenant, response []byte) ([]byte, ResponseInfo, error) {
	return appendResponse(dst, t, nameStreamResponse, response)
}

// AppendPutResponse appends the tenant's PutResponse for the core's. On any error dst comes back as it was given.
func AppendPutResponse(dst []byte, t *tenancy.Tenant, response []byte) ([]byte, ResponseInfo, error) {
	return appendResponse(dst, t, namePutResponse, response)
}

// AppendDeleteRangeResponse appends the tenant's DeleteRangeResponse for the core's. On any error dst comes back as it was given.
func AppendDeleteRangeResponse(dst []byte, t *tenancy.Tenant, response []byte) ([]byte, ResponseInfo, error) {
	return appendResponse(dst, t, nameDeleteResponse, response)
}

// AppendTxnResponse appends the tenant's TxnResponse for the core's. On any error dst comes back as it was given.
func AppendTxnResponse(dst []byte, t *tenancy.Tenant, response []byte) ([]byte, ResponseInfo, error) {
	return appendResponse(dst, t, nameTxnResponse, response)
}

// appendResponse walks a response: all or nothing.
func appendResponse(dst []byte, t *tenancy.Tenant, name string, response []byte) ([]byte, ResponseInfo, error) {
	if !t.Valid() {
		return dst, ResponseInfo{}, errNoTenant
	}
	a := answer{tenant: t, dst: dst}
	if err := a.walk(name, response, t.Limits.MaxTxnOps(), true); err != nil {
		return dst, ResponseInfo{}, err
	}
	return a.dst, a.info, nil
}

// header appends a header; only that of the answer itself is told.
func (a *answer) header(message []byte, top bool) error {
	h, err := parseHeader(message)
	if err != nil {
		return err
	}
	a.dst = AppendHeaderField(a.dst, h.For(a.tenant))
	if top {
		a.info.Header, a.info.HasHeader = h, true
	}
	return nil
}

func (a *answer) kv(num protowire.Number, message []byte) (err error) {
	a.dst, _, err = appendKV(a.dst, a.tenant, num, message)
	a.info.KVs++
	return err
}

// walk takes over a response. depth is how many levels of Txns may still follow inside: a response nests no deeper than its
// request, whose budget of operations shrinks by at least one per level.
func (a *answer) walk(name string, message []byte, depth int, top bool) error {
	a.info.Wrote = a.info.Wrote || name == namePutResponse
	return responseFields(name, message, func(r record) (bool, error) { return a.field(name, r, depth, top) })
}

// field takes over one field and reports whether there may be only one of it.
func (a *answer) field(name string, r record, depth int, top bool) (once bool, err error) {
	switch {
	case name == nameRangeResponse:
		return a.rangeField(r, top)
	case name == nameStreamResponse:
		return a.streamField(r)
	case r.key == 1<<3|length:
		return true, a.header(r.data, top)
	case name == namePutResponse && r.key == 2<<3|length:
		return true, a.kv(2, r.data)
	case name == nameDeleteResponse:
		return a.deleteField(r, top)
	case name == nameTxnResponse && r.key == 2<<3|varint:
		a.dst = appendBool(a.dst, 2, r.value != 0)
		a.info.Succeeded = a.info.Succeeded || top && r.value != 0
		return true, nil
	case name == nameTxnResponse && r.key == 3<<3|length:
		return false, a.op(r.data, depth)
	}
	return false, nil
}

func (a *answer) deleteField(r record, top bool) (once bool, err error) {
	switch r.key {
	case 2<<3 | varint:
		a.dst = appendInt(a.dst, 2, int64(r.value))
		a.info.Wrote = a.info.Wrote || r.value != 0
		a.info.Removed += int64(r.value)
		if top {
			a.info.Deleted = int64(r.value)
		}
		return true, nil
	case 3<<3 | length:
		return false, a.kv(3, r.data)
	}
	return false, nil
}

func (a *answer) rangeField(r record, top bool) (once bool, err error) {
	switch r.key {
	case 2<<3 | length:
		return false, a.kv(2, r.data)
	case 1<<3 | length:
		return true, a.header(r.data, top)
	case 3<<3 | varint:
		a.dst = appendBool(a.dst, 3, r.value != 0)
		a.info.More = a.info.More || top && r.value != 0
	case 4<<3 | varint:
		a.dst = appendInt(a.dst, 4, int64(r.value))
		a.info.Counted += int64(r.value)
		if top {
			a.info.Count = int64(r.value)
		}
	default:
		return false, nil
	}
	return true, nil
}

func (a *answer) streamField(r record) (once bool, err error) {
	if r.key != 1<<3|length {
		return false, nil
	}
	var m mark
	a.dst, m = open(a.dst, 1, len(r.data))
	if err := a.walk(nameRangeResponse, r.data, 0, true); err != nil {
		return false, err
	}
	a.dst = shut(a.dst, m)
	return true, nil
}
