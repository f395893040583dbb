// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
)

// rangeRequest is etcdserverpb.RangeRequest.
type rangeRequest struct {
	span
	limit, revision                      int64
	sortOrder, sortTarget                int32
	serializable, keysOnly, countOnly    bool
	minMod, maxMod, minCreate, maxCreate int64
}

// RangeInfo is what a proxy needs to know of a Range alongside its bytes.
type RangeInfo struct {
	// Revision is the one that is read, as the tenant names it; zero or less is the present.
	Revision int64
	// Limit of the keys returned; zero or less is none.
	Limit                             int64
	Serializable, CountOnly, KeysOnly bool
	// Single tells that one key is asked for, not a range.
	Single bool
	// Large tells that the core may have to read many values for it: a range of more than smallLimit keys, or of any number that it must sort or filter.
	Large bool
	// Scans tells that the core reads the value of every key of the range, whatever the limit is: to sort or to filter.
	Scans bool
}

// smallLimit is how many keys a range may ask for and still be a small request: the pages of kubectl and of Kubernetes' reflectors are that large.
const smallLimit = 500

const nameRange = "RangeRequest"

func parseRange(message []byte) (q rangeRequest, err error) {
	err = fields(nameRange, message, func(r record) bool {
		switch r.key {
		case 1<<3 | length:
			q.key = r.data
		case 2<<3 | length:
			q.end = r.data
		default:
			if !q.scalar(r) {
				return false
			}
		}
		return true
	})
	return q, err
}

// scalar takes over a number and tells whether it is known.
func (q *rangeRequest) scalar(r record) bool {
	switch r.key {
	case 3<<3 | varint:
		q.limit = int64(r.value)
	case 4<<3 | varint:
		q.revision = int64(r.value)
	case 5<<3 | varint:
		q.sortOrder = enum(r.value)
	case 6<<3 | varint:
		q.sortTarget = enum(r.value)
	case 7<<3 | varint:
		q.serializable = r.value != 0
	case 8<<3 | varint:
		q.keysOnly = r.value != 0
	case 9<<3 | varint:
		q.countOnly = r.value != 0
	case 10<<3 | varint:
		q.minMod = int64(r.value)
	case 11<<3 | varint:
		q.maxMod = int64(r.value)
	case 12<<3 | varint:
		q.minCreate = int64(r.value)
	case 13<<3 | varint:
		q.maxCreate = int64(r.value)
	default:
		return false
	}
	return true
}

// The greatest values of RangeRequest.SortOrder (NONE, ASCEND, DESCEND) and SortTarget (KEY, VERSION, CREATE, MOD, VALUE).
const (
	sortAscend     = 1
	sortDescend    = 2
	sortTargetKey  = 0
	sortTargetLast = 4
)

// check refuses what etcd's checkRangeRequest refuses.
func (q *rangeRequest) check() error {
	switch {
	case len(q.key) == 0:
		return errEmptyKey
	case q.sortOrder < 0 || q.sortOrder > sortDescend || q.sortTarget < 0 || q.sortTarget > sortTargetLast:
		return errSortOption
	}
	return nil
}

// checkStream refuses what etcd's checkRangeStreamRequest refuses in addition.
func (q *rangeRequest) checkStream() error {
	switch {
	case q.sortOrder != 0 && (q.sortOrder != sortAscend || q.sortTarget != sortTargetKey):
		return errStreamSort
	case q.minMod != 0 || q.maxMod != 0 || q.minCreate != 0 || q.maxCreate != 0:
		return errStreamFilters
	}
	return nil
}

func (q *rangeRequest) append(dst []byte, t *tenancy.Tenant) ([]byte, error) {
	dst, err := q.span.append(dst, t, 1, 2)
	if err != nil {
		return dst, err
	}
	dst = appendInt(dst, 3, q.limit)
	dst = appendInt(dst, 4, t.Revisions.Core(q.revision))
	dst = appendInt(dst, 5, int64(q.sortOrder))
	dst = appendInt(dst, 6, int64(q.sortTarget))
	dst = appendBool(dst, 7, q.serializable)
	dst = appendBool(dst, 8, q.keysOnly)
	dst = appendBool(dst, 9, q.countOnly)
	dst = appendInt(dst, 10, t.Revisions.Core(q.minMod))
	dst = appendInt(dst, 11, t.Revisions.Core(q.maxMod))
	dst = appendInt(dst, 12, t.Revisions.Core(q.minCreate))
	return appendInt(dst, 13, t.Revisions.Core(q.maxCreate)), nil
}

func (q *rangeRequest) info() RangeInfo {
	return RangeInfo{
		Revision: q.revision, Limit: q.limit, Single: len(q.end) == 0,
		Serializable: q.serializable, CountOnly: q.countOnly, KeysOnly: q.keysOnly, Large: q.large(), Scans: q.scans(),
	}
}

// scans reports whether the core reads every value to sort or filter (etcdserver/txn rangeLimit, v3.7.3).
func (q *rangeRequest) scans() bool {
	if len(q.end) == 0 || q.countOnly {
		return false
	}
	sorted := q.sortOrder != 0 && (q.sortOrder != sortAscend || q.sortTarget != sortTargetKey)
	return sorted || q.minMod != 0 || q.maxMod != 0 || q.minCreate != 0 || q.maxCreate != 0
}

// large reports whether the core may have to read many values.
func (q *rangeRequest) large() bool {
	if len(q.end) == 0 || q.countOnly {
		return false
	}
	return q.limit <= 0 || q.limit > smallLimit || q.scans()
}

// AppendRange appends the core's RangeRequest for a tenant's. On any error dst comes back as it was given.
func AppendRange(dst []byte, t *tenancy.Tenant, request []byte) ([]byte, RangeInfo, error) {
	return appendRange(dst, t, request, false)
}

// AppendRangeStream is AppendRange for the RPC RangeStream, which does not sort and does not filter by revision.
func AppendRangeStream(dst []byte, t *tenancy.Tenant, request []byte) ([]byte, RangeInfo, error) {
	return appendRange(dst, t, request, true)
}

func appendRange(dst []byte, t *tenancy.Tenant, request []byte, stream bool) ([]byte, RangeInfo, error) {
	if !t.Valid() {
		return dst, RangeInfo{}, errNoTenant
	}
	q, err := parseRange(request)
	if err == nil {
		err = q.check()
	}
	if err == nil && stream {
		err = q.checkStream()
	}
	if err != nil {
		return dst, RangeInfo{}, err
	}
	out, err := q.append(dst, t)
	if err != nil {
		return dst, RangeInfo{}, err
	}
	return out, q.info(), nil
}
