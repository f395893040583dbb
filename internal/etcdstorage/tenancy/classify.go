// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package tenancy

// Class is what the proxy does with an RPC.
type Class int

const (
	// Denied RPCs reach beyond a tenant (members, users, alarms, the whole database) or are served elsewhere; they answer PermissionDenied.
	Denied Class = iota
	// Forward RPCs go to the core, rewritten.
	Forward
	// Synthetic RPCs are answered by the proxy itself, from what it knows of the tenant.
	Synthetic
)

// String returns the class as metrics and documents name it.
func (c Class) String() string {
	switch c {
	case Forward:
		return "forward"
	case Synthetic:
		return "synthetic"
	case Denied:
		return "denied"
	default:
		return "unknown"
	}
}

// Classify returns what happens to an RPC, by its full name as gRPC gives it ("/etcdserverpb.KV/Range"). Everything that is not known is
// Denied. A test walks all services of the linked etcd API and fails on one that is not known, so that a new RPC of etcd is classified by a
// person and not by chance (RangeStream came with 3.7).
func Classify(fullMethod string) (class Class, known bool) {
	switch fullMethod {
	case "/etcdserverpb.KV/Range",
		"/etcdserverpb.KV/RangeStream",
		"/etcdserverpb.KV/Put",
		"/etcdserverpb.KV/DeleteRange",
		"/etcdserverpb.KV/Txn",
		"/etcdserverpb.Watch/Watch",
		"/etcdserverpb.Lease/LeaseGrant",
		"/etcdserverpb.Lease/LeaseRevoke",
		"/etcdserverpb.Lease/LeaseKeepAlive",
		"/etcdserverpb.Lease/LeaseTimeToLive",
		"/etcdserverpb.Lease/LeaseLeases":
		return Forward, true
	case "/etcdserverpb.KV/Compact", // the tenant's own compact revision; the core's history is everybody's
		"/etcdserverpb.Maintenance/Status",
		"/etcdserverpb.Maintenance/Alarm", // reading only
		"/etcdserverpb.Cluster/MemberList",
		"/etcdserverpb.Auth/AuthStatus",
		"/grpc.health.v1.Health/Check",
		"/grpc.health.v1.Health/List",
		"/grpc.health.v1.Health/Watch":
		return Synthetic, true
	}
	return Denied, denied(fullMethod)
}

// denied names the RPCs that were looked at and refused.
func denied(fullMethod string) bool {
	switch fullMethod {
	// One tenant's hand on the cluster all tenants stand on.
	case "/etcdserverpb.Cluster/MemberAdd",
		"/etcdserverpb.Cluster/MemberRemove",
		"/etcdserverpb.Cluster/MemberUpdate",
		"/etcdserverpb.Cluster/MemberPromote",
		"/etcdserverpb.Maintenance/Defragment",
		"/etcdserverpb.Maintenance/MoveLeader",
		"/etcdserverpb.Maintenance/Downgrade",
		// The whole database, or a hash over it.
		"/etcdserverpb.Maintenance/Snapshot",
		"/etcdserverpb.Maintenance/Hash",
		"/etcdserverpb.Maintenance/HashKV",
		// The core's users: the tenant's identity is its certificate.
		"/etcdserverpb.Auth/AuthEnable",
		"/etcdserverpb.Auth/AuthDisable",
		"/etcdserverpb.Auth/Authenticate",
		"/etcdserverpb.Auth/UserAdd",
		"/etcdserverpb.Auth/UserGet",
		"/etcdserverpb.Auth/UserList",
		"/etcdserverpb.Auth/UserDelete",
		"/etcdserverpb.Auth/UserChangePassword",
		"/etcdserverpb.Auth/UserGrantRole",
		"/etcdserverpb.Auth/UserRevokeRole",
		"/etcdserverpb.Auth/RoleAdd",
		"/etcdserverpb.Auth/RoleGet",
		"/etcdserverpb.Auth/RoleList",
		"/etcdserverpb.Auth/RoleDelete",
		"/etcdserverpb.Auth/RoleGrantPermission",
		"/etcdserverpb.Auth/RoleRevokePermission",
		// Services that run Txns inside the core, out of the proxy's sight: forwarding them is how etcd's own proxy leaks. A client's
		// concurrency package does the same over KV, and works.
		"/v3lockpb.Lock/Lock",
		"/v3lockpb.Lock/Unlock",
		"/v3electionpb.Election/Campaign",
		"/v3electionpb.Election/Proclaim",
		"/v3electionpb.Election/Leader",
		"/v3electionpb.Election/Observe",
		"/v3electionpb.Election/Resign":
		return true
	}
	return false
}
