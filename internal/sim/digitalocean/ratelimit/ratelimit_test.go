// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

func start() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

func TestHourIsSlidingWithOneTimerPerRequest(t *testing.T) {
	t.Parallel()
	c := NewCounter(Limits{Hour: 3, Minute: -1})
	for i := range 3 {
		v := c.Take(start().Add(time.Duration(i) * 10 * time.Minute))
		if !v.Allowed || v.Limit != 3 || v.Remaining != 2-i || !v.Reset.Equal(start().Add(time.Hour)) {
			t.Fatalf("request %d: %+v", i, v)
		}
	}
	if v := c.Take(start().Add(59 * time.Minute)); v.Allowed || v.Remaining != 0 || v.RetryAfter != 0 {
		t.Errorf("a fourth request within the hour: %+v", v)
	}
	if v := c.Take(start().Add(time.Hour)); !v.Allowed || v.Remaining != 0 || !v.Reset.Equal(start().Add(70*time.Minute)) {
		t.Errorf("when the first has expired: %+v", v)
	}
	if v := c.Take(start().Add(time.Hour)); v.Allowed {
		t.Errorf("one expired, two allowed: %+v", v)
	}
}

func TestMinuteSaysWhenToRetry(t *testing.T) {
	t.Parallel()
	c := NewCounter(Limits{Minute: 2})
	c.Take(start())
	c.Take(start().Add(20 * time.Second))
	v := c.Take(start().Add(30 * time.Second))
	if v.Allowed || v.RetryAfter != 30*time.Second || v.Limit != DefaultHour || v.Remaining != DefaultHour-2 {
		t.Errorf("a third request within the minute: %+v", v)
	}
	if v := c.Take(start().Add(time.Minute)); !v.Allowed {
		t.Errorf("after retry-after: %+v", v)
	}
}

func TestNoLimits(t *testing.T) {
	t.Parallel()
	c := NewCounter(Limits{Hour: -1, Minute: -1})
	for range 3 * DefaultHour {
		if v := c.Take(start()); !v.Allowed || v.Remaining != DefaultHour {
			t.Fatalf("%+v", v)
		}
	}
}

// TestAgainstTheDefinition compares with a count of all requests, and sees that memory is given back.
func TestAgainstTheDefinition(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		limits := Limits{Hour: rapid.IntRange(1, 40).Draw(t, "hour"), Minute: rapid.IntRange(1, 8).Draw(t, "minute")}
		c := NewCounter(limits)
		now := start()
		var allowed []time.Time
		within := func(d time.Duration) int {
			n := 0
			for _, at := range allowed {
				if at.Add(d).After(now) {
					n++
				}
			}
			return n
		}
		for range rapid.IntRange(1, 200).Draw(t, "requests") {
			now = now.Add(time.Duration(rapid.IntRange(0, 300).Draw(t, "seconds")) * time.Second)
			want := within(time.Hour) < limits.Hour && within(time.Minute) < limits.Minute
			verdict := c.Take(now)
			if verdict.Allowed != want {
				t.Fatalf("allowed is %v, %d in the hour and %d in the minute, limits %+v", verdict.Allowed, within(time.Hour), within(time.Minute), limits)
			}
			if want {
				allowed = append(allowed, now)
			}
			if verdict.Remaining != limits.Hour-within(time.Hour) {
				t.Fatalf("remaining is %d, %d are spent of %d", verdict.Remaining, within(time.Hour), limits.Hour)
			}
		}
	})
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	c := NewCounter(Limits{Hour: 5000, Minute: 100})
	now := start()
	for range 100_000 {
		now = now.Add(time.Second)
		c.Take(now)
	}
	now = now.Add(time.Hour)
	allowed := 0
	for range 200 {
		if c.Take(now).Allowed {
			allowed++
		}
	}
	if allowed != 100 {
		t.Errorf("%d requests at one time were allowed, not 100", allowed)
	}
	if len(c.spent) > 3*5000 {
		t.Errorf("%d requests are remembered", len(c.spent))
	}
}
