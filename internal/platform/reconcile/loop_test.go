// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/platform/reconcile"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// runs is a loop over one key, and when its passes were made.
type runs struct {
	*reconcile.Loop

	began  time.Time
	mu     sync.Mutex // guards all below
	at     []time.Duration
	result reconcile.Result
}

func start(t *testing.T, o reconcile.LoopOptions) *runs {
	t.Helper()
	r := &runs{began: time.Now()}
	o.Clock, o.Gate, o.Keys = clock.RealClock{}, &reconcile.Gate{}, func() []string { return []string{"key"} }
	o.Pass = func(context.Context, string) reconcile.Result {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.at = append(r.at, time.Since(r.began))
		return r.result
	}
	if o.Resync == 0 {
		o.Resync = 24 * time.Hour
	}
	r.Loop = reconcile.NewLoop(o)
	go r.Run(t.Context())
	return r
}

// expect compares when passes were made, to the second.
func (r *runs) expect(t *testing.T, what string, want ...time.Duration) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	got := slices.Clone(r.at)
	for i := range got {
		got[i] = got[i].Truncate(time.Second)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: passes after %v, want %v", what, got, want)
	}
}

// wait lets time go by, and all that is due by then come to rest.
func wait(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestMarksTakeEffectWhenItIsQuietOrTheyHaveWaitedLongEnough(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		marks int // one a second
		wrote bool
		want  []time.Duration
	}{
		"one mark":                          {1, true, []time.Duration{2 * time.Second}},
		"a burst of passes that write":      {20, true, []time.Duration{15 * time.Second, 30 * time.Second}},
		"a burst of passes that do nothing": {20, false, []time.Duration{15 * time.Second, 21 * time.Second}},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := start(t, reconcile.LoopOptions{Quiet: 2 * time.Second, Most: 15 * time.Second})
			r.result.Wrote = c.wrote
			for range c.marks {
				r.Mark()
				wait(time.Second)
			}
			wait(time.Minute)
			r.expect(t, what, c.want...)
		})
	}
}

// What failed is tried again later each time, or at once when its cause may be over.
func TestWakeTriesWhatFailed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, reconcile.LoopOptions{FirstRetry: 40 * time.Second, LastRetry: 5 * time.Minute})
		r.result.Failed = true
		r.Add("key")
		wait(41 * time.Second)
		r.expect(t, "before", 0, 40*time.Second)
		r.result.Failed = false
		r.Wake()
		wait(2 * time.Second)
		r.mu.Lock()
		if n := len(r.at); n != 3 {
			t.Errorf("%d passes after it was woken, want one more than 2", n)
		}
		r.mu.Unlock()
		r.Wake()
		wait(10 * time.Second)
		if n := len(r.at); n != 3 {
			t.Errorf("%d passes: what has not failed was woken", n)
		}
	})
}

func seconds(of ...int) (out []time.Duration) {
	for _, n := range of {
		out = append(out, time.Duration(n)*time.Second)
	}
	return out
}

// What a pass says of the next one replaces what an earlier one said where the last one has the last word; what somebody
// asks for stays. A time that is over with nothing to do is no pass.
// Where keys are only reasons for one round, all that fail wait together; each would be tried again by itself otherwise.
func TestFailuresOfAllKeysWaitTogether(t *testing.T) {
	t.Parallel()
	for as, want := range map[string][]time.Duration{
		"resync": {0, 0, 1 * time.Second, 5 * time.Second}, // both have failed once: the third failure is the third of one backoff
		"":       {0, 0, 1 * time.Second, 1 * time.Second, 3 * time.Second, 3 * time.Second, 7 * time.Second, 7 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := start(t, reconcile.LoopOptions{FirstRetry: time.Second, LastRetry: 5 * time.Minute, RetryAs: as})
			r.mu.Lock()
			r.result.Failed = true
			r.mu.Unlock()
			r.Add("service")
			r.Add("resync")
			wait(10 * time.Second)
			r.expect(t, "retried as "+as, want...)
		})
	}
}

func TestTheLastResultSaysWhenTheNextPassIs(t *testing.T) {
	t.Parallel()
	for _, last := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r := start(t, reconcile.LoopOptions{Quiet: time.Second, Most: time.Second, LastWord: last})
			r.result.Next = 10 * time.Second
			r.Add("key")
			wait(6 * time.Second)
			r.Add("key") // now the next pass is after 16 s, and, without the last word, after 10 s all the same
			wait(6 * time.Second)
			want := seconds(0, 6)
			if !last {
				want = seconds(0, 6, 10)
			}
			r.expect(t, "asked for again", want...)
			r.AddAfter("key", 2*time.Second)
			r.mu.Lock()
			r.result.Next = 0
			r.mu.Unlock()
			wait(time.Minute)
			if want = append(want, 14*time.Second); !last {
				want = append(want, 20*time.Second)
			}
			r.expect(t, "nothing is due any more", want...)
		})
	}
}

// While a key rests, and for a patient loop after a failure, only time starts a pass. What was marked meanwhile is
// one pass, with what comes at the end.
func TestARestIsNotCutShort(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		result reconcile.Result
		want   []time.Duration
	}{
		"a rest":             {reconcile.Result{Rest: 20 * time.Second, Next: time.Hour}, seconds(0, 21)},
		"a rest beyond Next": {reconcile.Result{Rest: 20 * time.Second, Next: time.Second}, seconds(0, 20, 40)},
		"a failure":          {reconcile.Result{Failed: true}, seconds(0, 30)},
		"an ordinary result": {reconcile.Result{Next: time.Hour}, seconds(0, 6, 8)},
		"a rest with looks": {
			reconcile.Result{Rest: 20 * time.Second, Look: 2 * time.Second, Next: time.Hour}, seconds(0, 21)},
		"looks at what is due": {reconcile.Result{Look: 7 * time.Second, Next: time.Hour}, seconds(0, 6, 8)},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := start(t, reconcile.LoopOptions{
				Quiet: time.Second, Most: time.Second, FirstRetry: 30 * time.Second, LastRetry: time.Minute, Patient: true,
				Look: func(context.Context, string) bool { return false },
			})
			r.result = c.result
			r.Add("key")
			wait(5 * time.Second)
			r.Mark()
			wait(2 * time.Second)
			r.Mark()
			wait(33 * time.Second)
			r.expect(t, what, c.want...)
		})
	}
}

// A look starts a pass early, as often as the last result asks for it.
func TestALookStartsAPass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		r := start(t, reconcile.LoopOptions{LastWord: true, Look: func(context.Context, string) bool { looks++; return looks == 3 }})
		r.result = reconcile.Result{Rest: 5 * time.Second, Look: 10 * time.Second, Next: time.Minute}
		r.Add("key")
		wait(36 * time.Second)
		r.expect(t, "a look that finds something", 0, 35*time.Second)
		wait(time.Minute)
		r.expect(t, "looks that find nothing", 0, 35*time.Second, 95*time.Second)
		if looks != 3+5 {
			t.Errorf("%d looks, want 8", looks)
		}
	})
}

// What is due by the clock is passed over first, until a pass has nothing more to do; all else is as it came.
func TestWhatIsDueGoesFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var order []string
		results := map[string]reconcile.Result{"due": {Wrote: true, Next: 1}}
		o := reconcile.LoopOptions{Clock: clock.RealClock{}, FirstRetry: time.Hour, LastRetry: time.Hour}
		o.Pass = func(_ context.Context, key string) reconcile.Result {
			order = append(order, key)
			result := results[key]
			delete(results, key)
			return result
		}
		l := reconcile.NewLoop(o)
		l.Requeue(t.Context(), "later", reconcile.Result{Due: time.Now().Add(time.Hour)})
		l.Requeue(t.Context(), "due", reconcile.Result{Due: time.Now()})
		l.Requeue(t.Context(), "fails", reconcile.Result{Due: time.Now()})
		l.Requeue(t.Context(), "fails", reconcile.Result{Failed: true})
		for _, key := range []string{"a", "later", "b", "due", "fails"} {
			l.Add(key)
		}
		go l.Run(t.Context())
		wait(time.Second)
		if want := []string{"due", "fails", "a", "later", "b", "due"}; !slices.Equal(order, want) {
			t.Errorf("passed over %v, want %v", order, want)
		}
		order = nil
		l.Add("a")
		l.Add("due")
		wait(time.Second)
		if want := []string{"a", "due"}; !slices.Equal(order, want) {
			t.Errorf("nothing is due any more: passed over %v, want %v", order, want)
		}
	})
}

// Drain lets what has begun end, and nothing begin.
func TestDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g reconcile.Gate
		leave := must.Get(g.Enter(t.Context())).Or(t)
		began := time.Now()
		go func() {
			<-time.After(3 * time.Second)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := g.Enter(ctx); err == nil {
				t.Error("something was let in at the end")
			}
			leave()
		}()
		if !g.Drain(clock.RealClock{}, 20*time.Second) || time.Since(began) != 4*time.Second {
			t.Errorf("drained after %s, want 4 s", time.Since(began))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		var g reconcile.Gate
		must.Get(g.Enter(t.Context())).Or(t)
		if g.Drain(clock.RealClock{}, 20*time.Second) {
			t.Error("drained while somebody is inside")
		}
	})
	var idle reconcile.Gate
	if !idle.Drain(clock.RealClock{}, 0) {
		t.Error("nobody was inside")
	}
}
