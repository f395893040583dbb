// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy/wire"
	"github.com/mooring-dev/mooring/internal/testkit/attacks"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// asked is the lease that all answers of the tests are about.
const asked = 5

// rewriter is one function under test, and what it should do.
type rewriter struct {
	of      proto.Message
	rewrite func(dst []byte, t *tenancy.Tenant, in []byte) ([]byte, error)
	// judge is for requests, seen for answers.
	judge func(proto.Message) (proto.Message, error)
	seen  func(proto.Message) bool
	// inPlace is set if the output may be written over the input.
	inPlace bool
}

func requests() map[string]rewriter {
	return map[string]rewriter{
		"Range":           {of: &pb.RangeRequest{}, rewrite: drop(wire.AppendRange), judge: judgeRange},
		"RangeStream":     {of: &pb.RangeRequest{}, rewrite: drop(wire.AppendRangeStream), judge: judgeRangeStream},
		"Put":             {of: &pb.PutRequest{}, rewrite: drop(wire.AppendPut), judge: judgePut},
		"DeleteRange":     {of: &pb.DeleteRangeRequest{}, rewrite: drop(wire.AppendDeleteRange), judge: judgeDelete},
		"Txn":             {of: &pb.TxnRequest{}, rewrite: txn, judge: judgeTxn},
		"Compact":         {of: &pb.CompactionRequest{}, rewrite: compact, judge: judgeAsIs},
		"Watch":           {of: &pb.WatchRequest{}, rewrite: watch, judge: judgeWatch},
		"LeaseGrant":      {of: &pb.LeaseGrantRequest{}, rewrite: grant, judge: judgeGrant},
		"LeaseRevoke":     {of: &pb.LeaseRevokeRequest{}, rewrite: drop(wire.AppendLeaseRevoke), judge: judgeLeaseID},
		"LeaseKeepAlive":  {of: &pb.LeaseKeepAliveRequest{}, rewrite: drop(wire.AppendLeaseKeepAlive), judge: judgeLeaseID},
		"LeaseTimeToLive": {of: &pb.LeaseTimeToLiveRequest{}, rewrite: drop(wire.AppendLeaseTimeToLive), judge: judgeLeaseID},
		"LeaseLeases":     {of: &pb.LeaseLeasesRequest{}, rewrite: wire.AppendLeaseLeases, judge: judgeAsIs},
	}
}

func responses() map[string]rewriter {
	return map[string]rewriter{
		"Range":           {of: &pb.RangeResponse{}, inPlace: true, rewrite: drop(wire.AppendRangeResponse), seen: seenRange},
		"RangeStream":     {of: &pb.RangeStreamResponse{}, inPlace: true, rewrite: drop(wire.AppendRangeStreamResponse), seen: seenStream},
		"Put":             {of: &pb.PutResponse{}, inPlace: true, rewrite: drop(wire.AppendPutResponse), seen: seenPut},
		"DeleteRange":     {of: &pb.DeleteRangeResponse{}, inPlace: true, rewrite: drop(wire.AppendDeleteRangeResponse), seen: seenDelete},
		"Txn":             {of: &pb.TxnResponse{}, inPlace: true, rewrite: drop(wire.AppendTxnResponse), seen: seenTxn},
		"Watch":           {of: &pb.WatchResponse{}, rewrite: watched, seen: seenWatch},
		"LeaseGrant":      {of: &pb.LeaseGrantResponse{}, rewrite: about(wire.AppendLeaseGrantResponse), seen: seenGrant},
		"LeaseRevoke":     {of: &pb.LeaseRevokeResponse{}, rewrite: drop(wire.AppendLeaseRevokeResponse), seen: seenHeader},
		"LeaseKeepAlive":  {of: &pb.LeaseKeepAliveResponse{}, rewrite: about(wire.AppendLeaseKeepAliveResponse), seen: seenKeepAlive},
		"LeaseTimeToLive": {of: &pb.LeaseTimeToLiveResponse{}, rewrite: about(wire.AppendLeaseTimeToLiveResponse), seen: seenTimeToLive},
		"LeaseLeases":     {of: &pb.LeaseLeasesResponse{}, rewrite: drop(wire.AppendLeaseLeasesResponse), seen: seenLeases},
	}
}

type rewrite = func([]byte, *tenancy.Tenant, []byte) ([]byte, error)

func drop[T any](f func([]byte, *tenancy.Tenant, []byte) ([]byte, T, error)) rewrite {
	return func(dst []byte, t *tenancy.Tenant, in []byte) ([]byte, error) {
		out, _, err := f(dst, t, in)
		return out, err
	}
}

func about[T any](f func([]byte, *tenancy.Tenant, []byte, int64) ([]byte, T, error)) rewrite {
	return func(dst []byte, t *tenancy.Tenant, in []byte) ([]byte, error) {
		out, _, err := f(dst, t, in, asked)
		return out, err
	}
}

func txn(dst []byte, t *tenancy.Tenant, in []byte) ([]byte, error) {
	out, _, err := wire.AppendTxn(dst, t, in, compacted)
	return out, err
}

func grant(dst []byte, t *tenancy.Tenant, in []byte) ([]byte, error) {
	out, _, err := wire.AppendLeaseGrant(dst, t, in, drawn)
	return out, err
}

// compact writes what was read, so that the reading can be judged.
func compact(dst []byte, _ *tenancy.Tenant, in []byte) ([]byte, error) {
	c, err := wire.ParseCompact(in)
	if err != nil {
		return dst, err
	}
	return proto.MarshalOptions{}.MarshalAppend(dst, &pb.CompactionRequest{Revision: c.Revision, Physical: c.Physical})
}

func watch(dst []byte, t *tenancy.Tenant, in []byte) ([]byte, error) {
	w, err := wire.ParseWatchRequest(t, in)
	if err != nil {
		return dst, err
	}
	return wire.AppendWatchRequest(dst, t, &w)
}

func watched(dst []byte, t *tenancy.Tenant, in []byte) ([]byte, error) {
	out, w, err := wire.ParseWatchResponse(dst, t, in)
	if err != nil {
		return out, err
	}
	w.Events = bytes.Clone(w.Events) // they stand where the head goes now
	return append(wire.AppendWatchHead(dst, &w), w.Events...), nil
}

// fails is what rapid, fuzzing and tests have in common.
type fails interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

// run calls the function under test and holds it to what is true for any input: the bytes before dst's end stay, an error adds none, and an
// error is of a known type and says nothing of other tenants.
func (r rewriter) run(t fails, in []byte) (out []byte, err error) {
	t.Helper()
	before := []byte("before")
	input := bytes.Clone(in)
	out, err = r.rewrite(bytes.Clone(before), own(t), in)
	if r.inPlace {
		array := append(bytes.Clone(before), in...)
		same, inPlace := r.rewrite(array[:len(before)], own(t), array[len(before):])
		if !bytes.Equal(same, out) || (err == nil) != (inPlace == nil) || len(out) > len(array) {
			t.Fatalf("rewritten in place it is %q, %v, and else %q, %v", same, inPlace, out, err)
		}
	}
	if !bytes.HasPrefix(out, before) || err != nil && len(out) != len(before) {
		t.Fatalf("dst came back as %q, error %v", out, err)
	}
	if !bytes.Equal(input, in) {
		t.Fatal("the input was written to")
	}
	var refused *wire.RequestError
	var withheld *wire.BoundaryError
	if err != nil && !errors.As(err, &refused) && !errors.As(err, &withheld) {
		t.Fatalf("an error of type %T: %v", err, err)
	}
	if withheld != nil && r.judge != nil {
		t.Fatalf("only the last line of defense stopped a request: %v", err)
	}
	if err != nil && bytes.Contains([]byte(err.Error()), []byte(canary)) {
		t.Fatalf("the error repeats what it was given: %v", err)
	}
	return out[len(before):], err
}

func (r rewriter) decode(t fails, in []byte) proto.Message {
	t.Helper()
	m := r.of.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(in, m); err != nil {
		t.Fatalf("etcd's decoder does not take %x: %v", in, err)
	}
	return m
}

// judgeRequest holds a rewritten request to the second opinion. What was refused as odd, although etcd's decoder takes it, is fine.
func (r rewriter) judgeRequest(t fails, in, out []byte, err error, tidy bool) {
	t.Helper()
	var refused *wire.RequestError
	if !tidy && err != nil {
		return
	}
	want, wantErr := r.judge(r.decode(t, in))
	if errors.As(err, &refused) || wantErr != nil {
		s := status.Convert(wantErr)
		if refused == nil || wantErr == nil || codes.Code(refused.Code) != s.Code() || s.Message() != "" && s.Message() != refused.Message {
			t.Fatalf("error %v, want %v", err, wantErr)
		}
		return
	}
	got := r.decode(t, out)
	if !proto.Equal(got, want) {
		t.Fatalf("in   %x\ngot  %v\nwant %v", in, got, want)
	}
	if r.of.ProtoReflect().Descriptor().Name() != "CompactionRequest" {
		inside(t, got.ProtoReflect())
	}
}

// inside fails unless all keys, ranges and leases of a request for the core are the tenant's. It knows etcd's messages by their fields' names
// only.
func inside(t fails, m protoreflect.Message) {
	t.Helper()
	if len(m.GetUnknown()) > 0 {
		t.Fatalf("unknown fields in %v", m.Interface())
	}
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case field.Kind() == protoreflect.MessageKind && field.IsList():
			for i := range v.List().Len() {
				inside(t, v.List().Get(i).Message())
			}
		case field.Kind() == protoreflect.MessageKind:
			inside(t, v.Message())
		case field.Name() == "lease" || field.Name() == "ID":
			if id := v.Int(); id>>32 != ownTag && field.FullName() != "etcdserverpb.Compare.lease" && id != 0 {
				t.Fatalf("lease %d in %v", id, m.Interface())
			}
		}
		return true
	})
	key := m.Descriptor().Fields().ByName("key")
	if key == nil {
		return
	}
	from, to := m.Get(key).Bytes(), []byte(nil)
	if end := m.Descriptor().Fields().ByName("range_end"); end != nil {
		to = m.Get(end).Bytes()
	}
	if bytes.Compare(from, []byte(ownPrefix)) <= 0 || bytes.Compare(from, []byte(ownEnd)) >= 0 {
		t.Fatalf("key %q in %v", from, m.Interface())
	}
	if len(to) > 0 && bytes.Equal(to, []byte{0}) || bytes.Compare(to, []byte(ownEnd)) > 0 {
		t.Fatalf("range to %q in %v", to, m.Interface())
	}
}

// judgeResponse holds a rewritten answer to the second opinion.
func (r rewriter) judgeResponse(t fails, in, out []byte, err error, tidy bool) {
	t.Helper()
	if !tidy && err != nil {
		return
	}
	want := r.of.ProtoReflect().New().Interface()
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(in, want); err != nil {
		t.Fatalf("etcd's decoder does not take %x: %v", in, err)
	}
	ok := r.seen(want)
	if err != nil || !ok {
		var withheld *wire.BoundaryError
		if ok || !errors.As(err, &withheld) {
			t.Fatalf("error %v for an answer that is all the tenant's: %v", err, ok)
		}
		return
	}
	if got := r.decode(t, out); !proto.Equal(got, want) {
		t.Fatalf("in   %x\ngot  %v\nwant %v", in, got, want)
	}
}

// canary stands in everything that a tenant must never see.
const canary = "another-tenants-secret"

// words are what messages are made of: keys, ends and values of every delicate kind, and IDs of leases.
func words() *attacks.Words {
	return &attacks.Words{
		Own: [][]byte{
			nil, {0}, {0}, []byte("a"), []byte("b"), []byte("/"), {0xff}, {0xff, 0xff}, {0, 0}, []byte("a\x00"), make([]byte, 120), make([]byte, 127),
		},
		Hostile: [][]byte{[]byte(ownPrefix), []byte(ownEnd), []byte("/other/key"), []byte("../")},
		Leases:  []int64{ownTag << 32, ownTag<<32 | asked, (ownTag + 1) << 32},
	}
}

// sensible gives values that etcd does not refuse.
func sensible(g attacks.Generator) func(protoreflect.FieldDescriptor) any {
	return func(field protoreflect.FieldDescriptor) any {
		switch field.Name() {
		case "key":
			return append(make([]byte, g.IntN(9)), 'k')
		case "sort_order", "sort_target", "ignore_value", "ignore_lease":
			return int64(0)
		case "min_mod_revision", "max_mod_revision", "min_create_revision", "max_create_revision":
			if g.IntN(4) > 0 {
				return int64(0)
			}
		}
		return nil
	}
}

// cores gives the values of the core's answers: keys with the prefix, leases of the tenant, and now and then others.
func cores(g attacks.Generator) func(protoreflect.FieldDescriptor) any {
	return func(field protoreflect.FieldDescriptor) any {
		odd := g.IntN(40) == 0
		switch field.Name() {
		case "key", "keys":
			if odd {
				return attacks.Either(g, nil, []byte(ownPrefix), []byte("/team-"), []byte("/team-a0"+canary), []byte("/b/"+canary))
			}
			return coreKey(fmt.Append(nil, g.IntN(1000)))
		case "ID":
			if odd || field.Parent().Name() == "LeaseStatus" {
				return nil
			}
			return int64(ownTag<<32 | asked)
		case "lease":
			return attacks.Either(g, int64(0), 1, 5, ownTag<<32, ownTag<<32|1, ownTag<<32|0xffffffff, (ownTag+1)<<32, -1, math.MaxInt64)
		case "value":
			return make([]byte, attacks.Either(g, 0, 5, 118, 125, 16370))
		case "error":
			if !odd {
				return []byte{}
			}
			return []byte(canary)
		case "cancel_reason":
			return attacks.Either(g, nil, []byte(canary), []byte("etcdserver: mvcc: required revision has been compacted"))
		}
		return nil
	}
}

// message makes one that an encoder could have written; a sensible request is one that etcd does not refuse.
func (r rewriter) message(g attacks.Generator, wise bool) []byte {
	w := attacks.Writer{Generator: g, Whole: wise, Shuffled: true, Value: func(protoreflect.FieldDescriptor) any { return nil }}
	switch {
	case r.seen != nil:
		w.Value = cores(g)
	case wise:
		w.Value = sensible(g)
	}
	return w.Message(r.of.ProtoReflect().Descriptor(), 5)
}

// check runs a property two thousand times for each rewriter: a message is made and rewritten in microseconds. The property reports whether the message
// was accepted.
func check(t *testing.T, all map[string]rewriter, least int, property func(t *rapid.T, r rewriter, g attacks.Generator) bool) {
	t.Helper()
	for name, r := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			accepted := 0
			cases.CheckTimes(t, 2000, 2000, 20_000, func(t *rapid.T) {
				if property(t, r, attacks.NewGenerator(words(), rapid.Uint64().Draw(t, "seed"), rapid.Uint64().Draw(t, "number"))) {
					accepted++
				}
			})
			if accepted < least {
				t.Errorf("only %d messages were accepted: the generator shows nothing", accepted)
			}
		})
	}
}

// TestRequestsAreRewrittenAsOnGeneratedMessages is the differential test: for whatever an encoder could have written, rewriting the bytes is
// rewriting the message, and a refusal is etcd's.
func TestRequestsAreRewrittenAsOnGeneratedMessages(t *testing.T) {
	t.Parallel()
	check(t, requests(), 100, func(t *rapid.T, r rewriter, g attacks.Generator) bool {
		in := r.message(g, g.IntN(2) == 0)
		out, err := r.run(t, in)
		r.judgeRequest(t, in, out, err, true)
		return err == nil
	})
}

// TestResponsesAreRewrittenAsOnGeneratedMessages is the same for answers.
func TestResponsesAreRewrittenAsOnGeneratedMessages(t *testing.T) {
	t.Parallel()
	check(t, responses(), 100, func(t *rapid.T, r rewriter, g attacks.Generator) bool {
		in := r.message(g, false)
		out, err := r.run(t, in)
		r.judgeResponse(t, in, out, err, true)
		return err == nil
	})
}

// TestOddMessages is the boundary: whatever bytes come, either they are refused, or what etcd's decoder reads in the output is what it reads in the
// input, rewritten, with all of it in the prefix and nothing of others. Fields that occur twice, split messages, lengths that lie and all else on which
// two decoders might disagree are made on purpose.
func TestOddMessages(t *testing.T) {
	t.Parallel()
	for kind, all := range map[string]map[string]rewriter{"requests": requests(), "responses": responses()} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			check(t, all, 1, func(t *rapid.T, r rewriter, g attacks.Generator) bool {
				in := g.Mutate(r.message(g, g.IntN(2) == 0))
				return r.judgeAny(t, in)
			})
		})
	}
}

// judgeAny is what holds for any bytes. It reports whether they were accepted.
func (r rewriter) judgeAny(t fails, in []byte) bool {
	t.Helper()
	out, err := r.run(t, in)
	if r.seen != nil && bytes.Contains(out, []byte(canary)) {
		t.Fatalf("another tenant's data came through: %q", out)
	}
	if r.judge != nil {
		r.judgeRequest(t, in, out, err, false)
	} else if err == nil && proto.Unmarshal(in, r.of.ProtoReflect().New().Interface()) == nil {
		// Without the condition texts that are not valid UTF-8 would fail: etcd's decoder insists on it, and none is ever shown.
		r.judgeResponse(t, in, out, err, false)
	}
	return err == nil
}
