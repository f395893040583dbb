// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
)

// TxnInfo is what a proxy needs to know of a Txn alongside its bytes. The counts include Txns inside it, both branches.
type TxnInfo struct {
	// ReadOnly and Serializable are as etcd judges them (etcdserver/txn): only ranges at the top level, and all of them serializable.
	ReadOnly, Serializable          bool
	Compares, Ranges, Puts, Deletes int
	// PutBytes are the keys, with prefix, and values of all puts.
	PutBytes int
	// Leased are the puts that name a lease.
	Leased int
	// MinRevision is the smallest revision above 0 that a range names, as the tenant does; 0 if none does.
	MinRevision int64
	// Large tells that the core may have to read many values for one of the operations.
	Large bool
	// Spans are the ranges of more than one key of all operations and compares, in their order.
	Spans []Span
}

const (
	nameTxn = "TxnRequest"
	nameOp  = "RequestOp"
)

// Fields of TxnRequest.
const (
	txnCompare protowire.Number = 1 + iota
	txnSuccess
	txnFailure
)

// txnWriter carries what does not change on the way down a Txn.
type txnWriter struct {
	tenant    *tenancy.Tenant
	compacted int64
	info      TxnInfo
	parts     int // compares and operations so far, of all levels
	visit     func(Put)
	branch    protowire.Number // of the outermost Txn: the one that is being written
}

// AppendTxn appends the core's TxnRequest for a tenant's. On any error dst comes back as it was given.
//
// compacted is the tenant's compact revision, 0 if it has none: a range that names a revision below it gets one instead that is below all, so
// that the core answers ErrCompacted, and only if the branch with this range runs (etcdserver/txn checkRange compares before it looks at the
// sign). In a Txn etcd judges any revision but 0 this way, negative ones too.
func AppendTxn(dst []byte, t *tenancy.Tenant, request []byte, compacted int64) ([]byte, TxnInfo, error) {
	return AppendTxnVisiting(dst, t, request, compacted, nil)
}

// AppendTxnVisiting is AppendTxn that tells visit of each put, of both branches and of all levels, before it is known whether the request is
// right. A nil visit is told nothing.
func AppendTxnVisiting(dst []byte, t *tenancy.Tenant, request []byte, compacted int64, visit func(Put)) ([]byte, TxnInfo, error) {
	if !t.Valid() {
		return dst, TxnInfo{}, errNoTenant
	}
	compacted = max(compacted, t.Revisions.Compacted())
	w := txnWriter{tenant: t, compacted: compacted, info: TxnInfo{ReadOnly: true, Serializable: true}, visit: visit}
	out, err := w.txn(dst, request, t.Limits.MaxTxnOps(), true)
	if err != nil {
		return dst, TxnInfo{}, err
	}
	return out, w.info, nil
}

// txn appends one TxnRequest, in the order in which etcd's checkTxnRequest judges: number of operations, compares, success, failure. budget is
// what is left of the operations; it shrinks by at least one per level, which bounds the recursion. It does not bound the whole, as each of a
// level's Txns has it again: MaxTxnParts does.
func (w *txnWriter) txn(dst, message []byte, budget int, top bool) ([]byte, error) {
	ops, parts, err := countTxn(message)
	if err != nil {
		return dst, err
	}
	w.parts += parts
	if ops > budget || w.parts > w.tenant.Limits.MaxTxnParts() {
		return dst, errTooManyOps
	}
	for field := txnCompare; field <= txnFailure; field++ {
		if top {
			w.branch = field
		}
		for rest := message; len(rest) > 0; {
			var r record
			r, rest, _ = next(rest) // countTxn has seen that each record is one
			if r.num() != field {
				continue
			}
			if field == txnCompare {
				dst, err = w.compare(dst, r.data)
			} else {
				dst, err = w.op(dst, field, r.data, budget-ops, top)
			}
			if err != nil {
				return dst, err
			}
		}
	}
	return dst, nil
}

// countTxn returns the greatest number of compares, success and failure operations, as etcd bounds them, and their sum.
func countTxn(message []byte) (ops, parts int, err error) {
	var compares, success, failure int
	for len(message) > 0 {
		r, rest, ok := next(message)
		if !ok {
			return 0, 0, malformed(nameTxn)
		}
		message = rest
		switch r.key {
		case uint64(txnCompare)<<3 | length:
			compares++
		case uint64(txnSuccess)<<3 | length:
			success++
		case uint64(txnFailure)<<3 | length:
			failure++
		default:
			return 0, 0, unknown(nameTxn, r)
		}
	}
	return max(compares, success, failure), compares + success + failure, nil
}

// Members of RequestOp.request; ResponseOp.response has the same.
const (
	opRange protowire.Number = 1 + iota
	opPut
	opDelete
	opTxn
)

// op appends one RequestOp as the given field of a Txn.
func (w *txnWriter) op(dst []byte, field protowire.Number, message []byte, budget int, top bool) ([]byte, error) {
	if len(message) == 0 {
		return dst, errEmptyOp
	}
	r, rest, ok := next(message)
	if !ok {
		return dst, malformed(nameOp)
	}
	if r.key&7 != length || r.num() > opTxn {
		return dst, unknown(nameOp, r)
	}
	if len(rest) > 0 {
		return dst, w.second(rest)
	}
	if top && r.num() != opRange {
		w.info.ReadOnly, w.info.Serializable = false, false
	}
	prefix := len(w.tenant.Prefix.String())
	dst, outer := open(dst, field, len(message)+2*prefix)
	dst, inner := open(dst, r.num(), len(r.data)+2*prefix)
	var err error
	switch r.num() {
	case opRange:
		dst, err = w.rangeOp(dst, r.data)
	case opPut:
		dst, err = w.put(dst, r.data)
	case opDelete:
		dst, err = w.deleteRange(dst, r.data)
	default:
		dst, err = w.txn(dst, r.data, budget, false)
	}
	if err != nil {
		return dst, err
	}
	return shut(shut(dst, inner), outer), nil
}

// second says what is wrong with a RequestOp that goes on after its one member.
func (w *txnWriter) second(message []byte) error {
	r, _, ok := next(message)
	switch {
	case !ok:
		return malformed(nameOp)
	case r.key&7 != length || r.num() > opTxn:
		return unknown(nameOp, r)
	default:
		return repeated(nameOp, r.num())
	}
}

func (w *txnWriter) rangeOp(dst, message []byte) ([]byte, error) {
	q, err := parseRange(message)
	if err == nil {
		err = q.check()
	}
	if err != nil {
		return dst, err
	}
	w.info.Ranges++
	w.touch(q.span)
	w.info.Large = w.info.Large || q.large()
	if !q.serializable {
		w.info.Serializable = false
	}
	if q.revision > 0 && (w.info.MinRevision == 0 || q.revision < w.info.MinRevision) {
		w.info.MinRevision = q.revision
	}
	if w.compacted > 0 && q.revision != 0 && q.revision < w.compacted {
		q.revision = math.MinInt64
	}
	return q.append(dst, w.tenant)
}

// touch notes a range.
func (w *txnWriter) touch(s span) {
	if core, several := s.core(w.tenant); several {
		w.info.Spans = append(w.info.Spans, core)
	}
}

func (w *txnWriter) put(dst, message []byte) ([]byte, error) {
	q, err := parsePut(message)
	if err == nil {
		err = q.check()
	}
	if err != nil {
		return dst, err
	}
	info := q.info(w.tenant)
	w.info.Puts++
	w.info.PutBytes += info.Key + info.Value
	if info.Lease != 0 {
		w.info.Leased++
	}
	if w.visit != nil {
		w.visit(q.visited(info, w.branch == txnSuccess))
	}
	return q.append(dst, w.tenant)
}

func (w *txnWriter) deleteRange(dst, message []byte) ([]byte, error) {
	q, err := parseDelete(message)
	if err == nil {
		err = q.check()
	}
	if err != nil {
		return dst, err
	}
	w.info.Deletes++
	w.touch(q.span)
	return q.append(dst, w.tenant)
}
