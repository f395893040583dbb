// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package isolation shows that a tenant of etcd-storage-proxy cannot reach beyond its prefix, and that the proxy otherwise answers as etcd does.
//
//	isolation    the attacks of internal/testkit/attacks on the proxy; a failure prints its seed, which MOORING_SEED replays, and
//	             MOORING_ISOLATION_FROM begins at a request of that number
//	control      the same on direct etcd, where they must succeed (on etcd's own grpc-proxy: package bench, with the tag e2e)
//	difference   the same requests to the proxy and to an etcd of the tenant's own must be answered alike
//	budgets      every RPC at full speed, and lists that nobody reads: what core, proxy and neighbor notice; a second for each RPC, two in CI, a
//	             minute at night
package isolation
