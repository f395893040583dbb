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
	if !t.Valid() {
		return dst, ResponseInfo{}, errNoTenant
	}
	a := answer{tenant: t, dst: dst}
	return a.done(dst, a.rangeResponse(response, true))
}

// AppendRangeStreamResponse is AppendRangeResponse for one chunk of a RangeStream, whose header, count and more stand in the last one.
func AppendRangeStreamResponse(dst []byte, t *tenancy.Tenant, response []byte) ([]byte, ResponseInfo, error) {
	if !t.Valid() {
		return dst, ResponseInfo{}, errNoTenant
	}
	a := answer{tenant: t, dst: dst}
	return a.done(dst, a.streamResponse(response))
}

// AppendPutResponse appends the tenant's PutResponse for the core's. On any error dst comes back as it was given.
func AppendPutResponse(dst []byte, t *tenancy.Tenant, response []byte) ([]byte, ResponseInfo, error) {
	if !t.Valid() {
		return dst, ResponseInfo{}, errNoTenant
	}
	a := answer{tenant: t, dst: dst}
	return a.done(dst, a.putResponse(response, true))
}

// AppendDeleteRangeResponse appends the tenant's DeleteRangeResponse for the core's. On any error dst comes back as it was given.
func AppendDeleteRangeResponse(dst []byte, t *tenancy.Tenant, response []byte) ([]byte, ResponseInfo, error) {
	if !t.Valid() {
		return dst, ResponseInfo{}, errNoTenant
	}
	a := answer{tenant: t, dst: dst}
	return a.done(dst, a.deleteResponse(response, true))
}

// done ends a walk: all or nothing.
func (a *answer) done(dst []byte, err error) ([]byte, ResponseInfo, error) {
	if err != nil {
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

func (a *answer) rangeResponse(message []byte, top bool) (err error) {
	var before seen
	for len(message) > 0 {
		r, rest, ok := next(message)
		if !ok {
			return undecodable(nameRangeResponse)
		}
		message = rest
		switch r.key {
		case 1<<3 | length:
			err = a.header(r.data, top)
		case 2<<3 | length:
			if err = a.kv(2, r.data); err != nil {
				return err
			}
			continue // the one field that repeats
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
			continue
		}
		if err != nil {
			return err
		}
		if before.again(r.num()) {
			return foreign(nameRangeResponse, "a field twice")
		}
	}
	return nil
}

func (a *answer) streamResponse(message []byte) error {
	var before seen
	for len(message) > 0 {
		r, rest, ok := next(message)
		if !ok {
			return undecodable(nameStreamResponse)
		}
		message = rest
		if r.key != 1<<3|length {
			continue
		}
		if before.again(r.num()) {
			return foreign(nameStreamResponse, "a field twice")
		}
		var m mark
		a.dst, m = open(a.dst, 1, len(r.data))
		if err := a.rangeResponse(r.data, true); err != nil {
			return err
		}
		a.dst = shut(a.dst, m)
	}
	return nil
}

func (a *answer) putResponse(message []byte, top bool) (err error) {
	a.info.Wrote = true
	var before seen
	for len(message) > 0 {
		r, rest, ok := next(message)
		if !ok {
			return undecodable(namePutResponse)
		}
		message = rest
		switch r.key {
		case 1<<3 | length:
			err = a.header(r.data, top)
		case 2<<3 | length:
			err = a.kv(2, r.data)
		default:
			continue
		}
		if err != nil {
			return err
		}
		if before.again(r.num()) {
			return foreign(namePutResponse, "a field twice")
		}
	}
	return nil
}

func (a *answer) deleteResponse(message []byte, top bool) (err error) {
	var before seen
	for len(message) > 0 {
		r, rest, ok := next(message)
		if !ok {
			return undecodable(nameDeleteResponse)
		}
		message = rest
		switch r.key {
		case 1<<3 | length:
			err = a.header(r.data, top)
		case 2<<3 | varint:
			a.dst = appendInt(a.dst, 2, int64(r.value))
			a.info.Wrote = a.info.Wrote || r.value != 0
			a.info.Removed += int64(r.value)
			if top {
				a.info.Deleted = int64(r.value)
			}
		case 3<<3 | length:
			if err = a.kv(3, r.data); err != nil {
				return err
			}
			continue // the one field that repeats
		default:
			continue
		}
		if err != nil {
			return err
		}
		if before.again(r.num()) {
			return foreign(nameDeleteResponse, "a field twice")
		}
	}
	return nil
}
