// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"slices"
	"strings"
	"testing"

	rr "github.com/mooring-dev/mooring/internal/routereflector"
)

// A client that only the reflector carries that is to go is not cut off yet, and is waited for; that reflector is asked about it. Once no reflector has
// a session with it, it holds nothing up.
func TestWhomOnlyALeavingReflectorCarries(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, cluster(7, 3), nil)
	leaver := w.Marked()[0]
	w = with(w, cordon, leaver)
	var p rr.Plan
	for range 50 {
		if w, p = planned(w); len(p.Steps) == 0 || rr.Is[rr.Demote](p.Steps[0]) {
			break
		}
		w = After(w, p.Steps[0])
	}
	if len(p.Steps) == 0 || !rr.Is[rr.Demote](p.Steps[0]) {
		t.Fatalf("%s is cordoned: %v", leaver, kinds(p.Steps))
	}
	if p.Waiting != "" || slices.Contains(p.Witnesses, leaver) {
		t.Fatalf("all have their sessions: it waits for %q, and asks %v", p.Waiting, p.Witnesses)
	}
	dark := others(w)[0]
	carried := apart(w, dark, slices.DeleteFunc(w.Marked(), func(name string) bool { return name == leaver })...)
	if p := MakePlan(carried); !strings.Contains(p.Waiting, dark) || !slices.Contains(p.Witnesses, leaver) {
		t.Errorf("only %s carries it: it waits for %q, and asks %v", leaver, p.Waiting, p.Witnesses)
	}
	unheard := carried
	unheard.Sightings = slices.DeleteFunc(slices.Clone(carried.Sightings), func(s rr.Sighting) bool { return s.Node == leaver })
	if p := MakePlan(unheard); !strings.Contains(p.Waiting, dark) || !slices.Contains(p.Witnesses, leaver) {
		t.Errorf("%s has not said whether it carries it: it waits for %q, and asks %v", leaver, p.Waiting, p.Witnesses)
	}
	if p := MakePlan(apart(w, dark)); p.Waiting != "" || !rr.Is[rr.Demote](p.Steps[0]) {
		t.Errorf("nobody carries it: it waits for %q", p.Waiting)
	}
}
