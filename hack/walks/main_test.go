// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"slices"
	"strings"
	"testing"
)

// TestCountsOfAWalk: the functions of testdata, called through a method value, an interface, an embedded struct and a generic function.
func TestCountsOfAWalk(t *testing.T) {
	t.Parallel()
	g := must.Get(load("testdata/module", "./...")).Or(t)
	j := journey{name: "test", entrance: "shop.Begin", exits: []string{"shop.leaf", "(*shop.Store).Write"}}
	reached := must.Get(g.reached(j)).Or(t)
	var have []string
	for _, s := range stops(j, reached) {
		have = append(have, s.name)
	}
	want := []string{"shop.Begin", "(shop.Paper).Judge", "shop.leaf", "shop.Each", "shop.hand", "(*shop.Store).Write"}
	if !slices.Equal(have, want) {
		t.Errorf("the stops are %q, want %q", have, want)
	}
	if f, widest := g.count(j, reached); f != (figures{stops: 6, rooms: 2, turns: 4, all: 6, methods: 3}) || widest != "shop.Whole" {
		t.Errorf("counted %+v, %s", f, widest)
	}
	if _, err := g.reached(journey{name: "test", entrance: "shop.Gone"}); err == nil {
		t.Error("a walk begins at a function that there is not")
	}
}

func TestFiguresMayOnlyFall(t *testing.T) {
	t.Parallel()
	allowed := map[string]figures{}
	for _, j := range journeys() {
		allowed[j.name] = figures{stops: 10, rooms: 5, turns: 3, all: 20, methods: 7}
	}
	again, err := parse(format(allowed))
	if err != nil || len(again) != len(journeys()) || len(compare(again, allowed)) > 0 {
		t.Fatalf("read again: %v, %v", again, err)
	}
	name := journeys()[0].name
	again[name] = figures{stops: 12, rooms: 4, turns: 3, all: 20, methods: 7}
	problem := errors.Join(compare(again, allowed)...)
	if problem == nil || !strings.Contains(problem.Error(), name+" has 12 stops, 2 more than the 10") {
		t.Errorf("two more stops: %v", problem)
	}
	if f := lower(again, allowed)[name]; f != (figures{stops: 10, rooms: 4, turns: 3, all: 20, methods: 7}) {
		t.Errorf("lowered to %+v", f)
	}
	delete(allowed, name)
	if compare(again, allowed) == nil {
		t.Error("a journey without figures is let pass")
	}
}
