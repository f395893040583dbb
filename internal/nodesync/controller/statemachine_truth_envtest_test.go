// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// What the state machines show of the controller and of calico.Etcd they show on a model of etcd. Here the model and a real etcd get the same
// transactions: they must read the same, write the same and refuse the same.
func TestModelOfEtcdIsTrue(t *testing.T) {
	t.Parallel()
	etcd := testkit.NewEtcd(t).Client
	tried, most := 0, cases.Number(t, 10, 30, 300)
	cases.Check(t, func(rt *rapid.T) {
		if tried++; tried > most {
			return // each costs tens of calls of a server
		}
		must.Get(etcd.Delete(t.Context(), "/", clientv3.WithPrefix())).Or(rt)
		offset := must.Get(etcd.Put(t.Context(), "/begin", "")).Or(rt).Header.Revision - 1
		model := &etcdPort{etcd: newEtcdModel(), by: "leader"}
		for range rapid.IntRange(5, 30).Draw(rt, "transactions") {
			answers := make([]string, 2)
			draw := drawTxn(rt, model.etcd.revision)
			for i, kv := range []clientv3.KV{model, etcd} {
				by := offset * int64(i)
				compares, then, otherwise := draw(by)
				resp, err := kv.Txn(t.Context()).If(compares...).Then(then...).Else(otherwise...).Commit()
				answers[i] = describeTxn(resp, err, by)
			}
			if diff := cmp.Diff(answers[0], answers[1]); diff != "" {
				rt.Fatalf("(-model +real):\n%s", diff)
			}
		}
	})
}

// drawTxn draws a transaction about a few keys, for an etcd whose revisions are larger by so much.
func drawTxn(t *rapid.T, revision int64) func(by int64) (compares []clientv3.Cmp, then, otherwise []clientv3.Op) {
	key := func() string { return rapid.SampledFrom([]string{"/x/a", "/x/b", "/x/b/c", "/y"}).Draw(t, "key") }
	type compare struct {
		key      string
		revision int64
	}
	expected := make([]compare, rapid.IntRange(0, 2).Draw(t, "compares"))
	for i := range expected {
		expected[i] = compare{key(), rapid.Int64Range(0, revision).Draw(t, "revision")}
	}
	writes := map[string]bool{}
	for range rapid.IntRange(0, 2).Draw(t, "writes") {
		writes[key()] = rapid.Bool().Draw(t, "delete")
	}
	value, read := fmt.Sprint(revision), key()
	at, limit := rapid.Int64Range(1, revision).Draw(t, "at"), rapid.Int64Range(0, 2).Draw(t, "limit")
	return func(by int64) (compares []clientv3.Cmp, then, otherwise []clientv3.Op) {
		for _, c := range expected {
			if c.revision > 0 {
				c.revision += by
			}
			compares = append(compares, clientv3.Compare(clientv3.ModRevision(c.key), "=", c.revision))
		}
		for key, deleted := range writes {
			if then = append(then, clientv3.OpPut(key, value)); deleted {
				then[len(then)-1] = clientv3.OpDelete(key)
			}
		}
		otherwise = []clientv3.Op{
			clientv3.OpGet(read), clientv3.OpGet("/x/", clientv3.WithPrefix(), clientv3.WithRev(at+by), clientv3.WithLimit(limit)),
			clientv3.OpGet("/x/b", clientv3.WithPrefix(), clientv3.WithKeysOnly()),
		}
		if len(then) == 0 {
			then = otherwise
		}
		return compares, then, otherwise
	}
}

// describeTxn is what came of a transaction, with revisions smaller by so much.
func describeTxn(resp *clientv3.TxnResponse, err error, by int64) string {
	if err != nil {
		return "an error"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%t at %d\n", resp.Succeeded, resp.Header.Revision-by)
	for _, r := range resp.Responses {
		found := r.GetResponseRange()
		fmt.Fprintf(&b, "more: %t\n", found.GetMore())
		for _, kv := range found.GetKvs() {
			fmt.Fprintf(&b, "%s at %d: %s\n", kv.Key, kv.ModRevision-by, kv.Value)
		}
	}
	return b.String()
}
