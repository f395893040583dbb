// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package quota_test

import (
	"hash/maphash"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/etcdstorage/quota"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

func newLedger() *quota.Ledger {
	seed := maphash.MakeSeed()
	return quota.NewLedger(func(key []byte) uint64 { return maphash.Bytes(seed, key) })
}

// request is a put that was let in.
type request struct {
	id       int64
	key      string
	bytes    int
	revision int64 // 0 until the store has done it
}

// world is a store with one replica in front of it, whose watch lags behind.
type world struct {
	limits  quota.Limits
	ledger  *quota.Ledger
	store   map[string]int
	history []request // what the store has done, deletions as puts of -1 byte, in the order of revisions
	seen    int       // how much of it the ledger was told
	open    []request
	now     time.Time
	// deletions reports that keys are deleted, too, and values shortened.
	deletions bool
	longest   map[string]int
}

func (w *world) stored() (size quota.Size) {
	for _, bytes := range w.store {
		size.Bytes += int64(bytes)
		size.Keys++
	}
	return size
}

// follow tells the ledger of the next revision.
func (w *world) follow() {
	next := w.history[w.seen]
	w.seen++
	if next.bytes < 0 {
		w.ledger.Delete([]byte(next.key))
	} else {
		w.ledger.Put([]byte(next.key), next.bytes)
	}
	w.ledger.Advance(int64(w.seen), w.now)
}

func (w *world) act(t *rapid.T) {
	key := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "key")
	actions := []string{"put", "put", "put", "do", "do", "follow", "follow", "fail", "wait"}
	if w.deletions {
		actions = append(actions, "delete")
	}
	switch rapid.SampledFrom(actions).Draw(t, "action") {
	case "put":
		bytes := rapid.IntRange(1, 30).Draw(t, "bytes")
		if !w.deletions {
			bytes = w.longest[key] + bytes%4
			w.longest[key] = bytes
		}
		if id, ok := w.ledger.Reserve(w.limits, w.ledger.Growth([]byte(key), bytes, false), quota.Size{}, time.Time{}); ok {
			w.open = append(w.open, request{id: id, key: key, bytes: bytes})
		}
	case "do":
		if len(w.open) > 0 {
			n := rapid.IntRange(0, len(w.open)-1).Draw(t, "which")
			r := w.open[n]
			w.open = append(w.open[:n:n], w.open[n+1:]...)
			w.store[r.key] = r.bytes
			r.revision = int64(len(w.history) + 1)
			w.history = append(w.history, r)
			w.ledger.Settle(r.id, true, r.revision, w.now)
			w.ledger.Abandon(r.id, true, time.Time{}) // the end of the RPC
		}
	case "delete":
		delete(w.store, key)
		w.history = append(w.history, request{key: key, bytes: -1, revision: int64(len(w.history) + 1)})
	case "follow":
		if w.seen < len(w.history) {
			w.follow()
		}
	case "fail": // the core has not done it
		if len(w.open) > 0 {
			w.ledger.Abandon(w.open[0].id, true, time.Time{})
			w.open = w.open[1:]
		}
	case "wait":
		w.now = w.now.Add(time.Second)
	}
}

// However requests, their ends and the watch interleave, one replica never lets in what goes beyond the limit, except where an overwrite and the
// deletion of the same key cross: then by no more than what was under way at that moment. Once all is quiet the ledger is exact.
func TestLedgerHolds(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		w := &world{
			deletions: rapid.Bool().Draw(t, "deletions"), longest: map[string]int{},
			limits: quota.Limits{Bytes: 20, Keys: 4}, store: map[string]int{}, now: time.Unix(0, 0),
			ledger: newLedger(),
		}
		for range rapid.IntRange(1, 100).Draw(t, "actions") {
			w.act(t)
			size := w.stored()
			if !w.deletions && growing(w.history) && (size.Bytes > w.limits.Bytes || size.Keys > w.limits.Keys) {
				t.Fatalf("%+v is stored, the limits are %+v", size, w.limits)
			}
		}
		for len(w.open) > 0 {
			w.ledger.Abandon(w.open[0].id, true, time.Time{})
			w.open = w.open[1:]
		}
		for w.seen < len(w.history) {
			w.follow()
		}
		w.ledger.Advance(int64(len(w.history)), w.now)
		if got, want := w.ledger.Used(), w.stored(); got != want {
			t.Fatalf("%+v is counted, %+v is stored", got, want)
		}
		if _, ok := w.ledger.Reserve(w.limits, quota.Size{Bytes: w.limits.Bytes - w.ledger.Used().Bytes}, quota.Size{}, time.Time{}); !ok {
			t.Fatal("there is room, and no request is under way, but it cannot be used")
		}
	})
}

// growing reports that no put shortened a value: one that was shortened meanwhile grows by more than was reserved when a longer one comes late.
func growing(history []request) bool {
	last := map[string]int{}
	for _, r := range history {
		if r.bytes < last[r.key] {
			return false
		}
		last[r.key] = r.bytes
	}
	return true
}

func TestReservations(t *testing.T) {
	t.Parallel()
	limits, now := quota.Limits{Bytes: 10}, time.Unix(0, 0)
	reserve := func(l *quota.Ledger, bytes int64) (id int64, ok bool) {
		return l.Reserve(limits, quota.Size{Bytes: bytes}, quota.Size{}, time.Time{})
	}
	l := newLedger()
	first, ok := reserve(l, 8)
	if _, second := reserve(l, 3); !ok || second {
		t.Errorf("8 of 10: %v; 3 more while they are under way: %v", ok, second)
	}
	if !l.Exceeded(limits) {
		t.Error("3 were refused and would be again")
	}
	if _, ok := reserve(l, 0); !ok {
		t.Error("what grows nothing is refused")
	}
	l.Settle(first, true, 7, now)
	l.Abandon(first, true, time.Time{})
	l.Advance(6, now)
	if _, ok := reserve(l, 3); ok {
		t.Error("the 8 were answered at revision 7, and the ledger has seen 6")
	}
	l.Advance(7, now)
	if l.Exceeded(limits) {
		t.Error("3 would fit now")
	}
	if _, ok := reserve(l, 3); !ok {
		t.Error("the ledger has seen revision 7, where nothing was written after all")
	}
	late, _ := reserve(l, 7)
	l.Settle(late, true, 100, now)
	l.Advance(8, now.Add(9*time.Second))
	if _, ok := reserve(l, 1); ok {
		t.Error("after 9 s it may still come")
	}
	l.Advance(9, now.Add(11*time.Second))
	if _, ok := reserve(l, 1); !ok {
		t.Error("after 11 s nothing of it is to come")
	}
}

// The tenant is not at its limit any more once what was refused was let in, though as much again would not be.
func TestWhatWasRefusedIsLetIn(t *testing.T) {
	t.Parallel()
	limits := quota.Limits{Bytes: 10}
	l := newLedger()
	l.Put([]byte("a"), 8)
	if _, ok := l.Reserve(limits, quota.Size{Bytes: 6, Keys: 1}, quota.Size{}, time.Time{}); ok || !l.Exceeded(limits) {
		t.Fatal("6 more were let in alongside 8 of 10, or their refusal was forgotten")
	}
	if _, ok := l.Reserve(limits, quota.Size{Bytes: 2}, quota.Size{}, time.Time{}); !ok || !l.Exceeded(limits) {
		t.Error("2 that fit were refused, or made the refusal of 6 forgotten")
	}
	l.Delete([]byte("a"))
	if _, ok := l.Reserve(limits, quota.Size{Bytes: 6, Keys: 1}, quota.Size{}, time.Time{}); !ok || l.Exceeded(limits) {
		t.Error("6 were refused alongside 2 of 10, or are still said to be refused")
	}
}

// A Txn reserves what its larger branch would add, and once it is answered what the branch that ran has added, until that is seen.
func TestReservationsOfBranches(t *testing.T) {
	t.Parallel()
	limits, now := quota.Limits{Bytes: 10}, time.Unix(0, 0)
	fits := func(l *quota.Ledger, bytes int64) bool {
		id, ok := l.Reserve(limits, quota.Size{Bytes: bytes}, quota.Size{}, time.Time{})
		l.Abandon(id, true, time.Time{})
		return ok
	}
	for name, tt := range map[string]struct {
		succeeded bool
		room      int64 // after the answer
	}{"success": {true, 8}, "failure": {false, 3}} {
		l := newLedger()
		id, ok := l.Reserve(limits, quota.Size{Bytes: 2}, quota.Size{Bytes: 7}, time.Time{})
		if !ok || !fits(l, 3) || fits(l, 4) {
			t.Errorf("%s: not the larger branch is reserved", name)
		}
		l.Settle(id, tt.succeeded, 5, now)
		l.Abandon(id, true, time.Time{}) // the end of the RPC
		if !fits(l, tt.room) || fits(l, tt.room+1) {
			t.Errorf("%s: there is not room for exactly %d more after the answer", name, tt.room)
		}
		l.Advance(5, now)
		if !fits(l, 10) {
			t.Errorf("%s: something is still reserved though the ledger has come to its revision", name)
		}
	}
	l := newLedger()
	id, _ := l.Reserve(limits, quota.Size{Bytes: 10}, quota.Size{}, time.Time{})
	l.Settle(id, false, 5, now)
	if !fits(l, 10) {
		t.Error("a branch that adds nothing ran, and nothing of it will be seen")
	}
}

// What a new count has seen is no longer reserved, even if nothing is written afterwards.
func TestReservationsAfterANewCount(t *testing.T) {
	t.Parallel()
	limits, now := quota.Limits{Bytes: 10}, time.Unix(0, 0)
	l := newLedger()
	seen, _ := l.Reserve(limits, quota.Size{Bytes: 4}, quota.Size{}, time.Time{})
	unseen, _ := l.Reserve(limits, quota.Size{Bytes: 1}, quota.Size{}, time.Time{})
	l.Settle(seen, true, 7, now)
	l.Settle(unseen, true, 9, now)
	counted := newLedger()
	counted.Put([]byte("k"), 4)
	counted.Advance(8, time.Time{})
	l.Replace(counted, now)
	if _, ok := l.Reserve(limits, quota.Size{Bytes: 6}, quota.Size{}, time.Time{}); ok {
		t.Error("4 are stored and 1 is not seen yet, and 6 more are let in")
	}
	if _, ok := l.Reserve(limits, quota.Size{Bytes: 5}, quota.Size{}, time.Time{}); !ok {
		t.Error("4 are stored and counted again as reserved")
	}
}

// Room of a request of which nobody knows whether it was done is kept until that would be known, and no longer.
func TestUncertainEndsKeepTheirRoom(t *testing.T) {
	t.Parallel()
	l, limits, now := newLedger(), quota.Limits{Keys: 1}, time.Unix(1000, 0)
	reserve := func(at time.Time) bool {
		_, ok := l.Reserve(limits, quota.Size{Keys: 1}, quota.Size{}, at)
		return ok
	}
	id, _ := l.Reserve(limits, quota.Size{Keys: 1}, quota.Size{}, now)
	l.Abandon(id, false, now)
	l.Advance(5, now.Add(time.Second))
	if reserve(now.Add(time.Second)) {
		t.Error("there is room a second later")
	}
	if !reserve(now.Add(time.Minute)) {
		t.Error("there is no room a minute later")
	}
}
