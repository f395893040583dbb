// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/internal/calico"
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

// keyVersion is one version of a key; a nil value means that it was deleted.
type keyVersion struct {
	revision int64
	value    any
	by       string
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

// list reads all keys below a prefix at a revision, sorted.
func (e *etcdModel) list(prefix string, revision int64) ([]keyValue, error) {
	switch {
	case revision < e.compacted:
		return nil, errCompacted
	case revision > e.revision:
		return nil, errors.New("mvcc: required revision is a future revision")
	}
	return e.scan(prefix, revision), nil
}

func (e *etcdModel) scan(prefix string, revision int64) []keyValue {
	var out []keyValue
	for key := range e.versions {
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		if value, modified := e.at(key, revision); value != nil {
			out = append(out, keyValue{key, value, modified})
		}
	}
	slices.SortFunc(out, func(a, b keyValue) int { return strings.Compare(a.key, b.key) })
	return out
}

// commit is one transaction: every key of expected must be at its revision (0: absent), else nothing is written and the error is a
// *calico.ConflictError. A nil value deletes. A transaction without effect does not raise the revision.
func (e *etcdModel) commit(by string, expected map[string]int64, puts map[string]any) (int64, error) {
	for _, key := range slices.Sorted(maps.Keys(expected)) {
		if _, found := e.get(key); found != expected[key] {
			return 0, &calico.ConflictError{Key: key, Detail: fmt.Sprintf("it is at revision %d, not %d", found, expected[key])}
		}
	}
	w := etcdWrite{by: by, revision: e.revision + 1}
	for _, key := range slices.Sorted(maps.Keys(puts)) {
		before, modified := e.get(key)
		if before == nil && puts[key] == nil {
			continue
		}
		w.changes = append(w.changes, keyChange{key: key, before: before, after: puts[key], modified: modified})
		e.versions[key] = append(e.versions[key], keyVersion{w.revision, puts[key], by})
	}
	if len(w.changes) == 0 {
		return e.revision, nil
	}
	e.revision = w.revision
	e.wrote(w)
	return e.revision, nil
}

// put is a write of somebody else, who needs no comparison here: nothing else happens in between.
func (e *etcdModel) put(by, key string, value any) {
	if _, err := e.commit(by, nil, map[string]any{key: value}); err != nil {
		panic(err)
	}
}

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
