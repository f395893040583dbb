// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"net/netip"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/oldplanner"
)

// oldPlan is what the planner that this one replaces makes of a World. Its types have the same fields in the same order.
func oldPlan(w rr.World) rr.Plan {
	p := oldplanner.Make(*(*oldplanner.World)(unsafe.Pointer(&w)))
	return *(*rr.Plan)(unsafe.Pointer(&p))
}

// The planner that is made of results and the one of embedded stages make the same plan of any World, step for step.
func TestBothPlannersAgree(t *testing.T) {
	t.Parallel()
	if unsafe.Sizeof(oldplanner.World{}) != unsafe.Sizeof(rr.World{}) || unsafe.Sizeof(oldplanner.Plan{}) != unsafe.Sizeof(rr.Plan{}) {
		t.Fatal("the types of the two planners differ")
	}
	same := cmp.Options{
		cmpopts.EquateEmpty(),
		cmp.FilterPath(func(p cmp.Path) bool {
			last := p.Last().String()
			return last == ".NodeMatcher" || last == ".PeerMatcher"
		}, cmp.Comparer(func(a, b any) bool { return fmt.Sprint(a) == fmt.Sprint(b) })),
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	}
	rapid.Check(t, func(t *rapid.T) {
		var w rr.World
		switch rapid.IntRange(0, 2).Draw(t, "kind") {
		case 0:
			w = anyWorld(t, 12)
		case 1:
			w = anyHierarchy(t)
		default:
			w = anyAdoption(t)
		}
		for range rapid.IntRange(0, 6).Draw(t, "changes") {
			if rapid.Bool().Draw(t, "churn") {
				w = churn(t, w)
			}
			p := MakePlan(w)
			if diff := cmp.Diff(oldPlan(w), p, same...); diff != "" {
				t.Fatal(diff)
			}
			if len(p.Steps) > 0 {
				w = After(w, p.Steps[0])
			}
			if rapid.Bool().Draw(t, "settles") {
				w = settled(w)
			}
		}
	})
}
