// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
)

// LeaseGrant is what a proxy needs to know of a LeaseGrant alongside its bytes.
type LeaseGrant struct {
	// Visible is the lease as the tenant names it: the ID it chose or the drawn one.
	Visible int64
	// Drawn tells that the tenant left the choice of the ID to the server: if the core has the lease already, draw again.
	Drawn bool
	TTL   int64
}

const (
	nameGrant      = "LeaseGrantRequest"
	nameRevoke     = "LeaseRevokeRequest"
	nameKeepAlive  = "LeaseKeepAliveRequest"
	nameTimeToLive = "LeaseTimeToLiveRequest"
	nameLeases     = "LeaseLeasesRequest"
)

// AppendLeaseGrant appends the core's LeaseGrantRequest for a tenant's. draw is a random number above 0, the lease's ID if the tenant gives
// none. On any error dst comes back as it was given.
func AppendLeaseGrant(dst []byte, t *tenancy.Tenant, request []byte, draw uint32) ([]byte, LeaseGrant, error) {
	if !t.Valid() {
		return dst, LeaseGrant{}, errNoTenant
	}
	var g LeaseGrant
	if err := fields(nameGrant, request, func(r record) bool {
		switch r.key {
		case 1<<3 | varint:
			g.TTL = int64(r.value)
		case 2<<3 | varint:
			g.Visible = int64(r.value)
		default:
			return false
		}
		return true
	}); err != nil {
		return dst, LeaseGrant{}, err
	}
	if g.Visible == 0 {
		g.Visible, g.Drawn = int64(draw), true
	}
	if !t.Leases.Choosable(g.Visible) {
		return dst, LeaseGrant{}, leaseOutside(g)
	}
	dst = appendInt(dst, 1, g.TTL)
	return appendInt(dst, 2, t.Leases.Core(g.Visible)), g, nil
}

// leaseOutside refuses a lease that a tenant cannot have. etcd has all of 64 bits; clients that choose IDs are rare (etcdctl and clientv3 let
// the server choose).
func leaseOutside(g LeaseGrant) error {
	if g.Drawn {
		return &BoundaryError{Message: "no lease ID was drawn for a tenant that left the choice to the server"}
	}
	return &RequestError{Code: InvalidArgument, Message: fmt.Sprintf(
		"etcd-storage-proxy: a lease cannot have the ID %d here: choose one from 1 to %d, or 0 to have one chosen", g.Visible, tenancy.MaxLease)}
}

// AppendLeaseRevoke appends the core's LeaseRevokeRequest for a tenant's and returns the lease as the tenant named it. A number that no lease
// of the tenant can have is sent as one that is never granted, so that the core answers as etcd does: that there is no such lease.
func AppendLeaseRevoke(dst []byte, t *tenancy.Tenant, request []byte) ([]byte, int64, error) {
	return appendLeaseID(dst, t, nameRevoke, request)
}

// AppendLeaseKeepAlive is AppendLeaseRevoke for a LeaseKeepAliveRequest. AppendLeaseKeepAliveResponse wants the lease back.
func AppendLeaseKeepAlive(dst []byte, t *tenancy.Tenant, request []byte) ([]byte, int64, error) {
	return appendLeaseID(dst, t, nameKeepAlive, request)
}

func appendLeaseID(dst []byte, t *tenancy.Tenant, name string, request []byte) ([]byte, int64, error) {
	if !t.Valid() {
		return dst, 0, errNoTenant
	}
	id, err := parseID(name, request)
	if err != nil {
		return dst, 0, err
	}
	return appendInt(dst, 1, t.Leases.Core(id)), id, nil
}

// parseID reads a message whose only field is a number.
func parseID(name string, message []byte) (id int64, err error) {
	err = fields(name, message, func(r record) bool {
		id = int64(r.value)
		return r.key == 1<<3|varint
	})
	return id, err
}

// AppendLeaseTimeToLive is AppendLeaseRevoke for a LeaseTimeToLiveRequest. AppendLeaseTimeToLiveResponse wants the lease back.
func AppendLeaseTimeToLive(dst []byte, t *tenancy.Tenant, request []byte) ([]byte, int64, error) {
	if !t.Valid() {
		return dst, 0, errNoTenant
	}
	var id int64
	var keys bool
	if err := fields(nameTimeToLive, request, func(r record) bool {
		switch r.key {
		case 1<<3 | varint:
			id = int64(r.value)
		case 2<<3 | varint:
			keys = r.value != 0
		default:
			return false
		}
		return true
	}); err != nil {
		return dst, 0, err
	}
	return appendBool(appendInt(dst, 1, t.Leases.Core(id)), 2, keys), id, nil
}

// AppendLeaseLeases appends the core's LeaseLeasesRequest for a tenant's: there is nothing in it. The answer lists the leases of all tenants,
// and AppendLeaseLeasesResponse leaves those of one.
func AppendLeaseLeases(dst []byte, t *tenancy.Tenant, request []byte) ([]byte, error) {
	if !t.Valid() {
		return dst, errNoTenant
	}
	return dst, parseNothing(nameLeases, request)
}
