// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"maps"
	"reflect"
	"time"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/cached"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
)

// drift notices changes that were made elsewhere. The list of load balancers shows all their settings, so that it is
// compared with the reading before, and only Services whose load balancers differ are reconciled, by that same list.
// Every [Timing.Resync] all are.
type drift struct {
	c *Controller
	// compared is the newest reading that was compared, shown what it showed, with what was learned from writes;
	// resynced is when all Services were last asked for.
	compared *cached.Reading[[]loadbalancer.Observed]
	shown    []loadbalancer.Observed
	resynced time.Time
}

// startDrift compares until ctx ends; it waits for Follow.
func (c *Controller) startDrift(ctx context.Context) {
	d := &drift{c: c, resynced: c.o.Clock.Now()}
	loop := reconcile.NewLoop(reconcile.LoopOptions{
		Name: "digitalocean-loadbalancer-drift", Clock: c.o.Clock, Gate: c.o.Gate, Pass: d.compare,
		FirstRetry: c.timing.Drift, LastRetry: c.timing.Drift,
	})
	loop.Follow(func() bool { return c.loop.Followed() && c.synced() })
	loop.Add(reconcile.Only)
	loop.Start(ctx)
}

// compare asks for the Services whose load balancers have changed since the reading before. A reading that others
// needed meanwhile counts, so that the list is read as often as it must be and not more.
func (d *drift) compare(ctx context.Context, _ string) reconcile.Result {
	c, now := d.c, d.c.o.Clock.Now()
	keys := c.keys()
	if len(keys) == 0 {
		d.compared, d.shown, d.resynced = nil, nil, now
		return reconcile.Result{Next: c.timing.Drift}
	}
	reading := c.list.Last()
	if reading == nil || reading == d.compared || now.Sub(reading.At) >= c.period(reading) {
		reading, _ = c.list.Get(ctx, 0, 0) // a failure is reported by the reconciles that need the list
	}
	if now.Sub(d.resynced) >= c.timing.Resync {
		d.resynced = now
		for _, key := range keys {
			c.loop.Add(key)
		}
	}
	if reading == nil {
		return reconcile.Result{Next: c.timing.Drift}
	}
	shown := c.list.merged(reading)
	if d.compared != nil && reading.Epoch == d.compared.Epoch {
		c.addChanged(changes(d.shown, shown))
	}
	d.compared, d.shown = reading, shown
	period := c.period(reading)
	if len(changes(reading.Value, shown)) > 0 {
		period = c.timing.Settle // what it shows otherwise than an answer to a write may be a change all the same
	}
	return reconcile.Result{Next: max(period-c.o.Clock.Since(reading.At), time.Second)}
}

// period is how often the list is read: longer for one that takes several calls, so that calls do not grow with it.
func (c *Controller) period(r *cached.Reading[[]loadbalancer.Observed]) time.Duration {
	return c.timing.Drift * time.Duration(1+max(0, len(r.Value)-1)/doapi.PageSize)
}

// addChanged asks for the Services of load balancers, by their IDs.
func (c *Controller) addChanged(ids map[string]bool) {
	if len(ids) == 0 {
		return
	}
	services, err := c.wanting()
	if err != nil {
		return // the informers have not synced
	}
	for _, s := range services {
		if ids[loadbalancer.Held(s)] || ids[s.Annotations[annotation.LoadBalancerID]] {
			c.loop.Add(keyOf(s))
		}
	}
}

// changes are the IDs of the load balancers that differ between two readings of the list, or are in only one of them.
func changes(before, after []loadbalancer.Observed) map[string]bool {
	known, out := map[string]loadbalancer.Observed{}, map[string]bool{}
	for _, lb := range before {
		known[lb.ID], out[lb.ID] = lb, true
	}
	for _, lb := range after {
		old, is := known[lb.ID]
		out[lb.ID] = !is || !reflect.DeepEqual(old, lb)
	}
	maps.DeleteFunc(out, func(_ string, changed bool) bool { return !changed })
	return out
}
