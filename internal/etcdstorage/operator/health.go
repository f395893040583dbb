// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"strings"
	"time"
)

// Health is what the members of the core report of themselves. It is the same for all tenants.
type Health struct {
	// At is when the members were asked; zero if they never were.
	At time.Time
	// Problem says why nothing is known, "" if something is.
	Problem string
	Members []CoreMember
	// NoSpace and Corrupt are the IDs of the members, in hexadecimal, with these alarms.
	NoSpace, Corrupt []string
}

// CoreMember is the status of the member behind one URL of --etcd-core-url.
type CoreMember struct {
	URL string
	// Problem says why it did not respond, "" if it did.
	Problem string
	// ID and ClusterID are its own and its cluster's, in hexadecimal.
	ID, ClusterID string
	// Leader reports whether it knows a leader, IsLeader whether it is the leader itself.
	Leader, IsLeader bool
	// Size is that of its database file, InUse what of it is not free, Quota its bound; 0 if the member does not report it, as etcd before 3.6.
	Size, InUse, Quota int64
}

// The reasons of the condition CoreHealthy.
const (
	// ReasonHealthy of CoreHealthy=True: all members respond, have a leader and have space.
	ReasonHealthy Reason = "Healthy"
	// ReasonNotObserved of CoreHealthy=Unknown, CoreOvercommitted=Unknown: the members were not queried yet, or none responded; or none reports its quota.
	ReasonNotObserved Reason = "NotObserved"
	// ReasonCorrupt of CoreHealthy=False: a member has the alarm CORRUPT.
	ReasonCorrupt Reason = "Corrupt"
	// ReasonNoSpace of CoreHealthy=False: a member has the alarm NOSPACE, so that no tenant can write.
	ReasonNoSpace Reason = "NoSpace"
	// ReasonNoLeader of CoreHealthy=False: a member has no leader.
	ReasonNoLeader Reason = "NoLeader"
	// ReasonMemberUnreachable of CoreHealthy=False: the member at one of the URLs does not respond, and another member does.
	ReasonMemberUnreachable Reason = "MemberUnreachable"
	// ReasonNearlyFull of CoreHealthy=False: the database of a member uses four fifths of its quota.
	ReasonNearlyFull Reason = "NearlyFull"
)

// Quota is that of the smallest member; 0 if none reports one.
func (h Health) Quota() (least int64) {
	for _, m := range h.Members {
		if m.Quota > 0 && (least == 0 || m.Quota < least) {
			least = m.Quota
		}
	}
	return least
}

// nearlyFullPercent is the part of a member's quota from which on there should be somebody who knows.
const nearlyFullPercent = 80

// Judge is the worst that is to be said of the core, and what to do. The words change only when that does: sizes are in whole percent.
func (h Health) Judge() (Reason, string) {
	if h.At.IsZero() || h.Problem != "" {
		return ReasonNotObserved, h.Problem
	}
	if len(h.Corrupt) > 0 {
		return ReasonCorrupt, fmt.Sprintf("members %s of the core etcd have the alarm CORRUPT: their data differs from that of the others; replace them as in etcd's documentation",
			strings.Join(h.Corrupt, ", "))
	}
	if len(h.NoSpace) > 0 {
		return ReasonNoSpace, fmt.Sprintf("members %s of the core etcd have the alarm NOSPACE: no tenant can write, reads and deletes work; run kubectl mooring etcd defragment, which compacts "+
			"and defragments the core and disarms the alarm", strings.Join(h.NoSpace, ", "))
	}
	var leaderless, silent, full []string
	for _, m := range h.Members {
		switch {
		case m.Problem != "":
			silent = append(silent, m.URL)
		case !m.Leader:
			leaderless = append(leaderless, m.URL)
		case m.nearlyFull():
			full = append(full, fmt.Sprintf("%s has %d %% of its quota, %d %% in use", m.URL, m.Size/(m.Quota/100), m.InUse/(m.Quota/100)))
		}
	}
	switch {
	case len(leaderless) > 0:
		return ReasonNoLeader, "members of the core etcd have no leader, so that they cannot write: " + strings.Join(leaderless, ", ") + "; check whether most of the members run and reach each other"
	case len(silent) > 0:
		return ReasonMemberUnreachable, "members of the core etcd do not respond, while others do: " + strings.Join(silent, ", ") + "; check whether they run"
	case len(full) > 0:
		return ReasonNearlyFull, "the database of the core etcd is nearly full: " + strings.Join(full, "; ") + "; when it is full no tenant can write: run kubectl mooring etcd defragment, or raise --quota-backend-bytes of etcd"
	}
	return ReasonHealthy, ""
}
