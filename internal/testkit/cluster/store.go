// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// A record is one state of an object. It never changes.
type record struct {
	object *unstructured.Unstructured
	// writer is the field manager that created the object; it owns the fields that nobody has applied.
	writer string
	text   []byte // as JSON
}

// A change is one entry of the history of a kind.
type change struct {
	revision int64
	kind     watch.EventType
	// is is the object after the change, or what a deletion removed; was is nil for a creation.
	is, was *record
}

// A table is the objects of one kind with their history.
type table struct {
	objects map[string]*record // by namespace/name
	history []change
	// compacted is the revision up to which the history is forgotten.
	compacted int64
	// changed is closed by the next change.
	changed chan struct{}
}

// A store holds all objects. Revisions count the changes of all kinds, as etcd's do.
type store struct {
	mu       sync.Mutex // guards all below
	revision int64
	tables   map[string]*table
	uids     int
}

func newStore() *store { return &store{revision: 1, tables: map[string]*table{}} }

// table returns a kind's objects; the caller holds mu.
func (s *store) table(k *kind) *table {
	t := s.tables[k.table()]
	if t == nil {
		t = &table{objects: map[string]*record{}, changed: make(chan struct{})}
		s.tables[k.table()] = t
	}
	return t
}

func keyOf(namespace, name string) string { return namespace + "/" + name }

// put stores an object under the next revision; the caller holds mu.
func (s *store) put(k *kind, object *unstructured.Unstructured, writer string) *record {
	s.revision++
	object.SetResourceVersion(strconv.FormatInt(s.revision, 10))
	text, err := json.Marshal(object.Object)
	if err != nil {
		panic("cluster: an object is not JSON: " + err.Error())
	}
	t, key := s.table(k), keyOf(object.GetNamespace(), object.GetName())
	r, was := &record{object: object, text: text, writer: writer}, t.objects[key]
	t.objects[key] = r
	event := watch.Added
	if was != nil {
		event = watch.Modified
	}
	t.append(change{revision: s.revision, kind: event, is: r, was: was})
	return r
}

// remove deletes an object; the event carries its last stored state at the revision of the deletion. The caller holds mu.
func (s *store) remove(k *kind, was *record) *record {
	s.revision++
	last := was.object.DeepCopy()
	last.SetResourceVersion(strconv.FormatInt(s.revision, 10))
	text, err := json.Marshal(last.Object)
	if err != nil {
		panic("cluster: an object is not JSON: " + err.Error())
	}
	t, r := s.table(k), &record{object: last, text: text}
	delete(t.objects, keyOf(last.GetNamespace(), last.GetName()))
	t.append(change{revision: s.revision, kind: watch.Deleted, is: r, was: was})
	return r
}

func (t *table) append(c change) {
	t.history = append(t.history, c)
	close(t.changed)
	t.changed = make(chan struct{})
}

// sorted returns the objects of a namespace, or of all, by name; the caller holds the store's mu.
func (t *table) sorted(namespace string) []*record {
	var out []*record
	for _, key := range slices.Sorted(maps.Keys(t.objects)) {
		if r := t.objects[key]; namespace == "" || r.object.GetNamespace() == namespace {
			out = append(out, r)
		}
	}
	return out
}

// since returns the changes after a revision, and what is closed by the next one. It reports false if they are forgotten.
func (s *store) since(k *kind, revision int64) ([]change, <-chan struct{}, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.table(k)
	if revision < t.compacted {
		return nil, nil, false
	}
	from, _ := slices.BinarySearchFunc(t.history, revision+1, func(c change, r int64) int { return int(c.revision - r) })
	return slices.Clone(t.history[from:]), t.changed, true
}

// compact forgets the history, as etcd's compaction does.
func (s *store) compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tables {
		t.history, t.compacted = nil, s.revision
	}
}
