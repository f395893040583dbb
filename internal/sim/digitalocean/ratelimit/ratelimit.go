// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package ratelimit counts requests as DigitalOcean does: every request expires on its own, an hour after it was made, and no
// more than a few of them may come within one minute.
//
// It holds no clock and no lock: the caller says what time it is and calls from one goroutine at a time.
package ratelimit

import (
	"time"

	"github.com/mooring-dev/mooring/internal/assumed"
)

const (
	// DefaultHour is DigitalOcean's limit of requests in any 60 minutes, per token.
	DefaultHour = assumed.RequestsPerHour
	// DefaultMinute is DigitalOcean's limit of requests in any 60 seconds, per token.
	DefaultMinute = assumed.RequestsPerMinute
)

// Limits says how many requests are allowed. The zero value means DigitalOcean's own limits; a negative number means none.
type Limits struct {
	Hour   int `json:"hour,omitempty"`
	Minute int `json:"minute,omitempty"`
}

func (l Limits) withDefaults() Limits {
	if l.Hour == 0 {
		l.Hour = DefaultHour
	}
	if l.Minute == 0 {
		l.Minute = DefaultMinute
	}
	return l
}

// Verdict is the answer to one request, and what the headers of its response say.
type Verdict struct {
	// Allowed requests were counted; refused ones were not.
	Allowed bool
	// Limit is the hourly limit (ratelimit-limit).
	Limit int
	// Remaining is how many more requests the hour has (ratelimit-remaining).
	Remaining int
	// Reset is when the oldest counted request expires (ratelimit-reset).
	Reset time.Time
	// RetryAfter is when the minute has room again. It is zero unless the minute's limit refused the request: DigitalOcean sends
	// retry-after for the burst limit only.
	RetryAfter time.Duration
}

// Counter counts the requests of one token.
type Counter struct {
	limits Limits
	spent  []time.Time // in order; those before first have expired
	first  int         // the oldest request of the hour
	recent int         // the oldest request of the minute
}

// NewCounter returns a counter that has seen nothing.
func NewCounter(limits Limits) *Counter {
	return &Counter{limits: limits.withDefaults()}
}

// Take asks for one request at the time now. Times never go back.
func (c *Counter) Take(now time.Time) Verdict {
	c.expire(now)
	verdict := Verdict{Limit: c.limits.Hour, Reset: c.reset(now)}
	switch {
	case c.limits.Hour >= 0 && c.inHour() >= c.limits.Hour:
	case c.limits.Minute >= 0 && c.inMinute() >= c.limits.Minute:
		verdict.RetryAfter = c.recentEnd(now).Sub(now)
	default:
		c.spent = append(c.spent, now)
		verdict.Allowed, verdict.Reset = true, c.reset(now)
	}
	verdict.Remaining = max(0, c.limits.Hour-c.inHour())
	if c.limits.Hour < 0 {
		verdict.Limit, verdict.Remaining = DefaultHour, DefaultHour
	}
	return verdict
}

func (c *Counter) inHour() int   { return len(c.spent) - c.first }
func (c *Counter) inMinute() int { return len(c.spent) - c.recent }

// expire forgets what is older than an hour, and older than a minute if no hour is counted.
func (c *Counter) expire(now time.Time) {
	for c.recent < len(c.spent) && !c.spent[c.recent].Add(time.Minute).After(now) {
		c.recent++
	}
	for c.first < len(c.spent) && !c.spent[c.first].Add(time.Hour).After(now) {
		c.first++
	}
	if c.limits.Hour < 0 {
		c.first = c.recent
	}
	if c.first > 1024 && c.first > len(c.spent)/2 {
		c.spent = append([]time.Time(nil), c.spent[c.first:]...)
		c.recent -= c.first
		c.first = 0
	}
}

func (c *Counter) reset(now time.Time) time.Time {
	if c.first < len(c.spent) {
		return c.spent[c.first].Add(time.Hour)
	}
	return now.Add(time.Hour)
}

func (c *Counter) recentEnd(now time.Time) time.Time {
	if c.recent < len(c.spent) {
		return c.spent[c.recent].Add(time.Minute)
	}
	return now.Add(time.Minute)
}
