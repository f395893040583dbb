// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"slices"
	"time"
)

// History is what is remembered of the core's revisions to know which are old enough to be compacted: moments at least a fifth of the kept time apart,
// oldest first. The zero value remembers nothing, as after a start: the first compaction comes when the kept time has passed.
type History struct {
	// Moments are when a revision was seen.
	Moments []Moment
	// Compacted is the revision of the last compaction, 0 for none.
	Compacted int64
}

// Moment is when a revision was the core's newest.
type Moment struct {
	At       time.Time
	Revision int64
}

// MomentsKept is how many moments the kept time is divided into: more would compact more often, fewer would keep more than was asked for.
const MomentsKept = 5

// Observe adds what the core's revision is now. It returns the history with it, and the revision at which the core is to be compacted: the newest one
// that is older than keep, or 0 if there is none, or none that was not compacted already. A clock that was set back and a core that was restored from a
// backup make it begin again, which delays a compaction and never makes one too early.
func (h History) Observe(now time.Time, revision int64, keep time.Duration) (History, int64) {
	h.Moments = slices.Clone(h.Moments)
	if n := len(h.Moments); n > 0 && (now.Before(h.Moments[n-1].At) || revision < h.Moments[n-1].Revision) {
		h = History{}
	}
	if n := len(h.Moments); n == 0 || now.Sub(h.Moments[n-1].At) >= keep/MomentsKept {
		h.Moments = append(h.Moments, Moment{now, revision})
	}
	old := 0
	for old < len(h.Moments) && now.Sub(h.Moments[old].At) >= keep {
		old++
	}
	if old == 0 {
		return h, 0
	}
	at := h.Moments[old-1].Revision
	h.Moments = h.Moments[old:]
	if at <= h.Compacted {
		return h, 0
	}
	h.Compacted = at
	return h, at
}
