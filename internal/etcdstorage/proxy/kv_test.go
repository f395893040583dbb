// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func TestKV(t *testing.T) {
	t.Parallel()
	core := testkit.NewEtcd(t)
	p := start(t, configure(t, core.Endpoint))
	ctx := t.Context()
	must.Get(core.Client.Put(ctx, "/b/secret", "other")).Or(t)
	must.Get(p.Client.Put(ctx, "/x", "one")).Or(t)
	must.Get(p.Client.Put(ctx, "y", strings.Repeat("v", 300000))).Or(t)
	got := must.Get(p.Client.Get(ctx, "\x00", clientv3.WithFromKey())).Or(t)
	if len(got.Kvs) != 2 || string(got.Kvs[0].Key) != "/x" || string(got.Kvs[1].Key) != "y" || got.Count != 2 {
		t.Errorf("the tenant sees %v", got.Kvs)
	}
	txn := must.Get(p.Client.Txn(ctx).If(clientv3.Compare(clientv3.Version("/x"), "=", 1)).
		Then(clientv3.OpPut("/x", "two", clientv3.WithPrevKV()), clientv3.OpGet("y", clientv3.WithKeysOnly())).Commit()).Or(t)
	if !txn.Succeeded || string(txn.Responses[0].GetResponsePut().PrevKv.Key) != "/x" || string(txn.Responses[1].GetResponseRange().Kvs[0].Key) != "y" {
		t.Errorf("the txn answered %v", txn)
	}
	stream := must.Get(p.Client.GetStream(ctx, "", clientv3.WithPrefix())).Or(t)
	streamed := 0
	for chunk := range stream {
		must.Do(t, chunk.Err())
		streamed += len(chunk.RangeResponse.GetKvs())
	}
	if streamed != 2 {
		t.Errorf("RangeStream gave %d keys, want 2", streamed)
	}
	deleted, err := p.Client.Delete(ctx, "", clientv3.WithPrefix())
	if err != nil || deleted.Deleted != 2 {
		t.Errorf("deleted %v, %v", deleted, err)
	}
	dump := core.Dump(t)
	maps.DeleteFunc(dump, func(key, _ string) bool { return strings.HasPrefix(key, tenancy.DefaultSystemPrefix) })
	if len(dump) != 1 || dump["/b/secret"] != "other" {
		t.Errorf("the core holds %v, want only /b/secret", dump)
	}
}

// refusal is a request that etcd refuses.
type refusal struct {
	method  string
	request proto.Message
	answer  proto.Message
}

func refusals() map[string]refusal {
	put := func(r *etcdserverpb.PutRequest) refusal {
		return refusal{etcdserverpb.KV_Put_FullMethodName, r, &etcdserverpb.PutResponse{}}
	}
	get := func(r *etcdserverpb.RangeRequest) refusal {
		return refusal{etcdserverpb.KV_Range_FullMethodName, r, &etcdserverpb.RangeResponse{}}
	}
	txn := func(r *etcdserverpb.TxnRequest) refusal {
		return refusal{etcdserverpb.KV_Txn_FullMethodName, r, &etcdserverpb.TxnResponse{}}
	}
	compact := func(revision int64) refusal {
		return refusal{etcdserverpb.KV_Compact_FullMethodName, &etcdserverpb.CompactionRequest{Revision: revision}, &etcdserverpb.CompactionResponse{}}
	}
	var many []*etcdserverpb.Compare
	for i := range 129 {
		many = append(many, &etcdserverpb.Compare{Key: fmt.Append(nil, i)})
	}
	twice := []*etcdserverpb.RequestOp{
		{Request: &etcdserverpb.RequestOp_RequestPut{RequestPut: &etcdserverpb.PutRequest{Key: []byte("k")}}},
		{Request: &etcdserverpb.RequestOp_RequestPut{RequestPut: &etcdserverpb.PutRequest{Key: []byte("k")}}},
	}
	return map[string]refusal{
		"put without key":        put(&etcdserverpb.PutRequest{}),
		"put with ignored value": put(&etcdserverpb.PutRequest{Key: []byte("k"), Value: []byte("v"), IgnoreValue: true}),
		"put to a lost lease":    put(&etcdserverpb.PutRequest{Key: []byte("k"), Lease: 77}),
		"put too large":          put(&etcdserverpb.PutRequest{Key: []byte("k"), Value: make([]byte, 1600*1024)}),
		"put at the margin":      put(&etcdserverpb.PutRequest{Key: []byte("k"), Value: make([]byte, 2*1024*1024-9)}),
		"put beyond gRPC":        put(&etcdserverpb.PutRequest{Key: []byte("k"), Value: make([]byte, 3*1024*1024)}),
		"get without key":        get(&etcdserverpb.RangeRequest{}),
		"get of the future":      get(&etcdserverpb.RangeRequest{Key: []byte("k"), Revision: 1 << 40}),
		"get in no order":        get(&etcdserverpb.RangeRequest{Key: []byte("k"), SortOrder: 9}),
		"txn with too much":      txn(&etcdserverpb.TxnRequest{Compare: many}),
		"txn with an empty op":   txn(&etcdserverpb.TxnRequest{Success: []*etcdserverpb.RequestOp{{}}}),
		"txn twice on a key":     txn(&etcdserverpb.TxnRequest{Success: twice}),
		"compact the future":     compact(1 << 40),
		"compact below all":      compact(-5),
	}
}

// TestRefusals compares what direct etcd and the proxy refuse, in code and text.
func TestRefusals(t *testing.T) {
	t.Parallel()
	core := testkit.NewEtcd(t)
	p := start(t, configure(t, core.Endpoint))
	direct, proxied := raw(t, strings.TrimPrefix(core.Endpoint, "http://")), raw(t, p.Endpoint)
	for name, r := range refusals() {
		want, got := invoke(t, direct, r), invoke(t, proxied, r)
		if want == nil || got == nil || status.Code(want) != status.Code(got) || status.Convert(want).Message() != status.Convert(got).Message() {
			t.Errorf("%s: etcd answers %v, the proxy %v", name, want, got)
		}
	}
}

func invoke(tb testing.TB, conn *grpc.ClientConn, r refusal) error {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	return conn.Invoke(ctx, r.method, r.request, proto.Clone(r.answer))
}
