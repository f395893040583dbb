// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package tenancy holds what a tenant of one shared etcd is: the prefix that its keys live under, the space of lease IDs that it can name,
// and which RPCs it may call at all. It is pure: it decides and never calls.
//
// Three facts carry the isolation, and none of them may change without an isolation review:
//
//   - A prefix begins and ends with "/" and has no empty element, so that no prefix begins another (a tenant "/a/" and a tenant "/ab/" never
//     meet) and the first key behind a prefix is the prefix with its last byte raised by one. No carry over 0xff can happen.
//   - Every key of a tenant is the prefix and at least one byte more: etcd refuses empty keys, and so the bare prefix is nobody's key.
//   - Every lease of a tenant carries its tag in the upper half of the ID, and a tenant names only the lower half, so that another tenant's
//     lease has no name at all.
//
// Package wire, alongside it, applies them to the messages of etcd's API.
package tenancy
