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
	// FirstRetry and LastRetry bound the waits after failures.
	FirstRetry, LastRetry time.Duration
	// Chance returns a duration from 0 to below the given one; nil for one that nobody knows in advance.
	Chance func(below time.Duration) time.Duration
}

// Result is what a pass came to.
type Result struct {
	// Next is when to look again, 0 for when there is a reason to. Failed says that the pass is to be tried again, later each time.
	Next   time.Duration
	Failed bool
	// Due is when something is due by the clock, the zero time for never. From then on the key is passed over before
	// those of which nothing is, until a pass that neither changes anything nor fails.
	Due time.Time
	// Wrote reports that something was changed.
	Wrote bool
}

// Loop runs passes. Its methods may be called from any goroutine.
type Loop struct {
	o     LoopOptions
	queue workqueue.TypedRateLimitingInterface[string]
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
	l := &Loop{o: o, poked: make(chan struct{}, 1), followed: make(chan struct{}), waiting: map[string]bool{}, dates: map[string]time.Time{}}
	ordered := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: o.Name, Clock: o.Clock, Queue: &order{workqueue.DefaultQueue[string](), l.overdue}})
	l.queue = workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](o.FirstRetry, o.LastRetry),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: o.Name, Clock: o.Clock, DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(
			workqueue.TypedDelayingQueueConfig[string]{Name: o.Name, Clock: o.Clock, Queue: ordered},
		)},
	)
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
func (l *Loop) Add(key string) { l.queue.Add(key) }

// AddAfter asks for a pass over a key after a while.
func (l *Loop) AddAfter(key string, wait time.Duration) { l.queue.AddAfter(key, wait) }

// Len is how many keys wait to be passed over.
func (l *Loop) Len() int { return l.queue.Len() }

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
		l.queue.Forget(key)
		l.queue.AddAfter(key, l.o.Chance(time.Second))
	}
}

// Run makes passes until ctx ends; it waits for what they read to be synced, and at the end for those under way.
func (l *Loop) Run(ctx context.Context, synced ...cache.InformerSynced) {
	var workers sync.WaitGroup
	defer workers.Wait()
	defer l.queue.ShutDown()
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
		l.queue.Add(key)
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
	key, quit := l.queue.Get()
	if quit {
		return false
	}
	defer l.queue.Done(key)
	if ctx.Err() != nil {
		return false
	}
	leave, err := l.o.Gate.Enter(ctx)
	if err != nil {
		return false
	}
	defer leave()
	l.Requeue(ctx, key, l.o.Pass(ctx, key))
	return true
}

// Requeue schedules a key again as the result of a pass asks, including a pass that the caller made itself.
func (l *Loop) Requeue(ctx context.Context, key string, r Result) {
	l.mu.Lock()
	if r.Wrote {
		l.wrote = l.o.Clock.Now()
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
	l.mu.Unlock()
	switch {
	case ctx.Err() != nil:
	case r.Next > 0:
		l.queue.Forget(key)
		l.queue.AddAfter(key, r.Next)
	case r.Failed:
		l.queue.AddRateLimited(key)
	default:
		l.queue.Forget(key)
	}
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
			l.queue.ShutDown()
		case <-l.followed:
			l.Run(ctx, l.synced...)
		}
	}()
}
