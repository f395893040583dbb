// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package etcdisolation

import (
	"math"
	"strings"

	authpb "go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Kinds of RPC, by who sends how many messages.
const (
	unary = iota
	serverStream
	firstAnswer
	watchStream
	keepAliveStream
)

// A Request is one message to one method.
type Request struct {
	// Method is the full name, "/service/method".
	Method string
	// Body is the message as it goes over the wire.
	Body []byte

	kind int
	// denied methods must never be answered with OK.
	denied bool
	// unknown methods are not in etcd's API.
	unknown bool
}

// OnStream reports that the message belongs on a stream on which others are sent, too.
func (r Request) OnStream() bool { return r.kind == watchStream || r.kind == keepAliveStream }

// Methods of the services that etcd serves in addition to those of etcdserverpb; they are not in its API module.
const (
	lockMethod     = "/v3lockpb.Lock/Lock"
	unlockMethod   = "/v3lockpb.Lock/Unlock"
	campaignMethod = "/v3electionpb.Election/Campaign"
	proclaimMethod = "/v3electionpb.Election/Proclaim"
	leaderMethod   = "/v3electionpb.Election/Leader"
	observeMethod  = "/v3electionpb.Election/Observe"
	resignMethod   = "/v3electionpb.Election/Resign"
)

// Request returns a request to any RPC, one in three of them with bytes that no client library would send.
func (g Generator) Request() Request {
	r := g.valid()
	if g.once(3) {
		r.Body = g.Mutate(r.Body)
	}
	return r
}

func (g Generator) valid() Request {
	switch n := g.IntN(100); {
	case n < 55:
		return g.KV()
	case n < 67:
		return request(pb.Watch_Watch_FullMethodName, watchStream, g.Watch())
	case n < 80:
		return g.Lease()
	case n < 84:
		return g.allowed()
	case n < 98:
		return g.refused()
	default:
		return g.unknown()
	}
}

func request(method string, kind int, m proto.Message) Request {
	body, err := proto.Marshal(m)
	if err != nil {
		body = nil // a string that is not UTF-8: the empty message is as good
	}
	return Request{Method: method, Body: body, kind: kind}
}

// KV returns a request to one of the KV service's methods.
func (g Generator) KV() Request {
	switch n := g.IntN(40); {
	case n < 12:
		return request(pb.KV_Range_FullMethodName, unary, g.Range())
	case n < 22:
		return request(pb.KV_Put_FullMethodName, unary, g.Put())
	case n < 27:
		return request(pb.KV_DeleteRange_FullMethodName, unary, g.Delete())
	case n < 36:
		if g.once(60) {
			return request(pb.KV_Txn_FullMethodName, unary, g.nested(either(g, 5, 20, 127, 128, 129, 2000)))
		}
		return request(pb.KV_Txn_FullMethodName, unary, g.Txn(3))
	case n < 37:
		return request(pb.KV_Compact_FullMethodName, unary, g.Compact())
	default:
		return request(pb.KV_RangeStream_FullMethodName, serverStream, g.Range())
	}
}

// Lease returns a request to one of the lease service's methods.
func (g Generator) Lease() Request {
	switch g.IntN(8) {
	case 0, 1:
		return request(pb.Lease_LeaseGrant_FullMethodName, unary, &pb.LeaseGrantRequest{ID: g.lease(), TTL: either(g, int64(1), 5, 100, 0, -1, 9_000_000_001, math.MaxInt64)})
	case 2:
		return request(pb.Lease_LeaseRevoke_FullMethodName, unary, &pb.LeaseRevokeRequest{ID: g.lease()})
	case 3, 4, 5:
		return request(pb.Lease_LeaseTimeToLive_FullMethodName, unary, &pb.LeaseTimeToLiveRequest{ID: g.lease(), Keys: g.once(2)})
	case 6:
		if g.once(4) {
			return request(pb.Lease_LeaseLeases_FullMethodName, unary, &pb.LeaseLeasesRequest{})
		}
	}
	return request(pb.Lease_LeaseKeepAlive_FullMethodName, keepAliveStream, &pb.LeaseKeepAliveRequest{ID: g.lease()})
}

// allowed returns a request to one of the methods that are answered without the core's part in it.
func (g Generator) allowed() Request {
	switch g.IntN(4) {
	case 0:
		return request(pb.Maintenance_Status_FullMethodName, unary, &pb.StatusRequest{})
	case 1:
		return request(pb.Cluster_MemberList_FullMethodName, unary, &pb.MemberListRequest{Linearizable: g.once(2)})
	case 2:
		return request(pb.Auth_AuthStatus_FullMethodName, unary, &pb.AuthStatusRequest{})
	default:
		return request(pb.Maintenance_Alarm_FullMethodName, unary, &pb.AlarmRequest{Action: pb.AlarmRequest_GET})
	}
}

// refused returns a request to one of the methods that no tenant may call.
func (g Generator) refused() Request {
	all := g.refusals()
	r := all[g.IntN(len(all))]
	r.denied = true
	return r
}

func (g Generator) refusals() []Request {
	name := either(g, "mallory", "root", "", "\x00")
	return append([]Request{
		request(pb.Maintenance_Alarm_FullMethodName, unary, &pb.AlarmRequest{
			Action: either(g, pb.AlarmRequest_ACTIVATE, pb.AlarmRequest_DEACTIVATE, 9), MemberID: g.Uint64(), Alarm: either(g, pb.AlarmType_NOSPACE, pb.AlarmType_CORRUPT),
		}),
		request(pb.Maintenance_Defragment_FullMethodName, unary, &pb.DefragmentRequest{}),
		request(pb.Maintenance_Hash_FullMethodName, unary, &pb.HashRequest{}),
		request(pb.Maintenance_HashKV_FullMethodName, unary, &pb.HashKVRequest{Revision: g.revision()}),
		request(pb.Maintenance_Snapshot_FullMethodName, serverStream, &pb.SnapshotRequest{}),
		request(pb.Maintenance_MoveLeader_FullMethodName, unary, &pb.MoveLeaderRequest{TargetID: g.Uint64()}),
		request(pb.Maintenance_Downgrade_FullMethodName, unary, &pb.DowngradeRequest{Action: pb.DowngradeRequest_DowngradeAction(g.IntN(4)), Version: "3.6.0"}),
		request(pb.Cluster_MemberAdd_FullMethodName, unary, &pb.MemberAddRequest{PeerURLs: []string{"http://127.0.0.1:1"}, IsLearner: true}),
		request(pb.Cluster_MemberRemove_FullMethodName, unary, &pb.MemberRemoveRequest{ID: g.Uint64()}),
		request(pb.Cluster_MemberUpdate_FullMethodName, unary, &pb.MemberUpdateRequest{ID: g.Uint64(), PeerURLs: []string{"http://127.0.0.1:1"}}),
		request(pb.Cluster_MemberPromote_FullMethodName, unary, &pb.MemberPromoteRequest{ID: g.Uint64()}),
		request(pb.Auth_AuthEnable_FullMethodName, unary, &pb.AuthEnableRequest{}),
		request(pb.Auth_AuthDisable_FullMethodName, unary, &pb.AuthDisableRequest{}),
		request(pb.Auth_Authenticate_FullMethodName, unary, &pb.AuthenticateRequest{Name: name, Password: "p"}),
		request(pb.Auth_UserAdd_FullMethodName, unary, &pb.AuthUserAddRequest{Name: name, Password: "p"}),
		request(pb.Auth_UserGet_FullMethodName, unary, &pb.AuthUserGetRequest{Name: name}),
		request(pb.Auth_UserList_FullMethodName, unary, &pb.AuthUserListRequest{}),
		request(pb.Auth_UserDelete_FullMethodName, unary, &pb.AuthUserDeleteRequest{Name: name}),
		request(pb.Auth_UserChangePassword_FullMethodName, unary, &pb.AuthUserChangePasswordRequest{Name: name, Password: "q"}),
		request(pb.Auth_UserGrantRole_FullMethodName, unary, &pb.AuthUserGrantRoleRequest{User: name, Role: "root"}),
		request(pb.Auth_UserRevokeRole_FullMethodName, unary, &pb.AuthUserRevokeRoleRequest{Name: name, Role: "root"}),
		request(pb.Auth_RoleAdd_FullMethodName, unary, &pb.AuthRoleAddRequest{Name: name}),
		request(pb.Auth_RoleGet_FullMethodName, unary, &pb.AuthRoleGetRequest{Role: name}),
		request(pb.Auth_RoleList_FullMethodName, unary, &pb.AuthRoleListRequest{}),
		request(pb.Auth_RoleDelete_FullMethodName, unary, &pb.AuthRoleDeleteRequest{Role: name}),
		request(pb.Auth_RoleGrantPermission_FullMethodName, unary, &pb.AuthRoleGrantPermissionRequest{
			Name: name, Perm: &authpb.Permission{PermType: authpb.READWRITE, Key: []byte{0}, RangeEnd: []byte{0}},
		}),
		request(pb.Auth_RoleRevokePermission_FullMethodName, unary, &pb.AuthRoleRevokePermissionRequest{Role: name, Key: []byte{0}, RangeEnd: []byte{0}}),
	}, g.concurrency()...)
}

// concurrency are requests to the lock and election services, whose keys carry no tenant's prefix.
func (g Generator) concurrency() []Request {
	key := either(g, g.Hostile...)
	leader := protowire.AppendTag(nil, 1, protowire.BytesType)
	leader = protowire.AppendBytes(leader, leaderKey(key, either(g, g.Hostile...), g.revision(), g.lease()))
	return []Request{
		{Method: lockMethod, Body: nameAndLease(key, g.lease())},
		{Method: unlockMethod, Body: appendBytes(nil, 1, key)},
		{Method: campaignMethod, Body: appendBytes(nameAndLease(key, g.lease()), 3, []byte("forged"))},
		{Method: leaderMethod, Body: appendBytes(nil, 1, key)},
		{Method: observeMethod, Body: appendBytes(nil, 1, key), kind: serverStream},
		{Method: proclaimMethod, Body: appendBytes(leader, 2, []byte("forged"))},
		{Method: resignMethod, Body: leader},
	}
}

func appendBytes(dst []byte, field protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(dst, field, protowire.BytesType), value)
}

func appendVarint(dst []byte, field protowire.Number, value int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(dst, field, protowire.VarintType), uint64(value))
}

// nameAndLease begins v3lockpb.LockRequest and v3electionpb.CampaignRequest alike.
func nameAndLease(name []byte, lease int64) []byte {
	return appendVarint(appendBytes(nil, 1, name), 2, lease)
}

// leaderKey is v3electionpb.LeaderKey.
func leaderKey(name, key []byte, revision, lease int64) []byte {
	return appendVarint(appendVarint(appendBytes(appendBytes(nil, 1, name), 2, key), 3, revision), 4, lease)
}

// unknown returns a request to a method that there is not, though some spell one that there is.
func (g Generator) unknown() Request {
	r := g.KV()
	r.kind, r.denied, r.unknown = unary, true, true
	service, method, _ := strings.Cut(r.Method[1:], "/")
	r.Method = either(g,
		"/"+service+"/"+method+"2", "/"+service+"2/"+method, "/"+strings.ToLower(r.Method[1:]), "/"+service+"//"+method, "//"+service+"/"+method,
		"/"+service+"/"+method+"/", "/"+service+"/"+method+"?x=1", "/"+service+"/", "/"+method, "/", "/etcdserverpb.KV/../"+service+"/"+method,
		"/"+service+"/"+strings.Replace(method, "a", "%61", 1)+"%00", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
		"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "/grpc.channelz.v1.Channelz/GetServers", "/v3lockpb.Lock/Lock2", "/"+service+"."+method+"/",
	)
	return r
}
