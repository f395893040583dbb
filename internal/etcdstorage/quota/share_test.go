// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package quota_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/etcdstorage/quota"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// demands draws what replicas demand: nothing that is known, little, much, or more than there is.
func demands(t *rapid.T) []float64 {
	one := rapid.OneOf(rapid.SampledFrom([]float64{0, 1e-6, quota.LeastPart, 0.5, 1, 7}), rapid.Float64Range(0, 1))
	return rapid.SliceOfN(one, 1, 40).Draw(t, "demands")
}

// near fails unless two shares are the same, but for what floats cannot say.
func near(t *rapid.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9 {
		t.Fatalf("%s is %v, want %v", what, got, want)
	}
}

// Shares are the whole together, each has the least part, and one of unknown demand an equal part at least: that is what
// it takes if it is of a version that divides equally. To give the shares as demands changes nothing.
func TestSharesAreTheWhole(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		demands := demands(t)
		shares, sum := quota.Shares(demands), 0.0
		again := quota.Shares(shares)
		for i, share := range shares {
			least := min(quota.LeastPart, 1/float64(len(shares)))
			if demands[i] == 0 {
				least = 1 / float64(len(shares))
			}
			if share < least-1e-9 {
				t.Fatalf("%d of %v has %v, want %v at least", i, demands, share, least)
			}
			near(t, "a share of shares", again[i], share)
			sum += share
		}
		near(t, "the sum", sum, 1)
	})
}

// Who demands more has no less, and the others have no more than before. The order of replicas says
// nothing, so that equal demands have equal shares.
func TestSharesFollowDemand(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		demands := demands(t)
		shares := quota.Shares(demands)
		order := rapid.Permutation(indexes(len(demands))).Draw(t, "order")
		permuted := make([]float64, len(demands))
		for i, of := range order {
			permuted[i] = demands[of]
		}
		for i, share := range quota.Shares(permuted) {
			near(t, "a share in another order", share, shares[order[i]])
		}
		of := rapid.IntRange(0, len(demands)-1).Draw(t, "of")
		if demands[of] == 0 {
			return // unknown: it has an equal part
		}
		demands[of] += rapid.Float64Range(0, 1).Draw(t, "more")
		for i, share := range quota.Shares(demands) {
			if i == of && share < shares[i]-1e-9 || i != of && share > shares[i]+1e-9 {
				t.Fatalf("%d has %v after %v, when %d demands more", i, share, shares[i], of)
			}
		}
	})
}

func indexes(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// Demands and what they bring: this is what the guide says.
func TestShares(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ demands, shares []float64 }{
		{[]float64{0, 0}, []float64{0.5, 0.5}},
		{[]float64{0.01, 0.01, 0.01, 0.01}, []float64{0.25, 0.25, 0.25, 0.25}},
		{[]float64{1, 0.01, 0.01}, []float64{1 - 2*quota.LeastPart, quota.LeastPart, quota.LeastPart}},
		{[]float64{1, 1, 0.01}, []float64{0.5 - quota.LeastPart/2, 0.5 - quota.LeastPart/2, quota.LeastPart}},
		{[]float64{1, 0.2, 0.2}, []float64{0.6, 0.2, 0.2}},
		{[]float64{0.4, 0.2, 0.1}, []float64{0.5, 0.3, 0.2}},
		{[]float64{1, 0, 0}, []float64{1. / 3, 1. / 3, 1. / 3}},
	} {
		for i, share := range quota.Shares(c.demands) {
			if math.Abs(share-c.shares[i]) > 1e-9 {
				t.Errorf("%d of %v has %v, want %v", i, c.demands, share, c.shares[i])
			}
		}
	}
}

// Each replica has one place, and all have together as many as there are, if those are enough.
func TestPlacesAreTheWhole(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		shares, whole, sum := quota.Shares(demands(t)), rapid.IntRange(0, 64).Draw(t, "places"), 0
		for rank, share := range shares {
			places := quota.ShareOfPlaces(whole, shares, rank)
			if off := float64(places-1) - share*float64(whole-len(shares)); whole >= len(shares) && math.Abs(off) > 1.001 {
				t.Fatalf("rank %d of %v has %d of %d places", rank, shares, places, whole)
			}
			if whole > 0 && places < 1 {
				t.Fatalf("rank %d of %v has %d of %d places", rank, shares, places, whole)
			}
			sum += places
		}
		if want := max(whole, len(shares)); whole > 0 && sum != want || whole == 0 && sum != 0 {
			t.Fatalf("%d replicas have %d places together, of %d", len(shares), sum, whole)
		}
	})
}

// A replica demands half as much again as it has used, everything when requests have to wait, and little when it is idle.
func TestDemand(t *testing.T) {
	t.Parallel()
	const whole = 1000
	now := time.Unix(100, 0)
	b := quota.NewBudget(whole / 4)
	after := func(what string, want float64) {
		t.Helper()
		now = now.Add(5 * time.Second)
		if got := b.Demand(now, whole); math.Abs(got-want) > 1e-9 {
			t.Errorf("after %s it demands %v, want %v", what, got, want)
		}
	}
	b.Demand(now, whole)
	after("nothing", quota.LeastPart)
	b.Take(now, 200, quota.Small, time.Second)
	b.Correct(300, quota.Large)
	after("500 units in 5 s", 0.15)
	b.Correct(-1000, quota.Large)
	after("units that were given back", quota.LeastPart)
	now = now.Add(time.Minute)
	b.Demand(now, whole)
	for range 10 {
		b.Take(now, 250, quota.Small, time.Second) // the first has it, one waits, the others are refused
	}
	after("refusals", 1)
	b.Held(time.Second)
	after("one that was held back for a fifth of the time", 0.2)
}

// Shares settle, and do not swing: three replicas that take what comes to them at random, at these rates, demand something
// else three times at most in 30 beats, and the tenant has what it asks for as far as there is room, headroom aside.
func TestSharesSettle(t *testing.T) {
	t.Parallel()
	const whole, beats, beat = 400, 30, 5 * time.Second
	for _, rates := range [][]float64{{80, 600, 0}, {190, 600, 0}, {210, 600, 0}, {130, 130, 130}, {300, 80, 10}, {6, 5, 4}, {600, 600, 0}} {
		random, now := rand.New(rand.NewPCG(1, 2)), time.Unix(100, 0)
		budgets, demands, changes, passed, asked := [3]*quota.Budget{}, make([]float64, 3), [3]int{}, 0.0, 0.0
		for i := range budgets {
			budgets[i] = quota.NewBudget(whole / 3)
			budgets[i].Demand(now, whole)
			asked += rates[i]
		}
		for range beats {
			for i, b := range budgets {
				for at := 0.0; rates[i] > 0 && at < beat.Seconds(); at += random.ExpFloat64() / rates[i] {
					b.Take(now.Add(time.Duration(at*float64(time.Second))), 1, quota.Small, time.Second)
				}
			}
			now = now.Add(beat)
			for i, b := range budgets {
				if demand := b.Demand(now, whole); quota.Differs(demands[i], demand) {
					demands[i], changes[i] = demand, changes[i]+1
				}
			}
			for i, share := range quota.Shares(demands) {
				budgets[i].SetRate(now, share*whole)
			}
		}
		for i, b := range budgets {
			passed += b.Spent() / (beats * beat.Seconds())
			if changes[i] > 3 {
				t.Errorf("at %v a second, %d has changed its demand %d times", rates, i, changes[i])
			}
		}
		if least := 0.85 * min(asked, whole); passed < least || passed > 1.02*whole {
			t.Errorf("at %v a second, %.0f a second have passed, want %.0f to %d", rates, passed, least, whole)
		}
	}
}

// A rate that changes keeps what is owed, and no more than its burst of what is left.
func TestRateChanges(t *testing.T) {
	t.Parallel()
	now := time.Unix(100, 0)
	b := quota.NewBudget(100)
	b.SetRate(now, 50)
	if wait, ok := b.Take(now, 50, quota.Small, 0); !ok {
		t.Errorf("the burst waits %v", wait)
	}
	if wait, _ := b.Take(now, 50, quota.Small, -1); wait != time.Second {
		t.Errorf("as much again waits %v, want a second", wait)
	}
	b.SetRate(now, 100)
	if wait, _ := b.Take(now, 50, quota.Small, -1); wait != time.Second/2 {
		t.Errorf("it waits %v at twice the rate, want half a second", wait)
	}
}

// What small requests turn out to need in addition holds those back that were let in before: above a burst of it.
func TestLateCorrectionsHoldUp(t *testing.T) {
	t.Parallel()
	now := time.Unix(100, 0)
	b := quota.NewBudget(100)
	b.Correct(100, quota.Small)
	if wait, ok := b.Overdue(now, 0); wait != 0 || !ok {
		t.Errorf("after a burst one waits %v", wait)
	}
	b.Correct(50, quota.Small)
	if wait, ok := b.Overdue(now, time.Second); wait != time.Second/2 || !ok {
		t.Errorf("after one and a half it waits %v, %v", wait, ok)
	}
	b.Correct(1000, quota.Small)
	if _, ok := b.Overdue(now, time.Second); ok {
		t.Error("at ten seconds' worth it is let in within one")
	}
	if wait, ok := b.Overdue(now.Add(11*time.Second), 0); !ok {
		t.Errorf("eleven seconds later it waits %v", wait)
	}
	if got := b.Spent(); got != 1150 {
		t.Errorf("%v were spent, want 1150", got)
	}
}
