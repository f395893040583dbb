// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package quota knows how much one tenant stores, and whether it may store more. It is pure: it is told of puts and deletions in the order of
// their revisions, and of requests that are under way.
//
// The measure is what is alive: keys, with their prefix, and values. History that is not compacted and the core's own overhead are not in it.
//
// # Growth, not writes
//
// What is refused is growth: a put of a new key, or of a longer value. A tenant that is at its limit can still read, delete, and overwrite with
// values that are no longer than before, so that leases, heartbeats and whatever is needed to clean up go on. etcd's own alarm refuses every put.
//
// # Several replicas
//
// Each replica follows the tenant's keys by a watch, so all know what all have written, some milliseconds late. What a replica itself has sent
// and not yet seen is counted as if it were there already (see [Ledger.Reserve]). The limit can be exceeded by what other replicas have under way
// at one moment, and by nothing else.
package quota
