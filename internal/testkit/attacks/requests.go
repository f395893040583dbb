// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package attacks

import (
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
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

// depth is how deep messages hold messages.
const depth = 5

// weighted is how often a method is called, next to others.
type weighted struct {
	weight int
	method string
}

// kvMethods and leaseMethods are what tenants use.
func kvMethods() []weighted {
	return []weighted{
		{12, pb.KV_Range_FullMethodName}, {10, pb.KV_Put_FullMethodName}, {5, pb.KV_DeleteRange_FullMethodName}, {9, pb.KV_Txn_FullMethodName},
		{1, pb.KV_Compact_FullMethodName}, {3, pb.KV_RangeStream_FullMethodName},
	}
}

func leaseMethods() []weighted {
	return []weighted{
		{8, pb.Lease_LeaseGrant_FullMethodName}, {4, pb.Lease_LeaseRevoke_FullMethodName}, {12, pb.Lease_LeaseTimeToLive_FullMethodName},
		{1, pb.Lease_LeaseLeases_FullMethodName}, {7, pb.Lease_LeaseKeepAlive_FullMethodName},
	}
}

// answered are methods that are answered without the core's part in it.
func answered() []weighted {
	return []weighted{
		{1, pb.Maintenance_Status_FullMethodName}, {1, pb.Cluster_MemberList_FullMethodName}, {1, pb.Auth_AuthStatus_FullMethodName},
		{1, pb.Maintenance_Alarm_FullMethodName},
	}
}

// refused are all other methods of etcd's services, those of its future versions included. Alarms are of both kinds: they may only be listed.
func refused() []weighted {
	out := []weighted{{1, pb.Maintenance_Alarm_FullMethodName}}
	allowed := slices.Concat(kvMethods(), leaseMethods(), answered(), []weighted{{1, pb.Watch_Watch_FullMethodName}})
	services := pb.File_rpc_proto.Services()
	for i := range services.Len() {
		methods := services.Get(i).Methods()
		for j := range methods.Len() {
			name := "/" + string(services.Get(i).FullName()) + "/" + string(methods.Get(j).Name())
			if !slices.ContainsFunc(allowed, func(w weighted) bool { return w.method == name }) {
				out = append(out, weighted{1, name})
			}
		}
	}
	return out
}

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
		return g.to(pb.Watch_Watch_FullMethodName)
	case n < 80:
		return g.one(leaseMethods())
	case n < 84:
		return g.one(answered())
	case n < 98:
		if g.once(6) {
			all := g.concurrency()
			return all[g.IntN(len(all))]
		}
		r := g.one(refused())
		r.denied = true
		return r
	default:
		return g.unknown()
	}
}

// KV returns a request to one of the KV service's methods.
func (g Generator) KV() Request {
	if g.once(300) {
		return Request{Method: pb.KV_Txn_FullMethodName, Body: g.nested(Either(g, 5, 20, 127, 128, 129, 2000))}
	}
	return g.one(kvMethods())
}

// Watch returns a message of a watch stream, but for those that only a damaged client sends.
func (g Generator) Watch() *pb.WatchRequest {
	var out pb.WatchRequest
	if err := proto.Unmarshal(g.to(pb.Watch_Watch_FullMethodName).Body, &out); err != nil {
		panic(err) // a Writer's messages are what an encoder writes
	}
	return &out
}

// one returns a request to one of the methods.
func (g Generator) one(of []weighted) Request {
	all := 0
	for _, w := range of {
		all += w.weight
	}
	n := g.IntN(all)
	for _, w := range of {
		if n -= w.weight; n < 0 {
			return g.to(w.method)
		}
	}
	return Request{}
}

// to returns a request to a method.
func (g Generator) to(method string) Request {
	service, name, _ := strings.Cut(method[1:], "/")
	d := pb.File_rpc_proto.Services().ByName(protoreflect.FullName(service).Name()).Methods().ByName(protoreflect.Name(name))
	r := Request{Method: method, Body: Writer{Generator: g, Whole: !g.once(30), Value: (&sender{Generator: g}).value}.Message(d.Input(), depth)}
	switch {
	case method == pb.Watch_Watch_FullMethodName:
		r.kind = watchStream
	case method == pb.Lease_LeaseKeepAlive_FullMethodName:
		r.kind = keepAliveStream
	case d.IsStreamingServer():
		r.kind = serverStream
	}
	return r
}

// nested is a transaction within a transaction and so on.
func (g Generator) nested(levels int) []byte {
	message := g.to(pb.KV_Txn_FullMethodName).Body
	for range levels {
		message = appendBytes(nil, 2, appendBytes(nil, 4, message)) // TxnRequest.success, RequestOp.request_txn
	}
	return message
}

// request is one that a probe makes.
func request(method string, kind int, m proto.Message) Request {
	body, err := proto.Marshal(m)
	if err != nil {
		panic(err) // each is written out in this package
	}
	return Request{Method: method, Body: body, kind: kind}
}

// concurrency are requests to the lock and election services, whose keys carry no tenant's prefix. No tenant may call them.
func (g Generator) concurrency() []Request {
	key := Either(g, g.Hostile...)
	leader := protowire.AppendTag(nil, 1, protowire.BytesType)
	leader = protowire.AppendBytes(leader, leaderKey(key, Either(g, g.Hostile...), g.revision(), g.lease()))
	all := []Request{
		{Method: lockMethod, Body: nameAndLease(key, g.lease())},
		{Method: unlockMethod, Body: appendBytes(nil, 1, key)},
		{Method: campaignMethod, Body: appendBytes(nameAndLease(key, g.lease()), 3, []byte("forged"))},
		{Method: leaderMethod, Body: appendBytes(nil, 1, key)},
		{Method: observeMethod, Body: appendBytes(nil, 1, key), kind: serverStream},
		{Method: proclaimMethod, Body: appendBytes(leader, 2, []byte("forged"))},
		{Method: resignMethod, Body: leader},
	}
	for i := range all {
		all[i].denied = true
	}
	return all
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
	r.Method = Either(g,
		"/"+service+"/"+method+"2", "/"+service+"2/"+method, "/"+strings.ToLower(r.Method[1:]), "/"+service+"//"+method, "//"+service+"/"+method,
		"/"+service+"/"+method+"/", "/"+service+"/"+method+"?x=1", "/"+service+"/", "/"+method, "/", "/etcdserverpb.KV/../"+service+"/"+method,
		"/"+service+"/"+strings.Replace(method, "a", "%61", 1)+"%00", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
		"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "/grpc.channelz.v1.Channelz/GetServers", "/v3lockpb.Lock/Lock2", "/"+service+"."+method+"/",
	)
	return r
}
