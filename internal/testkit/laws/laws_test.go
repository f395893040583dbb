// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package laws

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// shelf is a world: what there must be, in any order, and what there is. What ends in "!" is somebody else's.
type shelf struct {
	want []string
	have map[string]int
}

type put string

func (p put) String() string { return "put " + string(p) }

// keeper puts what is missing, one after the other in the order of names.
func keeper() Planner[shelf, put] {
	return Planner[shelf, put]{
		Draw: func(t *rapid.T) shelf {
			return shelf{want: rapid.SliceOfDistinct(rapid.StringMatching("[a-d]"), rapid.ID[string]).Draw(t, "want"), have: map[string]int{}}
		},
		Plan: func(s shelf) (p Plan[shelf, put]) {
			for _, w := range slices.Sorted(slices.Values(s.want)) {
				if s.have[w] == 0 {
					p.Steps = append(p.Steps, put(w))
				}
			}
			return p
		},
		Apply: func(s shelf, p put) shelf {
			s.have = maps.Clone(s.have)
			s.have[string(p)] = 1
			return s
		},
		Shuffle: func(t *rapid.T, s shelf) shelf { s.want = rapid.Permutation(s.want).Draw(t, "order"); return s },
		Same: func(a, b shelf) string {
			if x, y := fmt.Sprint(a.have), fmt.Sprint(b.have); x != y {
				return x + " and " + y
			}
			return ""
		},
		Owned:  func(_ shelf, p put) bool { return !strings.HasSuffix(string(p), "!") },
		Safe:   func(shelf, put) string { return "" },
		Rounds: 20, Quiet: 2,
	}
}

func TestAGoodPlannerKeepsAllLaws(t *testing.T) {
	t.Parallel()
	keeper().Check(t)
}

// Each law is broken by a planner that breaks it, and the harness says which it is.
func TestABrokenPlannerIsFound(t *testing.T) {
	t.Parallel()
	for law, spoil := range map[string]func(p *Planner[shelf, put]){
		"order-blind": func(p *Planner[shelf, put]) {
			p.Plan = func(s shelf) (plan Plan[shelf, put]) {
				for _, w := range s.want {
					if s.have[w] == 0 {
						plan.Steps = append(plan.Steps, put(w))
					}
				}
				return plan
			}
		},
		"modest": func(p *Planner[shelf, put]) { p.Owned = func(shelf, put) bool { return false } },
		"safe": func(p *Planner[shelf, put]) {
			p.Safe = func(s shelf, _ put) string { return strings.Repeat("one is there", len(s.have)) } // the second step is not
		},
		"idempotent": func(p *Planner[shelf, put]) { p.Apply = func(s shelf, _ put) shelf { return s } },
		"minimal": func(p *Planner[shelf, put]) {
			plan := p.Plan
			p.Plan = func(s shelf) Plan[shelf, put] {
				all := plan(s)
				if len(s.have) == 0 && len(all.Steps) > 0 {
					all.Steps = append(all.Steps, "x")
				}
				return all
			}
		},
		"a death before it": func(p *Planner[shelf, put]) { // it leaves off halfway
			plan := p.Plan
			p.Plan = func(s shelf) Plan[shelf, put] {
				if len(s.have) > 0 {
					return Plan[shelf, put]{}
				}
				return plan(s)
			}
		},
		"its answer is lost": func(p *Planner[shelf, put]) { // each attempt counts
			p.Apply = func(s shelf, p put) shelf {
				s.have = maps.Clone(s.have)
				s.have[string(p)]++
				return s
			}
			p.Plan = func(s shelf) (plan Plan[shelf, put]) {
				for _, w := range slices.Sorted(slices.Values(s.want)) {
					if s.have[w]%4 < 2 {
						plan.Steps = append(plan.Steps, put(w), put(w))
					}
				}
				return plan
			}
			p.Same = func(_, b shelf) string { return strings.Repeat("more than was wanted", b.have["b"]/3) }
		},
	} {
		t.Run(law, func(t *testing.T) {
			t.Parallel()
			p, w := keeper(), shelf{want: []string{"b", "a"}, have: map[string]int{}}
			spoil(&p)
			found := p.plans(w, shelf{want: []string{"a", "b"}, have: w.have})
			switch {
			case strings.HasPrefix(law, "a death"):
				found = p.faults(w, func(n int) int { return n - 1 }) // between the two
			case strings.HasPrefix(law, "its answer"):
				found = p.faults(w, func(n int) int { return n - 2 }) // the first of the last two
			}
			if !strings.Contains(found, law) {
				t.Errorf("it found %q", found)
			}
		})
	}
}
