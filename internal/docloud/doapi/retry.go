// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doapi

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

const (
	// attempts is how often a call is made at most. Who called will come again later, so this is for hiccups alone.
	attempts = 3
	// firstBackOff is the wait after the first attempt; it doubles, with as much again by chance, so that clients do not move in step.
	firstBackOff = 500 * time.Millisecond
	// longestWait is how long a call waits at most for what the API asks. Longer waits are the caller's business.
	longestWait = 10 * time.Second
	// longestRetryAfter bounds what is believed of a server that asks for more, so that one wrong header does not stop a cluster for a day.
	longestRetryAfter = 15 * time.Minute
	// longestGuess bounds what is made of the time when the oldest call of the hour stops to count: another program may stop to use the token
	// up, and only a call tells.
	longestGuess = time.Minute
)

// worthAnother reports whether the same call may be made again at once: reads whenever they failed to be answered, writes only if they are the same
// when made twice (RFC 9110, section 9.2.2), and anything that was turned away by a limit.
func worthAnother(method string, err error) bool {
	answered := (*Error)(nil)
	if !errors.As(err, &answered) {
		return false
	}
	if errors.Is(err, ErrRateLimited) {
		return true
	}
	unanswered := answered.Status == 0 || answered.Status >= http.StatusInternalServerError
	return unanswered && method != http.MethodPost
}

// backOff is how long to wait after an attempt; asked is what the API asks for, 0 for nothing. A negative one means not to try again.
func backOff(attempt int, asked time.Duration) time.Duration {
	if asked > longestWait {
		return -1
	}
	d := firstBackOff << (attempt - 1)
	return max(asked, d+rand.N(d)) //nolint:gosec,forbidigo // it spreads clients in time, nothing is decided by it
}

// pause waits and reports whether the call may be made again.
func (c *Client) pause(ctx context.Context, d time.Duration) bool {
	if d < 0 {
		return false
	}
	timer := c.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}

// retryAfter is what an answer asks for: Retry-After, in seconds or as a date (RFC 9110, section 10.2.3), and for an answer of 429 without
// it until RateLimit-Reset, in seconds since 1970, when the oldest call of the hour stops to count, unless calls are left in that hour. 0 if it
// asks for nothing. Dates are compared with the answer's own, so that a clock that is wrong here does no harm.
func retryAfter(status int, header http.Header, now time.Time) time.Duration {
	if date, err := http.ParseTime(header.Get("Date")); err == nil {
		now = date
	}
	wait := time.Duration(0)
	asked, left := header.Get("Retry-After"), header.Get("Ratelimit-Remaining")
	hour := status == http.StatusTooManyRequests && (left == "" || left == "0")
	if seconds, err := strconv.ParseUint(asked, 10, 31); err == nil {
		wait = time.Duration(seconds) * time.Second
	} else if date, err := http.ParseTime(asked); err == nil {
		wait = date.Sub(now)
	} else if reset, err := strconv.ParseInt(header.Get("Ratelimit-Reset"), 10, 62); err == nil && hour {
		wait = min(time.Unix(reset, 0).Sub(now), longestGuess)
	}
	return min(max(wait, 0), longestRetryAfter)
}
