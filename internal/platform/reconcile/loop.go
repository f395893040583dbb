// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"cmp"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// Only is the key of a controller that decides on everything together.
const Only = "all"

// LoopOptions are what [NewLoop] needs.
type LoopOptions struct {
	// Name is the queue's, which is a label of metrics and MUST not be changed.
	Name  string
	Clock clock.WithTicker
	// Gate is what passes enter, nil for one of the loop's own.
	Gate *Gate
	// Workers is how many keys are passed over at a time, 1 if it is 0.
	Workers int
	// Keys are all keys, for a resync and after a mark; nil for [Only].
	Keys func() []string
	// Pass looks at one key.
	Pass func(ctx context.Context, key string) Result
	// Quiet and Most debounce marks: they take effect when there was none for Quiet, and after Most at the latest, but not within Most after a pass
	// that wrote something: however long changes come, that is one write in each Most.
	Quiet, Most time.Duration
	// Resync is how often all keys are looked at, with up to a fifth more by chance, and 0 for never; First is when for the first time, by chance
	// up to that, and 0 for after Resync.
	Resync, First time.Duration
	// FirstRetry and LastRetry bound the waits after failures. Patient says that only time ends such a wait, and that
	// what another process has written in between is a failure as well.
	FirstRetry, LastRetry time.Duration
	Patient               bool
	// RetryAs is the key by which any failed pass is tried again, empty for its own: where keys are only reasons for one
	// and the same round, all of them fail alike, and each would wait by itself.
	RetryAs string
	// LastWord says that the result of a pass replaces what those before it have asked for. Without it a pass that one of
	// them asked for comes all the same: for rounds over one key that see different things.
	LastWord bool
	// Look reports whether a pass over a key is due early: it is called as often as the last result asks for, by who
	// makes passes.
	Look func(ctx context.Context, key string) bool
	// Chance returns a duration from 0 to below the given one; nil for one that nobody knows in advance.
	Chance func(below time.Duration) time.Duration
}

// Result is what a pass came to.
type Result struct {
	// Next is when to look again, 0 for when there is a reason to (see LastWord). Failed says that the pass is to be
	// tried again, later each time.
	Next   time.Duration
	Failed bool
	// Rest is how long nothing starts the next pass, and Look how often after that Look is called until Next, 0 for
	// never.
	Rest, Look time.Duration
	// Due is when something is due by the clock, the zero time for never. From then on the key is passed over before
	// those of which nothing is, until a pass that neither changes anything nor fails.
	Due time.Time
	// Wrote reports that something was changed.
	Wrote bool
}

// Loop runs passes. Its methods may be called from any goroutine.
type Loop struct {
	o     LoopOptions
	queue func() workqueue.TypedDelayingInterface[string] // made when it is first used, and ended by Run
	retry workqueue.TypedRateLimiter[string]
	poked chan struct{} // something was marked
	// synced is set before followed is closed.
	followed chan struct{}
	synced   []cache.InformerSynced

	mu      sync.Mutex // guards all below
	first   time.Time  // of the marks that wait, zero for none
	last    time.Time
	wrote   time.Time
	waiting map[string]bool      // keys that are tried again later
	dates   map[string]time.Time // when something is due of a key
	plans   map[string]schedule
}

// schedule is when a key is passed over next, as zero times or 0 for never. The queue alone does not know: it holds a
// key for the earliest time that was ever asked for.
type schedule struct {
	asked  time.Time // by a caller
	next   time.Time // by the last pass
	rested time.Time // not before
	look   time.Duration
}

// due is the earlier of the times, not before it has rested.
func (s schedule) due() (at time.Time, ever bool) {
	at = s.asked
	if at.IsZero() || !s.next.IsZero() && s.next.Before(at) {
		at = s.next
	}
	ever = !at.IsZero()
	if at.Before(s.rested) {
		at = s.rested
	}
	return at, ever
}

// NewLoop makes a Loop that does nothing until it runs.
func NewLoop(o LoopOptions) *Loop {
	o.Workers = max(o.Workers, 1)
	o.Gate = cmp.Or(o.Gate, &Gate{})
	if o.Keys == nil {
		o.Keys = func() []string { return []string{Only} }
	}
	if o.Chance == nil {
		o.Chance = chance
	}
	l := &Loop{
		o: o, poked: make(chan struct{}, 1), followed: make(chan struct{}),
		retry:   workqueue.NewTypedItemExponentialFailureRateLimiter[string](o.FirstRetry, o.LastRetry),
		waiting: map[string]bool{}, dates: map[string]time.Time{}, plans: map[string]schedule{},
	}
	l.queue = sync.OnceValue(func() workqueue.TypedDelayingInterface[string] {
		ordered := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{
			Name: o.Name, Clock: o.Clock, Queue: &order{workqueue.DefaultQueue[string](), l.overdue},
		})
		return workqueue.NewTypedDelayingQueueWithConfig(
			workqueue.TypedDelayingQueueConfig[string]{Name: o.Name, Clock: o.Clock, Queue: ordered},
		)
	})
	return l
}

// order is that of the keys that wait: as they came, but those of which something is due first.
type order struct {
	workqueue.Queue[string]

	due func() map[string]bool
}

// Pop implements workqueue.Queue. Without a date it costs what the queue's does.
func (o *order) Pop() (first string) {
	due := o.due()
	if len(due) == 0 {
		return o.Queue.Pop()
	}
	for range o.Len() { // once around, so that the others stay in their order
		if key := o.Queue.Pop(); first == "" && due[key] {
			first = key
		} else {
			o.Push(key)
		}
	}
	if first == "" {
		first = o.Queue.Pop()
	}
	return first
}

// overdue are the keys of which something is due, nil for none.
func (l *Loop) overdue() (keys map[string]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, at := range l.dates {
		if l.o.Clock.Now().Before(at) {
			continue
		}
		if keys == nil {
			keys = map[string]bool{}
		}
		keys[key] = true
	}
	return keys
}

// Add asks for a pass over a key now; AddAfter later.
func (l *Loop) Add(key string) { l.AddAfter(key, 0) }

// AddAfter asks for a pass over a key after a while.
func (l *Loop) AddAfter(key string, wait time.Duration) {
	l.mu.Lock()
	s, at := l.plans[key], l.o.Clock.Now().Add(wait)
	if s.asked.IsZero() || at.Before(s.asked) {
		s.asked = at
	}
	l.plans[key] = s
	l.mu.Unlock()
	l.queue().AddAfter(key, wait)
}

// Len is how many keys wait to be passed over.
func (l *Loop) Len() int { return l.queue().Len() }

// Mark asks for a pass over all keys, debounced.
func (l *Loop) Mark() {
	l.mu.Lock()
	now := l.o.Clock.Now()
	if l.first.IsZero() {
		l.first = now
	}
	l.last = now
	l.mu.Unlock()
	select {
	case l.poked <- struct{}{}:
	default:
	}
}

// Wake tries now what waits after a failure: its cause may be over.
func (l *Loop) Wake() {
	l.mu.Lock()
	keys := l.waiting
	l.waiting = map[string]bool{}
	l.mu.Unlock()
	for key := range keys {
		l.retry.Forget(key)
		l.AddAfter(key, l.o.Chance(time.Second))
	}
}

// Run makes passes until ctx ends; it waits for what they read to be synced, and at the end for those under way.
func (l *Loop) Run(ctx context.Context, synced ...cache.InformerSynced) {
	var workers sync.WaitGroup
	defer workers.Wait()
	defer l.queue().ShutDown()
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return
	}
	for range l.o.Workers {
		workers.Go(func() {
			for l.next(ctx) {
			}
		})
	}
	if l.o.Resync > 0 {
		workers.Go(func() { l.resync(ctx) })
	}
	for {
		due, wait := l.due()
		if due {
			l.all()
		}
		if !l.sleep(ctx, wait) {
			return
		}
	}
}

func (l *Loop) all() {
	for _, key := range l.o.Keys() {
		l.Add(key)
	}
}

// resync asks for all keys periodically; chance keeps the clusters of one account apart.
func (l *Loop) resync(ctx context.Context) {
	wait := l.o.First
	if wait > 0 {
		wait = l.o.Chance(wait)
	}
	for {
		if wait == 0 {
			wait = l.o.Resync + l.o.Chance(l.o.Resync/5+1)
		}
		timer := l.o.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
			l.all()
		}
		wait = 0
	}
}

// next passes over one key, unless ctx has ended.
func (l *Loop) next(ctx context.Context) bool {
	key, quit := l.queue().Get()
	if quit {
		return false
	}
	defer l.queue().Done(key)
	if ctx.Err() != nil {
		return false
	}
	if !l.begins(ctx, key) {
		return true
	}
	leave, err := l.o.Gate.Enter(ctx)
	if err != nil {
		return false
	}
	defer leave()
	l.Requeue(ctx, key, l.o.Pass(ctx, key))
	return true
}

// begins reports whether a pass over a key that left the queue begins now. One that is early goes back into the
// queue, and one that nothing asks for any more does not.
func (l *Loop) begins(ctx context.Context, key string) bool {
	l.mu.Lock()
	s, now := l.plans[key], l.o.Clock.Now()
	l.mu.Unlock()
	at, ever := s.due()
	switch rests := s.rested.After(now); {
	case !ever:
		return false
	case rests && !s.asked.IsZero() && !s.asked.After(now):
		at = s.rested.Add(l.o.Quiet) // with all that comes at its end
	case !rests && s.look > 0 && at.After(now):
		if l.o.Look(ctx, key) {
			at = now
		} else {
			at = now.Add(min(s.look, at.Sub(now)))
		}
	}
	if at.After(now) {
		l.queue().AddAfter(key, at.Sub(now))
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.plans[key] = l.kept(key, now)
	return true
}

// kept is what is left of a key's schedule when a pass over it begins.
func (l *Loop) kept(key string, now time.Time) (left schedule) {
	s := l.plans[key]
	if s.asked.After(now) {
		left.asked = s.asked
	}
	if !l.o.LastWord && s.next.After(now) {
		left.next = s.next
	}
	return left
}

// Requeue schedules a key again as the result of a pass asks, including a pass that the caller made itself.
func (l *Loop) Requeue(ctx context.Context, key string, r Result) {
	l.mu.Lock()
	now := l.o.Clock.Now()
	if r.Wrote {
		l.wrote = now
	}
	if r.Failed && l.o.RetryAs != "" {
		delete(l.waiting, key)
		key = l.o.RetryAs
	}
	switch {
	case r.Wrote, r.Failed: // what is due is under way
	case r.Due.IsZero():
		delete(l.dates, key)
	default:
		l.dates[key] = r.Due
	}
	delete(l.waiting, key)
	if r.Failed {
		l.waiting[key] = true
	}
	wait := l.plan(key, now, r)
	l.mu.Unlock()
	if wait > 0 && ctx.Err() == nil {
		l.queue().AddAfter(key, wait)
	}
}

// plan notes what a result asks for, and returns when the queue has to give the key out, 0 for not at all.
func (l *Loop) plan(key string, now time.Time, r Result) (wait time.Duration) {
	if r.Failed && r.Next == 0 {
		if r.Next = l.retry.When(key); l.o.Patient {
			r.Rest = r.Next
		}
	} else {
		l.retry.Forget(key)
	}
	s := schedule{asked: l.plans[key].asked}
	before := l.plans[key].next
	if wait = r.Next; r.Rest > 0 {
		s.rested = now.Add(r.Rest)
	}
	if r.Next > 0 {
		s.next = now.Add(max(r.Next, r.Rest))
		if s.look = r.Look; s.look > 0 {
			wait = min(wait, r.Rest+s.look)
		}
	}
	if !l.o.LastWord && !before.IsZero() && (s.next.IsZero() || before.Before(s.next)) {
		s.next, s.look = before, 0
		wait = max(before.Sub(now), time.Nanosecond) // the queue may have given the key out for something earlier
	}
	l.plans[key] = s
	if s == (schedule{}) {
		delete(l.plans, key)
	}
	return wait
}

// due reports whether marks take effect now, and else how long they have to wait, 0 if there are none.
func (l *Loop) due() (bool, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first.IsZero() {
		return false, 0
	}
	now := l.o.Clock.Now()
	left := min(l.last.Add(l.o.Quiet).Sub(now), l.first.Add(l.o.Most).Sub(now))
	if !l.wrote.IsZero() {
		left = max(left, l.wrote.Add(l.o.Most).Sub(now))
	}
	if left > 0 {
		return false, left
	}
	l.first = time.Time{}
	return true, 0
}

// sleep waits for a mark, and no longer than longest unless that is 0. It reports whether ctx goes on.
func (l *Loop) sleep(ctx context.Context, longest time.Duration) bool {
	var timeout <-chan time.Time
	if longest > 0 {
		timer := l.o.Clock.NewTimer(longest)
		defer timer.Stop()
		timeout = timer.C()
	}
	select {
	case <-ctx.Done():
		return false
	case <-l.poked:
	case <-timeout:
	}
	return true
}

// Spread adds up to a fifth, and a second at least, by chance, so that not all come back at once.
func Spread(wait time.Duration) time.Duration {
	return wait + chance(max(wait/5, time.Second))
}

// chance is for what nothing depends on: it keeps callers and clusters out of step.
func chance(below time.Duration) time.Duration {
	return rand.N(below) //nolint:forbidigo,gosec // nothing depends on the number
}

// Follow says what must be synced before the first pass; it is called once, by who gives the informers.
func (l *Loop) Follow(synced ...cache.InformerSynced) {
	l.synced = synced
	close(l.followed)
}

// Followed reports whether there are informers.
func (l *Loop) Followed() bool {
	select {
	case <-l.followed:
		return true
	default:
		return false
	}
}

// Start makes passes in the background until ctx ends; it waits for Follow.
func (l *Loop) Start(ctx context.Context) {
	go func() {
		select {
		case <-ctx.Done():
			l.queue().ShutDown()
		case <-l.followed:
			l.Run(ctx, l.synced...)
		}
	}()
}
