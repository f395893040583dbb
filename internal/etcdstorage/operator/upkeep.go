// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"slices"
	"time"
)

// Upkeep is the next thing to do at the core so that its members have space: one of its fields is set, or none.
type Upkeep struct {
	// Defragment is the URL of the member to defragment. It does not serve meanwhile.
	Defragment string
	// Disarm are the IDs of members, in hexadecimal, whose alarm NOSPACE has lost its cause.
	Disarm []string
}

// Nothing reports whether there is nothing to do.
func (u Upkeep) Nothing() bool { return u.Defragment == "" && len(u.Disarm) == 0 }

// Defragmented is when the member behind a URL was defragmented last.
type Defragmented map[string]time.Time

// Pauses and bounds of defragmentation.
const (
	// defragmentPause is the least time between two defragmentations of one member: what did not help will not help at once.
	defragmentPause = time.Hour
	// unknownQuotaSize is the size from which on half a file is worth being freed at a member that does not report its quota, as etcd before 3.6.
	unknownQuotaSize = 512 << 20
	// roomyPercent is the part of its quota below which a member has space: less than etcd leaves when it raises the alarm.
	roomyPercent = 70
)

// Upkeep is what to do next. Members are defragmented one at a time, while all of them answer and know a leader, and the leader last; the alarms are disarmed
// when all have space again. Nothing is done to a core with corrupt data: the less it changes, the more can be found out.
func (h Health) Upkeep(done Defragmented) Upkeep {
	if h.At.IsZero() || h.Problem != "" || len(h.Corrupt) > 0 {
		return Upkeep{}
	}
	roomy := true
	for _, m := range h.Members {
		if m.Problem != "" || !m.Leader {
			return Upkeep{}
		}
		roomy = roomy && (m.Quota == 0 || m.Size < m.Quota/100*roomyPercent)
	}
	for _, m := range h.LeaderLast() {
		if h.fragmented(m) && h.rested(done, m.URL) {
			return Upkeep{Defragment: m.URL}
		}
	}
	if !roomy {
		return Upkeep{} // the next large write would raise the alarms again
	}
	return Upkeep{Disarm: h.observed(h.NoSpace)}
}

// observed returns those of the members, given by ID, that responded: of one that no URL leads to nobody knows whether it has space.
func (h Health) observed(ids []string) (out []string) {
	for _, id := range ids {
		if slices.ContainsFunc(h.Members, func(m CoreMember) bool { return m.ID == id }) {
			out = append(out, id)
		}
	}
	return out
}

// LeaderLast are the members in the order in which they are defragmented: each time the leader stops serving another is elected.
func (h Health) LeaderLast() []CoreMember {
	return slices.SortedStableFunc(slices.Values(h.Members), func(a, b CoreMember) int {
		switch {
		case a.IsLeader == b.IsLeader:
			return 0
		case a.IsLeader:
			return 1
		default:
			return -1
		}
	})
}

// fragmented reports whether it is worth to defragment a member: half of its file is free and the file is not small; or it is short of space and a tenth
// of it is free.
func (h Health) fragmented(m CoreMember) bool {
	free := m.Size - m.InUse
	if len(h.NoSpace) > 0 || m.nearlyFull() {
		return free > m.Size/10
	}
	large := m.Size >= unknownQuotaSize
	if m.Quota > 0 {
		large = m.Size >= m.Quota/4
	}
	return large && free >= m.Size/2
}

// rested reports whether a member's last defragmentation is long enough ago. A clock that was set back does not make it wait longer.
func (h Health) rested(done Defragmented, url string) bool {
	last, ok := done[url]
	return !ok || h.At.Before(last) || h.At.Sub(last) >= defragmentPause
}

// nearlyFull reports whether the file has so much of its quota that it has to be reported.
func (m CoreMember) nearlyFull() bool {
	return m.Quota > 0 && m.Size >= m.Quota/100*nearlyFullPercent
}
