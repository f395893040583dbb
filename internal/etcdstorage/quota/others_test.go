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

// quiet is for how long others must not have written.
const quiet = 15 * time.Second

// Whatever the tenant writes, each of its writes known within a second: it is not alone while others have written
// within 15 seconds, and is when nobody has for longer. Where its own writes are under way all the time, a write of
// others shows when those are known.
func TestAloneIsWhereNobodyElseWrites(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		const step = 100 * time.Millisecond
		now, revision := time.Unix(100, 0), rapid.Int64Range(1, 1<<40).Draw(t, "revision")
		var o quota.Others
		if o.Alone(now, revision, quiet) {
			t.Fatal("alone before anything is known")
		}
		o.Begin(now, revision)
		last, pending := now, []int64{}
		busy := rapid.IntRange(0, 100).Draw(t, "writes of its own, of a hundred steps")
		for range 400 {
			now = now.Add(step)
			own := int64(0)
			if rapid.IntRange(0, 99).Draw(t, "own") < busy {
				own = rapid.Int64Range(1, 50).Draw(t, "writes")
			}
			revision += own
			pending = append(pending, own)
			if rapid.IntRange(0, 199).Draw(t, "others") == 0 {
				revision, last = revision+rapid.Int64Range(1, 3).Draw(t, "others' writes"), now
			}
			for late := rapid.IntRange(0, 4).Draw(t, "late"); len(pending) > late; pending = pending[1:] {
				o.Own(pending[0], 0)
			}
			switch alone := o.Alone(now, revision, quiet); {
			case alone && now.Sub(last) < quiet && (busy == 0 || now.Sub(last) > 2*time.Second):
				t.Fatalf("alone %v after others wrote", now.Sub(last))
			case !alone && len(pending) == 0 && now.Sub(last) > quiet+3*time.Second && busy == 0:
				t.Fatalf("not alone %v after others wrote", now.Sub(last))
			}
		}
	})
}

// A write is taken for others' until it is known to be the tenant's own.
func TestAWriteMayBeOthers(t *testing.T) {
	t.Parallel()
	now := time.Unix(100, 0)
	var o quota.Others
	o.Begin(now, 7)
	now = now.Add(quiet)
	if !o.Alone(now, 7, quiet) {
		t.Fatal("not alone without any write")
	}
	now = now.Add(time.Millisecond)
	if o.Alone(now, 8, quiet) {
		t.Error("alone while a write may be others'")
	}
	if o.Own(1, 8); !o.Alone(now, 8, quiet) {
		t.Error("not alone when it was its own")
	}
	if o.Alone(now, 9, quiet) || o.Alone(now.Add(2*time.Second), 9, quiet) || o.Alone(now.Add(quiet), 9, quiet) {
		t.Error("alone when it was others'")
	}
	if !o.Alone(now.Add(2*time.Second+quiet), 9, quiet) {
		t.Error("not alone 15 seconds after it was others'")
	}
}

// Who has not asked for long does not take what was written meanwhile for its own.
func TestWhatWasWrittenMeanwhileIsOthers(t *testing.T) {
	t.Parallel()
	now := time.Unix(100, 0)
	var o quota.Others
	o.Begin(now, 7)
	o.Own(3, 10)
	now = now.Add(time.Minute)
	if !o.Alone(now, 10, quiet) {
		t.Error("with all writes its own it is not alone")
	}
	now = now.Add(time.Minute)
	if o.Alone(now, 11, quiet) {
		t.Error("one write that is not its own, and it is alone")
	}
	if now = now.Add(quiet); !o.Alone(now, 11, quiet) {
		t.Error("15 seconds after that it is not alone")
	}
	if got := o.Written(); got != 3 {
		t.Errorf("%d writes are its own, want 3", got)
	}
	if o.Forget(); o.Alone(now.Add(time.Hour), 11, quiet) {
		t.Error("alone with nothing known")
	}
}

// A tenant that is alone has the rate for large requests, and as much for small ones.
func TestLargeRequestsOfWhoIsAlone(t *testing.T) {
	t.Parallel()
	b := quota.NewBudget(100)
	now := time.Unix(100, 0)
	b.SetAlone(now, true)
	b.Take(now, 200, quota.Large, time.Minute)
	if wait, _ := b.Take(now, 100, quota.Large, -1); wait != 2*time.Second {
		t.Errorf("the next waits %v, want two seconds", wait)
	}
	b.Take(now, 100, quota.Small, time.Minute)
	if wait, _ := b.Take(now.Add(time.Second), 100, quota.Small, -1); wait != 0 {
		t.Errorf("a second later as many small ones wait %v", wait)
	}
	b.SetAlone(now.Add(time.Second), false)
	wait, _ := b.Take(now.Add(time.Second), 30, quota.Large, -1)
	if wait.Round(time.Millisecond) != 3333*time.Millisecond {
		t.Errorf("with others there it waits %v, want 100 units at 30 a second", wait)
	}
}
