// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/mooring-dev/mooring/internal/testkit/attacks"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/internal/testkit/tenantproxy"
)

// A pair is an etcd of the tenant's own and a proxied prefix of another. Both are new, so that the same requests meet the same revisions.
type pair struct {
	direct, proxied       *grpc.ClientConn
	directCore, proxyCore *clientv3.Client
	// refused counts messages that only the proxy refuses.
	refused int
}

func newPair(t *testing.T) *pair {
	t.Helper()
	direct, _ := tenantproxy.StartEtcd(t, false)
	core, _ := tenantproxy.StartEtcd(t, false)
	cfg := must.Get(tenantproxy.Configure(core, tenantPrefix, tenantName)).Or(t)
	cfg.SystemPrefix = "" // the proxy's own records would be writes that the other etcd does not have
	return &pair{
		direct: dial(t, direct, 1, nil)[0], proxied: dial(t, tenantproxy.Serve(t, cfg), 1, nil)[0],
		directCore: tenantproxy.Dial(t, direct), proxyCore: tenantproxy.Dial(t, core),
	}
}

// TestAnswersAreThoseOfAnEtcdOfItsOwn sends the same requests, valid and not, to both and compares codes, texts and bodies.
func TestAnswersAreThoseOfAnEtcdOfItsOwn(t *testing.T) {
	t.Parallel()
	requests := uint64(cases.Number(t, 600, 6000, 60_000))
	seed := cases.Seed(t)
	for part := range uint64(2) {
		t.Run(fmt.Sprint("part ", part), func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			words := &attacks.Words{Own: attacks.OwnKeys(), Hostile: [][]byte{{}, {0}, {0xff}, []byte("a\xff"), []byte(tenantPrefix)}, Leases: []int64{1, 2, 3, 1 << 31}}
			compared, differences := 0, 0
			for n := uint64(0); n < requests || n < 2*requests && p.isEmpty(t); n++ { // the last one may delete everything
				words.Revision = int64(n / 4)
				request := attacks.NewGenerator(words, seed+part, n).Request()
				sort, ok := kindOf(request)
				if !ok {
					continue
				}
				compared++
				if difference := p.compare(t.Context(), request, sort); difference != "" {
					t.Errorf("request %d: %s %x: %s\n%s", n, request.Method, request.Body, describeMessage(sort.request, request.Body), difference)
					if differences++; differences == 5 {
						break
					}
				}
			}
			p.sameRefusals(t)
			p.sameContents(t)
			t.Logf("%d requests compared, of which the proxy alone refused %d", compared, p.refused)
		})
	}
}

// isEmpty reports whether the etcd of its own has no key.
func (p *pair) isEmpty(t *testing.T) bool {
	t.Helper()
	return must.Get(p.directCore.Get(t.Context(), "\x00", clientv3.WithFromKey(), clientv3.WithCountOnly())).Or(t).Count == 0
}

// sameRefusals puts values of sizes around what etcd takes: one that is too large for raft, one at the margin of gRPC's, and one beyond.
func (p *pair) sameRefusals(t *testing.T) {
	t.Helper()
	for _, size := range []int{1600 << 10, etcdMessageLimit - 9, etcdMessageLimit + 1<<20} {
		body := must.Get(proto.Marshal(&pb.PutRequest{Key: []byte("k"), Value: make([]byte, size)})).Or(t)
		request := attacks.Request{Method: pb.KV_Put_FullMethodName, Body: body}
		want, _ := attacks.Exchange(t.Context(), p.direct, request)
		got, _ := attacks.Exchange(t.Context(), p.proxied, request)
		if want.Code() == codes.OK || got.Code() != want.Code() || got.Message() != want.Message() {
			t.Errorf("a value of %d bytes: the proxy answers %v, etcd %v", size, got, want)
		}
	}
}

// sort is what a method's messages are.
type sort struct {
	request, response func() proto.Message
}

// kindOf returns the messages of a method that etcd and the proxy must answer alike. Watches are compared elsewhere.
func kindOf(r attacks.Request) (sort, bool) {
	of := func(request, response proto.Message) (sort, bool) {
		return sort{
			request:  func() proto.Message { return request.ProtoReflect().New().Interface() },
			response: func() proto.Message { return response.ProtoReflect().New().Interface() },
		}, true
	}
	switch r.Method {
	case pb.KV_Range_FullMethodName:
		return of(&pb.RangeRequest{}, &pb.RangeResponse{})
	case pb.KV_RangeStream_FullMethodName:
		return of(&pb.RangeRequest{}, &pb.RangeStreamResponse{})
	case pb.KV_Put_FullMethodName:
		return of(&pb.PutRequest{}, &pb.PutResponse{})
	case pb.KV_DeleteRange_FullMethodName:
		return of(&pb.DeleteRangeRequest{}, &pb.DeleteRangeResponse{})
	case pb.KV_Txn_FullMethodName:
		return of(&pb.TxnRequest{}, &pb.TxnResponse{})
	case pb.KV_Compact_FullMethodName:
		return of(&pb.CompactionRequest{}, &pb.CompactionResponse{})
	case pb.Lease_LeaseGrant_FullMethodName:
		return of(&pb.LeaseGrantRequest{}, &pb.LeaseGrantResponse{})
	case pb.Lease_LeaseKeepAlive_FullMethodName:
		return of(&pb.LeaseKeepAliveRequest{}, &pb.LeaseKeepAliveResponse{})
	case pb.Lease_LeaseRevoke_FullMethodName:
		return of(&pb.LeaseRevokeRequest{}, &pb.LeaseRevokeResponse{})
	case pb.Lease_LeaseTimeToLive_FullMethodName:
		return of(&pb.LeaseTimeToLiveRequest{}, &pb.LeaseTimeToLiveResponse{})
	case pb.Lease_LeaseLeases_FullMethodName:
		return of(&pb.LeaseLeasesRequest{}, &pb.LeaseLeasesResponse{})
	default:
		return sort{}, false
	}
}

// etcdMessageLimit is how large a gRPC message etcd takes as it is configured by default, in bytes: 1.5 MiB and half a MiB on top.
const etcdMessageLimit = 2 << 20

// compare sends a request to both, or to the proxy alone when the two must differ, and says how they differ.
func (p *pair) compare(ctx context.Context, request attacks.Request, s sort) string {
	message := s.request()
	err := proto.Unmarshal(request.Body, message)
	switch {
	case err == nil && hasUnknown(message.ProtoReflect()):
		// etcd ignores a field that it does not know; the proxy cannot tell whether it names a key, and refuses.
		refusals := []codes.Code{codes.Unimplemented, codes.InvalidArgument}
		if len(request.Body) > etcdMessageLimit {
			refusals = []codes.Code{codes.ResourceExhausted} // too large to be read at all
		}
		if state, _ := attacks.Exchange(ctx, p.proxied, request); !slices.Contains(refusals, state.Code()) {
			return fmt.Sprintf("a field that etcd does not know was answered with %v", state)
		}
		return ""
	case err == nil && !comparable(message):
		return ""
	}
	got, gotBody := attacks.Exchange(ctx, p.proxied, request)
	if err == nil && got.Code() == codes.InvalidArgument && strings.HasPrefix(got.Message(), "etcd-storage-proxy: ") && !canonical(message, request.Body) {
		p.refused++ // by design: no client library sends a field twice, and what is read in two ways is refused
		return ""
	}
	want, wantBody := attacks.Exchange(ctx, p.direct, request)
	if err != nil {
		if want.Code() == codes.OK || got.Code() == codes.OK {
			return fmt.Sprintf("bytes that are not a message were answered with %v directly and with %v through the proxy", want, got)
		}
		return ""
	}
	if got.Code() != want.Code() || got.Message() != want.Message() {
		return fmt.Sprintf("the proxy answers %v, etcd %v", got, want)
	}
	wanted, err1 := normal(s.response(), wantBody)
	found, err2 := normal(s.response(), gotBody)
	if err := errors.Join(err1, err2); err != nil {
		return err.Error()
	}
	if proto.Equal(wanted, found) {
		return ""
	}
	return gocmp.Diff(wanted, found, protocmp.Transform())
}

// canonical reports that the bytes are those that client libraries make of the message.
func canonical(message proto.Message, body []byte) bool {
	again, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	return err == nil && bytes.Equal(again, body)
}

// comparable reports that chance and clocks have no part in the answer, and that the request names no lease outside the tenant's numbers.
func comparable(message proto.Message) bool {
	if grant, ok := message.(*pb.LeaseGrantRequest); ok && (grant.ID <= 0 || grant.ID > 1<<32-1 || grant.TTL < 100) {
		return false // without a TTL it gets etcd's shortest, and ends soon
	}
	if compaction, ok := message.(*pb.CompactionRequest); ok && compaction.Revision == 0 {
		return false // etcd takes it once and then knows that negative revisions are gone, which only a transaction can ask for
	}
	ok, put, endless := true, false, false
	walk(message.ProtoReflect(), func(m protoreflect.Message) {
		switch v := m.Interface().(type) {
		case *pb.PutRequest:
			put = true
			ok = ok && v.Lease >= 0 && v.Lease < 1<<32 && len(v.Value) < 1<<20 && len(v.Key) < 1<<20
		case *pb.DeleteRangeRequest:
			endless = endless || string(v.RangeEnd) == "\x00"
		case *pb.LeaseKeepAliveRequest:
			ok = ok && v.ID >= 0 && v.ID < 1<<32
		case *pb.LeaseRevokeRequest:
			ok = ok && v.ID >= 0 && v.ID < 1<<32
		case *pb.LeaseTimeToLiveRequest:
			ok = ok && v.ID >= 0 && v.ID < 1<<32
		case *pb.Compare:
			ok = ok && len(v.GetValue()) < 1<<20
		}
	})
	// The one difference that is known (package wire): etcd does not see that a deletion without end and a put overlap in one transaction.
	return ok && !(put && endless)
}

// walk visits a message and all within it.
func walk(m protoreflect.Message, visit func(protoreflect.Message)) {
	visit(m)
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.Message() == nil:
		case fd.IsList():
			for n := range v.List().Len() {
				walk(v.List().Get(n).Message(), visit)
			}
		default:
			walk(v.Message(), visit)
		}
		return true
	})
}

func hasUnknown(m protoreflect.Message) bool {
	found := false
	walk(m, func(m protoreflect.Message) { found = found || len(m.GetUnknown()) > 0 })
	return found
}

// normal decodes an answer without what two etcds never share: their names, and how many seconds a lease has left. What etcd returns in no
// order is sorted.
func normal(m proto.Message, body []byte) (proto.Message, error) {
	if err := proto.Unmarshal(body, m); err != nil {
		return nil, fmt.Errorf("an answer is not a message: %w", err)
	}
	walk(m.ProtoReflect(), func(m protoreflect.Message) {
		switch v := m.Interface().(type) {
		case *pb.ResponseHeader:
			v.ClusterId, v.MemberId, v.RaftTerm = 0, 0, 0
		case *pb.LeaseTimeToLiveResponse:
			if v.TTL > 0 {
				v.TTL = (v.GrantedTTL - v.TTL) / 120
			}
			slices.SortFunc(v.Keys, bytes.Compare)
		case *pb.LeaseLeasesResponse:
			slices.SortFunc(v.Leases, func(a, b *pb.LeaseStatus) int { return cmp.Compare(a.ID, b.ID) })
		}
	})
	return m, nil
}

func describeMessage(make func() proto.Message, body []byte) string {
	m := make()
	if err := proto.Unmarshal(body, m); err != nil {
		return err.Error()
	}
	return fmt.Sprint(m)
}

// sameContents compares all keys in the end, at the cores themselves.
func (p *pair) sameContents(t *testing.T) {
	t.Helper()
	want := must.Get(p.directCore.Get(t.Context(), "\x00", clientv3.WithFromKey())).Or(t)
	got := must.Get(p.proxyCore.Get(t.Context(), "\x00", clientv3.WithFromKey())).Or(t)
	for _, kv := range got.Kvs {
		key, ok := strings.CutPrefix(string(kv.Key), tenantPrefix)
		if !ok {
			t.Errorf("the core has %q, which is not the tenant's", kv.Key)
		}
		kv.Key, kv.Lease = []byte(key), kv.Lease&(1<<32-1)
	}
	if diff := gocmp.Diff(want.Kvs, got.Kvs, protocmp.Transform()); diff != "" {
		t.Errorf("the contents differ in the end (- etcd, + proxied):\n%s", diff)
	}
	if want.Header.Revision != got.Header.Revision {
		t.Errorf("the revision is %d, that of the etcd of its own %d", got.Header.Revision, want.Header.Revision)
	}
	if len(want.Kvs) == 0 {
		t.Error("there is nothing in the end")
	}
}
