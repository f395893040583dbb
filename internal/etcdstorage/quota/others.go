// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package quota

import "time"

// followedWithin is how soon the tenant's own writes are known to be its own: its watch brings them in milliseconds.
const followedWithin = time.Second

// Others tells whether anyone but the tenant uses the core, by what they write: each write makes the core's revision
// one higher, which every response shows (etcd v3.7.3, ResponseHeader.revision), and what is above the tenant's own
// writes is others'. Who only reads is noticed by the records that the replicas of its proxy write. It is not safe for
// concurrent use. Of its zero value the tenant is not alone.
type Others struct {
	began int64 // the core's revision from which the tenant's writes are counted
	own   int64 // revisions since then that the tenant has made
	last  int64 // the highest revision at which these were told
	known int64 // others' revisions since then, as far as they were noticed
	even  time.Time
	wrote time.Time // when others were noticed last
}

// Begin counts the tenant's writes from a revision, and forgets what was counted before.
func (o *Others) Begin(now time.Time, revision int64) {
	*o = Others{began: revision, even: now, wrote: now}
}

// Forget forgets what was counted; the tenant is not alone before Begin.
func (o *Others) Forget() { *o = Others{} }

// Own notes that a number of revisions, up to that one, were the tenant's.
func (o *Others) Own(revisions, last int64) { o.own, o.last = o.own+revisions, max(o.last, last) }

// Written returns how many revisions were the tenant's since Begin.
func (o *Others) Written() int64 { return o.own }

// Alone reports whether no other client has written for that long, by the highest revision of the core that was seen. While a
// write is not known to be the tenant's own, it is not alone; what is not after a second was others', and so is at once
// what is found when Alone was not called for longer.
func (o *Others) Alone(now time.Time, revision int64, quiet time.Duration) bool {
	if o.began == 0 {
		return false
	}
	switch more := max(revision, o.last) - o.began - o.own; {
	case more <= o.known:
		o.known, o.even = more, now
	case now.Sub(o.even) > followedWithin:
		o.known, o.even, o.wrote = more, now, now
	default:
		return false
	}
	return now.Sub(o.wrote) >= quiet
}
