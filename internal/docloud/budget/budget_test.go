// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package budget_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/docloud/budget"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/ratelimit"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

func start() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

func priorities() []budget.Priority {
	return []budget.Priority{budget.Refresh, budget.Join, budget.Change, budget.Vital}
}

// word is an answer with so many calls left of 5,000.
func word(left int, reset time.Time) budget.Word {
	return budget.Word{Answered: true, Known: true, Limit: 5000, Remaining: left, Reset: reset}
}

func TestNamesAreAContract(t *testing.T) {
	t.Parallel()
	for p, want := range map[budget.Priority]string{
		budget.Refresh: "refresh", budget.Join: "join", budget.Change: "change", budget.Vital: "vital", budget.Vital + 1: "unknown",
	} {
		if p.String() != want {
			t.Errorf("%s, want %s", p, want)
		}
	}
	for r, want := range map[budget.Reason]string{budget.Free: "", budget.RateLimited: "rate_limited", budget.Hour: "hour", budget.Minute: "minute"} {
		if string(r) != want {
			t.Errorf("%s, want %s", r, want)
		}
	}
}

// No matter who asks, how often and for what, no minute has more than 250 calls, and anyone who waits as long as it is told gets its turn.
func TestNeverTooManyInAMinute(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		var b budget.Budget
		now := start()
		var made []time.Time
		steps := rapid.SliceOfN(rapid.IntRange(0, 400), 300, 1500).Draw(t, "milliseconds")
		for i, step := range steps {
			now = now.Add(time.Duration(step) * time.Millisecond)
			if b.Ask(now, priorities()[i%4], 0.5).Wait == 0 {
				made = append(made, now)
				b.Heard(now, word(4000, now), 0)
			}
		}
		for i, from := range made {
			if last := i + 250; last < len(made) && made[last].Sub(from) < time.Minute {
				t.Fatalf("251 calls within %s", made[last].Sub(from))
			}
		}
	})
}

// burst asks until somebody has to wait, and returns how many calls were allowed and the verdict.
func burst(b *budget.Budget, now time.Time, p budget.Priority) (int, budget.Verdict) {
	for n := 0; ; n++ {
		v := b.Ask(now, p, 0)
		if v.Wait > 0 {
			return n, v
		}
		b.Heard(now, word(4000, now), 0)
	}
}

// What is less urgent leaves room for what is more.
func TestTheUrgentGoFirst(t *testing.T) {
	t.Parallel()
	var b budget.Budget
	total := 0
	for _, p := range priorities() {
		n, v := burst(&b, start(), p)
		if total += n; n < 15 || v.Reason != budget.Minute {
			t.Errorf("%s: %d more calls after those of lower priority, then %+v", p, n, v)
		}
	}
	if total > 250 {
		t.Errorf("%d calls", total)
	}
	_, v := burst(&b, start(), budget.Vital)
	_, low := burst(&b, start(), budget.Refresh)
	if low.Wait < v.Wait {
		t.Errorf("what is urgent waits %s, a refresh %s", v.Wait, low.Wait)
	}
	if n, _ := burst(&b, start().Add(v.Wait), budget.Vital); n == 0 {
		t.Error("nothing is allowed when the time is over")
	}
}

// When DigitalOcean has said to wait nothing at all is sent, then one call to see whether it is over, the urgent first.
func TestHold(t *testing.T) {
	t.Parallel()
	var b budget.Budget
	ask := func(at time.Duration, p budget.Priority) budget.Verdict { return b.Ask(start().Add(at), p, 0.5) }
	if ask(0, budget.Refresh).Wait != 0 {
		t.Fatal("the first call has to wait")
	}
	b.Heard(start(), budget.Word{Answered: true, Limited: true, Until: start().Add(time.Minute)}, 0)
	for at := time.Duration(0); at < time.Minute; at += time.Second {
		for _, p := range priorities() {
			if v := ask(at, p); v.Wait < time.Minute-at || v.Reason != budget.RateLimited {
				t.Fatalf("%s after %s: %+v", p, at, v)
			}
		}
	}
	if held := b.State(start()).Held; !held.Equal(start().Add(time.Minute)) {
		t.Errorf("held until %s", held)
	}
	for _, p := range priorities()[:3] {
		if ask(time.Minute, p).Wait == 0 {
			t.Errorf("%s goes as early as what is vital", p)
		}
	}
	if v := ask(time.Minute, budget.Vital); v.Wait != 0 {
		t.Errorf("%+v when the time is over", v)
	}
	if ask(2*time.Minute, budget.Vital).Wait == 0 {
		t.Error("two calls at a time although it is not known whether the limit is over")
	}
	b.Heard(start().Add(2*time.Minute), budget.Word{Answered: true}, 0)
	for range 3 {
		if v := ask(2*time.Minute, budget.Refresh); v.Wait != 0 {
			t.Errorf("%+v when it is over", v)
		}
	}
}

// What was under way when 429 came, and is answered well a moment later, does not end the hold.
func TestAnAnswerToAnEarlierCallDoesNotEndAHold(t *testing.T) {
	t.Parallel()
	var b budget.Budget
	for range 2 {
		if b.Ask(start(), budget.Change, 0).Wait != 0 {
			t.Fatal("the first calls have to wait")
		}
	}
	b.Heard(start(), budget.Word{Answered: true, Limited: true, Until: start().Add(time.Minute)}, 0)
	b.Heard(start().Add(time.Second), budget.Word{Answered: true}, 0)
	if v := b.Ask(start().Add(2*time.Second), budget.Vital, 0); v.Reason != budget.RateLimited {
		t.Errorf("%+v, want it to be told to wait", v)
	}
}

// An answer of 429 without a word is waited for longer each time, and not for ever.
func TestHoldWithoutAWord(t *testing.T) {
	t.Parallel()
	var b budget.Budget
	now, last := start(), time.Duration(0)
	for i := range 20 {
		if v := b.Ask(now, budget.Vital, 0); v.Wait != 0 {
			t.Fatalf("%d: %+v", i, v)
		}
		b.Heard(now, budget.Word{Answered: true, Limited: true}, 0)
		wait := b.Ask(now, budget.Vital, 0).Wait
		if wait < last || wait < 2*time.Second || wait > 90*time.Second {
			t.Errorf("the hold %d is %s, after %s", i, wait, last)
		}
		last, now = wait, now.Add(wait)
	}
	if last < time.Minute {
		t.Errorf("it ends at %s", last)
	}
}

// Few calls left of the hour are for what is urgent; what is not trickles, so that it is heard of when there are more.
func TestWhatIsLeftOfTheHour(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		left     int
		freely   map[budget.Priority]bool
		trickles bool
	}{
		{501, map[budget.Priority]bool{budget.Refresh: true, budget.Join: true, budget.Change: true, budget.Vital: true}, true},
		{400, map[budget.Priority]bool{budget.Join: true, budget.Change: true, budget.Vital: true}, true},
		{200, map[budget.Priority]bool{budget.Change: true, budget.Vital: true}, true},
		{50, map[budget.Priority]bool{budget.Vital: true}, true},
		{0, nil, false},
	} {
		for _, p := range priorities() {
			var b budget.Budget
			b.Ask(start(), p, 0)
			b.Heard(start(), word(tt.left, start().Add(10*time.Minute)), 0)
			v := b.Ask(start(), p, 0)
			switch {
			case tt.freely[p] && v.Wait != 0, !tt.freely[p] && v.Reason != budget.Hour:
				t.Errorf("%s with %d left: %+v", p, tt.left, v)
			case !tt.freely[p] && tt.trickles && v.Wait > time.Minute, !tt.trickles && (v.Wait < time.Minute || v.Wait > 64*time.Second):
				t.Errorf("%s with %d left waits %s", p, tt.left, v.Wait)
			}
			if v.Wait == 0 {
				continue
			}
			if v = b.Ask(start().Add(v.Wait), p, 0); v.Wait != 0 {
				t.Errorf("%s with %d left: %+v when the time is over", p, tt.left, v)
			}
		}
	}
	// With nothing left one call a minute finds out whether there is room again, the urgent first, however far away the reset is.
	var b budget.Budget
	b.Ask(start(), budget.Vital, 0)
	b.Heard(start(), word(0, start().Add(time.Hour)), 0)
	made := 0
	for second := range 3600 {
		now := start().Add(time.Duration(second) * time.Second)
		for _, p := range priorities() {
			if b.Ask(now, p, 0).Wait == 0 {
				made++
				if p != budget.Vital {
					t.Fatalf("after %d s a call of %s went first", second, p)
				}
				b.Heard(now, word(0, start().Add(time.Hour)), 0)
			}
		}
	}
	if made < 55 || made > 60 {
		t.Errorf("%d calls in an hour with nothing left, want one a minute", made)
	}
	b.Renew()
	if v := b.Ask(start(), budget.Refresh, 0); v.Wait != 0 || b.State(start()).Hour.Known {
		t.Errorf("another token: %+v", v)
	}
}

// Hours of far more than DigitalOcean allows, with another program on the same token: hardly a call is turned away, none before its time, and
// what is vital hardly waits.
func TestAgainstDigitalOceansOwnCount(t *testing.T) {
	t.Parallel()
	for _, others := range []float64{0, 0.3, 0.9} {
		var b budget.Budget
		counter := ratelimit.NewCounter(ratelimit.Limits{})
		random := cases.Rand(t)
		now, until := start(), start()
		turned, made, vital, probes := 0, 0, 0, 0
		var last budget.Word
		for range 3 * 3600 * 4 { // four times a second for three hours
			now = now.Add(250 * time.Millisecond)
			if random.Float64() < others {
				counter.Take(now)
			}
			for range 3 {
				p := budget.Refresh
				if random.Float64() < 0.02 {
					p = budget.Vital
				}
				if b.Ask(now, p, random.Float64()).Wait > 0 {
					continue
				}
				if made++; p == budget.Vital {
					vital++
				}
				if now.Before(until) {
					t.Fatalf("a call at %s, before %s", now, until)
				}
				if last.Known && last.Remaining == 0 && now.Before(last.Reset) {
					probes++
				}
				v := counter.Take(now)
				w := word(v.Remaining, v.Reset)
				if !v.Allowed {
					turned++
					w.Limited = true
					if until = v.Reset; v.RetryAfter > 0 {
						until = now.Add(v.RetryAfter)
					}
					w.Until = until
				}
				b.Heard(now, w, random.Float64())
				last = w
			}
		}
		// Alone, a call is turned away only if it asks whether an hour that is used up is over.
		t.Logf("others at %.1f: %d calls, %d of them vital, %d turned away", others, made, vital, turned)
		if others == 0 && turned > probes || turned*20 > made || made > 15500 || made < 1000 {
			t.Errorf("others at %.1f: %d calls, %d turned away", others, made, turned)
		}
	}
}

// However many want a call each time, all get the same number, and there are 600 in an hour.
func TestTurnsGoRound(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		wanting := rapid.IntRange(1, 80).Draw(t, "wanting")
		turns := budget.NewTurns(start(), 20, 6200*time.Millisecond, 15*time.Second)
		served := make([]int, wanting)
		total := 0
		for now := start(); now.Before(start().Add(time.Hour)); now = now.Add(5 * time.Second) {
			for who := range served {
				if turns.Take(now, who) {
					served[who]++
					total++
				}
			}
		}
		least, most := served[0], served[0]
		for _, n := range served {
			least, most = min(least, n), max(most, n)
		}
		if total > 600 || total < 590 && wanting > 1 {
			t.Errorf("%d calls in an hour", total)
		}
		if most-least > 1+20/wanting {
			t.Errorf("of %d some got %d and some %d", wanting, least, most)
		}
	})
}

// Who does not ask any more does not keep others waiting.
func TestTurnsDoNotWaitForTheAbsent(t *testing.T) {
	t.Parallel()
	turns := budget.NewTurns(start(), 1, time.Minute, 15*time.Second)
	if !turns.Take(start(), 1) || turns.Take(start(), 2) || turns.Take(start(), 3) {
		t.Fatal("one call was to be had")
	}
	now := start().Add(time.Minute)
	if !turns.Take(now, 3) {
		t.Error("the one who asks has to wait for one who does not")
	}
}
