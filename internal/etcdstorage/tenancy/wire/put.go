// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
)

// putRequest is etcdserverpb.PutRequest. Its span has no end.
type putRequest struct {
	span
	value                            []byte
	lease                            int64
	prevKV, ignoreValue, ignoreLease bool
}

// PutInfo is what a proxy needs to know of a Put alongside its bytes.
type PutInfo struct {
	// Key and Value are how many bytes the core will store: the key with its prefix.
	Key, Value int
	// Lease is the one the tenant named, 0 if none.
	Lease  int64
	PrevKV bool
}

// Put is one put as it is told to a visitor.
type Put struct {
	// Success tells in which branch of the outermost Txn it stands; a put that is none of a Txn's counts as one of success.
	Success bool
	// Key is the tenant's, without prefix; it is a part of the request and must not be kept.
	Key []byte
	// Bytes is what the core will store: key, with prefix, and value. KeepsValue says that the value stays what it is (ignore_value), so that
	// Bytes has none.
	Bytes      int
	KeepsValue bool
}

const namePut = "PutRequest"

func parsePut(message []byte) (q putRequest, err error) {
	err = fields(namePut, message, func(r record) bool {
		switch r.key {
		case 1<<3 | length:
			q.key = r.data
		case 2<<3 | length:
			q.value = r.data
		case 3<<3 | varint:
			q.lease = int64(r.value)
		case 4<<3 | varint:
			q.prevKV = r.value != 0
		case 5<<3 | varint:
			q.ignoreValue = r.value != 0
		case 6<<3 | varint:
			q.ignoreLease = r.value != 0
		default:
			return false
		}
		return true
	})
	return q, err
}

// check refuses what etcd's checkPutRequest refuses.
func (q *putRequest) check() error {
	switch {
	case len(q.key) == 0:
		return errEmptyKey
	case q.ignoreValue && len(q.value) != 0:
		return errValueProvided
	case q.ignoreLease && q.lease != 0:
		return errLeaseProvided
	}
	return nil
}

func (q *putRequest) append(dst []byte, t *tenancy.Tenant) ([]byte, error) {
	dst, err := q.span.append(dst, t, 1, 0)
	if err != nil {
		return dst, err
	}
	dst = appendBytes(dst, 2, q.value)
	dst = appendInt(dst, 3, t.Leases.Core(q.lease))
	dst = appendBool(dst, 4, q.prevKV)
	dst = appendBool(dst, 5, q.ignoreValue)
	return appendBool(dst, 6, q.ignoreLease), nil
}

func (q *putRequest) info(t *tenancy.Tenant) PutInfo {
	return PutInfo{Key: len(t.Prefix.String()) + len(q.key), Value: len(q.value), Lease: q.lease, PrevKV: q.prevKV}
}

func (q *putRequest) visited(info PutInfo, success bool) Put {
	return Put{Success: success, Key: q.key, Bytes: info.Key + info.Value, KeepsValue: q.ignoreValue}
}

// AppendPut appends the core's PutRequest for a tenant's. On any error dst comes back as it was given.
func AppendPut(dst []byte, t *tenancy.Tenant, request []byte) ([]byte, PutInfo, error) {
	return AppendPutVisiting(dst, t, request, nil)
}

// AppendPutVisiting is AppendPut that tells visit of the put, once it is known to be right. A nil visit is told nothing.
func AppendPutVisiting(dst []byte, t *tenancy.Tenant, request []byte, visit func(Put)) ([]byte, PutInfo, error) {
	if !t.Valid() {
		return dst, PutInfo{}, errNoTenant
	}
	q, err := parsePut(request)
	if err == nil {
		err = q.check()
	}
	if err != nil {
		return dst, PutInfo{}, err
	}
	out, err := q.append(dst, t)
	if err != nil {
		return dst, PutInfo{}, err
	}
	info := q.info(t)
	if visit != nil {
		visit(q.visited(info, true))
	}
	return out, info, nil
}
