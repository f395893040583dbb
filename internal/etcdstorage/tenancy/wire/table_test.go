// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy/wire"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func encode(tb testing.TB, m proto.Message) []byte {
	tb.Helper()
	b := must.Get(proto.Marshal(m)).Or(tb)
	return b
}

func field(num protowire.Number, content ...byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), content)
}

func number(num protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), value)
}

func join(parts ...[]byte) (all []byte) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// TestRefusedBytes: what no encoder writes is refused in words, and etcd's refusals keep etcd's order.
func TestRefusedBytes(t *testing.T) {
	t.Parallel()
	key := field(1, 'k')
	fixed := protowire.AppendFixed64(protowire.AppendTag(nil, 3, protowire.Fixed64Type), 1)
	group := protowire.AppendTag(protowire.AppendTag(nil, 1, protowire.StartGroupType), 1, protowire.EndGroupType)
	put := field(2, key...)
	op := func(members ...[]byte) []byte { return field(2, join(members...)...) }
	const (
		twice       = "etcd-storage-proxy: field %d of the %s, or one that excludes it, occurs twice"
		unsupported = "etcd-storage-proxy: field %d of the %s is not supported"
		undecodable = "etcd-storage-proxy: the %s cannot be decoded"
	)
	say := func(text string, num, message string) string {
		return strings.Replace(strings.Replace(text, "%d", num, 1), "%s", message, 1)
	}
	for name, tc := range map[string]struct {
		method string
		in     []byte
		code   wire.Code
		text   string
	}{
		"key twice":               {"Range", join(key, key), wire.InvalidArgument, say(twice, "1", "RangeRequest")},
		"limit twice":             {"Range", join(key, number(3, 1), number(3, 1)), wire.InvalidArgument, say(twice, "3", "RangeRequest")},
		"a field of the future":   {"Range", join(key, number(14, 1)), wire.Unimplemented, say(unsupported, "14", "RangeRequest")},
		"a key that is a number":  {"Range", number(1, 1), wire.Unimplemented, say(unsupported, "1", "RangeRequest")},
		"a limit that is bytes":   {"Range", join(key, field(3, 1)), wire.Unimplemented, say(unsupported, "3", "RangeRequest")},
		"a limit of fixed length": {"Range", join(key, fixed), wire.Unimplemented, say(unsupported, "3", "RangeRequest")},
		"a group":                 {"Range", group, wire.Unimplemented, say(unsupported, "1", "RangeRequest")},
		"an end of no group":      {"Range", group[1:], wire.InvalidArgument, say(undecodable, "", "RangeRequest")},
		"a length beyond the end": {"Range", []byte{1<<3 | 2, 5, 'k'}, wire.InvalidArgument, say(undecodable, "", "RangeRequest")},
		"a length of 64 bits": {"Range", append([]byte{1<<3 | 2}, protowire.AppendVarint(nil, math.MaxUint64)...), wire.InvalidArgument,
			say(undecodable, "", "RangeRequest")},
		"a varint of 11 bytes": {"Range", append([]byte{3 << 3}, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"...), wire.InvalidArgument,
			say(undecodable, "", "RangeRequest")},
		"field 0":                     {"Range", []byte{2, 1, 'k'}, wire.InvalidArgument, say(undecodable, "", "RangeRequest")},
		"a put's key twice":           {"Put", join(key, field(2, 'v'), key), wire.InvalidArgument, say(twice, "1", "PutRequest")},
		"a delete's end twice":        {"DeleteRange", join(key, field(2, 'v'), field(2, 0)), wire.InvalidArgument, say(twice, "2", "DeleteRangeRequest")},
		"two members":                 {"Txn", op(field(1, key...), put), wire.InvalidArgument, say(twice, "2", "RequestOp")},
		"a member in two pieces":      {"Txn", op(put, put), wire.InvalidArgument, say(twice, "2", "RequestOp")},
		"a member nobody knows":       {"Txn", op(field(5, key...)), wire.Unimplemented, say(unsupported, "5", "RequestOp")},
		"one known and one not":       {"Txn", op(put, number(9, 1)), wire.Unimplemented, say(unsupported, "9", "RequestOp")},
		"a member and rubbish":        {"Txn", op(put, []byte{0xff}), wire.InvalidArgument, say(undecodable, "", "RequestOp")},
		"rubbish":                     {"Txn", op([]byte{0xff}), wire.InvalidArgument, say(undecodable, "", "RequestOp")},
		"a field of a Txn":            {"Txn", field(4, 0), wire.Unimplemented, say(unsupported, "4", "TxnRequest")},
		"rubbish in a Txn":            {"Txn", []byte{0xff}, wire.InvalidArgument, say(undecodable, "", "TxnRequest")},
		"no member":                   {"Txn", op(), wire.InvalidArgument, "etcdserver: key not found"},
		"no key in a Txn's put":       {"Txn", op(field(2)), wire.InvalidArgument, "etcdserver: key is not provided"},
		"no key in a compare":         {"Txn", field(1, number(1, 1)...), wire.InvalidArgument, "etcdserver: key is not provided"},
		"a compare before an op":      {"Txn", join(op(), field(1)), wire.InvalidArgument, "etcdserver: key is not provided"},
		"compare: two of the union":   {"Txn", field(1, join(field(3, 'k'), number(4, 1), field(7, 'v'))...), wire.InvalidArgument, say(twice, "7", "Compare")},
		"compare: field nobody knows": {"Txn", field(1, join(field(3, 'k'), number(9, 1))...), wire.Unimplemented, say(unsupported, "9", "Compare")},
		"compare: end twice":          {"Txn", field(1, join(field(3, 'k'), field(64, 'l'), field(64, 'm'))...), wire.InvalidArgument, say(twice, "64", "Compare")},
		"compare: rubbish":            {"Txn", field(1, 0xff), wire.InvalidArgument, say(undecodable, "", "Compare")},
		"compaction":                  {"Compact", join(number(1, 5), number(1, 6)), wire.InvalidArgument, say(twice, "1", "CompactionRequest")},
		"compaction of the future":    {"Compact", number(3, 5), wire.Unimplemented, say(unsupported, "3", "CompactionRequest")},
		"two watches":                 {"Watch", join(field(1, key...), field(1, key...)), wire.InvalidArgument, say(twice, "1", "WatchRequest")},
		"a watch and a cancel":        {"Watch", join(field(1, key...), field(2)), wire.InvalidArgument, say(twice, "2", "WatchRequest")},
		"a watch and rubbish":         {"Watch", join(field(1, key...), []byte{0xff}), wire.InvalidArgument, say(undecodable, "", "WatchRequest")},
		"a watch of the future":       {"Watch", field(4), wire.Unimplemented, say(unsupported, "4", "WatchRequest")},
		"a watched key twice":         {"Watch", field(1, join(key, key)...), wire.InvalidArgument, say(twice, "1", "WatchCreateRequest")},
		"a filter that breaks off":    {"Watch", field(1, field(5, 0xff)...), wire.InvalidArgument, say(undecodable, "", "WatchCreateRequest")},
		"a watch with a new field":    {"Watch", field(1, number(9, 1)...), wire.Unimplemented, say(unsupported, "9", "WatchCreateRequest")},
		"a cancel of two":             {"Watch", field(2, join(number(1, 1), number(1, 2))...), wire.InvalidArgument, say(twice, "1", "WatchCancelRequest")},
		"progress of something":       {"Watch", field(3, number(1, 1)...), wire.Unimplemented, say(unsupported, "1", "WatchProgressRequest")},
		"a grant with an ID too big": {"LeaseGrant", number(2, 1<<32), wire.InvalidArgument,
			"etcd-storage-proxy: a lease cannot have the ID 4294967296 here: choose one from 1 to 4294967295, or 0 to have one chosen"},
		"a grant with an ID below 0": {"LeaseGrant", number(2, math.MaxUint64), wire.InvalidArgument,
			"etcd-storage-proxy: a lease cannot have the ID -1 here: choose one from 1 to 4294967295, or 0 to have one chosen"},
		"a grant of two":     {"LeaseGrant", join(number(2, 1), number(2, 2)), wire.InvalidArgument, say(twice, "2", "LeaseGrantRequest")},
		"a revoke of two":    {"LeaseRevoke", join(number(1, 1), number(1, 2)), wire.InvalidArgument, say(twice, "1", "LeaseRevokeRequest")},
		"a keep-alive's new": {"LeaseKeepAlive", number(2, 1), wire.Unimplemented, say(unsupported, "2", "LeaseKeepAliveRequest")},
		"a TTL of two":       {"LeaseTimeToLive", join(number(1, 1), number(1, 2)), wire.InvalidArgument, say(twice, "1", "LeaseTimeToLiveRequest")},
		"leases of somebody": {"LeaseLeases", number(1, 1), wire.Unimplemented, say(unsupported, "1", "LeaseLeasesRequest")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := requests()[tc.method].run(t, tc.in)
			var refused *wire.RequestError
			if !errors.As(err, &refused) || refused.Code != tc.code || refused.Message != tc.text {
				t.Errorf("%v\nwant %s", err, tc.text)
			}
		})
	}
}

// TestWithheldAnswers: each way in which an answer can be wrong is found, and the text, which is logged, holds no key.
func TestWithheldAnswers(t *testing.T) {
	t.Parallel()
	foreign := &mvccpb.KeyValue{Key: []byte("/team-b/" + canary)}
	bare := &mvccpb.KeyValue{Key: []byte(ownPrefix), Value: []byte(canary)}
	mine := &mvccpb.KeyValue{Key: []byte(ownPrefix + "k")}
	const key = "the core's KeyValue holds a key that is not the tenant's"
	deep := &pb.TxnResponse{}
	for range 129 {
		deep = &pb.TxnResponse{Responses: []*pb.ResponseOp{{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: deep}}}}
	}
	mineTwice := join(field(2, encode(t, mine)...), field(2, encode(t, mine)...))
	for name, tc := range map[string]struct {
		method string
		in     []byte
		text   string
	}{
		"range":            {"Range", encode(t, &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{mine, foreign}}), key},
		"bare prefix":      {"Range", encode(t, &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{bare}}), key},
		"no key":           {"Range", field(2), key},
		"stream":           {"RangeStream", encode(t, &pb.RangeStreamResponse{RangeResponse: &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{foreign}}}), key},
		"put":              {"Put", encode(t, &pb.PutResponse{PrevKv: foreign}), key},
		"delete":           {"DeleteRange", encode(t, &pb.DeleteRangeResponse{PrevKvs: []*mvccpb.KeyValue{mine, foreign}}), key},
		"watch":            {"Watch", encode(t, &pb.WatchResponse{Events: []*mvccpb.Event{{Kv: mine}, {Kv: foreign}}}), key},
		"previous":         {"Watch", encode(t, &pb.WatchResponse{Events: []*mvccpb.Event{{Kv: mine, PrevKv: foreign}}}), key},
		"nothing happened": {"Watch", encode(t, &pb.WatchResponse{Events: []*mvccpb.Event{{}}}), "the core's Event holds no key"},
		"txn": {"Txn", encode(t, &pb.TxnResponse{Responses: []*pb.ResponseOp{{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: &pb.TxnResponse{
			Responses: []*pb.ResponseOp{{Response: &pb.ResponseOp_ResponseRange{ResponseRange: &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{foreign}}}}},
		}}}}}), key},
		"no response":   {"Txn", field(3), "the core's ResponseOp cannot be decoded"},
		"two answers":   {"Txn", field(3, join(field(1), field(2))...), "the core's ResponseOp holds something else than one answer"},
		"a new answer":  {"Txn", field(3, field(5)...), "the core's ResponseOp holds something else than one answer"},
		"too deep":      {"Txn", encode(t, deep), "the core's TxnResponse holds more levels than any request has"},
		"kv twice":      {"Put", mineTwice, "the core's PutResponse holds a field twice"},
		"key twice":     {"Range", field(2, join(field(1, coreKey([]byte("k"))...), field(1, coreKey([]byte("k"))...))...), "the core's KeyValue holds a field twice"},
		"event's kv":    {"Watch", field(11, mineTwice...), "the core's Event holds a field twice"},
		"header twice":  {"Range", join(field(1), field(1)), "the core's RangeResponse holds a field twice"},
		"member twice":  {"Range", field(1, join(number(2, 1), number(2, 1))...), "the core's ResponseHeader holds a field twice"},
		"chunk twice":   {"RangeStream", join(field(1), field(1)), "the core's RangeStreamResponse holds a field twice"},
		"deleted twice": {"DeleteRange", join(number(2, 1), number(2, 1)), "the core's DeleteRangeResponse holds a field twice"},
		"txn twice":     {"Txn", join(number(2, 1), number(2, 1)), "the core's TxnResponse holds a field twice"},
		"watch twice":   {"Watch", join(number(2, 1), number(2, 1)), "the core's WatchResponse holds a field twice"},
		"rubbish":       {"Range", []byte{0xff}, "the core's RangeResponse cannot be decoded"},
		"rubbish chunk": {"RangeStream", []byte{0xff}, "the core's RangeStreamResponse cannot be decoded"},
		"rubbish put":   {"Put", []byte{0xff}, "the core's PutResponse cannot be decoded"},
		"rubbish del":   {"DeleteRange", []byte{0xff}, "the core's DeleteRangeResponse cannot be decoded"},
		"rubbish txn":   {"Txn", []byte{0xff}, "the core's TxnResponse cannot be decoded"},
		"rubbish watch": {"Watch", []byte{0xff}, "the core's WatchResponse cannot be decoded"},
		"rubbish event": {"Watch", field(11, 0xff), "the core's Event cannot be decoded"},
		"rubbish kv":    {"Range", field(2, 0xff), "the core's KeyValue cannot be decoded"},
		"rubbish head":  {"Range", field(1, 0xff), "the core's ResponseHeader cannot be decoded"},
		"granted another": {"LeaseGrant", encode(t, &pb.LeaseGrantResponse{ID: ownTag<<32 | 6}),
			"the core's LeaseGrantResponse holds another lease than the one asked for"},
		"granted a foreign one": {"LeaseGrant", encode(t, &pb.LeaseGrantResponse{ID: asked}),
			"the core's LeaseGrantResponse holds another lease than the one asked for"},
		"granted with an error": {"LeaseGrant", encode(t, &pb.LeaseGrantResponse{ID: ownTag<<32 | asked, Error: canary}),
			"the core's LeaseGrantResponse holds an error text"},
		"kept another": {"LeaseKeepAlive", encode(t, &pb.LeaseKeepAliveResponse{ID: (ownTag+1)<<32 | asked}),
			"the core's LeaseKeepAliveResponse holds another lease than the one asked for"},
		"TTL of another": {"LeaseTimeToLive", encode(t, &pb.LeaseTimeToLiveResponse{}),
			"the core's LeaseTimeToLiveResponse holds another lease than the one asked for"},
		"a lease's foreign key": {"LeaseTimeToLive", encode(t, &pb.LeaseTimeToLiveResponse{ID: ownTag<<32 | asked, Keys: [][]byte{foreign.Key}}),
			"the core's LeaseTimeToLiveResponse holds a key that is not the tenant's"},
		"TTL twice":     {"LeaseTimeToLive", join(number(3, 1), number(3, 1)), "the core's LeaseTimeToLiveResponse holds a field twice"},
		"rubbish lease": {"LeaseRevoke", []byte{0xff}, "the core's LeaseRevokeResponse cannot be decoded"},
		"rubbish list":  {"LeaseLeases", []byte{0xff}, "the core's LeaseLeasesResponse cannot be decoded"},
		"rubbish entry": {"LeaseLeases", field(2, 0xff), "the core's LeaseStatus cannot be decoded"},
		"entry twice":   {"LeaseLeases", field(2, join(number(1, 1), number(1, 1))...), "the core's LeaseStatus holds a field twice"},
		"list's header": {"LeaseLeases", join(field(1), field(1)), "the core's LeaseLeasesResponse holds a field twice"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := responses()[tc.method].run(t, tc.in)
			var withheld *wire.BoundaryError
			if !errors.As(err, &withheld) || withheld.Message != tc.text {
				t.Errorf("%v\nwant %s", err, tc.text)
			}
		})
	}
}

// TestNobodysMessages: without a tenant nothing is rewritten, and nothing panics.
func TestNobodysMessages(t *testing.T) {
	t.Parallel()
	tenant := own(t)
	for name, nobody := range map[string]*tenancy.Tenant{"nil": nil, "zero": {}, "no prefix": {Leases: tenant.Leases}, "no leases": {Prefix: tenant.Prefix}} {
		for kind, all := range map[string]map[string]rewriter{"request": requests(), "response": responses()} {
			for method, r := range all {
				if kind == "request" && method == "Compact" {
					continue // it is only read
				}
				var withheld *wire.BoundaryError
				out, err := r.rewrite(nil, nobody, nil)
				if len(out) > 0 || !errors.As(err, &withheld) || withheld.Message != "a message was to be rewritten for no tenant" {
					t.Errorf("%s: %s %s: %v", name, method, kind, err)
				}
			}
		}
	}
	if _, err := wire.AppendWatchRequest(nil, nil, &wire.WatchRequest{}); err == nil {
		t.Error("a watch for nobody")
	}
}

// TestTheLastLineOfDefense: a creation that did not come from ParseWatchRequest is judged too.
func TestTheLastLineOfDefense(t *testing.T) {
	t.Parallel()
	for _, w := range []wire.WatchRequest{
		{}, {Key: "k"}, {Key: ownPrefix}, {Key: ownPrefix + "k", End: "\x00"}, {Key: ownPrefix + "k", End: "/team-b/"}, {Key: ownEnd},
	} {
		w.Kind = wire.WatchCreate
		out, err := wire.AppendWatchRequest([]byte("x"), own(t), &w)
		var withheld *wire.BoundaryError
		if string(out) != "x" || !errors.As(err, &withheld) || withheld.Message != "a rewritten request would have left the tenant's prefix" {
			t.Errorf("%+v: %q, %v", w, out, err)
		}
	}
	_, _, err := wire.AppendLeaseGrant(nil, own(t), nil, 0)
	var withheld *wire.BoundaryError
	if !errors.As(err, &withheld) || withheld.Message != "no lease ID was drawn for a tenant that left the choice to the server" {
		t.Errorf("a lease without ID: %v", err)
	}
}

// TestTxnBounds: 128 operations are etcd's default, and a Txn inside has less.
func TestTxnBounds(t *testing.T) {
	t.Parallel()
	op := &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte("k")}}}
	times := func(n int) (ops []*pb.RequestOp) {
		for range n {
			ops = append(ops, op)
		}
		return ops
	}
	nest := func(levels, ops int) *pb.TxnRequest {
		r := &pb.TxnRequest{Success: times(ops)}
		for range levels {
			r = &pb.TxnRequest{Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: r}}}}
		}
		return r
	}
	// side by side: a budget per level does not bound what grows in breadth.
	wide := func(txns, ops int) *pb.TxnRequest {
		r := &pb.TxnRequest{}
		for range txns {
			r.Success = append(r.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{Success: times(ops)}}})
		}
		return r
	}
	tenant := own(t)
	for name, tc := range map[string]struct {
		limit  int
		txn    *pb.TxnRequest
		refuse bool
	}{
		"2048 in all":             {0, wide(32, 63), false},
		"2049 in all":             {0, &pb.TxnRequest{Compare: []*pb.Compare{{Key: []byte("k")}}, Success: wide(32, 63).Success}, true},
		"2049 of a limit of 129":  {129, &pb.TxnRequest{Compare: []*pb.Compare{{Key: []byte("k")}}, Success: wide(32, 63).Success}, false},
		"128":                     {0, nest(0, 128), false},
		"129":                     {0, nest(0, 129), true},
		"127 inside":              {0, nest(1, 127), false},
		"128 inside":              {0, nest(1, 128), true},
		"128 levels":              {0, nest(128, 0), false},
		"129 levels":              {0, nest(129, 0), true},
		"5000 levels":             {0, nest(5000, 0), true},
		"own limit":               {2, nest(0, 2), false},
		"beyond own limit":        {2, nest(0, 3), true},
		"4096 levels, if allowed": {4096, nest(4096, 0), false},
	} {
		limited := *tenant
		limited.Limits.TxnOps = tc.limit
		out, _, err := wire.AppendTxn(nil, &limited, encode(t, tc.txn), 0)
		if refused := err != nil && err.Error() == "etcdserver: too many operations in txn request"; refused != tc.refuse || !refused && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && len(out) < len(encode(t, tc.txn)) {
			t.Errorf("%s: %d bytes", name, len(out))
		}
	}
}

// TestTxnBelowTheCompactRevision: the core is made to say ErrCompacted, in the branch that runs and in no other.
func TestTxnBelowTheCompactRevision(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ compacted, revision, want int64 }{
		{0, 5, 5}, {0, -1, -1}, {5, 0, 0}, {5, 5, 5}, {5, 6, 6}, {5, 4, math.MinInt64}, {5, 1, math.MinInt64}, {5, -1, math.MinInt64},
	} {
		in := &pb.TxnRequest{Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{
			Key: []byte("k"), Revision: tc.revision,
		}}}}}
		out, info, err := wire.AppendTxn(nil, own(t), encode(t, in), tc.compacted)
		must.Do(t, err)
		var got pb.TxnRequest
		if err := proto.Unmarshal(out, &got); err != nil || got.Failure[0].GetRequestRange().Revision != tc.want {
			t.Errorf("compacted %d: revision %d became %v, %v", tc.compacted, tc.revision, &got, err)
		}
		if info.MinRevision != max(tc.revision, 0) {
			t.Errorf("the smallest revision of %d is %d", tc.revision, info.MinRevision)
		}
	}
}

func TestRequestInfos(t *testing.T) {
	t.Parallel()
	tenant := own(t)
	_, r, err := wire.AppendRange(nil, tenant, encode(t, &pb.RangeRequest{Key: []byte("k"), Revision: 5, Limit: 6, Serializable: true, CountOnly: true}))
	if want := (wire.RangeInfo{Revision: 5, Limit: 6, Serializable: true, CountOnly: true, Single: true}); err != nil || r != want {
		t.Errorf("%+v, %v", r, err)
	}
	_, r, err = wire.AppendRangeStream(nil, tenant, encode(t, &pb.RangeRequest{Key: []byte("k"), RangeEnd: []byte{0}, KeysOnly: true}))
	if want := (wire.RangeInfo{KeysOnly: true, Large: true}); err != nil || r != want {
		t.Errorf("%+v, %v", r, err)
	}
	_, p, err := wire.AppendPut(nil, tenant, encode(t, &pb.PutRequest{Key: []byte("k"), Value: []byte("vv"), Lease: 9, PrevKv: true}))
	if want := (wire.PutInfo{Key: len(ownPrefix) + 1, Value: 2, Lease: 9, PrevKV: true}); err != nil || p != want {
		t.Errorf("%+v, %v", p, err)
	}
	_, d, err := wire.AppendDeleteRange(nil, tenant, encode(t, &pb.DeleteRangeRequest{Key: []byte("k"), PrevKv: true}))
	if want := (wire.DeleteRangeInfo{Single: true, PrevKV: true}); err != nil || d != want {
		t.Errorf("%+v, %v", d, err)
	}
	out, d, err := wire.AppendDeleteRange(nil, tenant, encode(t, &pb.DeleteRangeRequest{Key: []byte("k"), RangeEnd: []byte("l")}))
	if span := (wire.Span{Key: ownPrefix + "k", End: ownPrefix + "l"}); err != nil || d != (wire.DeleteRangeInfo{}) || wire.SpanOf(out) != span {
		t.Errorf("%+v, %v, %q", d, err, out)
	}
	out, r, err = wire.AppendRange(nil, tenant, encode(t, &pb.RangeRequest{Key: []byte("k"), RangeEnd: []byte{0}, Limit: 1, MaxModRevision: 1}))
	if want := (wire.RangeInfo{Limit: 1, Large: true, Scans: true}); err != nil || r != want || wire.SpanOf(out) != (wire.Span{Key: ownPrefix + "k", End: tenant.Prefix.End()}) {
		t.Errorf("%+v, %v, %q", r, err, out)
	}
	_, g, err := wire.AppendLeaseGrant(nil, tenant, encode(t, &pb.LeaseGrantRequest{TTL: 60}), drawn)
	if want := (wire.LeaseGrant{Visible: drawn, Drawn: true, TTL: 60}); err != nil || g != want {
		t.Errorf("%+v, %v", g, err)
	}
	_, g, err = wire.AppendLeaseGrant(nil, tenant, encode(t, &pb.LeaseGrantRequest{ID: 8}), drawn)
	if want := (wire.LeaseGrant{Visible: 8}); err != nil || g != want {
		t.Errorf("%+v, %v", g, err)
	}
	_, id, err := wire.AppendLeaseRevoke(nil, tenant, encode(t, &pb.LeaseRevokeRequest{ID: 1 << 40}))
	if err != nil || id != 1<<40 {
		t.Errorf("%d, %v", id, err)
	}
	_, id, err = wire.AppendLeaseTimeToLive(nil, tenant, encode(t, &pb.LeaseTimeToLiveRequest{ID: 6}))
	if err != nil || id != 6 {
		t.Errorf("%d, %v", id, err)
	}
	c, err := wire.ParseCompact(encode(t, &pb.CompactionRequest{Revision: 5, Physical: true}))
	if want := (wire.Compaction{Revision: 5, Physical: true}); err != nil || c != want {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestTxnInfo(t *testing.T) {
	t.Parallel()
	get := func(rev int64, serializable bool) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte("k"), Revision: rev, Serializable: serializable}}}
	}
	put := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("k"), Value: []byte("vv")}}}
	del := &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte("k")}}}
	in := func(r *pb.TxnRequest) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: r}}
	}
	const bytes = len(ownPrefix) + 3
	compare := []*pb.Compare{{Key: []byte("k")}}
	for name, tc := range map[string]struct {
		txn  *pb.TxnRequest
		want wire.TxnInfo
	}{
		"empty":        {&pb.TxnRequest{}, wire.TxnInfo{ReadOnly: true, Serializable: true}},
		"serializable": {&pb.TxnRequest{Success: []*pb.RequestOp{get(9, true)}}, wire.TxnInfo{ReadOnly: true, Serializable: true, Ranges: 1, MinRevision: 9}},
		"linearizable": {&pb.TxnRequest{Success: []*pb.RequestOp{get(9, true)}, Failure: []*pb.RequestOp{get(7, false), get(8, true)}},
			wire.TxnInfo{ReadOnly: true, Ranges: 3, MinRevision: 7}},
		"put or get": {&pb.TxnRequest{Compare: compare, Success: []*pb.RequestOp{put}, Failure: []*pb.RequestOp{get(0, true)}},
			wire.TxnInfo{Compares: 1, Puts: 1, PutBytes: bytes, Ranges: 1}},
		"delete":      {&pb.TxnRequest{Failure: []*pb.RequestOp{del}}, wire.TxnInfo{Deletes: 1}},
		"inside":      {&pb.TxnRequest{Success: []*pb.RequestOp{in(&pb.TxnRequest{Success: []*pb.RequestOp{get(3, false)}})}}, wire.TxnInfo{Ranges: 1, MinRevision: 3}},
		"deep inside": {&pb.TxnRequest{Success: []*pb.RequestOp{in(&pb.TxnRequest{Compare: compare, Success: []*pb.RequestOp{in(&pb.TxnRequest{Failure: []*pb.RequestOp{put}}), put}})}}, wire.TxnInfo{Compares: 1, Puts: 2, PutBytes: 2 * bytes}},
		"ranges": {&pb.TxnRequest{
			Compare: []*pb.Compare{{Key: []byte("k"), RangeEnd: []byte("l")}},
			Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestDeleteRange{
				RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte("k"), RangeEnd: []byte{0}},
			}}},
			Failure: []*pb.RequestOp{in(&pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{
				RequestRange: &pb.RangeRequest{Key: []byte("k"), RangeEnd: []byte("m"), CountOnly: true},
			}}}})},
		}, wire.TxnInfo{Compares: 1, Deletes: 1, Ranges: 1, Spans: []wire.Span{
			{Key: ownPrefix + "k", End: ownPrefix + "l"}, {Key: ownPrefix + "k", End: own(t).Prefix.End()}, {Key: ownPrefix + "k", End: ownPrefix + "m"},
		}}},
	} {
		_, got, err := wire.AppendTxn(nil, own(t), encode(t, tc.txn), 0)
		if err != nil || !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %+v, %v\nwant %+v", name, got, err, tc.want)
		}
	}
}

func TestResponseInfos(t *testing.T) {
	t.Parallel()
	tenant := own(t)
	header := &pb.ResponseHeader{ClusterId: 1, MemberId: 2, Revision: 3, RaftTerm: 4}
	same := wire.Header{ClusterID: 1, MemberID: 2, Revision: 3, RaftTerm: 4}
	other := &pb.ResponseHeader{Revision: 99}
	kv := &mvccpb.KeyValue{Key: []byte(ownPrefix + "k")}
	for name, tc := range map[string]struct {
		rewrite func([]byte, *tenancy.Tenant, []byte) ([]byte, wire.ResponseInfo, error)
		in      proto.Message
		want    wire.ResponseInfo
	}{
		"range": {wire.AppendRangeResponse, &pb.RangeResponse{Header: header, Kvs: []*mvccpb.KeyValue{kv, kv}, More: true, Count: 9},
			wire.ResponseInfo{Header: same, HasHeader: true, KVs: 2, Count: 9, Counted: 9, More: true}},
		"chunk":    {wire.AppendRangeStreamResponse, &pb.RangeStreamResponse{RangeResponse: &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{kv}}}, wire.ResponseInfo{KVs: 1}},
		"put":      {wire.AppendPutResponse, &pb.PutResponse{Header: header, PrevKv: kv}, wire.ResponseInfo{Header: same, HasHeader: true, KVs: 1, Wrote: true}},
		"deletion": {wire.AppendDeleteRangeResponse, &pb.DeleteRangeResponse{Deleted: 5, PrevKvs: []*mvccpb.KeyValue{kv}}, wire.ResponseInfo{KVs: 1, Deleted: 5, Removed: 5, Wrote: true}},
		"nothing":  {wire.AppendDeleteRangeResponse, &pb.DeleteRangeResponse{Header: header}, wire.ResponseInfo{Header: same, HasHeader: true}},
		"txn": {wire.AppendTxnResponse, &pb.TxnResponse{Header: header, Succeeded: true, Responses: []*pb.ResponseOp{
			{Response: &pb.ResponseOp_ResponseRange{ResponseRange: &pb.RangeResponse{Header: other, Kvs: []*mvccpb.KeyValue{kv}, More: true, Count: 7}}},
			{Response: &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{Header: other, PrevKv: kv}}},
			{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: &pb.DeleteRangeResponse{Header: other, Deleted: 1}}},
		}}, wire.ResponseInfo{Header: same, HasHeader: true, Succeeded: true, KVs: 2, Wrote: true, Counted: 7, Removed: 1}},
		"txn inside": {wire.AppendTxnResponse, &pb.TxnResponse{Responses: []*pb.ResponseOp{
			{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: &pb.TxnResponse{Header: other, Succeeded: true}}},
		}}, wire.ResponseInfo{}},
		"txn reads": {wire.AppendTxnResponse, &pb.TxnResponse{Header: header, Succeeded: true, Responses: []*pb.ResponseOp{
			{Response: &pb.ResponseOp_ResponseRange{ResponseRange: &pb.RangeResponse{Count: 7}}},
			{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: &pb.DeleteRangeResponse{}}},
		}}, wire.ResponseInfo{Header: same, HasHeader: true, Succeeded: true, Counted: 7}},
		"txn deletes inside": {wire.AppendTxnResponse, &pb.TxnResponse{Responses: []*pb.ResponseOp{
			{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: &pb.TxnResponse{Responses: []*pb.ResponseOp{
				{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: &pb.DeleteRangeResponse{Deleted: 1}}},
			}}}},
		}}, wire.ResponseInfo{Wrote: true, Removed: 1}},
	} {
		_, got, err := tc.rewrite(nil, tenant, encode(t, tc.in))
		if err != nil || got != tc.want {
			t.Errorf("%s: %+v, %v\nwant %+v", name, got, err, tc.want)
		}
	}
	_, l, err := wire.AppendLeaseTimeToLiveResponse(nil, tenant,
		encode(t, &pb.LeaseTimeToLiveResponse{Header: header, ID: ownTag<<32 | asked, TTL: 5, GrantedTTL: 6, Keys: [][]byte{kv.Key}}), asked)
	if want := (wire.LeaseInfo{Header: same, ID: asked, TTL: 5, Keys: 1}); err != nil || l != want {
		t.Errorf("%+v, %v", l, err)
	}
	_, l, err = wire.AppendLeaseLeasesResponse(nil, tenant,
		encode(t, &pb.LeaseLeasesResponse{Header: header, Leases: []*pb.LeaseStatus{{ID: 5}, {ID: ownTag<<32 | 5}, {ID: ownTag << 32}}}))
	if want := (wire.LeaseInfo{Header: same, Leases: 1}); err != nil || l != want {
		t.Errorf("%+v, %v", l, err)
	}
	// What cannot be named here is asked about as a lease that nobody has, and answered under the name that was used.
	out, l, err := wire.AppendLeaseKeepAliveResponse(nil, tenant, encode(t, &pb.LeaseKeepAliveResponse{ID: ownTag << 32}), 1<<40)
	var kept pb.LeaseKeepAliveResponse
	if err != nil || proto.Unmarshal(out, &kept) != nil || kept.ID != 1<<40 || l.ID != 1<<40 || l.TTL != 0 {
		t.Errorf("%v, %+v, %v", &kept, l, err)
	}
}

func TestWatchRequests(t *testing.T) {
	t.Parallel()
	create := func(c *pb.WatchCreateRequest) []byte {
		return encode(t, &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: c}})
	}
	const noPut, noDelete = pb.WatchCreateRequest_NOPUT, pb.WatchCreateRequest_NODELETE
	for name, tc := range map[string]struct {
		in   []byte
		want wire.WatchRequest
	}{
		"nothing":    {nil, wire.WatchRequest{}},
		"cancel":     {field(2, number(1, 5)...), wire.WatchRequest{Kind: wire.WatchCancel, WatchID: 5}},
		"cancel 0":   {field(2), wire.WatchRequest{Kind: wire.WatchCancel}},
		"progress":   {field(3), wire.WatchRequest{Kind: wire.WatchProgress}},
		"all":        {create(&pb.WatchCreateRequest{RangeEnd: []byte{0}}), wire.WatchRequest{Kind: wire.WatchCreate, Key: ownPrefix + "\x00", End: ownEnd}},
		"no key":     {create(&pb.WatchCreateRequest{}), wire.WatchRequest{Kind: wire.WatchCreate, Key: ownPrefix + "\x00"}},
		"everything": {create(&pb.WatchCreateRequest{Key: []byte("k"), RangeEnd: []byte("l"), StartRevision: -5, ProgressNotify: true, PrevKv: true, WatchId: -7, Fragment: true, Filters: []pb.WatchCreateRequest_FilterType{noDelete, 7, noPut, noDelete}}), wire.WatchRequest{Kind: wire.WatchCreate, Key: ownPrefix + "k", End: ownPrefix + "l", StartRevision: -5, ProgressNotify: true, PrevKV: true, WatchID: -7, Fragment: true, NoPut: true, NoDelete: true}},
		"unpacked":   {field(1, number(5, 1)...), wire.WatchRequest{Kind: wire.WatchCreate, Key: ownPrefix + "\x00", NoDelete: true}},
		"no deletes": {create(&pb.WatchCreateRequest{Filters: []pb.WatchCreateRequest_FilterType{noPut}}), wire.WatchRequest{Kind: wire.WatchCreate, Key: ownPrefix + "\x00", NoPut: true}},
	} {
		got, err := wire.ParseWatchRequest(own(t), tc.in)
		if err != nil || got != tc.want {
			t.Errorf("%s: %+v, %v\nwant %+v", name, got, err, tc.want)
		}
	}
}

func TestWatchResponses(t *testing.T) {
	t.Parallel()
	kv := func(key string, create, mod int64) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{Key: []byte(ownPrefix + key), CreateRevision: create, ModRevision: mod, Value: []byte("v"), Lease: ownTag<<32 | 5}
	}
	in := &pb.WatchResponse{
		Header: &pb.ResponseHeader{Revision: 9}, WatchId: 3, Fragment: true,
		Events: []*mvccpb.Event{{Kv: kv("a", 5, 5)}, {Kv: kv("b", 4, 6), PrevKv: kv("b", 4, 4)}, {Type: mvccpb.Event_DELETE, Kv: kv("c", 0, 7)}},
	}
	out, w, err := wire.ParseWatchResponse([]byte("x"), own(t), encode(t, in))
	must.Do(t, err)
	if string(out) != "x"+string(w.Events) {
		t.Error("the events are not what was appended")
	}
	var events []wire.Event
	for e, rest, ok := wire.NextEvent(w.Events); ok; e, rest, ok = wire.NextEvent(rest) {
		var one pb.WatchResponse
		if err := proto.Unmarshal(e.Record, &one); err != nil || len(one.Events) != 1 || one.Events[0].Kv.Lease != 5 {
			t.Errorf("the record of %+v is %v, %v", e, &one, err)
		}
		e.Record = nil
		events = append(events, e)
	}
	if diff := cmp.Diff([]wire.Event{{ModRevision: 5, CreateRevision: 5}, {ModRevision: 6, CreateRevision: 4}, {ModRevision: 7, Delete: true}}, events); diff != "" {
		t.Error(diff)
	}
	w.Events = nil
	header := wire.Header{Revision: 9}
	want := wire.WatchResponse{Header: header, CoreHeader: header, WatchID: 3, Fragment: true, EventCount: 3, FirstRevision: 5, LastRevision: 7}
	if diff := cmp.Diff(want, w); diff != "" {
		t.Error(diff)
	}
	for _, rubbish := range [][]byte{nil, {0xff}, field(11, 0xff), field(11, field(2, 0xff)...)} {
		if _, _, ok := wire.NextEvent(rubbish); ok {
			t.Errorf("%x is an event", rubbish)
		}
	}
	canceled := &pb.WatchResponse{Header: &pb.ResponseHeader{}, WatchId: -1, Created: true, Canceled: true, CompactRevision: 5,
		CancelReason: "etcdserver: mvcc: required revision has been compacted"}
	_, w, err = wire.ParseWatchResponse(nil, own(t), encode(t, canceled))
	var got pb.WatchResponse
	if err != nil || proto.Unmarshal(wire.AppendWatchHead(nil, &w), &got) != nil || !proto.Equal(&got, canceled) {
		t.Errorf("%v, %v", &got, err)
	}
}

// TestHeaderField: a header on its own is a whole answer to Compact.
func TestHeaderField(t *testing.T) {
	t.Parallel()
	for _, h := range []wire.Header{{}, {ClusterID: math.MaxUint64, MemberID: 2, Revision: -1, RaftTerm: 1 << 40}} {
		var got pb.CompactionResponse
		must.Do(t, proto.Unmarshal(wire.AppendHeaderField(nil, h), &got))
		want := &pb.CompactionResponse{Header: &pb.ResponseHeader{ClusterId: h.ClusterID, MemberId: h.MemberID, Revision: h.Revision, RaftTerm: h.RaftTerm}}
		if !proto.Equal(&got, want) {
			t.Errorf("%v, want %v", &got, want)
		}
	}
}
