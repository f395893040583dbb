// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package wire

const (
	nameTxnResponse = "TxnResponse"
	nameResponseOp  = "ResponseOp"
)

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
	name := nameTxnResponse
	switch r.num() {
	case opRange:
		name = nameRangeResponse
	case opPut:
		name = namePutResponse
	case opDelete:
		name = nameDeleteResponse
	default:
		if depth--; depth < 0 {
			return foreign(nameTxnResponse, "more levels than any request has")
		}
	}
	if err := a.walk(name, r.data, depth, false); err != nil {
		return err
	}
	a.dst = shut(shut(a.dst, inner), outer)
	return nil
}
