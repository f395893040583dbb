// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package etcdisolation attacks one tenant's endpoint of an etcd that is shared, and judges whether the others notice.
//
// The attacker knows all that a careless operator would tell: the names of other tenants' keys and the IDs of some of their leases. It does
// not know what is in the values, nor the names and lease IDs that are kept secret; those carry unguessable markers, and no response may
// have one. The judge stands at the core: other tenants' keys must be the same byte for byte, with versions and leases; their leases alive
// and not renewed; members, alarms, users, the cluster version and the history of the core untouched.
//
// [Run] generates requests from a seed, each from the seed and its number alone, so that a violation is replayed by its number. [Probe] makes
// the attacks that etcd's own grpc-proxy is known to fall for, one by one; a suite that does not find those proves nothing.
package etcdisolation
