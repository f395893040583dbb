// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package routereflector

import (
	"slices"
	"strings"
	"testing"
)

// A client that only the reflector carries that is to go is not cut off yet, and is waited for; that reflector is asked about it. Once no reflector has
// a session with it, it holds nothing up.
func TestWhomOnlyALeavingReflectorCarries(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, cluster(7, 3), nil)
	leaver := factsOf(&w).marked()[0]
	w = w.with(cordon, leaver)
	var p Plan
	for range 50 {
		if w, p = w.planned(); len(p.Steps) == 0 || p.Steps[0].Kind == Demote {
			break
		}
		w = w.After(p.Steps[0])
	}
	if len(p.Steps) == 0 || p.Steps[0].Kind != Demote {
		t.Fatalf("%s is cordoned: %v", leaver, kinds(p.Steps))
	}
	if p.Waiting != "" || slices.Contains(p.Witnesses, leaver) {
		t.Fatalf("all have their sessions: it waits for %q, and asks %v", p.Waiting, p.Witnesses)
	}
	dark := w.others()[0]
	n, _ := factsOf(&w).node(dark)
	lose := func(w World, all bool) World {
		w.Sightings = slices.Clone(w.Sightings)
		for i := range w.Sightings {
			if s := &w.Sightings[i]; all || s.Node != leaver {
				s.Established = without(s.Established, n.IPv4)
			}
		}
		return w
	}
	carried := lose(w, false)
	if p := Make(carried); !strings.Contains(p.Waiting, dark) || !slices.Contains(p.Witnesses, leaver) {
		t.Errorf("only %s carries it: it waits for %q, and asks %v", leaver, p.Waiting, p.Witnesses)
	}
	unheard := carried
	unheard.Sightings = slices.DeleteFunc(slices.Clone(carried.Sightings), func(s Sighting) bool { return s.Node == leaver })
	if p := Make(unheard); !strings.Contains(p.Waiting, dark) || !slices.Contains(p.Witnesses, leaver) {
		t.Errorf("%s has not said whether it carries it: it waits for %q, and asks %v", leaver, p.Waiting, p.Witnesses)
	}
	if p := Make(lose(w, true)); p.Waiting != "" || p.Steps[0].Kind != Demote {
		t.Errorf("nobody carries it: it waits for %q", p.Waiting)
	}
}
