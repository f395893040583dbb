// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
)

const (
	nameTxnResponse = "TxnResponse"
	nameResponseOp  = "ResponseOp"
)

// AppendTxnResponse appends the tenant's TxnResponse for the core's. On any error dst comes back as it was given.
func AppendTxnResponse(dst []byte, t *tenancy.Tenant, response []byte) ([]byte, ResponseInfo, error) {
	if !t.Valid() {
		return dst, ResponseInfo{}, errNoTenant
	}
	a := answer{tenant: t, dst: dst}
	return a.done(dst, a.txnResponse(response, t.Limits.MaxTxnOps(), true))
}

// txnResponse walks one TxnResponse. depth is how many may still follow inside: an answer nests no deeper than its request, whose budget of
// operations shrinks by at least one per level.
func (a *answer) txnResponse(message []byte, depth int, top bool) (err error) {
	if depth < 0 {
		return foreign(nameTxnResponse, "more levels than any request has")
	}
	var before seen
	for len(message) > 0 {
		r, rest, ok := next(message)
		if !ok {
			return undecodable(nameTxnResponse)
		}
		message = rest
		switch r.key {
		case 1<<3 | length:
			err = a.header(r.data, top)
		case 2<<3 | varint:
			a.dst = appendBool(a.dst, 2, r.value != 0)
			a.info.Succeeded = a.info.Succeeded || top && r.value != 0
		case 3<<3 | length:
			if err = a.op(r.data, depth); err != nil {
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
			return foreign(nameTxnResponse, "a field twice")
		}
	}
	return nil
}

// op walks one ResponseOp, which has exactly one member: the client pairs it with its request by position.
func (a *answer) op(message []byte, depth int) error {
	r, rest, ok := next(message)
	switch {
	case !ok:
		return undecodable(nameResponseOp)
	case len(rest) > 0 || r.key&7 != length || r.num() > opTxn:
		return foreign(nameResponseOp, "something else than one answer")
	}
	var outer, inner mark
	a.dst, outer = open(a.dst, 3, len(message))
	a.dst, inner = open(a.dst, r.num(), len(r.data))
	var err error
	switch r.num() {
	case opRange:
		err = a.rangeResponse(r.data, false)
	case opPut:
		err = a.putResponse(r.data, false)
	case opDelete:
		err = a.deleteResponse(r.data, false)
	default:
		err = a.txnResponse(r.data, depth-1, false)
	}
	if err != nil {
		return err
	}
	a.dst = shut(shut(a.dst, inner), outer)
	return nil
}
