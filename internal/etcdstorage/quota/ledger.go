// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"math"
	"time"
)

// Limits bound what a tenant stores; 0 means no limit.
type Limits struct {
	// Bytes of keys, with their prefix, and values; Keys is their number.
	Bytes, Keys int64
}

// Size is an amount of storage, or a change of it.
type Size struct{ Bytes, Keys int64 }

// settleFor is how long a reservation whose request was answered is kept at most. It ends earlier, when the watch has come to the request's
// revision; but a Txn of which only an inner branch without puts ran leaves nothing to be seen there.
const settleFor = 10 * time.Second

// Ledger is what a tenant stores: the size of each key that is alive, under a hash of 64 bits (at a million keys one in 37 million ledgers has a
// collision, which then miscounts one key). It is not safe for concurrent use. Make one with NewLedger.
type Ledger struct {
	hash     func(key []byte) uint64
	sizes    map[uint64]uint32
	used     Size
	largest  int64 // bytes of the largest key and value that there ever was
	revision int64

	last     int64 // ID of the newest reservation
	reserved map[int64]*reservation
	pending  Size // of all reservations
	refused  Size // what the last refused request asked for, until it would fit or as much was let in
}

type reservation struct {
	size     Size
	branches [2]Size   // what success and failure would add, each no more than size
	revision int64     // at which it was answered; 0 while it is under way
	answered time.Time // when
}

// NewLedger returns an empty ledger. The hash must be one that nobody outside can foresee, so that no tenant can find keys of one hash.
func NewLedger(hash func(key []byte) uint64) *Ledger {
	return &Ledger{hash: hash, sizes: map[uint64]uint32{}, reserved: map[int64]*reservation{}}
}

// Used is what is stored at Revision.
func (l *Ledger) Used() Size { return l.used }

// Most is what is stored and what requests that are under way may add.
func (l *Ledger) Most() Size {
	return Size{Bytes: l.used.Bytes + l.pending.Bytes, Keys: l.used.Keys + l.pending.Keys}
}

// MostOf is how many bytes a number of the keys may have.
func (l *Ledger) MostOf(keys int64) int64 { return min(l.Most().Bytes, keys*l.largest) }

// ExpectedOf is how many bytes a number of the keys have, if they are as large as the average.
func (l *Ledger) ExpectedOf(keys int64) int64 {
	if l.used.Keys == 0 {
		return 0
	}
	return int64(float64(min(keys, l.used.Keys)) / float64(l.used.Keys) * float64(l.used.Bytes))
}

// Revision is that of the last change that the ledger was told of.
func (l *Ledger) Revision() int64 { return l.revision }

// Put reports that a key has been written: bytes is key and value.
func (l *Ledger) Put(key []byte, bytes int) {
	hash := l.hash(key)
	before, known := l.sizes[hash]
	after := uint32(min(max(bytes, 0), math.MaxUint32))
	l.sizes[hash] = after
	l.largest = max(l.largest, int64(after))
	l.used.Bytes += int64(after) - int64(before)
	if !known {
		l.used.Keys++
	}
}

// Delete reports that a key has been deleted.
func (l *Ledger) Delete(key []byte) {
	hash := l.hash(key)
	before, known := l.sizes[hash]
	if !known {
		return
	}
	delete(l.sizes, hash)
	l.used.Bytes -= int64(before)
	l.used.Keys--
}

// Advance reports that all changes up to a revision have been told, and ends the reservations of requests that were answered by then.
func (l *Ledger) Advance(revision int64, now time.Time) {
	l.revision = max(l.revision, revision)
	l.expire(now)
}

// expire ends the reservations that the ledger has come to, and those that are too old to be still to come.
func (l *Ledger) expire(now time.Time) {
	for id, r := range l.reserved {
		if r.revision > 0 && (r.revision <= l.revision || now.Sub(r.answered) > settleFor) {
			l.Release(id)
		}
	}
}

// Replace takes over what was counted again. Reservations go on, but for those that the count has seen.
func (l *Ledger) Replace(counted *Ledger, now time.Time) {
	l.hash, l.sizes, l.used, l.largest, l.revision = counted.hash, counted.sizes, counted.used, counted.largest, counted.revision
	l.Advance(counted.revision, now)
}

// Growth is how much more there would be after a put of bytes, key and value. If keepsValue is set bytes is the key alone, and nothing grows.
// A put that shortens a value grows nothing.
func (l *Ledger) Growth(key []byte, bytes int, keepsValue bool) Size {
	before, known := l.sizes[l.hash(key)]
	if !known {
		return Size{Bytes: int64(bytes), Keys: 1}
	}
	if keepsValue {
		return Size{}
	}
	return Size{Bytes: max(int64(bytes)-int64(before), 0)}
}

// Reserve counts a request's growth until it is released, or refuses it: that of the larger of a Txn's branches, since it is not known which one will
// run; all but a Txn succeed. What grows nothing is never refused.
func (l *Ledger) Reserve(limits Limits, success, failure Size, now time.Time) (id int64, ok bool) {
	growth := Size{Bytes: max(success.Bytes, failure.Bytes), Keys: max(success.Keys, failure.Keys)}
	if growth == (Size{}) {
		return 0, true
	}
	if !l.fits(limits, growth) {
		l.expire(now)
	}
	if !l.fits(limits, growth) {
		l.refused = growth
		return 0, false
	}
	if growth.Bytes >= l.refused.Bytes && growth.Keys >= l.refused.Keys {
		l.refused = Size{} // it was let in, or as much as it
	}
	l.last++
	l.reserved[l.last] = &reservation{size: growth, branches: [...]Size{success, failure}}
	l.pending.Bytes += growth.Bytes
	l.pending.Keys += growth.Keys
	return l.last, true
}

func (l *Ledger) fits(limits Limits, growth Size) bool {
	bytes, keys := l.used.Bytes+l.pending.Bytes+growth.Bytes, l.used.Keys+l.pending.Keys+growth.Keys
	return !(growth.Bytes > 0 && limits.Bytes > 0 && bytes > limits.Bytes) && !(growth.Keys > 0 && limits.Keys > 0 && keys > limits.Keys)
}

// Settle reports that a reservation's request was done at a revision, and which branch ran: what that one adds is kept until the ledger has
// come there.
func (l *Ledger) Settle(id int64, succeeded bool, revision int64, now time.Time) {
	r := l.reserved[id]
	if r == nil {
		return
	}
	ran := r.branches[0]
	if !succeeded {
		ran = r.branches[1]
	}
	if revision <= l.revision || ran == (Size{}) {
		l.Release(id)
		return
	}
	l.pending.Bytes -= r.size.Bytes - ran.Bytes
	l.pending.Keys -= r.size.Keys - ran.Keys
	r.size, r.revision, r.answered = ran, revision, now
}

// Release ends a reservation, unless its request was answered: then Advance does.
func (l *Ledger) Release(id int64) {
	if r := l.reserved[id]; r != nil {
		delete(l.reserved, id)
		l.pending.Bytes -= r.size.Bytes
		l.pending.Keys -= r.size.Keys
	}
}

// Abandon ends a reservation whose request was not answered. Unless it is sure that nothing was done, as when the connection was lost, it is
// kept for as long as the change may take to be seen.
func (l *Ledger) Abandon(id int64, sure bool, now time.Time) {
	r := l.reserved[id]
	switch {
	case r == nil || r.revision > 0:
	case sure:
		l.Release(id)
	default:
		r.revision, r.answered = math.MaxInt64, now
	}
}

// Exceeded reports whether the tenant is at its limit: what was refused last would still be refused.
func (l *Ledger) Exceeded(limits Limits) bool {
	if l.refused == (Size{}) {
		return false
	}
	if l.fits(limits, l.refused) {
		l.refused = Size{}
		return false
	}
	return true
}
