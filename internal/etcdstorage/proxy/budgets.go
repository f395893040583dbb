// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Names of the budgets: values of the label limit of the metrics, and in refusals. They MUST NOT change: alerts name them.
const (
	limitSpace    = "space"
	limitHistory  = "history"
	limitLeases   = "leases"
	limitWatches  = "watches"
	limitRate     = "rate"
	limitQueue    = "queue"
	limitStreams  = "streams"
	limitKeeps    = "keep-alives"
	limitMessages = "watch-messages"
	limitRead     = "read-bytes"
	limitWritten  = "written-bytes"
	limitAnswers  = "answers"

	limitConnections = "connections"
)

// Budgets are the names of all budgets, for the reference and for tests.
func Budgets() []string {
	return []string{
		limitSpace, limitHistory, limitLeases, limitWatches, limitRate, limitQueue, limitStreams, limitKeeps, limitMessages, limitRead, limitWritten,
		limitAnswers, limitConnections,
	}
}

const (
	// longestPace is how long a request may be held back to keep one of the tenant's rates. What would have to wait longer is refused.
	longestPace = time.Second
	// longestList is the same for requests whose answer may be large: an API server's lists wait while its small requests pass.
	longestList = 10 * time.Second
	// queueRetry is when a client should try again that was refused since too many requests wait.
	queueRetry = time.Second
	// burstSeconds is how many seconds' worth of bytes or messages may come at once.
	burstSeconds = 2
	// leastAnswer is what each answer costs of the bytes read, however small it is.
	leastAnswer = 512
	// leastList is the same for answers that may be large: the core reads a first part even when the client gives up at once.
	leastList = 64 << 10
)

// bucket is a rate: what is taken comes back over time. It is safe for concurrent use. Its zero value bounds nothing.
type bucket struct {
	perSecond, burst float64 // must not change once it is used; a perSecond of 0 bounds nothing

	mu    sync.Mutex
	level float64 // below 0 it is debt
	last  time.Time
}

// set makes it a rate of perSecond after a burst; a burst of 0 is one second's worth.
func (b *bucket) set(perSecond, burst float64) {
	if burst <= 0 {
		burst = math.Ceil(perSecond)
	}
	b.perSecond, b.burst, b.level = perSecond, burst, burst
}

// take takes n and returns how long to wait for it. If that is longer than most nothing is taken, and ok is false.
func (b *bucket) take(now time.Time, n float64, most time.Duration) (wait time.Duration, ok bool) {
	if b.perSecond <= 0 {
		return 0, true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.last.IsZero() {
		b.level = min(b.level+max(now.Sub(b.last).Seconds(), 0)*b.perSecond, b.burst)
	}
	b.last = now
	if left := b.level - n; left < 0 {
		wait = time.Duration(-left / b.perSecond * float64(time.Second))
	}
	if wait > most {
		return wait, false
	}
	b.level -= n
	return wait, true
}

// charge takes what was used already.
func (b *bucket) charge(n float64) {
	if b.perSecond <= 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.level -= n
}

// await takes n and waits for it, as long as that takes; the error is the context's, as a status.
func (b *bucket) await(ctx context.Context, n float64, waited func()) error {
	wait, _ := b.take(clock(), n, math.MaxInt64)
	if wait <= 0 {
		return nil
	}
	waited()
	if !pause(ctx, wait) {
		return status.FromContextError(ctx.Err()).Err()
	}
	return nil
}

// clock is the time for rates.
func clock() time.Time { return time.Now() } //nolint:forbidigo // a rate is one of the clock's

// budgets are the tenant's rates.
type budgets struct {
	requests bucket
	keeps    bucket
	messages bucket
	// Answers that may be large have a rate of their own, so that small requests pass while lists wait.
	readSmall, readList bucket
	written             bucket
}

func (b *budgets) set(cfg *Config) {
	b.requests.set(cfg.RequestsPerSecond, float64(cfg.Burst))
	b.keeps.set(cfg.KeepAlivesPerSecond, cfg.KeepAlivesPerSecond*burstSeconds)
	b.messages.set(cfg.WatchMessagesPerSecond, cfg.WatchMessagesPerSecond*burstSeconds)
	b.readSmall.set(float64(cfg.ReadBytesPerSecond), float64(cfg.ReadBytesPerSecond)*burstSeconds)
	b.readList.set(float64(cfg.ReadBytesPerSecond), float64(cfg.ReadBytesPerSecond)*burstSeconds)
	b.written.set(float64(cfg.WrittenBytesPerSecond), max(float64(cfg.WrittenBytesPerSecond)*burstSeconds, float64(cfg.MaxRequestBytes)))
}

// cost is what a request costs, as far as the request tells.
type cost struct {
	// state is told to the functions of the forward that made it.
	state int64
	// list is set if the answer may be large.
	list bool
	// written are the bytes that are written.
	written int
	// seen is what the response is compared with; nothing for what is not linearizable.
	seen seen
}

// admit takes the bytes of a request from its budgets, and returns how long it must wait for them.
func (p *Proxy) admit(c cost) (wait time.Duration, err error) {
	most, read := longestPace, &p.budgets.readSmall
	if c.list {
		most, read = longestList, &p.budgets.readList
	}
	if read.perSecond <= 0 && (p.budgets.written.perSecond <= 0 || c.written == 0) {
		return 0, nil
	}
	now := clock()
	wait, ok := read.take(now, 0, most)
	if !ok {
		return 0, p.refuse(limitRead, wait)
	}
	which := limitRead
	if c.written > 0 {
		more, ok := p.budgets.written.take(now, float64(c.written), longestPace)
		if !ok {
			return 0, p.refuse(limitWritten, more)
		}
		if more > wait {
			wait, which = more, limitWritten
		}
	}
	if wait > 0 {
		p.metrics.waited(which).Inc()
	}
	return wait, nil
}

// read charges an answer of the core.
func (p *Proxy) read(bytes int, list bool) {
	if list {
		p.budgets.readList.charge(float64(max(bytes, leastList)))
		return
	}
	p.budgets.readSmall.charge(float64(max(bytes, leastAnswer)))
}

// refuse counts what a budget turns away and returns the answer: etcd's text for more requests than it takes, with the budget, and when there will be
// room again.
func (p *Proxy) refuse(limit string, retry time.Duration) error {
	p.metrics.refused(limit).Inc()
	return tooMany(limit, retry)
}

// tooMany is the text of a refusal.
func tooMany(limit string, retry time.Duration) error {
	when := "try again when some of them have ended"
	if retry > 0 {
		when = fmt.Sprintf("try again in %s", max(retry.Round(time.Millisecond), time.Millisecond))
	}
	return status.Errorf(codes.ResourceExhausted, "%s: the tenant's budget %q (%s) is used up, %s",
		rpctypes.ErrorDesc(rpctypes.ErrGRPCRequestTooManyRequests), limit, flagOf(limit), when)
}

// flagOf names the flag that sets a budget.
func flagOf(limit string) string {
	switch limit {
	case limitSpace:
		return "--quota-bytes, --quota-keys"
	case limitHistory:
		return "--quota-history-bytes"
	case limitLeases:
		return "--quota-leases"
	case limitWatches:
		return "--quota-watches"
	case limitRate:
		return "--max-requests-per-second"
	case limitQueue:
		return "--max-in-flight"
	case limitStreams:
		return "--max-streams"
	case limitKeeps:
		return "--max-keep-alives-per-second"
	case limitMessages:
		return "--max-watch-messages-per-second"
	case limitRead:
		return "--max-read-bytes-per-second"
	case limitWritten:
		return "--max-written-bytes-per-second"
	case limitConnections:
		return "--max-connections-per-identity"
	default:
		return "--max-answer-bytes"
	}
}

// pause waits, unless ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
