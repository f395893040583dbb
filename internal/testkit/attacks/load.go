// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package attacks

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// A Load is what a hostile tenant does with one RPC, as fast as it can, until ctx ends. It returns how many calls or messages it made.
type Load func(ctx context.Context, conns []*grpc.ClientConn) int64

// attackers is how many calls a load makes at one time.
const attackers = 64

// counted are the small keys that loads count, in Txns of so many.
const (
	counted    = 2000
	keysPerTxn = 100
)

// PutData writes the 64 keys of 64 KiB that lists of loads read, and the small ones that others count, each behind a prefix.
func PutData(tb testing.TB, client *clientv3.Client, prefix string) {
	tb.Helper()
	for n := 0; n < counted; n += keysPerTxn {
		var puts []clientv3.Op
		for i := range keysPerTxn {
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("%ssmall/%04d", prefix, n+i), "v"))
		}
		must.Get(client.Txn(tb.Context()).Then(puts...).Commit()).Or(tb)
	}
	for n := range 64 {
		must.Get(client.Put(tb.Context(), fmt.Sprintf("%sdata/%04d", prefix, n), strings.Repeat("v", 64<<10))).Or(tb)
	}
}

// Loads are one for each RPC that costs the core, and those that pretend: lists that nobody reads, calls that are given up.
func Loads() map[string]Load {
	all := &pb.RangeRequest{Key: []byte("data/"), RangeEnd: []byte("data0")}
	count := &pb.RangeRequest{Key: []byte("small/"), RangeEnd: []byte("small0"), CountOnly: true}
	page := &pb.RangeRequest{Key: []byte("small/"), RangeEnd: []byte("small0"), Limit: 500}
	sorted := &pb.RangeRequest{
		Key: []byte("small/"), RangeEnd: []byte("small0"), Limit: 1, SortOrder: pb.RangeRequest_DESCEND, SortTarget: pb.RangeRequest_MOD,
	}
	compared := &pb.TxnRequest{Compare: []*pb.Compare{{
		Key: []byte("small/"), RangeEnd: []byte("small0"), Target: pb.Compare_VERSION, Result: pb.Compare_GREATER, TargetUnion: &pb.Compare_Version{Version: 0},
	}}}
	return map[string]Load{
		"get":               calls(pb.KV_Range_FullMethodName, func(int64) proto.Message { return &pb.RangeRequest{Key: []byte("data/0000")} }),
		"count":             calls(pb.KV_Range_FullMethodName, func(int64) proto.Message { return count }),
		"count, given up":   givenUp(pb.KV_Range_FullMethodName, count),
		"count, many":       calls(pb.KV_Txn_FullMethodName, func(int64) proto.Message { return manyOf(5, count) }),
		"small":             calls(pb.KV_Range_FullMethodName, func(n int64) proto.Message { return &pb.RangeRequest{Key: fmt.Appendf(nil, "small/%04d", n%counted)} }),
		"sort":              calls(pb.KV_Range_FullMethodName, func(int64) proto.Message { return sorted }),
		"compare":           calls(pb.KV_Txn_FullMethodName, func(int64) proto.Message { return compared }),
		"page":              calls(pb.KV_Range_FullMethodName, func(int64) proto.Message { return page }),
		"list":              calls(pb.KV_Range_FullMethodName, func(int64) proto.Message { return all }),
		"list, given up":    givenUp(pb.KV_Range_FullMethodName, all),
		"list, unread":      unread(pb.KV_Range_FullMethodName, all),
		"stream":            calls(pb.KV_RangeStream_FullMethodName, func(int64) proto.Message { return all }),
		"stream, unread":    unread(pb.KV_RangeStream_FullMethodName, all),
		"put":               calls(pb.KV_Put_FullMethodName, func(n int64) proto.Message { return &pb.PutRequest{Key: fmt.Appendf(nil, "put/%d", n%1000)} }),
		"overwrite":         calls(pb.KV_Put_FullMethodName, func(int64) proto.Message { return &pb.PutRequest{Key: []byte("one"), Value: make([]byte, 900<<10)} }),
		"put, given up":     givenUp(pb.KV_Put_FullMethodName, &pb.PutRequest{Key: []byte("one"), Value: make([]byte, 100<<10)}),
		"delete":            calls(pb.KV_DeleteRange_FullMethodName, func(int64) proto.Message { return &pb.DeleteRangeRequest{Key: []byte("put/1")} }),
		"txn":               calls(pb.KV_Txn_FullMethodName, func(int64) proto.Message { return manyOf(100, &pb.RangeRequest{Key: []byte("data/0000")}) }),
		"compact":           calls(pb.KV_Compact_FullMethodName, func(n int64) proto.Message { return &pb.CompactionRequest{Revision: n % 1000} }),
		"lease grant":       calls(pb.Lease_LeaseGrant_FullMethodName, func(int64) proto.Message { return &pb.LeaseGrantRequest{TTL: 30} }),
		"lease revoke":      calls(pb.Lease_LeaseRevoke_FullMethodName, func(n int64) proto.Message { return &pb.LeaseRevokeRequest{ID: 1 + n%1000} }),
		"lease ttl":         calls(pb.Lease_LeaseTimeToLive_FullMethodName, func(int64) proto.Message { return &pb.LeaseTimeToLiveRequest{ID: 1, Keys: true} }),
		"leases":            calls(pb.Lease_LeaseLeases_FullMethodName, func(int64) proto.Message { return &pb.LeaseLeasesRequest{} }),
		"keep-alive":        messages(pb.Lease_LeaseKeepAlive_FullMethodName, &pb.LeaseKeepAliveRequest{ID: 1}),
		"keep-alive stream": calls(pb.Lease_LeaseKeepAlive_FullMethodName, func(int64) proto.Message { return &pb.LeaseKeepAliveRequest{ID: 1} }),
		"watch":             messages(pb.Watch_Watch_FullMethodName, watchOf("data/")),
		"watch stream":      givenUp(pb.Watch_Watch_FullMethodName, watchOf("data/")),
		"status":            calls(pb.Maintenance_Status_FullMethodName, func(int64) proto.Message { return &pb.StatusRequest{} }),
		"alarms":            calls(pb.Maintenance_Alarm_FullMethodName, func(int64) proto.Message { return &pb.AlarmRequest{} }),
		"members":           calls(pb.Cluster_MemberList_FullMethodName, func(int64) proto.Message { return &pb.MemberListRequest{} }),
	}
}

func watchOf(prefix string) proto.Message {
	return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
		CreateRequest: &pb.WatchCreateRequest{Key: []byte(prefix), RangeEnd: []byte("e"), StartRevision: 1},
	}}
}

func manyOf(times int, request *pb.RangeRequest) proto.Message {
	var txn pb.TxnRequest
	for range times {
		txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: request}})
	}
	return &txn
}

// repeated runs once until ctx ends, many times at one time. An error is not a reason to end: refusals are what the attacker gets.
func repeated(once func(ctx context.Context, conn *grpc.ClientConn, n int64)) Load {
	return func(ctx context.Context, conns []*grpc.ClientConn) int64 {
		var made atomic.Int64
		var work sync.WaitGroup
		for n := range attackers {
			work.Go(func() {
				for ctx.Err() == nil {
					once(ctx, conns[n%len(conns)], made.Add(1))
				}
			})
		}
		work.Wait()
		return made.Load()
	}
}

// calls makes calls and reads them to their end.
func calls(method string, request func(n int64) proto.Message) Load {
	return repeated(func(ctx context.Context, conn *grpc.ClientConn, n int64) {
		_ = begin(ctx, conn, method, request(n), true)
	})
}

// givenUp makes calls that are given up a moment later. After a large one it makes a small one and waits: gRPC holds what it has not yet written
// of a call that is over, so that the attackers would have all memory, and not the attacked.
func givenUp(method string, request proto.Message) Load {
	large := proto.Size(request) > 1<<10
	return repeated(func(all context.Context, conn *grpc.ClientConn, n int64) {
		ctx, cancel := context.WithTimeout(all, time.Duration(n%20)*100*time.Microsecond)
		defer cancel()
		if _ = begin(ctx, conn, method, request, true); large {
			_ = begin(all, conn, pb.KV_Range_FullMethodName, &pb.RangeRequest{Key: []byte("small/0000")}, true)
		}
	})
}

// unread begins calls that are not read, and keeps them for a while.
func unread(method string, request proto.Message) Load {
	return repeated(func(ctx context.Context, conn *grpc.ClientConn, _ int64) {
		ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
		_ = begin(ctx, conn, method, request, false)
		<-ctx.Done()
	})
}

// messages sends messages on streams, without waiting for their answers.
func messages(method string, message proto.Message) Load {
	return repeated(func(ctx context.Context, conn *grpc.ClientConn, _ int64) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
		if err != nil {
			return
		}
		go func() {
			defer cancel()
			for stream.RecvMsg(&pb.CompactionResponse{}) == nil {
			}
		}()
		for ctx.Err() == nil && stream.SendMsg(message) == nil {
		}
	})
}

// begin makes a call, and reads it to its end if it is to. The responses are read as if they were other messages: what is
// in them does not matter.
func begin(ctx context.Context, conn *grpc.ClientConn, method string, request proto.Message, read bool) error {
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(request); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil || !read {
		return err
	}
	for err == nil { // to its end: gRPC holds a stream until then
		err = stream.RecvMsg(&pb.CompactionResponse{})
	}
	if status.Code(err) == codes.ResourceExhausted { // refused: a moment, as the refusal says
		pause, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		<-pause.Done()
	}
	return err
}
