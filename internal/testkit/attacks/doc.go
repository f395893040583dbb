// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package attacks has all that is thrown at a tenant's endpoint of an etcd that is shared, and the judges of what comes of it. Tests of the rewriting,
// of HTTP/2, of whole proxies and of API servers are runners of it.
//
// There is one generator. [Generator] draws from a seed and a number alone, so that whatever goes wrong is replayed by the two: [Writer] makes messages of
// any type, [Generator.Request] requests to any RPC, [Generator.Mutate] the bytes that no client sends, [Generator.Script] connections that break HTTP/2
// and gRPC, [Loads] every RPC at full speed. [Probe] makes the attacks that etcd's own grpc-proxy is known to fall for, one by one; a suite that does not
// find those proves nothing.
//
// There are two judges. [World] is what a tenant may see: the attacker knows all that a careless operator would tell, the names of other tenants' keys and
// the IDs of some of their leases; the values, and the names and IDs that are kept secret, carry unguessable markers, and no response may have one. At the
// core other tenants' keys must be the same byte for byte, with versions and leases; their leases alive and not renewed; members, alarms, users, the
// cluster version and the history untouched. [Neighbor] is what another tenant notices: which of its operations fail, and how long they take.
package attacks
