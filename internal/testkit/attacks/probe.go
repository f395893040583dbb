// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package attacks

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// A Probe is one attack with a name, and what it must not get.
type probe struct {
	name string
	// try makes the attack and says what it got, "" if nothing.
	try func(ctx context.Context, w *World, conn *grpc.ClientConn) string
}

// Names of the attacks that Probe makes, in its order.
const (
	ProbeSnapshot       = "download a snapshot of everything"
	ProbeLeaseList      = "list others' leases"
	ProbeLeaseTTL       = "see that another's lease is there"
	ProbeLeaseRenew     = "renew another's lease"
	ProbeLeaseAttach    = "attach a key to another's lease"
	ProbeLeaseRevoke    = "revoke another's lease"
	ProbeLeaseSquat     = "learn from a refused ID that another has it"
	ProbeElectionRead   = "read another's key through Leader"
	ProbeElectionForge  = "write another's key through Proclaim"
	ProbeElectionDelete = "delete another's key through Resign"
	ProbeElectionCreate = "write outside the prefix through Campaign"
	ProbeLockCreate     = "write outside the prefix through Lock"
	ProbeLockDelete     = "delete another's key through Unlock"
	ProbeMemberAdd      = "add a member"
	ProbeUserAdd        = "add a user"
	ProbeHash           = "hash the whole store"
	ProbeDefragment     = "stop a member by defragmenting it"
	ProbeCompact        = "compact others' history"
	ProbeEmptyKey       = "write the key that is the prefix itself by an empty key in a transaction"
	ProbeAlarm          = "raise an alarm that stops everybody's writes"
	ProbeEmptyOp        = "end the process with a transaction that has an empty operation"
)

// Probe makes one known attack after the other, each on a world made again, and returns what succeeded, by name. After each attack the judge
// looks at the core as well. A campaign's worth of damage is undone as far as it can be, so that one success does not hide the next.
func Probe(ctx context.Context, world func(ctx context.Context) (*World, error), conn *grpc.ClientConn, alive func() string) (map[string]string, error) {
	succeeded := map[string]string{}
	for _, p := range probes() {
		w, err := world(ctx)
		if err != nil {
			return nil, err
		}
		attempt, cancel := context.WithTimeout(ctx, patient)
		got := p.try(attempt, w, conn)
		cancel()
		if state := alive(); state != "" {
			succeeded[p.name] = "the process ended: " + state
			break // the last one is the one that does that
		}
		found, err := w.Judge(ctx)
		if err != nil {
			return nil, fmt.Errorf("after the attempt to %s: %w", p.name, err)
		}
		if got != "" {
			found = append(found, got)
		}
		if len(found) > 0 {
			succeeded[p.name] = strings.Join(found, "; ")
		}
		if err := w.repair(ctx); err != nil {
			return nil, fmt.Errorf("after the attempt to %s: %w", p.name, err)
		}
	}
	return succeeded, nil
}

func send(ctx context.Context, conn *grpc.ClientConn, r Request) answer {
	return call(ctx, conn, r, patient)
}

// leak sends a request and says what of others the answer has.
func leak(r Request) func(context.Context, *World, *grpc.ClientConn) string {
	return func(ctx context.Context, w *World, conn *grpc.ClientConn) string {
		return w.leaked(send(ctx, conn, r).bytes)
	}
}

// accepted sends a request and reports whether it was answered with OK.
func accepted(r Request) func(context.Context, *World, *grpc.ClientConn) string {
	return func(ctx context.Context, _ *World, conn *grpc.ClientConn) string {
		if send(ctx, conn, r).code == codes.OK {
			return "it was answered with OK"
		}
		return ""
	}
}

// onLease sends a request that names a lease of another, which has keys.
func onLease(make func(id int64) Request, got func(answer) string) func(context.Context, *World, *grpc.ClientConn) string {
	return func(ctx context.Context, w *World, conn *grpc.ClientConn) string {
		for _, v := range w.leases {
			if len(v.keys) > 0 {
				return got(send(ctx, conn, make(v.id)))
			}
		}
		return "there is no lease to try it on"
	}
}

func whenOK(what string) func(answer) string {
	return func(a answer) string {
		if a.code == codes.OK {
			return what
		}
		return ""
	}
}

func onlyByJudge(answer) string { return "" }

// onKey sends a request that names a key of another.
func onKey(make func(w *World, key string) Request) func(context.Context, *World, *grpc.ClientConn) string {
	return func(ctx context.Context, w *World, conn *grpc.ClientConn) string {
		key := w.neighbors()[9]
		return w.leaked(send(ctx, conn, make(w, key)).bytes)
	}
}

func probes() []probe {
	leased := func(method string, m func(id int64) proto.Message) func(int64) Request {
		return func(id int64) Request { return request(method, unary, m(id)) }
	}
	leader := func(w *World, key string) []byte {
		kv := w.planted[key]
		return appendBytes(nil, 1, leaderKey([]byte("e"), []byte(key), kv.CreateRevision, kv.Lease))
	}
	return []probe{
		{ProbeSnapshot, leak(request(pb.Maintenance_Snapshot_FullMethodName, serverStream, &pb.SnapshotRequest{}))},
		{ProbeLeaseList, leak(request(pb.Lease_LeaseLeases_FullMethodName, unary, &pb.LeaseLeasesRequest{}))},
		{ProbeLeaseTTL, onLease(leased(pb.Lease_LeaseTimeToLive_FullMethodName, func(id int64) proto.Message {
			return &pb.LeaseTimeToLiveRequest{ID: id, Keys: true}
		}), seesTTL)},
		{ProbeLeaseRenew, onLease(func(id int64) Request {
			return request(pb.Lease_LeaseKeepAlive_FullMethodName, firstAnswer, &pb.LeaseKeepAliveRequest{ID: id})
		}, seesRenewal)},
		{ProbeLeaseAttach, onLease(leased(pb.KV_Put_FullMethodName, func(id int64) proto.Message {
			return &pb.PutRequest{Key: []byte("attached"), Lease: id}
		}), whenOK("the write was answered with OK"))},
		{ProbeLeaseSquat, squat},
		{ProbeLeaseRevoke, onLease(leased(pb.Lease_LeaseRevoke_FullMethodName, func(id int64) proto.Message {
			return &pb.LeaseRevokeRequest{ID: id}
		}), onlyByJudge)},
		{ProbeElectionRead, onKey(func(_ *World, key string) Request {
			return Request{Method: leaderMethod, Body: appendBytes(nil, 1, []byte(strings.TrimSuffix(key, "/")))}
		})},
		{ProbeElectionForge, onKey(func(w *World, key string) Request {
			return Request{Method: proclaimMethod, Body: appendBytes(leader(w, key), 2, []byte("forged"))}
		})},
		{ProbeElectionDelete, onKey(func(w *World, key string) Request { return Request{Method: resignMethod, Body: leader(w, key)} })},
		{ProbeElectionCreate, ownLease(func(id int64) Request {
			return Request{Method: campaignMethod, Body: appendBytes(nameAndLease([]byte("/forged/election"), id), 3, []byte("v"))}
		})},
		{ProbeLockCreate, ownLease(func(id int64) Request {
			return Request{Method: lockMethod, Body: nameAndLease([]byte("/forged/lock"), id)}
		})},
		{ProbeLockDelete, onKey(func(_ *World, key string) Request {
			return Request{Method: unlockMethod, Body: appendBytes(nil, 1, []byte(key))}
		})},
		{ProbeUserAdd, accepted(request(pb.Auth_UserAdd_FullMethodName, unary, &pb.AuthUserAddRequest{Name: "mallory", Password: "p"}))},
		{ProbeHash, accepted(request(pb.Maintenance_HashKV_FullMethodName, unary, &pb.HashKVRequest{}))},
		{ProbeDefragment, accepted(request(pb.Maintenance_Defragment_FullMethodName, unary, &pb.DefragmentRequest{}))},
		{ProbeEmptyKey, accepted(request(pb.KV_Txn_FullMethodName, unary, &pb.TxnRequest{Success: []*pb.RequestOp{
			{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Value: []byte("v")}}},
		}}))},
		{ProbeCompact, func(ctx context.Context, w *World, conn *grpc.ClientConn) string {
			for range 2 {
				send(ctx, conn, request(pb.KV_Put_FullMethodName, unary, &pb.PutRequest{Key: []byte("a")}))
			}
			send(ctx, conn, request(pb.KV_Compact_FullMethodName, unary, &pb.CompactionRequest{Revision: w.revision + 2, Physical: true}))
			return ""
		}},
		{ProbeMemberAdd, accepted(request(pb.Cluster_MemberAdd_FullMethodName, unary, &pb.MemberAddRequest{PeerURLs: []string{"http://127.0.0.1:1"}, IsLearner: true}))},
		{ProbeAlarm, accepted(request(pb.Maintenance_Alarm_FullMethodName, unary, &pb.AlarmRequest{
			Action: pb.AlarmRequest_ACTIVATE, MemberID: 1, Alarm: pb.AlarmType_NOSPACE,
		}))},
		{ProbeEmptyOp, func(ctx context.Context, _ *World, conn *grpc.ClientConn) string {
			send(ctx, conn, request(pb.KV_Txn_FullMethodName, unary, &pb.TxnRequest{Success: []*pb.RequestOp{{}}}))
			// A process that panics is gone soon; one that lives answers.
			if a := send(ctx, conn, request(pb.KV_Range_FullMethodName, unary, &pb.RangeRequest{Key: []byte("a")})); a.code != codes.OK {
				return "there is no response afterwards: " + string(a.bytes)
			}
			return ""
		}},
	}
}

// ownLease sends a request that needs a lease with one of the tenant's.
func ownLease(make func(id int64) Request) func(context.Context, *World, *grpc.ClientConn) string {
	return func(ctx context.Context, _ *World, conn *grpc.ClientConn) string {
		lease, err := pb.NewLeaseClient(conn).LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 60})
		if err != nil {
			return "the tenant got no lease: " + err.Error()
		}
		send(ctx, conn, make(lease.ID))
		return ""
	}
}

// seesTTL reports whether the answer tells that there is such a lease: for none, etcd answers with a TTL of -1.
func seesTTL(a answer) string {
	var resp pb.LeaseTimeToLiveResponse
	if a.code != codes.OK || (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(a.body(), &resp) != nil {
		return ""
	}
	if resp.TTL >= 0 || resp.GrantedTTL != 0 {
		return fmt.Sprintf("TTL %d of %d, keys %q", resp.TTL, resp.GrantedTTL, resp.Keys)
	}
	return ""
}

func seesRenewal(a answer) string {
	var resp pb.LeaseKeepAliveResponse
	if a.code == codes.OK && proto.Unmarshal(a.body(), &resp) == nil && resp.TTL > 0 {
		return fmt.Sprintf("its TTL is %d again", resp.TTL)
	}
	return ""
}

// squat asks for an ID that another has, and for one that nobody has; the answers must be the same, else they tell which IDs there are.
func squat(ctx context.Context, w *World, conn *grpc.ClientConn) string {
	taken := send(ctx, conn, request(pb.Lease_LeaseGrant_FullMethodName, unary, &pb.LeaseGrantRequest{ID: w.leases[0].id, TTL: 60}))
	free := send(ctx, conn, request(pb.Lease_LeaseGrant_FullMethodName, unary, &pb.LeaseGrantRequest{ID: w.leases[0].id ^ 0x1_0000_0010, TTL: 60}))
	if taken.code != free.code {
		return fmt.Sprintf("%v for one that is taken, %v for one that is not", taken.code, free.code)
	}
	return ""
}

// PlainHTTP asks the tenant's port for what etcd and its proxy serve to HTTP/1.1 there, and returns what was answered, by path. It is for
// endpoints without TLS.
func PlainHTTP(ctx context.Context, address string) map[string]string {
	got := map[string]string{}
	for _, ask := range []string{
		"GET /metrics", "GET /proxy/metrics", "GET /health", "GET /version", "GET /debug/pprof/", "GET /debug/vars", "POST /v3/kv/range", "GET /v2/keys", "GET /members",
	} {
		method, path, _ := strings.Cut(ask, " ")
		answer := talk(ctx, address, []byte(method+" "+path+" HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"))
		if strings.HasPrefix(answer, "HTTP/1.1 200") {
			got[path] = answer
		}
	}
	return got
}

// talk sends bytes and returns what comes back.
func talk(ctx context.Context, address string, data []byte) string {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return ""
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := conn.Write(data); err != nil {
		return ""
	}
	out, _ := io.ReadAll(io.LimitReader(conn, 1<<20))
	return string(out)
}

// Probes returns the names of all attacks that Probe makes, in its order.
func Probes() []string {
	var names []string
	for _, p := range probes() {
		names = append(names, p.name)
	}
	return names
}
