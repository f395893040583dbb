// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
)

// LeaseInfo is what a proxy needs to know of an answer to a Lease RPC alongside its bytes; what an answer has not is zero.
type LeaseInfo struct {
	// Header is as it came from the core.
	Header Header
	// ID is the lease as the tenant names it.
	ID int64
	// TTL is in seconds: -1 of a LeaseTimeToLive and 0 of a LeaseKeepAlive say that there is no such lease.
	TTL int64
	// Keys counts a LeaseTimeToLive's keys, Leases a LeaseLeases' leases that are the tenant's.
	Keys, Leases int
}

const (
	nameGrantResponse      = "LeaseGrantResponse"
	nameRevokeResponse     = "LeaseRevokeResponse"
	nameKeepAliveResponse  = "LeaseKeepAliveResponse"
	nameTimeToLiveResponse = "LeaseTimeToLiveResponse"
	nameLeasesResponse     = "LeaseLeasesResponse"
	nameLeaseStatus        = "LeaseStatus"
)

// leaseAnswer is the union of all answers to Lease RPCs: header, ID and TTL have the same place in all that have them.
type leaseAnswer struct {
	hasHeader bool
	id        int64
	granted   int64
	info      LeaseInfo
}

// AppendLeaseGrantResponse appends the tenant's LeaseGrantResponse for the core's. asked is LeaseGrant.Visible; an answer about another lease is a
// BoundaryError. On any error dst comes back as it was given.
func AppendLeaseGrantResponse(dst []byte, t *tenancy.Tenant, response []byte, asked int64) ([]byte, LeaseInfo, error) {
	return appendLeaseAnswer(dst, t, nameGrantResponse, response, asked)
}

// AppendLeaseKeepAliveResponse appends the tenant's LeaseKeepAliveResponse for the core's. asked is the lease as the tenant named it; an
// answer about another lease is a BoundaryError. On any error dst comes back as it was given.
func AppendLeaseKeepAliveResponse(dst []byte, t *tenancy.Tenant, response []byte, asked int64) ([]byte, LeaseInfo, error) {
	return appendLeaseAnswer(dst, t, nameKeepAliveResponse, response, asked)
}

// AppendLeaseTimeToLiveResponse appends the tenant's LeaseTimeToLiveResponse for the core's. asked is the lease as the tenant named it; an
// answer about another lease or with a key that is not the tenant's is a BoundaryError. On any error dst comes back as it was given.
func AppendLeaseTimeToLiveResponse(dst []byte, t *tenancy.Tenant, response []byte, asked int64) ([]byte, LeaseInfo, error) {
	return appendLeaseAnswer(dst, t, nameTimeToLiveResponse, response, asked)
}

// AppendLeaseRevokeResponse appends the tenant's LeaseRevokeResponse for the core's, which is a header.
func AppendLeaseRevokeResponse(dst []byte, t *tenancy.Tenant, response []byte) ([]byte, LeaseInfo, error) {
	return appendLeaseAnswer(dst, t, nameRevokeResponse, response, 0)
}

func appendLeaseAnswer(dst []byte, t *tenancy.Tenant, name string, response []byte, asked int64) ([]byte, LeaseInfo, error) {
	if !t.Valid() {
		return dst, LeaseInfo{}, errNoTenant
	}
	var a leaseAnswer
	out := dst
	err := responseFields(name, response, func(r record) (once bool, err error) {
		if r.key == 5<<3|length && name == nameTimeToLiveResponse {
			out, err = a.key(out, t, r.data)
			return false, err // the one field that repeats
		}
		return a.field(name, r)
	})
	if err != nil {
		return dst, LeaseInfo{}, err
	}
	if name != nameRevokeResponse && a.id != t.Leases.Core(asked) {
		return dst, LeaseInfo{}, foreign(name, "another lease than the one asked for")
	}
	a.info.ID = asked
	return a.append(out, t, name, asked), a.info, nil
}

// field takes over one field and tells whether it is known.
func (a *leaseAnswer) field(name string, r record) (known bool, err error) {
	switch r.key {
	case 1<<3 | length:
		a.hasHeader = true
		a.info.Header, err = parseHeader(r.data)
		return true, err
	case 2<<3 | varint:
		a.id = int64(r.value)
	case 3<<3 | varint:
		a.info.TTL = int64(r.value)
	case 4<<3 | varint:
		if name != nameTimeToLiveResponse {
			return false, nil
		}
		a.granted = int64(r.value)
	case 4<<3 | length:
		// LeaseGrantResponse.error. etcd v3.7.3 never sets it (etcdserver/apply), and a client takes its presence for a failure: with the
		// text dropped a failure would look like success, and the text is of nobody knows what.
		if name != nameGrantResponse || len(r.data) == 0 {
			return false, nil
		}
		return true, foreign(name, "an error text")
	default:
		return false, nil
	}
	return true, nil
}

// key appends one of a lease's keys.
func (a *leaseAnswer) key(dst []byte, t *tenancy.Tenant, core []byte) ([]byte, error) {
	key, err := t.Prefix.Strip(core)
	if err != nil {
		return dst, foreign(nameTimeToLiveResponse, "a key that is not the tenant's")
	}
	a.info.Keys++
	return appendBytes(dst, 5, key), nil
}

func (a *leaseAnswer) append(dst []byte, t *tenancy.Tenant, name string, asked int64) []byte {
	if a.hasHeader {
		dst = AppendHeaderField(dst, a.info.Header.For(t))
	}
	if name == nameRevokeResponse {
		return dst
	}
	dst = appendInt(dst, 2, asked)
	dst = appendInt(dst, 3, a.info.TTL)
	return appendInt(dst, 4, a.granted)
}

// AppendLeaseLeasesResponse appends the tenant's LeaseLeasesResponse for the core's: the leases of the tenant's space, and no trace of others.
// On any error dst comes back as it was given.
func AppendLeaseLeasesResponse(dst []byte, t *tenancy.Tenant, response []byte) ([]byte, LeaseInfo, error) {
	if !t.Valid() {
		return dst, LeaseInfo{}, errNoTenant
	}
	var info LeaseInfo
	out := dst
	err := responseFields(nameLeasesResponse, response, func(r record) (once bool, err error) {
		switch r.key {
		case 1<<3 | length:
			if info.Header, err = parseHeader(r.data); err == nil {
				out = AppendHeaderField(out, info.Header.For(t))
			}
			return true, err
		case 2<<3 | length:
			out, err = appendLeaseStatus(out, t, r.data, &info)
		}
		return false, err
	})
	if err != nil {
		return dst, LeaseInfo{}, err
	}
	return out, info, nil
}

// appendLeaseStatus appends one LeaseStatus if it is the tenant's.
func appendLeaseStatus(dst []byte, t *tenancy.Tenant, message []byte, info *LeaseInfo) ([]byte, error) {
	var core int64
	if err := responseFields(nameLeaseStatus, message, func(r record) (bool, error) {
		if r.key != 1<<3|varint {
			return false, nil
		}
		core = int64(r.value)
		return true, nil
	}); err != nil {
		return dst, err
	}
	visible, ok := t.Leases.Visible(core)
	if !ok {
		return dst, nil
	}
	info.Leases++
	dst, m := open(dst, protowire.Number(2), protowire.SizeVarint(uint64(visible))+1)
	return shut(appendInt(dst, 1, visible), m), nil
}
