// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"cmp"
	"iter"
	"slices"
	"time"
)

// table holds the objects of one kind of one account, in the order in which they were created.
//
// Values are never changed in place: a change is a new value, so that a value that was read may be used after the
// simulator's lock is released, and so that the past can be read. A view that lags by L sees the table as it was L ago;
// what is older than the longest lag is forgotten.
type table[K comparable, V any] struct {
	keep func() time.Duration // the longest lag of any view
	tell func()               // told of every change
	rows map[K]*row[K, V]     // what exists now
	all  []*row[K, V]         // by creation; with the deleted rows that a lagging view may still see
	next uint64
}

type row[K comparable, V any] struct {
	key     K
	number  uint64
	created time.Time
	deleted time.Time // zero while it exists
	value   V
	past    []version[V] // what it was before, oldest first
}

// version is a value and when it stopped being true.
type version[V any] struct {
	value V
	until time.Time
}

func newTable[K comparable, V any](keep func() time.Duration, tell func()) *table[K, V] {
	return &table[K, V]{keep: keep, tell: tell, rows: map[K]*row[K, V]{}}
}

func (t *table[K, V]) len() int { return len(t.rows) }

// get returns what is true now.
func (t *table[K, V]) get(key K) (V, bool) {
	if r, ok := t.rows[key]; ok {
		return r.value, true
	}
	var none V
	return none, false
}

// put creates or replaces an object.
func (t *table[K, V]) put(key K, value V, now time.Time) {
	t.tell()
	if r, ok := t.rows[key]; ok {
		if t.keep() > 0 {
			r.past = append(r.past, version[V]{value: r.value, until: now})
			t.forget(r, now)
		}
		r.value = value
		return
	}
	r := &row[K, V]{key: key, number: t.next, created: now, value: value}
	t.next++
	t.rows[key] = r
	t.all = append(t.all, r)
}

// remove deletes an object, if it is there.
func (t *table[K, V]) remove(key K, now time.Time) {
	r, ok := t.rows[key]
	if !ok {
		return
	}
	t.tell()
	delete(t.rows, key)
	r.deleted = now
	if t.keep() == 0 && len(t.all) == len(t.rows)+1 { // nothing else was deleted: the one row has to go
		index, _ := slices.BinarySearchFunc(t.all, r.number, func(r *row[K, V], n uint64) int { return cmp.Compare(r.number, n) })
		t.all = slices.Delete(t.all, index, index+1)
		return
	}
	horizon := now.Add(-t.keep())
	t.all = slices.DeleteFunc(t.all, func(r *row[K, V]) bool { return !r.deleted.IsZero() && !r.deleted.After(horizon) })
}

// forget drops the versions that no view can see any more.
func (t *table[K, V]) forget(r *row[K, V], now time.Time) {
	horizon := now.Add(-t.keep())
	r.past = slices.DeleteFunc(r.past, func(v version[V]) bool { return !v.until.After(horizon) })
}

// values iterates over what is true now, in the order of creation.
func (t *table[K, V]) values() iter.Seq[V] {
	return func(yield func(V) bool) {
		for _, r := range t.all {
			if r.deleted.IsZero() && !yield(r.value) {
				return
			}
		}
	}
}

// getAt returns what was true at a time in the past.
func (t *table[K, V]) getAt(key K, when time.Time) (V, bool) {
	if r, ok := t.rows[key]; ok {
		if value, ok := r.at(when); ok {
			return value, true
		}
	}
	if len(t.all) == len(t.rows) { // nothing that is gone can still be seen
		var none V
		return none, false
	}
	for _, r := range t.all {
		if r.key == key && !r.deleted.IsZero() {
			if value, ok := r.at(when); ok {
				return value, true
			}
		}
	}
	var none V
	return none, false
}

// valuesAt iterates over what was true at a time in the past, in the order of creation.
func (t *table[K, V]) valuesAt(when time.Time) iter.Seq[V] {
	return func(yield func(V) bool) {
		for _, r := range t.all {
			if value, ok := r.at(when); ok && !yield(value) {
				return
			}
		}
	}
}

func (r *row[K, V]) at(when time.Time) (V, bool) {
	if r.created.After(when) || (!r.deleted.IsZero() && !r.deleted.After(when)) {
		var none V
		return none, false
	}
	for _, v := range r.past {
		if v.until.After(when) {
			return v.value, true
		}
	}
	return r.value, true
}
