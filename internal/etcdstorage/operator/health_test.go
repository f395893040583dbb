// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"strings"
	"testing"
)

// What is said of the core, the worst first, with the words that say what to do. Reasons are a contract with users' alerts.
func TestJudge(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	member := func(size, quota int64) CoreMember {
		return CoreMember{URL: "https://a:2379", Leader: true, Size: size, InUse: size / 2, Quota: quota}
	}
	silent, leaderless := CoreMember{URL: "https://b:2379", Problem: "away"}, CoreMember{URL: "https://c:2379"}
	for _, c := range []struct {
		name   string
		h      Health
		reason string
		words  string
	}{
		{"never asked", Health{}, "NotObserved", ""},
		{"nobody answers", Health{At: epoch(), Problem: "away"}, "NotObserved", "away"},
		{"in order", Health{At: epoch(), Members: []CoreMember{member(gib, 4*gib)}}, "Healthy", ""},
		{"a quota that is not reported", Health{At: epoch(), Members: []CoreMember{member(gib, 0)}}, "Healthy", ""},
		{"just below", Health{At: epoch(), Members: []CoreMember{member(799, 1000)}}, "Healthy", ""},
		{"nearly full", Health{At: epoch(), Members: []CoreMember{member(800, 1000)}}, "NearlyFull", "https://a:2379 has 80 % of its quota, 40 % in use; when it is full no tenant can write: run kubectl mooring etcd defragment"},
		{"a member is silent", Health{At: epoch(), Members: []CoreMember{member(800, 1000), silent}}, "MemberUnreachable", "https://b:2379; check whether they run"},
		{"no leader", Health{At: epoch(), Members: []CoreMember{silent, leaderless}}, "NoLeader", "https://c:2379; check whether most of the members run"},
		{"no space", Health{At: epoch(), Members: []CoreMember{silent, leaderless}, NoSpace: []string{"a1", "b2"}}, "NoSpace", "members a1, b2 of the core etcd have the alarm NOSPACE: no tenant can write"},
		{"corrupt", Health{At: epoch(), NoSpace: []string{"a1"}, Corrupt: []string{"b2"}}, "Corrupt", "members b2 of the core etcd have the alarm CORRUPT"},
	} {
		if reason, words := c.h.Judge(); string(reason) != c.reason || !strings.Contains(words, c.words) || c.words == "" && words != "" {
			t.Errorf("%s: %s %q, want %s …%s…", c.name, reason, words, c.reason, c.words)
		}
	}
}
