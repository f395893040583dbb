// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"math"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// This file is the second opinion: the rewriting done again on etcd's generated messages, in the plainest words and without the code under
// test. A message that etcd would refuse gives the error it would give.

const (
	ownPrefix = "/team-a/"
	ownEnd    = "/team-a0"
	ownTag    = 77
	// compacted is the tenant's compact revision in all judgements of a Txn.
	compacted = 3
	// drawn is the lease ID that is drawn for a tenant that chooses none.
	drawn = 7
)

func own(t interface {
	Helper()
	Fatal(...any)
}) *tenancy.Tenant {
	t.Helper()
	prefix := must.Get(tenancy.ParsePrefix(ownPrefix)).Or(t)
	leases := must.Get(tenancy.ParseLeaseSpace("77")).Or(t)
	return &tenancy.Tenant{Prefix: prefix, Leases: leases}
}

func coreKey(key []byte) []byte { return append([]byte(ownPrefix), key...) }

func coreEnd(end []byte) []byte {
	switch string(end) {
	case "":
		return nil
	case "\x00":
		return []byte(ownEnd)
	}
	return coreKey(end)
}

func coreLease(id int64) int64 {
	switch {
	case id == 0:
		return 0
	case id > 0 && id < 1<<32:
		return ownTag<<32 + id
	}
	return ownTag << 32
}

func comparedLease(id int64) int64 {
	switch {
	case id <= 0:
		return id
	case id < 1<<32:
		return ownTag<<32 + id
	}
	return math.MaxInt64
}

func judgeRange(m proto.Message) (proto.Message, error) {
	r := m.(*pb.RangeRequest)
	_, order := pb.RangeRequest_SortOrder_name[int32(r.SortOrder)]
	_, target := pb.RangeRequest_SortTarget_name[int32(r.SortTarget)]
	switch {
	case len(r.Key) == 0:
		return nil, rpctypes.ErrGRPCEmptyKey
	case !order || !target:
		return nil, rpctypes.ErrGRPCInvalidSortOption
	}
	r.Key, r.RangeEnd = coreKey(r.Key), coreEnd(r.RangeEnd)
	return r, nil
}

func judgeRangeStream(m proto.Message) (proto.Message, error) {
	r := m.(*pb.RangeRequest)
	sorted := r.SortOrder != pb.RangeRequest_NONE && (r.SortTarget != pb.RangeRequest_KEY || r.SortOrder != pb.RangeRequest_ASCEND)
	filtered := r.MinCreateRevision != 0 || r.MaxCreateRevision != 0 || r.MinModRevision != 0 || r.MaxModRevision != 0
	out, err := judgeRange(m)
	switch {
	case err != nil:
		return nil, err
	case sorted:
		return nil, status.Error(codes.Unimplemented, "RangeStream does not support custom sort orders")
	case filtered:
		return nil, status.Error(codes.Unimplemented, "RangeStream does not support revision filters")
	}
	return out, nil
}

func judgePut(m proto.Message) (proto.Message, error) {
	r := m.(*pb.PutRequest)
	switch {
	case len(r.Key) == 0:
		return nil, rpctypes.ErrGRPCEmptyKey
	case r.IgnoreValue && len(r.Value) > 0:
		return nil, rpctypes.ErrGRPCValueProvided
	case r.IgnoreLease && r.Lease != 0:
		return nil, rpctypes.ErrGRPCLeaseProvided
	}
	r.Key, r.Lease = coreKey(r.Key), coreLease(r.Lease)
	return r, nil
}

func judgeDelete(m proto.Message) (proto.Message, error) {
	r := m.(*pb.DeleteRangeRequest)
	if len(r.Key) == 0 {
		return nil, rpctypes.ErrGRPCEmptyKey
	}
	r.Key, r.RangeEnd = coreKey(r.Key), coreEnd(r.RangeEnd)
	return r, nil
}

func judgeTxn(m proto.Message) (proto.Message, error) {
	return judgeTxnWithin(m.(*pb.TxnRequest), 128, new(int))
}

func judgeTxnWithin(r *pb.TxnRequest, budget int, parts *int) (*pb.TxnRequest, error) {
	ops := max(len(r.Compare), len(r.Success), len(r.Failure))
	*parts += len(r.Compare) + len(r.Success) + len(r.Failure)
	if ops > budget || *parts > 2048 {
		return nil, rpctypes.ErrGRPCTooManyOps
	}
	for _, c := range r.Compare {
		if len(c.Key) == 0 {
			return nil, rpctypes.ErrGRPCEmptyKey
		}
		c.Key, c.RangeEnd = coreKey(c.Key), coreEnd(c.RangeEnd)
		if l, ok := c.TargetUnion.(*pb.Compare_Lease); ok {
			l.Lease = comparedLease(l.Lease)
		}
	}
	for _, branch := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, op := range branch {
			if err := judgeOp(op, budget-ops, parts); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

func judgeOp(op *pb.RequestOp, budget int, parts *int) (err error) {
	switch u := op.Request.(type) {
	case *pb.RequestOp_RequestRange:
		if rev := u.RequestRange.Revision; rev != 0 && rev < compacted {
			u.RequestRange.Revision = math.MinInt64
		}
		_, err = judgeRange(u.RequestRange)
	case *pb.RequestOp_RequestPut:
		_, err = judgePut(u.RequestPut)
	case *pb.RequestOp_RequestDeleteRange:
		_, err = judgeDelete(u.RequestDeleteRange)
	case *pb.RequestOp_RequestTxn:
		_, err = judgeTxnWithin(u.RequestTxn, budget, parts)
	default:
		err = rpctypes.ErrGRPCKeyNotFound
	}
	return err
}

func judgeAsIs(m proto.Message) (proto.Message, error) { return m, nil }

func judgeWatch(m proto.Message) (proto.Message, error) {
	r := m.(*pb.WatchRequest)
	if u, ok := r.RequestUnion.(*pb.WatchRequest_CreateRequest); ok {
		c := u.CreateRequest
		if len(c.Key) == 0 {
			c.Key = []byte{0}
		}
		c.Key, c.RangeEnd = coreKey(c.Key), coreEnd(c.RangeEnd)
		var filters []pb.WatchCreateRequest_FilterType
		for _, f := range []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NOPUT, pb.WatchCreateRequest_NODELETE} {
			if slices.Contains(c.Filters, f) {
				filters = append(filters, f)
			}
		}
		c.Filters = filters
	}
	return r, nil
}

func judgeGrant(m proto.Message) (proto.Message, error) {
	r := m.(*pb.LeaseGrantRequest)
	switch {
	case r.ID == 0:
		r.ID = drawn
	case r.ID < 0 || r.ID >= 1<<32:
		return nil, status.Error(codes.InvalidArgument, "")
	}
	r.ID = coreLease(r.ID)
	return r, nil
}

func judgeLeaseID(m proto.Message) (proto.Message, error) {
	switch r := m.(type) {
	case *pb.LeaseRevokeRequest:
		r.ID = coreLease(r.ID)
	case *pb.LeaseKeepAliveRequest:
		r.ID = coreLease(r.ID)
	case *pb.LeaseTimeToLiveRequest:
		r.ID = coreLease(r.ID)
	}
	return m, nil
}

// Answers. A false ok means that something in it is not the tenant's.

func seenKV(kv *mvccpb.KeyValue) bool {
	if kv == nil {
		return true
	}
	if len(kv.Key) <= len(ownPrefix) || string(kv.Key[:len(ownPrefix)]) != ownPrefix {
		return false
	}
	kv.Key = kv.Key[len(ownPrefix):]
	if kv.Lease > ownTag<<32 && kv.Lease < (ownTag+1)<<32 {
		kv.Lease -= ownTag << 32
	}
	return true
}

func seenKVs(kvs []*mvccpb.KeyValue) bool {
	for _, kv := range kvs {
		if !seenKV(kv) {
			return false
		}
	}
	return true
}

func seenRange(m proto.Message) bool  { return seenKVs(m.(*pb.RangeResponse).Kvs) }
func seenPut(m proto.Message) bool    { return seenKV(m.(*pb.PutResponse).PrevKv) }
func seenDelete(m proto.Message) bool { return seenKVs(m.(*pb.DeleteRangeResponse).PrevKvs) }
func seenStream(m proto.Message) bool {
	return seenKVs(m.(*pb.RangeStreamResponse).GetRangeResponse().GetKvs())
}

func seenTxn(m proto.Message) bool {
	for _, op := range m.(*pb.TxnResponse).Responses {
		ok := false
		switch u := op.Response.(type) {
		case *pb.ResponseOp_ResponseRange:
			ok = seenRange(u.ResponseRange)
		case *pb.ResponseOp_ResponsePut:
			ok = seenPut(u.ResponsePut)
		case *pb.ResponseOp_ResponseDeleteRange:
			ok = seenDelete(u.ResponseDeleteRange)
		case *pb.ResponseOp_ResponseTxn:
			ok = seenTxn(u.ResponseTxn)
		}
		if !ok {
			return false
		}
	}
	return true
}

func seenWatch(m proto.Message) bool {
	r := m.(*pb.WatchResponse)
	for _, e := range r.Events {
		if e.Kv == nil || !seenKV(e.Kv) || !seenKV(e.PrevKv) {
			return false
		}
	}
	if r.Header == nil {
		r.Header = &pb.ResponseHeader{}
	}
	if r.CancelReason != "" && r.CancelReason != rpctypes.ErrCompacted.Error() {
		r.CancelReason = rpctypes.ErrorDesc(rpctypes.ErrGRPCWatchCanceled)
	}
	return true
}

func seenGrant(m proto.Message) bool {
	r := m.(*pb.LeaseGrantResponse)
	ok := r.ID == ownTag<<32|5 && r.Error == ""
	r.ID = 5
	return ok
}

func seenKeepAlive(m proto.Message) bool {
	r := m.(*pb.LeaseKeepAliveResponse)
	ok := r.ID == ownTag<<32|5
	r.ID = 5
	return ok
}

func seenTimeToLive(m proto.Message) bool {
	r := m.(*pb.LeaseTimeToLiveResponse)
	for i, key := range r.Keys {
		kv := &mvccpb.KeyValue{Key: key}
		if !seenKV(kv) {
			return false
		}
		r.Keys[i] = kv.Key
	}
	ok := r.ID == ownTag<<32|5
	r.ID = 5
	return ok
}

func seenLeases(m proto.Message) bool {
	r := m.(*pb.LeaseLeasesResponse)
	var mine []*pb.LeaseStatus
	for _, l := range r.Leases {
		if l.ID > ownTag<<32 && l.ID < (ownTag+1)<<32 {
			mine = append(mine, &pb.LeaseStatus{ID: l.ID - ownTag<<32})
		}
	}
	r.Leases = mine
	return true
}

func seenHeader(proto.Message) bool { return true }
