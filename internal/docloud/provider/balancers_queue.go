// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	servicehelpers "k8s.io/cloud-provider/service/helpers"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
)

const (
	// lookers is how many load balancers are looked at at a time, so that one that hangs does not hold up the others.
	lookers = 4
	// everyone is the mark of all load balancers.
	everyone = ""
)

// run looks at load balancers until ctx ends: at those that are marked, and at all of them every now and then.
func (b *Balancers) run(ctx context.Context) {
	defer b.queue.ShutDown()
	select {
	case <-ctx.Done():
		return
	case <-b.followed:
	}
	if !cache.WaitForCacheSync(ctx.Done(), b.synced...) {
		return
	}
	for range lookers {
		go func() {
			for b.next(ctx) {
			}
		}()
	}
	go b.resync(ctx)
	b.marks.run(ctx, func(string) { b.enqueue() })
}

// resync marks all load balancers periodically; chance keeps the replicas of many clusters of one account apart.
func (b *Balancers) resync(ctx context.Context) {
	for {
		period := b.timing.Resync + rand.N(b.timing.Resync/5+1) //nolint:forbidigo,gosec // nothing depends on the number, it keeps clusters out of step
		timer := b.clock.NewTimer(period)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
			b.enqueue()
		}
	}
}

// enqueue puts all load balancers into the queue.
func (b *Balancers) enqueue() {
	if all, err := b.wanting(); err == nil {
		for _, service := range all {
			b.queue.Add(keyOf(service))
		}
	}
	b.metrics.dirty.Set(float64(b.queue.Len()))
}

// mark notes that Nodes have changed, which are the same for all load balancers.
func (b *Balancers) mark() { b.marks.mark(everyone) }

// next looks at one load balancer and decides when to do so again.
func (b *Balancers) next(ctx context.Context) bool {
	key, quit := b.queue.Get()
	if quit {
		return false
	}
	defer b.queue.Done(key)
	b.metrics.dirty.Set(float64(b.queue.Len()))
	err := b.look(ctx, key)
	held, later, waiting := heldError{}, laterError{}, waitError{}
	switch {
	case err == nil, errors.As(err, &held):
		b.queue.Forget(key)
	case errors.As(err, &later):
		b.queue.Forget(key)
		b.queue.AddAfter(key, max(later.wait, b.timing.Pending))
	case errors.As(err, &waiting):
		b.queue.Forget(key)
		b.queue.AddAfter(key, waiting.wait)
	default:
		b.queue.AddRateLimited(key)
	}
	return true
}

// waitError means that DigitalOcean is not done with a load balancer yet, and when to look again.
type waitError struct {
	why  string
	wait time.Duration
}

func (e waitError) Error() string { return e.why }

// look makes a pass over a Service that the framework has in hand, and tells what fails.
func (b *Balancers) look(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return heldError{err}
	}
	service, err := b.services.Services(namespace).Get(name)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	if !inHand(service) {
		return nil
	}
	published, err := b.reconcile(ctx, service, true)
	b.report(service, err)
	switch {
	case errors.Is(err, doapi.ErrBusy):
		return waitError{err.Error(), b.busyFor(service)}
	case err == nil && !published.Ready && !published.Failed:
		return waitError{published.Message, b.poll(service)}
	}
	return err
}

// poll is how long to wait before the next look at a load balancer that is being made: until the next of moments that are the same for all, so
// that they share one list.
func (b *Balancers) poll(service *corev1.Service) time.Duration {
	p, unlock := b.begin(service)
	defer unlock()
	now := b.clock.Now()
	every := p.memory.pollEvery(now, b.timing.Poll)
	return now.Truncate(every).Add(every).Sub(now)
}

// pollEvery is how often to look at a load balancer that is being made: often at first, since most take a minute or two.
func (m *memory) pollEvery(now time.Time, often time.Duration) time.Duration {
	switch age := now.Sub(m.newSince); {
	case m.newSince.IsZero() || age < 2*time.Minute:
		return often
	case age < 15*time.Minute:
		return 3 * often
	default:
		return 12 * often
	}
}

// busyFor is how long to wait before the next look at a load balancer that took no change: it does not say when it will.
func (b *Balancers) busyFor(service *corev1.Service) time.Duration {
	p, unlock := b.begin(service)
	defer unlock()
	wait := b.timing.Pending << min(p.memory.busy, 3)
	p.memory.busy++
	return spread(wait)
}

// inHand says whether the framework has given a Service its finalizer, and neither it nor the Service's owner has let go.
func inHand(service *corev1.Service) bool {
	disowned, err := annotation.IsDisowned(service.Annotations)
	return loadbalancer.Asks(service) == nil && service.DeletionTimestamp == nil && servicehelpers.HasLBFinalizer(service) && (err != nil || !disowned)
}

// report tells a failure that trying again may cure, once until it is over. What people have to cure has been told already.
func (b *Balancers) report(service *corev1.Service, err error) {
	held, waiting := heldError{}, waitError{}
	if errors.As(err, &held) || errors.As(err, &waiting) || errors.Is(err, doapi.ErrBusy) || errors.Is(err, doapi.ErrRateLimited) || errors.Is(err, context.Canceled) {
		return
	}
	p, unlock := b.begin(service)
	defer unlock()
	if err != nil {
		b.log.Error(err, "Looking at a load balancer failed; it is tried again", "service", keyOf(service))
		if !p.memory.failing {
			b.recorder.Event(service, corev1.EventTypeWarning, reasonFailed, err.Error())
		}
	}
	p.memory.failing = err != nil
}

// watch marks load balancers when Nodes change in a way that matters, and forgets Services that are gone.
func (b *Balancers) watch(nodes, services cache.SharedIndexInformer) {
	// An informer that has been stopped takes no handlers; it gives no events either.
	_, _ = nodes.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(_ any, initial bool) {
			if !initial {
				b.mark()
			}
		},
		UpdateFunc: func(before, after any) {
			old, ok1 := before.(*corev1.Node)
			node, ok2 := after.(*corev1.Node)
			if ok1 && ok2 && !sameTarget(old, node) {
				b.mark()
			}
		},
		DeleteFunc: func(any) { b.mark() },
	})
	_, _ = services.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(gone any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(gone); err == nil {
			b.mu.Lock()
			defer b.mu.Unlock()
			delete(b.memories, key)
		}
	}})
}

// sameTarget says whether a change of a Node cannot matter to any load balancer: its provider ID, its addresses, and what excludes it are the same.
func sameTarget(a, b *corev1.Node) bool {
	label := func(n *corev1.Node) (string, bool) { v, ok := n.Labels[corev1.LabelNodeExcludeBalancers]; return v, ok }
	labelA, hasA := label(a)
	labelB, hasB := label(b)
	tainted := func(n *corev1.Node) bool {
		return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == autoscalerTaint })
	}
	return a.UID == b.UID && a.Spec.ProviderID == b.Spec.ProviderID && slices.Equal(a.Status.Addresses, b.Status.Addresses) &&
		labelA == labelB && hasA == hasB && tainted(a) == tainted(b) && a.DeletionTimestamp.IsZero() == b.DeletionTimestamp.IsZero()
}

// debouncer gathers marks until there was none for a while, or the first has waited long enough, and hands each out once in that time at most.
type debouncer struct {
	clock       clock.WithTicker
	quiet, most time.Duration
	wake        chan struct{}

	mu     sync.Mutex // guards all below
	marks  map[string]marked
	handed map[string]time.Time // when each was handed out last
}

// marked is when something was marked first and last.
type marked struct{ first, last time.Time }

func newDebouncer(clock clock.WithTicker, quiet, most time.Duration) *debouncer {
	return &debouncer{clock: clock, quiet: quiet, most: most, wake: make(chan struct{}, 1), marks: map[string]marked{}, handed: map[string]time.Time{}}
}

func (d *debouncer) mark(what string) {
	d.mu.Lock()
	now := d.clock.Now()
	m, ok := d.marks[what]
	if !ok {
		m.first = now
	}
	m.last = now
	d.marks[what] = m
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// due takes the marks whose time has come, in their order, and says how long the next has to wait, 0 if there is none.
func (d *debouncer) due() ([]string, time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, wait := d.clock.Now(), time.Duration(0)
	var out []string
	for _, what := range slices.Sorted(maps.Keys(d.marks)) {
		m := d.marks[what]
		left := min(m.last.Add(d.quiet).Sub(now), m.first.Add(d.most).Sub(now))
		if last, ok := d.handed[what]; ok {
			left = max(left, last.Add(d.most).Sub(now))
		}
		if left <= 0 {
			out = append(out, what)
			delete(d.marks, what)
			d.handed[what] = now
		} else if wait == 0 || left < wait {
			wait = left
		}
	}
	return out, wait
}

// run hands out marks when their time has come, until ctx ends.
func (d *debouncer) run(ctx context.Context, hand func(string)) {
	for {
		due, wait := d.due()
		for _, what := range due {
			hand(what)
		}
		if !d.wait(ctx, wait) {
			return
		}
	}
}

// wait waits for a mark, and no longer than d unless that is 0. It says whether ctx goes on.
func (d *debouncer) wait(ctx context.Context, longest time.Duration) bool {
	var timeout <-chan time.Time
	if longest > 0 {
		timer := d.clock.NewTimer(longest)
		defer timer.Stop()
		timeout = timer.C()
	}
	select {
	case <-ctx.Done():
		return false
	case <-d.wake:
	case <-timeout:
	}
	return true
}

// keyedLock is a lock per key; keys that nobody holds take no memory.
type keyedLock struct {
	mu    sync.Mutex // guards locks and what they count
	locks map[string]*countedLock
}

// countedLock is held by whoever has put something into held.
type countedLock struct {
	held  chan struct{}
	users int
}

// lock locks a key and returns what unlocks it.
func (k *keyedLock) lock(key string) func() {
	k.mu.Lock()
	if k.locks == nil {
		k.locks = map[string]*countedLock{}
	}
	l := k.locks[key]
	if l == nil {
		l = &countedLock{held: make(chan struct{}, 1)}
		k.locks[key] = l
	}
	l.users++
	k.mu.Unlock()
	l.held <- struct{}{}
	return func() {
		<-l.held
		k.mu.Lock()
		defer k.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(k.locks, key)
		}
	}
}
