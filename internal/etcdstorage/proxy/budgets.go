// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/etcdstorage/quota"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy/wire"
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
	limitAnswers  = "answers"
	limitWork     = "work"

	limitConnections = "connections"
)

// Budgets are the names of all budgets, for the reference and for tests.
func Budgets() []string {
	return []string{
		limitSpace, limitHistory, limitLeases, limitWatches, limitRate, limitQueue, limitStreams, limitKeeps, limitMessages, limitAnswers, limitWork,
		limitConnections,
	}
}

const (
	// longestPace is how long a request may be held back to keep one of the tenant's rates. What would have to wait longer is refused.
	longestPace = time.Second
	// longestList is the same for requests whose answer may be large: an API server's lists wait while its small requests pass.
	longestList = 10 * time.Second
	// queueRetry is when a client should try again that was refused since too many requests wait.
	queueRetry = time.Second
	// burstSeconds is how many seconds' worth of messages may come at once.
	burstSeconds = 2
	// leastList is what each answer costs of the bytes read that may be large: the core reads a first part even when the client gives up at once.
	leastList = 64 << 10
	// freeAnswer are the bytes of an answer that are in the price of any call.
	freeAnswer = 1 << 10
)

// bucket is a rate: what is taken comes back over time. It is safe for concurrent use. Its zero value bounds nothing.
type bucket struct {
	perSecond, burst float64 // must not change once it is used; a perSecond of 0 bounds nothing

	mu    sync.Mutex
	level float64 // below 0 it is debt
	last  time.Time
}

// set makes it a rate of perSecond after a burst.
func (b *bucket) set(perSecond, burst float64) {
	b.perSecond, b.burst, b.level = perSecond, burst, burst
}

// take takes n and returns how long to wait for it.
func (b *bucket) take(now time.Time, n float64) (wait time.Duration) {
	if b.perSecond <= 0 {
		return 0
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
	b.level -= n
	return wait
}

// await takes n and waits for it, as long as that takes; the error is the context's, as a status.
func (b *bucket) await(ctx context.Context, n float64, waited func()) error {
	return awaited(ctx, b.take(clock(), n), waited)
}

// awaited waits, and says so if there is anything to wait for.
func awaited(ctx context.Context, wait time.Duration, waited func()) error {
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
	keeps    bucket
	messages bucket

	mu     sync.Mutex
	units  *quota.Budget // nil bounds nothing; mu guards what is in it
	others quota.Others
	shown  float64 // the most units that were spent at any time, for a metric that never falls
}

// spent is how many units the tenant has used.
func (b *budgets) spent() float64 {
	if b.units == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shown = max(b.shown, b.units.Spent())
	return b.shown
}

// demand is which part of so many units a second was wanted since it was called last; 0, which is unknown, without a
// budget of units.
func (b *budgets) demand(whole float64) float64 {
	if b.units == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.units.Demand(clock(), whole)
}

// alone tells the budget whether anybody else uses the core; the caller holds its lock.
func (p *Proxy) alone(now time.Time) {
	b := &p.budgets
	alone := b.others.Alone(now, p.past.Load().highest.Load(), p.replicas.expiry)
	b.units.SetAlone(now, alone)
	p.metrics.alone.Set(map[bool]float64{true: 1}[alone])
}

// followed notes the tenant's writes that a watch of its keys or records brought, and returns the revision of the last:
// those up to last were noted before.
func (p *Proxy) followed(answer *etcdserverpb.WatchResponse, last int64) int64 {
	own := int64(0)
	for _, event := range answer.Events {
		if event.Kv.ModRevision > last {
			own, last = own+1, event.Kv.ModRevision
		}
	}
	p.written(own, answer.GetHeader().GetRevision())
	return last
}

// written notes own writes up to a revision, and returns how many there were since they are counted.
func (p *Proxy) written(revisions, last int64) int64 {
	b := &p.budgets
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.units == nil {
		return 0
	}
	b.others.Own(revisions, last)
	p.alone(clock())
	return b.others.Written()
}

// begin counts the tenant's writes above a revision.
func (b *budgets) begin(revision int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.others.Begin(clock(), revision)
}

// forget counts them no more.
func (b *budgets) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.others.Forget()
}

// queued notes that a request has waited for a seat since some time.
func (b *budgets) queued(since time.Time) {
	if b.units == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.units.Held(clock().Sub(since))
}

// exportBudgets registers what the tenant has used.
func (p *Proxy) exportBudgets() {
	if p.cfg.Registry == nil {
		return
	}
	p.register(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: metricPrefix + "units_total", ConstLabels: prometheus.Labels{"tenant": p.cfg.TenantName},
		Help: "Units of work that the tenant gave to the core through this replica; 0 without a budget of them.",
	}, p.budgets.spent))
}

func (b *budgets) set(cfg *Config) {
	b.keeps.set(cfg.KeepAlivesPerSecond, cfg.KeepAlivesPerSecond*burstSeconds)
	b.messages.set(cfg.WatchMessagesPerSecond, cfg.WatchMessagesPerSecond*burstSeconds)
	if cfg.UnitsPerSecond > 0 {
		b.units = quota.NewBudget(cfg.UnitsPerSecond)
	}
}

// take takes the price of work that is about to be done, and returns how long it must wait for it.
func (p *Proxy) take(work quota.Work, class quota.Class) (wait time.Duration, err error) {
	if p.budgets.units == nil {
		return 0, nil
	}
	most := longestPace
	if class == quota.Large {
		most = longestList
	}
	wait, ok := p.takeWithin(work, class, most)
	if !ok {
		return 0, p.refuse(limitRate, wait)
	}
	if wait > 0 {
		p.metrics.waited(limitRate).Inc()
	}
	return wait, nil
}

func (p *Proxy) takeWithin(work quota.Work, class quota.Class, most time.Duration) (time.Duration, bool) {
	now := clock()
	p.budgets.mu.Lock()
	defer p.budgets.mu.Unlock()
	if class == quota.Large {
		p.alone(now)
	}
	return p.budgets.units.Take(now, work.Units(), class, most)
}

// overdue is how long a small request must wait that has its seat now, after those before it were corrected.
func (p *Proxy) overdue() (wait time.Duration, err error) {
	if p.budgets.units == nil {
		return 0, nil
	}
	p.budgets.mu.Lock()
	wait, ok := p.budgets.units.Overdue(clock(), longestPace)
	p.budgets.mu.Unlock()
	switch {
	case !ok:
		return 0, p.refuse(limitRate, wait)
	case wait > 0:
		p.metrics.waited(limitRate).Inc()
	}
	return wait, nil
}

// await is take for what waits as long as it must: what a stream does of itself.
func (p *Proxy) await(ctx context.Context, work quota.Work) error {
	if p.budgets.units == nil {
		return nil
	}
	wait, _ := p.takeWithin(work, quota.Large, math.MaxInt64)
	return awaited(ctx, wait, p.metrics.waited(limitRate).Inc)
}

// pay takes the price of work that was done in addition to what was taken before, or gives back that of work that was not.
func (p *Proxy) pay(work quota.Work, class quota.Class) {
	if p.budgets.units == nil || work == (quota.Work{}) {
		return
	}
	p.budgets.mu.Lock()
	defer p.budgets.mu.Unlock()
	p.budgets.units.Correct(work.Units(), class)
}

// cost is what a request costs, as far as the request tells.
type cost struct {
	// state is told to the functions of the forward that made it.
	state int64
	// list is set if the answer may be large.
	list bool
	// written are the bytes that count as history.
	written int
	// work is what the request makes the core do, as far as it is known before. span is the hash of its range, 0 if it has none; scans is set if
	// the core reads each of the range's values.
	work  quota.Work
	span  uint64
	scans bool
	// asked is the hash of a request for which it is learnt how large its response was, 0 for none.
	asked uint64
	// values are those that the response may have, at most. found are the keys that the ranges of a Txn or a deletion were
	// found to have, and removes is set if some of them may be deleted.
	values, found int64
	removes       bool
	// leases is set for the list of all leases.
	leases bool
	// tombstones are keys that the tenant has deleted, which the core may have to look at.
	tombstones int64
	// spans are ranges whose keys must be counted before the request goes to the core, since there may be no more than most of them.
	spans []wire.Span
	most  int64
	// deletes is set if what is in the spans is only deleted.
	deletes bool
	// seen is what was known when the request was rewritten. The response is compared with it unless stale is set, for what is not linearizable.
	seen  seen
	stale bool
}

// class is how the request shares the budget.
func (c *cost) class() quota.Class {
	if c.list {
		return quota.Large
	}
	return quota.Small
}

// read pays for the bytes of an answer of the core, taken by the client or not, and learns how many they are: the same
// request pays for as many before it goes to the core, so that those that are given up do not all cost little at first.
func (p *Proxy) read(bytes int64, c *cost) {
	least, free := int64(0), int64(freeAnswer)
	if c.list {
		least, free = leastList, max(c.work.Read, leastList) // it was taken before
	}
	if bytes > free || c.list && free > leastList {
		p.pay(quota.Work{Read: max(bytes, least) - free}, c.class())
	}
	if c.asked != 0 && (bytes > leastList || c.list && bytes > 0) {
		p.learnt.learn(c.asked, bytes)
	}
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
		return "--max-units-per-second"
	case limitQueue:
		return "--max-in-flight"
	case limitStreams:
		return "--max-streams"
	case limitKeeps:
		return "--max-keep-alives-per-second"
	case limitMessages:
		return "--max-watch-messages-per-second"
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
