// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// errCompacted is what etcd answers to a read at a revision that it no longer has.
var errCompacted = errors.New("mvcc: required revision has been compacted")

// etcdModel is etcd in memory, as far as Calico's datastore and its writers depend on it: one revision for the whole store that every
// transaction with an effect raises by one, the revision of each key's last write, reads at a revision, compaction, and transactions that
// compare the revisions of keys and write all or nothing. Values are never changed in place.
type etcdModel struct {
	revision, compacted int64
	versions            map[string][]keyVersion
	// wrote is told of every transaction that had an effect, right after it.
	wrote func(etcdWrite)
}

// keyVersion is one version of a key; a nil value means that it was deleted. raw is the value as it is stored, empty before anybody has read it.
type keyVersion struct {
	revision int64
	value    any
	by       string
	raw      string
}

// etcdWrite is one transaction that had an effect.
type etcdWrite struct {
	by       string
	revision int64
	changes  []keyChange // sorted by key
}

// keyChange is what a transaction did to one key: nil before means created, nil after deleted. modified is the revision of before.
type keyChange struct {
	key           string
	before, after any
	modified      int64
}

// keyValue is one key as it is read.
type keyValue struct {
	key      string
	value    any
	revision int64
}

func newEtcdModel() *etcdModel {
	return &etcdModel{revision: 1, versions: map[string][]keyVersion{}, wrote: func(etcdWrite) {}}
}

func (e *etcdModel) clone() *etcdModel {
	c := newEtcdModel()
	c.revision, c.compacted = e.revision, e.compacted
	for key, versions := range e.versions {
		c.versions[key] = slices.Clip(versions)
	}
	return c
}

// get is a key as it is now: nil and 0 if there is none.
func (e *etcdModel) get(key string) (value any, revision int64) {
	versions := e.versions[key]
	if len(versions) == 0 || versions[len(versions)-1].value == nil {
		return nil, 0
	}
	last := versions[len(versions)-1]
	return last.value, last.revision
}

// at is a key as it was at a revision, whether compacted or not: for the checks, who see all history.
func (e *etcdModel) at(key string, revision int64) (value any, modified int64) {
	for _, v := range slices.Backward(e.versions[key]) {
		if v.revision <= revision {
			if v.value == nil {
				return nil, 0
			}
			return v.value, v.revision
		}
	}
	return nil, 0
}

// raw is the value of the version of a key that was written at a revision, as it is stored.
func (e *etcdModel) raw(key string, modified int64) string {
	versions := e.versions[key]
	v := &versions[slices.IndexFunc(versions, func(v keyVersion) bool { return v.revision == modified })]
	if v.raw == "" {
		v.raw = encodeModel(key, v.value)
	}
	return v.raw
}

// since are the versions of a key that are younger than a revision.
func (e *etcdModel) since(key string, revision int64) []keyVersion {
	versions := e.versions[key]
	for i, v := range versions {
		if v.revision > revision {
			return versions[i:]
		}
	}
	return nil
}

func (e *etcdModel) scan(prefix string, revision int64) []keyValue {
	return e.within(func(key string) bool { return strings.HasPrefix(key, prefix) }, revision)
}

// within reads keys at a revision, sorted.
func (e *etcdModel) within(wanted func(key string) bool, revision int64) []keyValue {
	var out []keyValue
	for key := range e.versions {
		if !wanted(key) {
			continue
		}
		if value, modified := e.at(key, revision); value != nil {
			out = append(out, keyValue{key, value, modified})
		}
	}
	slices.SortFunc(out, func(a, b keyValue) int { return strings.Compare(a.key, b.key) })
	return out
}

// commit is one transaction of writes, as raw text or as values of the model; nil deletes. A transaction without effect does not raise the revision.
func (e *etcdModel) commit(by string, puts map[string]any) {
	w := etcdWrite{by: by, revision: e.revision + 1}
	for _, key := range slices.Sorted(maps.Keys(puts)) {
		before, modified := e.get(key)
		v := keyVersion{w.revision, puts[key], by, ""}
		if raw, ok := v.value.(rawValue); ok {
			v.value, v.raw = decodeModel(key, string(raw)), string(raw)
		}
		if before == nil && v.value == nil {
			continue
		}
		w.changes = append(w.changes, keyChange{key: key, before: before, after: v.value, modified: modified})
		e.versions[key] = append(e.versions[key], v)
	}
	if len(w.changes) > 0 {
		e.revision = w.revision
		e.wrote(w)
	}
}

// put is a write of somebody else, who needs no comparison here: nothing else happens in between.
func (e *etcdModel) put(by, key string, value any) { e.commit(by, map[string]any{key: value}) }

// compact forgets what was before the revision that is now.
func (e *etcdModel) compact() { e.compacted = e.revision }

// history is every version of every key, as text.
func (e *etcdModel) history() map[string][]string {
	out := make(map[string][]string, len(e.versions))
	for key, versions := range e.versions {
		for _, v := range versions {
			out[key] = append(out[key], fmt.Sprintf("%d by %s: %s", v.revision, v.by, modelText(v.value)))
		}
	}
	return out
}

// rawValue is a value as a client writes it.
type rawValue string

// etcdPort is the model as etcd's client: what calico.Etcd needs of it.
type etcdPort struct {
	clientv3.KV
	etcd *etcdModel
	by   string
	// asked is called for each request, unless it is nil.
	asked func()
}

// Get implements clientv3.KV.
func (x *etcdPort) Get(_ context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	x.counts()
	found, err := x.read(clientv3.OpGet(key, opts...))
	return (*clientv3.GetResponse)(found), err
}

func (x *etcdPort) counts() {
	if x.asked != nil {
		x.asked()
	}
}

func (x *etcdPort) read(op clientv3.Op) (*pb.RangeResponse, error) {
	revision, from, to := cmp.Or(op.Rev(), x.etcd.revision), string(op.KeyBytes()), string(op.RangeBytes())
	switch {
	case revision < x.etcd.compacted:
		return nil, errCompacted
	case revision > x.etcd.revision:
		return nil, errors.New("mvcc: required revision is a future revision")
	}
	found := &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: x.etcd.revision}}
	for _, kv := range x.etcd.within(func(key string) bool { return key == from || to != "" && from < key && key < to }, revision) {
		stored := &mvccpb.KeyValue{Key: []byte(kv.key), ModRevision: kv.revision}
		if found.Count++; !op.IsKeysOnly() {
			stored.Value = []byte(x.etcd.raw(kv.key, kv.revision))
		}
		found.Kvs = append(found.Kvs, stored)
	}
	if limit := int(op.Limit()); limit > 0 && len(found.Kvs) > limit {
		found.Kvs, found.More = found.Kvs[:limit], true
	}
	return found, nil
}

// Txn implements clientv3.KV.
func (x *etcdPort) Txn(context.Context) clientv3.Txn { return &etcdTxn{port: x} }

// etcdTxn is a transaction that compares the revisions of keys.
type etcdTxn struct {
	port            *etcdPort
	compares        []clientv3.Cmp
	then, otherwise []clientv3.Op
}

// If, Then, Else and Commit implement clientv3.Txn.
func (t *etcdTxn) If(compares ...clientv3.Cmp) clientv3.Txn { t.compares = compares; return t }

func (t *etcdTxn) Then(ops ...clientv3.Op) clientv3.Txn { t.then = ops; return t }

func (t *etcdTxn) Else(ops ...clientv3.Op) clientv3.Txn { t.otherwise = ops; return t }

func (t *etcdTxn) Commit() (*clientv3.TxnResponse, error) {
	t.port.counts()
	etcd, resp, ops := t.port.etcd, &clientv3.TxnResponse{Succeeded: true}, t.then
	for _, c := range t.compares {
		if _, revision := etcd.get(string(c.KeyBytes())); revision != c.GetCompare().GetModRevision() {
			resp.Succeeded, ops = false, t.otherwise
		}
	}
	puts := map[string]any{}
	for _, op := range ops {
		answer := &pb.ResponseOp{}
		switch {
		case op.IsGet():
			found, err := t.port.read(op)
			if err != nil {
				return nil, err
			}
			answer.Response = &pb.ResponseOp_ResponseRange{ResponseRange: found}
		case op.IsPut():
			puts[string(op.KeyBytes())] = rawValue(op.ValueBytes())
		default:
			puts[string(op.KeyBytes())] = nil
		}
		resp.Responses = append(resp.Responses, answer)
	}
	etcd.commit(t.port.by, puts)
	resp.Header = &pb.ResponseHeader{Revision: etcd.revision}
	return resp, nil
}
