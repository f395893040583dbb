// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/routereflector"
)

func at(seconds int) time.Time { return time.Unix(1_800_000_000+int64(seconds), 0) }

// What was said counts by its age alone while nobody is asked; while witnesses are, for as long as the node owes nothing for too long.
func TestCurrent(t *testing.T) {
	t.Parallel()
	var l Log
	l.Begin()
	nodes := []routereflector.Node{{Name: "a"}, {Name: "b", ReadySince: at(5)}}
	say := func(node string, when int) {
		l.Take(routereflector.Sighting{Node: node, At: at(when)}, routereflector.Moment{}, at(when))
	}
	say("a", 1)
	say("b", 4)
	say("gone", 4)
	if got := l.Sightings(nodes, at(6), time.Minute); len(got) != 1 || got[0].Node != "a" || got[0].Current {
		t.Errorf("before anybody is asked: %+v", got)
	}
	l.Talk(at(10), []string{"a", "b"})
	say("a", 11)
	say("a", 2) // late, and older
	say("b", 12)
	if got := l.Sightings(nodes, at(300), time.Minute); len(got) != 2 || !got[0].Current || !got[1].Current || !got[0].At.Equal(at(11)) {
		t.Errorf("while they are asked: %+v", got)
	}
	l.Owe("a", at(300))
	l.Owe("a", at(350))
	for now, want := range map[int]bool{359: true, 360: false} {
		if got := l.Sightings(nodes, at(now), time.Minute); got[0].Current != want {
			t.Errorf("at %d: %+v, want %v", now, got[0], want)
		}
	}
	say("a", 361)
	if got := l.Sightings(nodes, at(400), time.Minute); !got[0].Current {
		t.Errorf("it has answered: %+v", got[0])
	}
	l.Talk(at(400), []string{"b"})
	if got := l.Sightings(nodes, at(400), time.Minute); got[0].Current || !got[1].Current {
		t.Errorf("one is asked no more, and nobody corrects what it said: %+v", got)
	}
	l.Talk(at(400), nil)
	if got := l.Sightings(nodes, at(400), time.Minute); got[0].Current {
		t.Errorf("nobody is asked any more: %+v", got[0])
	}
}

func TestKeepAndPatience(t *testing.T) {
	t.Parallel()
	var l Log
	l.Begin()
	for _, node := range []string{"a", "b"} {
		l.Take(routereflector.Sighting{Node: node, At: at(1)}, routereflector.Moment{}, at(1))
		l.Owe(node, at(2))
	}
	l.Keep(func(_ routereflector.Moment, node string) bool { return node == "a" })
	if len(l.Seen) != 1 || len(l.Open) != 0 {
		t.Errorf("%+v", l)
	}
	l.Tries["a"] = 2
	if l.Patience("a", time.Second) != 3*time.Second || l.Patience("b", time.Second) != time.Second {
		t.Error("who made room before has no more patience")
	}
}

// A session is lost to a node that reported it before in the same moment, until it reports it again; one that it never had is only down. A new moment forgets
// both, and a report counts as standing in the rounds in which its request is there.
func TestLostSessions(t *testing.T) {
	t.Parallel()
	var l Log
	l.Begin()
	nodes := []routereflector.Node{{Name: "w"}}
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	say := func(when int, up ...netip.Addr) routereflector.Sighting {
		s := routereflector.Sighting{Node: "w", At: at(when), Established: map[netip.Addr]bool{}, Others: map[netip.Addr]string{}}
		for _, peer := range []netip.Addr{a, b} {
			if s.Established[peer] = slices.Contains(up, peer); !s.Established[peer] {
				s.Others[peer] = "Connect"
			}
		}
		l.Begin()
		l.Take(s, routereflector.Moment{}, at(when))
		return l.Sightings(nodes, at(when), time.Minute)[0]
	}
	if got := say(1, a); len(got.Lost) != 0 || !got.Down[b].Equal(at(1)) || !got.Standing {
		t.Errorf("at first: lost %v, down %v", got.Lost, got.Down)
	}
	if got := say(5); !got.Lost[a].Equal(at(5)) || !got.Down[b].Equal(at(1)) {
		t.Errorf("a is lost: lost %v, down %v", got.Lost, got.Down)
	}
	if got := say(9); !got.Lost[a].Equal(at(5)) {
		t.Errorf("it is lost for longer: %v", got.Lost)
	}
	if got := say(11, a, b); len(got.Lost)+len(got.Down) != 0 {
		t.Errorf("both are back: lost %v, down %v", got.Lost, got.Down)
	}
	l.Begin()
	if got := l.Sightings(nodes, at(12), time.Minute)[0]; got.Standing {
		t.Error("its request is gone, and stands")
	}
	if say(13, a); !say(13).Lost[a].IsZero() {
		t.Error("of two reports of one second the worse one counts")
	}
	if got := say(14); !got.Down[a].Equal(at(13)) {
		t.Errorf("a second later it is not down: %v", got.Down)
	}
	l.Keep(func(routereflector.Moment, string) bool { return false })
	if got := say(15, a); len(got.Lost) != 0 || !got.Down[b].Equal(at(15)) {
		t.Errorf("in a new moment: lost %v, down %v", got.Lost, got.Down)
	}
}
