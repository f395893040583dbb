// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"bytes"
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy/wire"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// typical returns the messages that an API server and its core send most, by the name of the rewriter.
func typical() (fromTenant, fromCore map[string]proto.Message) {
	value := bytes.Repeat([]byte("v"), 1024)
	header := &pb.ResponseHeader{ClusterId: 1 << 63, MemberId: 1 << 62, Revision: 1234567, RaftTerm: 5}
	kv := &mvccpb.KeyValue{Key: []byte(ownPrefix + "registry/pods/default/web-0"), CreateRevision: 1000, ModRevision: 1234567, Version: 5, Value: value,
		Lease: ownTag<<32 | asked}
	kvs := make([]*mvccpb.KeyValue, 500)
	for i := range kvs {
		kvs[i] = proto.CloneOf(kv)
		kvs[i].Key = fmt.Appendf(nil, "%sregistry/pods/default/web-%d", ownPrefix, i)
	}
	key, end := []byte("registry/pods/default/web-0"), []byte("registry/pods/default/web-1")
	get := &pb.RangeRequest{Key: key, Limit: 1}
	put := &pb.PutRequest{Key: key, Value: value, Lease: asked}
	fromTenant = map[string]proto.Message{
		"Range":       get,
		"RangeStream": &pb.RangeRequest{Key: key, RangeEnd: end, Revision: 1234567},
		"Put":         put,
		"DeleteRange": &pb.DeleteRangeRequest{Key: key, RangeEnd: end, PrevKv: true},
		"Txn": &pb.TxnRequest{
			Compare: []*pb.Compare{{Target: pb.Compare_MOD, Key: key, TargetUnion: &pb.Compare_ModRevision{ModRevision: 1234567}}},
			Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: put}}},
			Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: get}}},
		},
		"LeaseGrant":      &pb.LeaseGrantRequest{TTL: 60},
		"LeaseRevoke":     &pb.LeaseRevokeRequest{ID: asked},
		"LeaseKeepAlive":  &pb.LeaseKeepAliveRequest{ID: asked},
		"LeaseTimeToLive": &pb.LeaseTimeToLiveRequest{ID: asked, Keys: true},
		"LeaseLeases":     &pb.LeaseLeasesRequest{},
	}
	one := &pb.RangeResponse{Header: header, Kvs: kvs[:1], Count: 1}
	events := make([]*mvccpb.Event, 10)
	for i := range events {
		events[i] = &mvccpb.Event{Kv: kvs[i], PrevKv: kvs[i]}
	}
	fromCore = map[string]proto.Message{
		"Range":       &pb.RangeResponse{Header: header, Kvs: kvs, Count: 500},
		"RangeStream": &pb.RangeStreamResponse{RangeResponse: one},
		"Put":         &pb.PutResponse{Header: header, PrevKv: kv},
		"DeleteRange": &pb.DeleteRangeResponse{Header: header, Deleted: 2, PrevKvs: kvs[:2]},
		"Txn": &pb.TxnResponse{Header: header, Responses: []*pb.ResponseOp{
			{Response: &pb.ResponseOp_ResponseRange{ResponseRange: one}},
		}},
		"Watch":           &pb.WatchResponse{Header: header, WatchId: 5, Events: events},
		"LeaseGrant":      &pb.LeaseGrantResponse{Header: header, ID: ownTag<<32 | asked, TTL: 60},
		"LeaseRevoke":     &pb.LeaseRevokeResponse{Header: header},
		"LeaseKeepAlive":  &pb.LeaseKeepAliveResponse{Header: header, ID: ownTag<<32 | asked, TTL: 60},
		"LeaseTimeToLive": &pb.LeaseTimeToLiveResponse{Header: header, ID: ownTag<<32 | asked, TTL: 60, Keys: [][]byte{kv.Key}},
		"LeaseLeases":     &pb.LeaseLeasesResponse{Header: header, Leases: []*pb.LeaseStatus{{ID: ownTag<<32 | asked}, {ID: 5}}},
	}
	return fromTenant, fromCore
}

// measured are the rewriters that must not allocate, with their input. Watch answers are parsed into the given room, as a proxy does.
func measured(tb testing.TB) map[string]struct {
	rewriter
	in []byte
} {
	tb.Helper()
	all := map[string]struct {
		rewriter
		in []byte
	}{}
	fromTenant, fromCore := typical()
	for name, m := range fromTenant {
		all["request/"+name] = struct {
			rewriter
			in []byte
		}{requests()[name], encode(tb, m)}
	}
	for name, m := range fromCore {
		all["response/"+name] = struct {
			rewriter
			in []byte
		}{responses()[name], encode(tb, m)}
	}
	w := all["response/Watch"]
	w.rewrite = drop(wire.ParseWatchResponse)
	all["response/Watch"] = w
	return all
}

// TestNothingIsAllocated: rewriting into a buffer with room for it costs no memory, however long the answer is.
// It is not parallel: AllocsPerRun counts what the whole process allocates.
func TestNothingIsAllocated(t *testing.T) {
	tenant := own(t)
	for name, m := range measured(t) {
		dst := make([]byte, 0, 2*len(m.in)+1024)
		var err error
		if n := testing.AllocsPerRun(100, func() { _, err = m.rewrite(dst, tenant, m.in) }); n != 0 || err != nil {
			t.Errorf("%s: %v allocations, %v", name, n, err)
		}
	}
}

// BenchmarkRewrite prints what one message costs. The baseline alongside each is decoding it with etcd's generated code, which any proxy that
// works on messages does at least.
func BenchmarkRewrite(b *testing.B) {
	tenant := own(b)
	for name, m := range measured(b) {
		b.Run(name+"/wire", func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(m.in)))
			dst := make([]byte, 0, 2*len(m.in)+1024)
			for b.Loop() {
				must.Get(m.rewrite(dst, tenant, m.in)).Or(b)
			}
		})
		b.Run(name+"/decode", func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(m.in)))
			for b.Loop() {
				must.Do(b, proto.Unmarshal(m.in, m.of.ProtoReflect().New().Interface()))
			}
		})
	}
}
