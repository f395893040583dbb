// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// compactKey is where API servers note up to which revision they have compacted (k8s.io/apiserver, storage/etcd3/compact.go). Revisions of one store
// mean nothing in another, so it is not loaded; they make it again.
const compactKey = "compact_rev_key"

// Options of an import.
type Options struct {
	// Resume allows that the tenant has keys already. Those of the stream that are there with the same value are passed over, one with another value
	// ends the import.
	Resume bool
}

// Result is what an import did, also when it ended with an error.
type Result struct {
	// Written keys, and Present ones, which were there already.
	Written, Present int64
	// LeftOut is the number of keys that are never loaded.
	LeftOut int64
	// Leases is the number of leases that were granted.
	Leases int64
}

// ErrNotEmpty reports that the tenant has keys, and that nobody asked to add to them.
var ErrNotEmpty = errors.New("the tenant is not empty")

// Import writes the keys of a stream. Each page is in the store either whole or not at all, unless some of its keys were there already. The
// last error of the reader may come after all pages but the last were written.
func Import(ctx context.Context, t Tenant, from *Reader, o Options) (Result, error) {
	i := &importer{t: t, told: map[int64]int64{}, granted: map[int64]clientv3.LeaseID{}}
	if !o.Resume {
		n, err := t.Count(ctx)
		if err != nil {
			return i.out, fmt.Errorf("counting the tenant's keys: %w", err)
		}
		if n > 0 {
			return i.out, fmt.Errorf("%w: it has %d keys, and nothing was written; to continue an interrupted import, use --resume", ErrNotEmpty, n)
		}
	}
	for {
		page, err := from.Next()
		if errors.Is(err, io.EOF) {
			return i.out, nil
		}
		if err != nil {
			return i.out, err
		}
		for _, l := range page.Leases {
			i.told[l.ID] = l.TTL
		}
		if err := i.page(ctx, page.KVs); err != nil {
			return i.out, err
		}
	}
}

// importer is one import.
type importer struct {
	t       Tenant
	told    map[int64]int64            // TTL of each lease of the stream
	granted map[int64]clientv3.LeaseID // what was granted for it
	out     Result
}

// page writes one page, in parts that fit a transaction.
func (i *importer) page(ctx context.Context, kvs []KV) error {
	for len(kvs) > 0 {
		n, size := 0, 0
		for n < len(kvs) && n < pageKeys && (n == 0 || size+len(kvs[n].Key)+len(kvs[n].Value) <= pageBytes) {
			size += len(kvs[n].Key) + len(kvs[n].Value)
			n++
		}
		if err := i.part(ctx, kvs[:n]); err != nil {
			return err
		}
		kvs = kvs[n:]
	}
	return nil
}

// part writes keys in one transaction, if none of them is there. Of those that are it asks for the values, and tries again without them.
func (i *importer) part(ctx context.Context, kvs []KV) error {
	var missing []KV
	for _, kv := range kvs {
		if string(kv.Key) == compactKey {
			i.out.LeftOut++
			continue
		}
		missing = append(missing, kv)
	}
	for len(missing) > 0 {
		answer, err := i.create(ctx, missing)
		if tooLarge(err) {
			return i.smaller(ctx, missing)
		}
		if err != nil {
			return Explain(err)
		}
		if answer.Succeeded {
			i.out.Written += int64(len(missing))
			return nil
		}
		there, left, err := compare(missing, answer)
		if err != nil {
			return err
		}
		i.out.Present += there
		missing = left
	}
	return nil
}

// smaller writes keys that are too large for one transaction, which names each key three times: halves of them, and in the end one alone.
func (i *importer) smaller(ctx context.Context, kvs []KV) error {
	if len(kvs) == 1 {
		return Explain(i.alone(ctx, kvs[0]))
	}
	half := len(kvs) / 2
	if err := i.part(ctx, kvs[:half]); err != nil {
		return err
	}
	return i.part(ctx, kvs[half:])
}

// alone writes a key whose value fits a put, as the tenant has stored it, and no transaction around it. That the key is not there is seen before, and that
// nobody else has written it meanwhile is seen afterwards.
func (i *importer) alone(ctx context.Context, kv KV) error {
	there, err := i.read(ctx, kv)
	if err != nil {
		return err
	}
	if there != nil {
		if !bytes.Equal(there.Value, kv.Value) {
			return otherValue(kv)
		}
		i.out.Present++
		return nil
	}
	txn, err := i.transaction(ctx, []KV{kv})
	if err != nil {
		return err
	}
	if err := try(ctx, func(ctx context.Context) error {
		_, err := i.t.KV.Do(ctx, txn.puts[0])
		return err
	}); err != nil {
		return fmt.Errorf("writing key %s: %w", quote(kv.Key), err)
	}
	if there, err = i.read(ctx, kv); err != nil {
		return err
	}
	if there == nil || !bytes.Equal(there.Value, kv.Value) {
		return otherValue(kv)
	}
	i.out.Written++
	return nil
}

// read reads a key of the tenant; nil if it is not there.
func (i *importer) read(ctx context.Context, kv KV) (there *mvccpb.KeyValue, err error) {
	err = try(ctx, func(ctx context.Context) error {
		answer, err := i.t.KV.Get(ctx, i.t.key(kv.Key))
		if err == nil && len(answer.Kvs) > 0 {
			there = answer.Kvs[0]
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading key %s: %w", quote(kv.Key), err)
	}
	return there, nil
}

func otherValue(kv KV) error {
	return fmt.Errorf("key %s exists with another value, which is not changed: the tenant is in use, or holds other data", quote(kv.Key))
}

// compare returns how many keys are there with the value they should have, and those that are missing.
func compare(kvs []KV, answer *clientv3.TxnResponse) (there int64, missing []KV, err error) {
	if len(answer.Responses) != len(kvs) {
		return 0, nil, errors.New("the server's response does not match the transaction")
	}
	for n, kv := range kvs {
		got := answer.Responses[n].GetResponseRange().GetKvs()
		switch {
		case len(got) == 0:
			missing = append(missing, kv)
		case bytes.Equal(got[0].Value, kv.Value):
			there++
		default:
			return 0, nil, otherValue(kv)
		}
	}
	return there, missing, nil
}

// quote shows a key to people, cut if it is long.
func quote(key []byte) string {
	const most = 120
	if len(key) > most {
		return strconv.Quote(string(key[:most])) + "…"
	}
	return strconv.Quote(string(key))
}

// create writes keys if none of them is there. It may be tried again after an answer that was lost: then they are there, with the right
// values. A lease that has ended since it was granted is granted again.
func (i *importer) create(ctx context.Context, kvs []KV) (*clientv3.TxnResponse, error) {
	for n := 1; ; n++ {
		txn, err := i.transaction(ctx, kvs)
		if err != nil {
			return nil, err
		}
		var answer *clientv3.TxnResponse
		err = try(ctx, func(ctx context.Context) (err error) {
			answer, err = i.t.KV.Txn(ctx).If(txn.compares...).Then(txn.puts...).Else(txn.gets...).Commit()
			return err
		})
		if is(err, rpctypes.ErrGRPCLeaseNotFound) && n < attempts {
			clear(i.granted)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("writing keys from %s on: %w", quote(kvs[0].Key), err)
		}
		return answer, nil
	}
}

// transaction is the parts of one.
type transaction struct {
	compares   []clientv3.Cmp
	puts, gets []clientv3.Op
}

func (i *importer) transaction(ctx context.Context, kvs []KV) (transaction, error) {
	var out transaction
	for _, kv := range kvs {
		key := i.t.key(kv.Key)
		var options []clientv3.OpOption
		if kv.Lease != 0 {
			id, err := i.lease(ctx, kv.Lease)
			if err != nil {
				return out, err
			}
			options = append(options, clientv3.WithLease(id))
		}
		out.compares = append(out.compares, clientv3.Compare(clientv3.CreateRevision(key), "=", 0))
		out.puts = append(out.puts, clientv3.OpPut(key, string(kv.Value), options...))
		out.gets = append(out.gets, clientv3.OpGet(key))
	}
	return out, nil
}

// lease returns a lease of the whole length for one of the stream.
func (i *importer) lease(ctx context.Context, number int64) (clientv3.LeaseID, error) {
	if id, ok := i.granted[number]; ok {
		return id, nil
	}
	id, err := i.grant(ctx, i.told[number])
	if err != nil {
		return 0, fmt.Errorf("granting a lease of %d s: %w", i.told[number], err)
	}
	i.granted[number] = id
	i.out.Leases++
	return id, nil
}

// grant grants a lease in the tenant's lease space.
func (i *importer) grant(ctx context.Context, ttl int64) (id clientv3.LeaseID, err error) {
	for range attempts {
		err = try(ctx, func(ctx context.Context) (err error) {
			if i.t.Core != nil {
				id, err = i.grantInCore(ctx, ttl)
				return err
			}
			answer, err := i.t.Lease.Grant(ctx, ttl)
			if err == nil {
				id = answer.ID
			}
			return err
		})
		if !is(err, rpctypes.ErrGRPCLeaseExist) { // an ID that is taken already; another one is drawn
			break
		}
	}
	return id, err
}

// grantInCore grants a lease with an ID that the tenant's proxies know as the tenant's.
func (i *importer) grantInCore(ctx context.Context, ttl int64) (clientv3.LeaseID, error) {
	var random [4]byte
	if _, err := rand.Read(random[:]); err != nil {
		return 0, fmt.Errorf("drawing a lease ID: %w", err)
	}
	id := i.t.Leases.Core(int64(max(1, binary.BigEndian.Uint32(random[:]))))
	answer, err := i.t.Core.LeaseGrant(ctx, &etcdserverpb.LeaseGrantRequest{ID: id, TTL: ttl})
	if err != nil {
		return 0, rpctypes.Error(err)
	}
	return clientv3.LeaseID(answer.ID), nil
}
