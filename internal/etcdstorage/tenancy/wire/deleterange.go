// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
)

// deleteRequest is etcdserverpb.DeleteRangeRequest.
type deleteRequest struct {
	span
	prevKV bool
}

// DeleteRangeInfo is what a proxy needs to know of a DeleteRange alongside its bytes.
type DeleteRangeInfo struct {
	// Single tells that one key is named, not a range.
	Single bool
	PrevKV bool
}

const nameDelete = "DeleteRangeRequest"

func parseDelete(message []byte) (q deleteRequest, err error) {
	err = fields(nameDelete, message, func(r record) bool {
		switch r.key {
		case 1<<3 | length:
			q.key = r.data
		case 2<<3 | length:
			q.end = r.data
		case 3<<3 | varint:
			q.prevKV = r.value != 0
		default:
			return false
		}
		return true
	})
	return q, err
}

// check refuses what etcd's checkDeleteRequest refuses.
func (q *deleteRequest) check() error {
	if len(q.key) == 0 {
		return errEmptyKey
	}
	return nil
}

func (q *deleteRequest) append(dst []byte, t *tenancy.Tenant) ([]byte, error) {
	dst, err := q.span.append(dst, t, 1, 2)
	if err != nil {
		return dst, err
	}
	return appendBool(dst, 3, q.prevKV), nil
}

// AppendDeleteRange appends the core's DeleteRangeRequest for a tenant's. On any error dst comes back as it was given.
func AppendDeleteRange(dst []byte, t *tenancy.Tenant, request []byte) ([]byte, DeleteRangeInfo, error) {
	if !t.Valid() {
		return dst, DeleteRangeInfo{}, errNoTenant
	}
	q, err := parseDelete(request)
	if err == nil {
		err = q.check()
	}
	if err != nil {
		return dst, DeleteRangeInfo{}, err
	}
	out, err := q.append(dst, t)
	if err != nil {
		return dst, DeleteRangeInfo{}, err
	}
	return out, DeleteRangeInfo{Single: len(q.end) == 0, PrevKV: q.prevKV}, nil
}
