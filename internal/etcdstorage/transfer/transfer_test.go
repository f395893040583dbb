// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package transfer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
	"github.com/mooring-dev/mooring/internal/etcdstorage/transfer"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/internal/testkit/tenantproxy"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// client returns a client of an address.
func client(t *testing.T, address string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	must.Do(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// proxied is a tenant through a real proxy in this process.
func proxied(t *testing.T, etcd *testkit.Etcd, name string) (transfer.Tenant, *clientv3.Client) {
	t.Helper()
	c := client(t, "http://"+tenantproxy.InProcess(t, etcd.Endpoint, "/"+name+"/", name))
	return transfer.Tenant{KV: c.KV, Lease: c.Lease}, c
}

// direct is the same tenant in the core.
func direct(t *testing.T, etcd *testkit.Etcd, name string) transfer.Tenant {
	t.Helper()
	prefix := must.Get(tenancy.ParsePrefix("/" + name + "/")).Or(t)
	return transfer.Tenant{
		KV: etcd.Client.KV, Lease: etcd.Client.Lease, Prefix: prefix, Leases: tenancy.DeriveLeaseSpace(prefix), Core: clientv3.RetryLeaseClient(etcd.Client),
	}
}

// fill writes keys of every kind for a tenant, two of them on leases, and returns what there is. Values are several pages large.
func fill(t *testing.T, c *clientv3.Client) map[string]string {
	t.Helper()
	data := map[string]string{"\x00": "the least key", "\xff\xff": "the greatest", "empty": "", "binary\x00\xff": "\x00\xff", "large": strings.Repeat("x", 1_200_000)}
	for i := range 1234 {
		data[fmt.Sprintf("/registry/a/%04d", i)] = strings.Repeat("v", i)
	}
	for key, value := range data {
		must.Get(c.Put(t.Context(), key, value)).Or(t)
	}
	for i, ttl := range []int64{3600, 7200} {
		lease := must.Get(c.Grant(t.Context(), ttl)).Or(t)
		for n := range 3 {
			key := fmt.Sprintf("/registry/events/%d-%d", i, n)
			data[key] = "leased"
			must.Get(c.Put(t.Context(), key, "leased", clientv3.WithLease(lease.ID))).Or(t)
		}
	}
	return data
}

// held is what a tenant holds in the core, without its prefix.
func held(t *testing.T, etcd *testkit.Etcd, name string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for key, value := range etcd.Dump(t) {
		if rest, ok := strings.CutPrefix(key, "/"+name+"/"); ok {
			out[rest] = value
		}
	}
	return out
}

// export returns the stream of a tenant.
func export(t *testing.T, from transfer.Tenant) ([]byte, transfer.Summary) {
	t.Helper()
	file := spool(t)
	summary := must.Get(transfer.Export(t.Context(), from, "team-a", file, func(note string) { t.Error(note) })).Or(t)
	return content(t, file), summary
}

func spool(t *testing.T) *os.File {
	t.Helper()
	file := must.Get(os.Create(filepath.Join(t.TempDir(), "stream"))).Or(t)
	t.Cleanup(func() { _ = file.Close() })
	return file
}

func content(t *testing.T, file *os.File) []byte {
	t.Helper()
	data := must.Get(os.ReadFile(file.Name())).Or(t)
	return data
}

func load(ctx context.Context, to transfer.Tenant, stream []byte, o transfer.Options) (transfer.Result, error) {
	r, err := transfer.NewReader(bytes.NewReader(stream))
	if err != nil {
		return transfer.Result{}, err
	}
	return transfer.Import(ctx, to, r, o)
}

// A tenant goes out through its proxy, or from the core, and in again as another tenant, through a proxy or into the core: all four ways
// give the same keys, leases of the right length that the new tenant's proxy knows, and nothing of others.
func TestThereAndBack(t *testing.T) {
	t.Parallel()
	etcd := testkit.NewEtcd(t)
	a, tenant := proxied(t, etcd, "a")
	data := fill(t, tenant)
	must.Get(etcd.Client.Put(t.Context(), "/b/secret", "of another tenant")).Or(t)
	through, summary := export(t, a)
	if summary.Keys != int64(len(data)) || summary.Leases != 2 || summary.Ended != 0 || summary.Revision == 0 {
		t.Errorf("%+v, want %d keys", summary, len(data))
	}
	inCore, coreSummary := export(t, direct(t, etcd, "a"))
	if verified, err := transfer.Verify(bytes.NewReader(inCore)); err != nil || !reflect.DeepEqual(verified, coreSummary) {
		t.Errorf("%+v, want %+v (%v)", verified, coreSummary, err)
	}
	// The other tenant's revision is the only thing that may differ.
	if rest := func(s []byte) []byte { _, out, _ := bytes.Cut(s, []byte("\n")); return out }; len(rest(through)) != len(rest(inCore)) {
		t.Error("the two streams differ")
	}
	c, cClient := proxied(t, etcd, "c")
	_, dClient := proxied(t, etcd, "d")
	for name, to := range map[string]transfer.Tenant{"c": c, "d": direct(t, etcd, "d")} {
		result, err := load(t.Context(), to, through, transfer.Options{})
		if err != nil || result != (transfer.Result{Written: int64(len(data)), Leases: 2}) {
			t.Errorf("%+v, %v", result, err)
		}
		if diff := cmp.Diff(data, held(t, etcd, name)); diff != "" {
			t.Errorf("tenant %s: %.2000s", name, diff)
		}
	}
	for _, c := range []*clientv3.Client{cClient, dClient} {
		for i, ttl := range []int64{3600, 7200} {
			got, err := c.Get(t.Context(), fmt.Sprintf("/registry/events/%d-1", i))
			if err != nil || len(got.Kvs) != 1 {
				t.Fatal(err)
			}
			lease, err := c.TimeToLive(t.Context(), clientv3.LeaseID(got.Kvs[0].Lease), clientv3.WithAttachedKeys())
			if err != nil || lease.GrantedTTL != ttl || len(lease.Keys) != 3 {
				t.Errorf("lease %+v, %v; want one of %d s with three keys", lease, err, ttl)
			}
		}
	}
	if got := held(t, etcd, "b"); len(got) != 1 || got["secret"] != "of another tenant" {
		t.Errorf("another tenant has %v", got)
	}
}

// hooked is a KV between whose calls something happens.
type hooked struct {
	clientv3.KV
	gets, txns       int
	beforeGet        func(n int)
	before, answered func(n int) error // a Txn
}

func (h *hooked) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	h.gets++
	if h.beforeGet != nil {
		h.beforeGet(h.gets)
	}
	return h.KV.Get(ctx, key, opts...)
}

func (h *hooked) Txn(ctx context.Context) clientv3.Txn { return &hookedTxn{h.KV.Txn(ctx), h} }

type hookedTxn struct {
	clientv3.Txn
	h *hooked
}

func (x *hookedTxn) If(c ...clientv3.Cmp) clientv3.Txn  { x.Txn = x.Txn.If(c...); return x }
func (x *hookedTxn) Then(o ...clientv3.Op) clientv3.Txn { x.Txn = x.Txn.Then(o...); return x }
func (x *hookedTxn) Else(o ...clientv3.Op) clientv3.Txn { x.Txn = x.Txn.Else(o...); return x }

func (x *hookedTxn) Commit() (*clientv3.TxnResponse, error) {
	x.h.txns++
	if x.h.before != nil {
		if err := x.h.before(x.h.txns); err != nil {
			return nil, err
		}
	}
	answer, err := x.Txn.Commit()
	if err == nil && x.h.answered != nil {
		err = x.h.answered(x.h.txns)
	}
	return answer, err
}

// The stream is of one revision, however much is written while it is made.
func TestExportIsOfOneMoment(t *testing.T) {
	t.Parallel()
	etcd := testkit.NewEtcd(t)
	a, tenant := proxied(t, etcd, "a")
	data := fill(t, tenant)
	a.KV = &hooked{KV: a.KV, beforeGet: func(n int) {
		if n > 1 {
			for _, key := range []string{"/registry/a/0001", "/registry/a/1200", "zzz", fmt.Sprint("new-", n)} {
				if _, err := tenant.Put(t.Context(), key, "later"); err != nil {
					t.Error(err)
				}
			}
			if _, err := tenant.Delete(t.Context(), "/registry/a/1233"); err != nil {
				t.Error(err)
			}
		}
	}}
	stream, _ := export(t, a)
	b, _ := proxied(t, etcd, "b")
	must.Get(load(t.Context(), b, stream, transfer.Options{})).Or(t)
	if diff := cmp.Diff(data, held(t, etcd, "b")); diff != "" {
		t.Errorf("%.2000s", diff)
	}
}

// Compaction in the middle: the export begins again at a newer revision, and what was written before is gone from the stream. If it happens
// each time, the export gives up with words.
func TestCompactionDuringExport(t *testing.T) {
	t.Parallel()
	etcd := testkit.NewEtcd(t)
	a, tenant := proxied(t, etcd, "a")
	data := fill(t, tenant)
	always := false
	compacted := 0
	a.KV = &hooked{KV: a.KV, beforeGet: func(n int) {
		if n != 3 && !always {
			return
		}
		put := must.Get(tenant.Put(t.Context(), "/registry/a/0000", "later")).Or(t)
		must.Get(tenant.Compact(t.Context(), put.Header.Revision)).Or(t)
		compacted++
	}}
	data["/registry/a/0000"] = "later"
	file, notes := spool(t), []string{}
	must.Get(transfer.Export(t.Context(), a, "a", file, func(note string) { notes = append(notes, note) })).Or(t)
	if len(notes) != 1 || !strings.Contains(notes[0], "was compacted after") || compacted != 1 {
		t.Errorf("%q, %d", notes, compacted)
	}
	b, _ := proxied(t, etcd, "b")
	must.Get(load(t.Context(), b, content(t, file), transfer.Options{})).Or(t)
	if diff := cmp.Diff(data, held(t, etcd, "b")); diff != "" {
		t.Errorf("%.2000s", diff)
	}
	always = true
	_, err := transfer.Export(t.Context(), a, "a", spool(t), nil)
	if err == nil || !strings.Contains(err.Error(), "was compacted 5 times while it was read: let its API servers compact less often (--etcd-compaction-interval)") {
		t.Errorf("%v", err)
	}
}

// A lease that ends between the revision and the question takes its keys with it.
func TestKeysOfEndedLeasesAreLeftOut(t *testing.T) {
	t.Parallel()
	etcd := testkit.NewEtcd(t)
	a, tenant := proxied(t, etcd, "a")
	lease := must.Get(tenant.Grant(t.Context(), 600)).Or(t)
	for i := range 150 {
		must.Get(tenant.Put(t.Context(), fmt.Sprint("/e/", i), "x", clientv3.WithLease(lease.ID))).Or(t)
	}
	must.Get(tenant.Put(t.Context(), "/f", "stays")).Or(t)
	a.Lease = ended{a.Lease}
	stream, summary := export(t, a)
	if summary.Ended != 150 || summary.Keys != 1 || summary.Leases != 0 {
		t.Errorf("%+v\n%s", summary, stream)
	}
}

// Keys on leases that are older than the proxy are left out and named through a proxy, and exported with their leases from the core itself.
func TestKeysOfLeasesOlderThanTheProxy(t *testing.T) {
	t.Parallel()
	etcd := testkit.NewEtcd(t)
	lease := must.Get(etcd.Client.Grant(t.Context(), 600)).Or(t)
	for i := range 12 {
		must.Get(etcd.Client.Put(t.Context(), fmt.Sprintf("/a/old/%02d", i), "x", clientv3.WithLease(lease.ID))).Or(t)
	}
	a, tenant := proxied(t, etcd, "a")
	must.Get(tenant.Put(t.Context(), "stays", "x")).Or(t)
	stream, summary := export(t, a)
	if summary.Foreign != 12 || len(summary.ForeignKeys) != 10 || summary.ForeignKeys[0] != "old/00" || summary.Ended != 0 || summary.Keys != 1 {
		t.Errorf("through the proxy: %+v\n%s", summary, stream)
	}
	stream, summary = export(t, direct(t, etcd, "a"))
	if summary.Foreign != 0 || summary.Ended != 0 || summary.Keys != 13 || summary.Leases != 1 {
		t.Errorf("from the core: %+v\n%s", summary, stream)
	}
}

// ended knows no lease any more, as after the end of all of them.
type ended struct{ clientv3.Lease }

func (ended) TimeToLive(_ context.Context, id clientv3.LeaseID, _ ...clientv3.LeaseOption) (*clientv3.LeaseTimeToLiveResponse, error) {
	return &clientv3.LeaseTimeToLiveResponse{ID: id, TTL: -1}, nil
}

// An import into a tenant that is not empty is refused. One that was interrupted, in the middle or after an answer that was lost, is
// finished by --resume. A key with another value ends it, and nothing is overwritten. What API servers note of compaction is not loaded.
func TestImportIsFinishedByDoingItAgain(t *testing.T) {
	t.Parallel()
	etcd := testkit.NewEtcd(t)
	a, tenant := proxied(t, etcd, "a")
	data := fill(t, tenant)
	must.Get(tenant.Put(t.Context(), "compact_rev_key", "1")).Or(t)
	stream, _ := export(t, a)
	b, bClient := proxied(t, etcd, "b")
	interrupted := errors.New("interrupted")
	b.KV = &hooked{KV: bClient.KV, before: func(n int) error {
		if n == 5 {
			return interrupted
		}
		return nil
	}}
	result, err := load(t.Context(), b, stream, transfer.Options{})
	if !errors.Is(err, interrupted) || result.Written == 0 || result.Written == int64(len(data)) {
		t.Fatalf("%+v, %v", result, err)
	}
	b.KV = bClient.KV
	if _, err := load(t.Context(), b, stream, transfer.Options{}); !errors.Is(err, transfer.ErrNotEmpty) ||
		!strings.Contains(err.Error(), fmt.Sprintf("it has %d keys, and nothing was written; to continue an interrupted import, use --resume", result.Written)) {
		t.Errorf("%v", err)
	}
	lost := 0
	b.KV = &hooked{KV: bClient.KV, answered: func(n int) error {
		if n%4 == 0 {
			lost++
			return rpctypes.ErrTooManyRequests // of which the answer was lost on the way
		}
		return nil
	}}
	again, err := load(t.Context(), b, stream, transfer.Options{Resume: true})
	if err != nil || again.Written+again.Present != int64(len(data)) || again.Present < result.Written || again.LeftOut != 1 || lost == 0 {
		t.Errorf("%+v after %+v, %d answers lost, %v", again, result, lost, err)
	}
	if diff := cmp.Diff(data, held(t, etcd, "b")); diff != "" {
		t.Errorf("%.2000s", diff)
	}
	b.KV = bClient.KV
	must.Get(bClient.Put(t.Context(), "/registry/a/0700", "changed")).Or(t)
	before := held(t, etcd, "b")
	if _, err := load(t.Context(), b, stream, transfer.Options{Resume: true}); err == nil ||
		err.Error() != `key "/registry/a/0700" exists with another value, which is not changed: the tenant is in use, or holds other data` {
		t.Errorf("%v", err)
	}
	if !maps.Equal(before, held(t, etcd, "b")) {
		t.Error("a refused import has written")
	}
}

// A lease that ends before its keys are written is granted again.
func TestALeaseThatEndsDuringImport(t *testing.T) {
	t.Parallel()
	etcd := testkit.NewEtcd(t)
	a, tenant := proxied(t, etcd, "a")
	lease := must.Get(tenant.Grant(t.Context(), 600)).Or(t)
	for i := range 250 {
		must.Get(tenant.Put(t.Context(), fmt.Sprintf("/e/%03d", i), "x", clientv3.WithLease(lease.ID))).Or(t)
	}
	stream, _ := export(t, a)
	b, bClient := proxied(t, etcd, "b")
	b.KV = &hooked{KV: bClient.KV, before: func(n int) error {
		if n != 2 {
			return nil
		}
		got, err := bClient.Get(t.Context(), "/e/000")
		if err != nil || len(got.Kvs) != 1 {
			t.Fatalf("%d keys, %v", len(got.Kvs), err)
		}
		_, err = bClient.Revoke(t.Context(), clientv3.LeaseID(got.Kvs[0].Lease))
		return err
	}}
	result, err := load(t.Context(), b, stream, transfer.Options{})
	if err != nil || result.Written != 250 || result.Leases != 2 {
		t.Errorf("%+v, %v", result, err)
	}
	if got := held(t, etcd, "b"); len(got) != 150 { // those of the first page went with their lease, as they would have anyway
		t.Errorf("%d keys", len(got))
	}
}

// Whatever a tenant could store can be loaded into another one: a value that fills a request, keys so long that they do not fit a transaction together, and
// both through proxies and into the core. A second import finds all of it there, and one with another value is refused.
func TestEverythingThatATenantCouldStore(t *testing.T) {
	t.Parallel()
	etcd := testkit.NewEtcd(t)
	a, tenant := proxied(t, etcd, "a")
	const request = 1536 << 10 // etcd's --max-request-bytes by default
	least := request - 256
	largest := least + sort.Search(request-least, func(more int) bool {
		_, err := tenant.Put(t.Context(), "large", strings.Repeat("x", least+more))
		return err != nil
	}) - 1
	must.Get(tenant.Put(t.Context(), "large", strings.Repeat("x", largest))).Or(t)
	for i := range 60 {
		must.Get(tenant.Put(t.Context(), fmt.Sprintf("%s-%02d", strings.Repeat("k", 12<<10), i), "x")).Or(t)
	}
	stream, _ := export(t, a)
	want := held(t, etcd, "a")
	b, other := proxied(t, etcd, "b")
	for name, to := range map[string]transfer.Tenant{"b": b, "c": direct(t, etcd, "c")} {
		if _, err := load(t.Context(), to, stream, transfer.Options{}); err != nil {
			t.Fatal(name, err)
		}
		if got := held(t, etcd, name); !maps.Equal(got, want) {
			t.Errorf("%s has %d keys of %d, or other values", name, len(got), len(want))
		}
		if result, err := load(t.Context(), to, stream, transfer.Options{Resume: true}); err != nil || result.Written != 0 {
			t.Errorf("%s again: %+v, %v", name, result, err)
		}
	}
	must.Get(other.Put(t.Context(), "large", "other")).Or(t)
	if _, err := load(t.Context(), b, stream, transfer.Options{Resume: true}); err == nil || !strings.Contains(err.Error(), "exists with another value") {
		t.Error("over another value:", err)
	}
}
