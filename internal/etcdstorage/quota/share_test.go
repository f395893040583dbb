// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package quota_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/etcdstorage/quota"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// Replicas have together what the tenant has, but no place less than one each, and none less than the least part.
func TestSharesAreTheWhole(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		whole, replicas := rapid.IntRange(0, 64).Draw(t, "places"), rapid.IntRange(0, 20).Draw(t, "replicas")
		sum, rate := 0, 0.0
		for rank := range max(replicas, 1) {
			places := quota.ShareOfPlaces(whole, replicas, rank)
			if whole > 0 && places < 1 {
				t.Fatalf("rank %d of %d has %d of %d places", rank, replicas, places, whole)
			}
			sum += places
			rate += quota.Share(100, replicas, 16)
		}
		if want := max(whole, replicas); whole > 0 && sum != max(want, 1) && sum != whole || whole == 0 && sum != 0 {
			t.Fatalf("%d replicas have %d places together, of %d", replicas, sum, whole)
		}
		if want := 100 * max(float64(replicas)/16, 1); rate < want*0.999 || rate > want*1.001 {
			t.Fatalf("%d replicas have %v a second together, want %v", replicas, rate, want)
		}
	})
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
