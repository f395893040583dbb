// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/mooring-dev/mooring/internal/routereflector"
)

// Said is what a node has said, the moment in which it was asked, and when it was read; Taken is zero if that was while
// nobody was being asked.
type Said struct {
	routereflector.Sighting

	Asked routereflector.Moment
	Taken time.Time
}

// down is a session that is not Established: since when that is known, and whether it had been Established before.
type down struct {
	since time.Time
	had   bool
}

// Log is what witnesses have said that holds in the present moment. All of it can be lost without harm. The zero value
// is empty.
type Log struct {
	// Seen is the last of each node.
	Seen map[string]Said
	// Answered are the nodes whose status requests stand answered in this round: calico-node corrects what it reported.
	Answered map[string]bool
	// Talking is since when witnesses have been asked without a pause, zero while nobody is. What was said in this time
	// counts for as long as it lasts, however slow the others are.
	Talking time.Time
	// Asked are the witnesses that are being asked. Of others an answer is not corrected any more, so that it counts by
	// its age alone.
	Asked []string
	// Open is since when a node has owed an answer, Tries how often its question made room for another's before it
	// came.
	Open  map[string]time.Time
	Tries map[string]int

	// down are the sessions of nodes that are not Established.
	down map[string]map[netip.Addr]down
}

// Begin begins a round, and makes the maps of an empty log.
func (l *Log) Begin() {
	l.Answered = map[string]bool{}
	if l.Seen == nil {
		l.Seen, l.Open, l.Tries = map[string]Said{}, map[string]time.Time{}, map[string]int{}
		l.down = map[string]map[netip.Addr]down{}
	}
}

// Keep forgets what does not hold in a new moment, and that anybody owes an answer.
func (l *Log) Keep(holds func(asked routereflector.Moment, node string) bool) {
	for node, s := range l.Seen {
		if !holds(s.Asked, node) {
			delete(l.Seen, node)
			delete(l.down, node)
		}
	}
	clear(l.Open)
}

// Owe notes that a node has been asked and has not answered.
func (l *Log) Owe(node string, now time.Time) {
	if _, owes := l.Open[node]; !owes {
		l.Open[node] = now
	}
}

// Take remembers what a node has said, unless it has said something later.
func (l *Log) Take(said routereflector.Sighting, asked routereflector.Moment, now time.Time) {
	before, had := l.Seen[said.Node]
	l.Answered[said.Node] = true
	if had && said.At.Before(before.At) {
		return
	}
	s := Said{Sighting: said, Asked: asked}
	switch {
	case had && said.At.Equal(before.At):
		s.Taken = before.Taken
	case !l.Talking.IsZero():
		s.Taken = now
	}
	if !had || said.At.After(before.At) {
		delete(l.Open, said.Node)
	}
	l.follow(said, !had || said.At.After(before.At), now)
	l.Seen[said.Node] = s
}

// follow takes in which sessions of a node are down. Two reports of the same second may come from two requests, in any
// order: by these no session is lost, only down.
func (l *Log) follow(said routereflector.Sighting, later bool, now time.Time) {
	sessions := map[netip.Addr]down{}
	for peer := range said.Others {
		d, known := l.down[said.Node][peer]
		if !known {
			d = down{since: now, had: later && l.Seen[said.Node].Established[peer]}
		}
		sessions[peer] = d
	}
	l.down[said.Node] = sessions
}

// lost are the peers with which a node has no session, and since when: had are those with which it had one, never the
// others.
func (l *Log) lost(node string) (had, never map[netip.Addr]time.Time) {
	had, never = map[netip.Addr]time.Time{}, map[netip.Addr]time.Time{}
	for peer, d := range l.down[node] {
		if d.had {
			had[peer] = d.since
			continue
		}
		never[peer] = d.since
	}
	return had, never
}

// Sightings lists, by the names of nodes, what counts now. What a node said before its condition changed, or before it
// was another one, was of another life. silence is how long a node may owe an answer until what it said earlier counts
// no more.
func (l *Log) Sightings(nodes []routereflector.Node, now time.Time, silence time.Duration) []routereflector.Sighting {
	var out []routereflector.Sighting
	for _, s := range l.Seen {
		at := slices.IndexFunc(nodes, func(n routereflector.Node) bool { return n.Name == s.Node })
		if at < 0 || nodes[at].ReadySince.After(s.At) {
			continue
		}
		s.Current, s.Standing = l.vouches(s, now, silence), l.Answered[s.Node]
		s.Lost, s.Down = l.lost(s.Node)
		out = append(out, s.Sighting)
	}
	slices.SortFunc(out, func(a, b routereflector.Sighting) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// vouches reports that an answer counts whatever its age. It was given while witnesses have been asked without a pause,
// and its node is one of them still, so that the object stood open for calico-node to correct it, or has been renewed
// in turn; and the node owes no newer answer for longer than a step may wait.
func (l *Log) vouches(s Said, now time.Time, silence time.Duration) bool {
	if l.Talking.IsZero() || s.Taken.Before(l.Talking) || !slices.Contains(l.Asked, s.Node) {
		return false
	}
	since, owes := l.Open[s.Node]
	return !owes || now.Sub(since) < silence
}

// Talk notes which witnesses are being asked.
func (l *Log) Talk(now time.Time, witnesses []string) {
	l.Asked = witnesses
	switch {
	case len(witnesses) == 0:
		l.Talking, l.Tries = time.Time{}, map[string]int{}
	case l.Talking.IsZero():
		l.Talking = now
	}
}

// Patience is how long a question of a node may stay open before it makes room for another: the longer the more often
// it has, so that those who are slow have their turn as well. first is how long it is at first.
func (l *Log) Patience(node string, first time.Duration) time.Duration {
	return first * time.Duration(1+l.Tries[node])
}
