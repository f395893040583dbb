// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
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
