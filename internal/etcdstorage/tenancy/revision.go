// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package tenancy

import "math"

// Revisions maps the core's revisions to those that a tenant sees, which are higher by an offset. A core that went back, as after a restore from a
// backup, begins to give the same numbers to other changes; with an offset that is above all that the tenant has seen, no number means two things.
// What the tenant saw before is at or below the offset, and belongs to no revision of the core any more. The zero value changes nothing.
type Revisions struct{ offset int64 }

// firstRevision is that of an etcd without a change: no key has it, and all keys have a greater one (etcd v3.7.3, mvcc newStore).
const firstRevision = 1

// NewRevisions returns the mapping with an offset; a negative one is none.
func NewRevisions(offset int64) Revisions { return Revisions{offset: max(offset, 0)} }

// Offset is what is added to the core's revisions.
func (r Revisions) Offset() int64 { return r.offset }

// Show returns what the tenant sees of a revision of the core. 0 and less are no revisions, and stay.
func (r Revisions) Show(core int64) int64 {
	if core <= 0 {
		return core
	}
	return core + r.offset
}

// Core returns the number that stands to the core's revisions as visible stands to those that the tenant sees, for comparisons and filters. What
// the tenant saw before the core went back is below those of all keys, and is not 0, which means that there is no key.
func (r Revisions) Core(visible int64) int64 {
	switch {
	case r.offset == 0 || visible <= 0:
		return visible
	case visible <= r.offset:
		return firstRevision
	default:
		return visible - r.offset
	}
}

// Since returns the revision at which the core shall begin a watch for what the tenant names. What the tenant saw before the core went back is
// below all, and is answered by the core as compacted.
func (r Revisions) Since(visible int64) int64 {
	if visible > 0 && visible <= r.offset {
		return math.MinInt64
	}
	return r.Core(visible)
}

// Compacted is the lowest revision that a tenant can read: those below belong to a past that the core has lost. 0 if there are none.
func (r Revisions) Compacted() int64 {
	if r.offset == 0 {
		return 0
	}
	return r.offset + firstRevision
}
