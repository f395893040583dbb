// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/cached"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
)

// balancerList is the list of load balancers together with what this process did since: lists lag behind.
type balancerList struct {
	*cached.List[[]loadbalancer.Observed]
	clock  clock.PassiveClock
	settle time.Duration

	mu     sync.Mutex // guards writes
	writes map[string]learned
}

// learned is what the API answered to a write: how the load balancer is, nil for one that was deleted.
type learned struct {
	at time.Time
	// epoch is that of the pass: what one account answered is not true of another.
	epoch uint64
	lb    *loadbalancer.Observed
}

func newBalancerList(api API, clock clock.PassiveClock, settle time.Duration) *balancerList {
	return &balancerList{List: cached.New(api.LoadBalancers, api.Epoch, clock), clock: clock, settle: settle, writes: map[string]learned{}}
}

// learn notes how a load balancer is since now, by an answer to a pass of that epoch.
func (l *balancerList) learn(lb loadbalancer.Observed, epoch uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writes[lb.ID] = learned{at: l.clock.Now(), epoch: epoch, lb: &lb}
}

// gone notes that a load balancer was deleted, in the same way.
func (l *balancerList) gone(id string, epoch uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writes[id] = learned{at: l.clock.Now(), epoch: epoch}
}

// forget drops what is known of a load balancer: it may have changed without a response.
func (l *balancerList) forget(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.writes, id)
}

// all returns the load balancers of the account, from a reading that began after the stamp and is not older than age. What was learned from a
// write counts more than a reading that began before it or shortly after; but a load balancer that is new is taken for active when a list says so.
func (l *balancerList) all(ctx context.Context, after uint64, age time.Duration) ([]loadbalancer.Observed, error) {
	r, err := l.Get(ctx, after, age)
	if err != nil {
		return nil, err
	}
	return l.merged(r), nil
}

// merged is a reading with what was learned from writes.
func (l *balancerList) merged(r *cached.Reading[[]loadbalancer.Observed]) []loadbalancer.Observed {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.writes, func(_ string, known learned) bool { return r.At.Sub(known.at) >= l.settle || known.epoch != r.Epoch })
	if len(l.writes) == 0 {
		return r.Value
	}
	out := make([]loadbalancer.Observed, 0, len(r.Value)+1)
	listed := map[string]bool{}
	for _, lb := range r.Value {
		listed[lb.ID] = true
		known, ok := l.writes[lb.ID]
		switch {
		case !ok, known.lb != nil && known.lb.Status == loadbalancer.StatusNew && lb.Status != loadbalancer.StatusNew:
			out = append(out, lb)
		case known.lb != nil:
			out = append(out, *known.lb)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(l.writes)) {
		if known := l.writes[id]; !listed[id] && known.lb != nil {
			out = append(out, *known.lb)
		}
	}
	return out
}
