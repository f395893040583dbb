// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package laws tests what every planner owes, by rounds of the real kernel (package reconcile) over a world in memory:
//
//	converges    after some rounds there is nothing to do
//	idempotent   right after all steps of a plan there is nothing to do, but for what they release
//	order-blind  the order in which the world was read does not matter
//	modest       only what is the controller's is touched
//	safe         after every prefix of the steps, and so wherever the process dies
//	minimal      none of the steps can be left out
//
// and that a death before any effect, a conflict at any, and any whose answer is lost, change nothing of where it ends.
package laws

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/platform/reconcile"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// Plan is a plan whose memory is the world after it was saved.
type Plan[W any, S fmt.Stringer] = reconcile.Plan[reconcile.None, S, W]

// Planner is what is tested. Worlds are values: no function changes its argument. Functions that are nil are left
// out, but for Draw, Plan, Apply and Same.
type Planner[W any, S fmt.Stringer] struct {
	// Draw draws a world.
	Draw func(*rapid.T) W
	// Plan decides.
	Plan func(W) Plan[W, S]
	// Apply is the world after a step; one that was made already changes nothing.
	Apply func(W, S) W
	// Later is the world a while later, when all that a plan needs was read.
	Later func(W, Plan[W, S]) W
	// Shuffle is the same world, read in another order.
	Shuffle func(*rapid.T, W) W
	// Same compares where two rows of rounds have ended, and says how they differ.
	Same func(a, b W) string
	// Owned reports whether a step touches only what is the controller's.
	Owned func(W, S) bool
	// Held reports whether the plan of a world holds a step back that other steps of it may release: it may follow them.
	Held func(W, S) bool
	// Safe says what is wrong with a step in a world, empty if nothing.
	Safe func(W, S) string
	// Rounds is how many it may take until there is nothing to do, and Quiet for how many there must be nothing to do.
	Rounds, Quiet int
}

// Check tests all laws with many worlds.
func (p Planner[W, S]) Check(t *testing.T) {
	t.Helper()
	cases.Check(t, func(t *rapid.T) {
		w := p.Draw(t)
		shuffled := w
		if p.Shuffle != nil {
			shuffled = p.Shuffle(t, w)
		}
		for _, broken := range []string{p.plans(w, shuffled), p.faults(w, func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "effect") })} {
			if broken != "" {
				t.Fatal(broken)
			}
		}
	})
}

// plans says which law the plan of a world breaks, empty for none.
func (p Planner[W, S]) plans(w, shuffled W) string {
	plan := p.Plan(w)
	if again := p.Plan(shuffled); fmt.Sprint(again.Steps) != fmt.Sprint(plan.Steps) {
		return fmt.Sprintf("order-blind: %v, and in another order %v", plan.Steps, again.Steps)
	}
	now := w
	if plan.Memory != nil {
		now = *plan.Memory
	}
	remembered := now
	for _, s := range plan.Steps {
		if p.Owned != nil && !p.Owned(now, s) {
			return fmt.Sprintf("modest: %s", s)
		}
		if p.Safe != nil {
			if wrong := p.Safe(now, s); wrong != "" {
				return fmt.Sprintf("safe: %s: %s", s, wrong)
			}
		}
		now = p.Apply(now, s)
	}
	released := func(s S) bool { return p.Held != nil && p.Held(w, s) }
	if left := slices.DeleteFunc(p.Plan(now).Steps, released); len(left) > 0 {
		return fmt.Sprintf("idempotent: after %v there is %v", plan.Steps, left)
	}
	for i := range plan.Steps {
		without := remembered
		for j, s := range plan.Steps {
			if j != i {
				without = p.Apply(without, s)
			}
		}
		left := fmt.Sprint(slices.DeleteFunc(p.Plan(without).Steps, released))
		if left != fmt.Sprint([]S{plan.Steps[i]}) {
			return fmt.Sprintf("minimal: without %s of %v there is %s", plan.Steps[i], plan.Steps, left)
		}
	}
	return ""
}

// A fault is what happens at one effect.
type fault string

const (
	none     fault = ""
	death    fault = "a death before it"
	conflict fault = "a conflict at it"
	lost     fault = "its answer is lost"
)

// faults says what ends elsewhere with a fault at an effect, which pick picks, than without; empty for nothing. One
// of many effects is picked, so that a world with many costs no more than one with few.
func (p Planner[W, S]) faults(w W, pick func(n int) int) string {
	want, effects, broken := p.run(w, none, 0)
	if broken != "" || effects == 0 {
		return broken
	}
	for _, f := range []fault{death, conflict, lost} {
		at := pick(effects)
		got, _, broken := p.run(w, f, at)
		if differ := p.Same(want, got); broken == "" && differ != "" {
			broken = "it ends elsewhere: " + differ
		}
		if broken != "" {
			return fmt.Sprintf("effect %d of %d, %s: %s", at, effects, f, broken)
		}
	}
	return ""
}

// process is a world on which rounds are made, and a fault that is still to come.
type process[W any, S fmt.Stringer] struct {
	laws    Planner[W, S]
	world   W
	plan    Plan[W, S]
	effects int // that were tried
	fault   fault
	at      int
	die     context.CancelFunc
}

// effect makes one, unless the fault is at it.
func (p *process[W, S]) effect(do func()) error {
	fault := none
	if p.effects == p.at {
		fault = p.fault
	}
	p.effects++
	switch fault {
	case death:
		p.die()
		return context.Canceled
	case conflict:
		return reconcile.As(reconcile.Conflict, errors.New("it has changed since"))
	case lost:
		do()
		return errors.New("no answer")
	default:
		do()
		return nil
	}
}

// runner is a controller of the world.
func (p *process[W, S]) runner() *reconcile.Runner[W, reconcile.None, S, W] {
	return reconcile.New(reconcile.Options[W, reconcile.None, S, W]{
		LoopOptions: reconcile.LoopOptions{Name: "laws", Clock: clock.RealClock{}, FirstRetry: time.Second}, Log: logr.Discard(),
		Observe: func(context.Context, string) (W, error) { return p.world, nil },
		Plan: func(w W) Plan[W, S] {
			p.plan = p.laws.Plan(w)
			return p.plan
		},
		Save: func(_ context.Context, w W) error { return p.effect(func() { p.world = w }) },
		Apply: func(_ context.Context, _ W, s S) error {
			return p.effect(func() { p.world = p.laws.Apply(p.world, s) })
		},
		Subject: func(s S) string { return s.String() },
	})
}

// run makes rounds until there is nothing to do, in a new process after a death. It returns where they end, and how
// many effects there were.
func (p Planner[W, S]) run(w W, f fault, at int) (end W, effects int, broken string) {
	one := &process[W, S]{laws: p, world: w, fault: f, at: at}
	quiet := 0
	for round := 0; round < p.Rounds; {
		ctx, die := context.WithCancel(context.Background())
		one.die = die
		r := one.runner()
		for ; ctx.Err() == nil && round < p.Rounds && quiet <= p.Quiet; round++ {
			if r.Once(ctx, reconcile.Only); len(one.plan.Steps) > 0 {
				quiet = 0
			} else {
				quiet++
			}
			if p.Later != nil {
				one.world = p.Later(one.world, one.plan)
			}
		}
		die()
		r.Run(ctx) // nothing else ends its queue
		if quiet > p.Quiet {
			return one.world, one.effects, ""
		}
	}
	return one.world, one.effects, fmt.Sprintf("converges: there is a step after %d rounds: %v", p.Rounds, one.plan.Steps)
}
