// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package isolation shows that a tenant of etcd-storage-proxy cannot reach beyond its prefix, and that the proxy otherwise answers as etcd does.
//
//	isolation    the attacks of internal/testkit/etcdisolation on the proxy; 100,000 requests, or as many as MOORING_ISOLATION_REQUESTS says;
//	             a failure prints its seed, which MOORING_ISOLATION_SEED replays
//	control      the same on direct etcd and on etcd's own grpc-proxy, where they must succeed
//	difference   the same requests to the proxy and to an etcd of the tenant's own must be answered alike
package isolation
