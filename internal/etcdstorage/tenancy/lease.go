// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
)

const (
	// MaxLease is the greatest lease ID that a tenant can name; the smallest is 1, as 0 means "no lease".
	MaxLease = math.MaxUint32
	// maxTag is the greatest tag. One less than 31 bits hold, so that math.MaxInt64 is not a tenant's lease: LeaseSpace.Compare needs a number
	// above all of them.
	maxTag = math.MaxInt32 - 1
	// tagShift is how far up in the core's lease ID the tag stands.
	tagShift = 32
)

// LeaseSpace is the part of the core's lease IDs that belongs to one tenant: the core's ID is tag<<32 | the tenant's ID. The tag has 31 bits,
// so that the core's IDs are positive, as etcd's own are. The zero value is nobody's.
//
// Two tenants of one core must have different tags. Derived ones differ with high odds only; who runs many tenants hands tags out.
type LeaseSpace struct{ tag uint32 }

// DeriveLeaseSpace returns the space that a prefix has if nobody chose one: the first eight bytes of its SHA-256, modulo the number of tags.
// It must never change, or else running tenants would lose their leases.
func DeriveLeaseSpace(p Prefix) LeaseSpace {
	sum := sha256.Sum256([]byte(p.start))
	return LeaseSpace{tag: uint32(binary.BigEndian.Uint64(sum[:])%maxTag) + 1}
}

// OwnLease returns a lease of the core that is no tenant's: the proxies' own.
func OwnLease(draw uint32) int64 {
	return int64(maxTag+1)<<tagShift | int64(min(draw, math.MaxUint32-1))
}

// ParseLeaseSpace reads a chosen tag, as in --lease-space: a decimal number from 1 to 2147483646.
func ParseLeaseSpace(text string) (LeaseSpace, error) {
	tag, err := strconv.ParseUint(text, 10, 32)
	if err != nil || tag == 0 || tag > maxTag {
		return LeaseSpace{}, fmt.Errorf("lease space %q must be a whole number from 1 to %d, and no other tenant's of this core", text, maxTag)
	}
	return LeaseSpace{tag: uint32(tag)}, nil
}

// String returns the tag as ParseLeaseSpace reads it.
func (s LeaseSpace) String() string { return strconv.FormatUint(uint64(s.tag), 10) }

// IsZero tells whether s is the zero value, which is nobody's.
func (s LeaseSpace) IsZero() bool { return s.tag == 0 }

// Choosable tells whether a tenant may have a lease of this ID: from 1 to MaxLease.
func (s LeaseSpace) Choosable(visible int64) bool { return visible > 0 && visible <= MaxLease }

// Core returns the core's ID of what a tenant names. 0, no lease, stays 0. A number that no lease of the tenant can have becomes the one ID of
// the space that is never granted, so that the core itself answers that there is no such lease, and at the moment when etcd would (in a Txn:
// only if the branch runs; measured with v3.7.3).
func (s LeaseSpace) Core(visible int64) int64 {
	switch {
	case visible == 0:
		return 0
	case s.Choosable(visible):
		return int64(s.tag)<<tagShift | visible
	default:
		return int64(s.tag) << tagShift
	}
}

// Visible returns the tenant's ID of a lease of the core; ok tells that it is the tenant's at all.
func (s LeaseSpace) Visible(core int64) (visible int64, ok bool) {
	low := core & MaxLease
	if s.tag == 0 || core>>tagShift != int64(s.tag) || low == 0 {
		return 0, false
	}
	return low, true
}

// Show returns what a tenant sees as the lease of one of its keys. A lease that is not the tenant's (of data written before there was a proxy)
// shows as it is, and cannot be used: its number, named by the tenant, is that of a lease of its own or of none.
func (s LeaseSpace) Show(core int64) int64 {
	if visible, ok := s.Visible(core); ok {
		return visible
	}
	return core
}

// Compare returns the number that stands to the core's IDs of the tenant's leases, and to 0, as visible stands to the tenant's IDs: for a Txn
// that compares leases by order as well as by equality.
func (s LeaseSpace) Compare(visible int64) int64 {
	switch {
	case visible <= 0:
		return visible
	case visible > MaxLease:
		return math.MaxInt64
	default:
		return s.Core(visible)
	}
}
