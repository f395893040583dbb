// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doapi

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/budget"
)

// urgency is the key of a context's priority.
type urgency struct{}

// Urgent returns a context whose calls are at least so urgent. Without it writes are as urgent as their kind, lists are [budget.Refresh], and
// what is asked for by ID is [budget.Join].
func Urgent(ctx context.Context, p budget.Priority) context.Context {
	return context.WithValue(ctx, urgency{}, max(p, Urgency(ctx)))
}

// once is the key of a context whose calls are not repeated.
type once struct{}

// Once returns a context whose calls are made once, whatever becomes of them: for callers that have counted them.
func Once(ctx context.Context) context.Context { return context.WithValue(ctx, once{}, true) }

// Urgency is how urgent the calls of a context are at least.
func Urgency(ctx context.Context) budget.Priority {
	p, ok := ctx.Value(urgency{}).(budget.Priority)
	if !ok {
		return budget.Refresh
	}
	return p
}

// priority is how urgent a call is by its kind: objects are made with a POST to a collection and deleted by their ID; everything else that writes
// changes something that exists.
func (c call) priority() budget.Priority {
	_, member := strings.CutSuffix(c.route, "}")
	switch {
	case c.method == http.MethodGet && member:
		return max(c.atLeast, budget.Join)
	case c.method == http.MethodGet:
		return c.atLeast
	case c.method == http.MethodDelete && member, c.method == http.MethodPost && strings.Count(c.route, "/") == 1:
		return budget.Vital
	default:
		return max(c.atLeast, budget.Change)
	}
}

// pacer lets calls go as the budget allows. All calls of a Client go through one.
type pacer struct {
	clock   clock.Clock
	chance  func() float64
	metrics *Metrics

	mu     sync.Mutex // guards budget
	budget budget.Budget
}

func newPacer(clock clock.Clock, chance func() float64, metrics *Metrics) *pacer {
	if chance == nil {
		chance = rand.Float64 //nolint:forbidigo // it spreads clients in time, nothing is decided by it
	}
	return &pacer{clock: clock, chance: chance, metrics: metrics}
}

// admit waits until the call may be made, or is an error at once if that takes longer than a caller should be kept. After nil, heard must be called.
func (p *pacer) admit(ctx context.Context, c call) error {
	priority := max(c.priority(), Urgency(ctx))
	waited := time.Duration(0)
	for first := true; ; first = false {
		p.mu.Lock()
		now := p.clock.Now()
		v := p.budget.Ask(now, priority, p.chance())
		p.mu.Unlock()
		if v.Wait <= 0 {
			return nil
		}
		if first {
			p.metrics.hold(priority, v.Reason)
		}
		if waited += v.Wait; waited > longestWait {
			return held(c, v, now)
		}
		timer := p.clock.NewTimer(v.Wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C():
		}
	}
}

// held makes the error of a call that was not made.
func held(c call, v budget.Verdict, now time.Time) *Error {
	why := "DigitalOcean's rate limit requires a wait"
	switch v.Reason {
	case budget.Hour:
		why = "the token has few calls left in the hour, which are reserved for urgent calls"
	case budget.Minute:
		why = "the limit of calls per minute is reached"
	case budget.RateLimited, budget.Free:
	}
	until := now.Add(v.Wait)
	return &Error{
		Method: c.method, Route: c.route, NotBefore: until, kind: ErrHeld,
		Message: fmt.Sprintf("%s; it can be made after %s", why, until.UTC().Format(time.TimeOnly)),
	}
}

// heard notes what the answer said, for every call that was admitted.
func (p *pacer) heard(word budget.Word) {
	p.mu.Lock()
	p.budget.Heard(p.clock.Now(), word, p.chance())
	p.mu.Unlock()
	p.metrics.headRoom(word)
}

// renew forgets what was said to another token.
func (p *pacer) renew() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.budget.Renew()
}

// wordOf reads what an answer says of the limits. Its times are compared with its own date, so that a clock that is wrong here does no harm.
func wordOf(status int, header http.Header, now time.Time) budget.Word {
	w := budget.Word{Answered: true, Limited: status == http.StatusTooManyRequests}
	if wait := retryAfter(status, header, now); w.Limited && wait > 0 {
		w.Until = now.Add(wait)
	}
	limit, errLimit := strconv.Atoi(header.Get("Ratelimit-Limit"))
	remaining, errRemaining := strconv.Atoi(header.Get("Ratelimit-Remaining"))
	if errLimit != nil || errRemaining != nil || limit <= 0 || remaining < 0 {
		return w
	}
	w.Known, w.Limit, w.Remaining, w.Reset = true, limit, remaining, now
	there := now
	if date, err := http.ParseTime(header.Get("Date")); err == nil {
		there = date
	}
	if reset, err := strconv.ParseInt(header.Get("Ratelimit-Reset"), 10, 62); err == nil {
		w.Reset = now.Add(min(max(time.Unix(reset, 0).Sub(there), 0), time.Hour)) // each call counts for an hour
	}
	return w
}
