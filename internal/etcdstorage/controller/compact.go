// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"maps"
	"slices"

	"github.com/mooring-dev/mooring/internal/etcdstorage/core"
	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
)

// remembered is the history of the core that was observed last.
type remembered struct {
	core    string // the ID of its cluster
	history operator.History
}

// compactOnce observes the core's revision and compacts what is old enough. Tenants' own compactions never reach the core, since they would take each other's
// history away; without this a core that does not compact itself would grow until it refuses all writes. A failure leaves what is remembered as it was, so that it is tried again.
func (r *Reconciler) compactOnce(ctx context.Context, was remembered) remembered {
	client := r.Core.current()
	if client == nil {
		return was
	}
	id, revision, err := client.Revision(ctx)
	if err != nil {
		r.Log.V(1).Info("The core's revision is unknown", "reason", err.Error())
		return was
	}
	if !r.bound(id) {
		return remembered{} // it may be somebody else's
	}
	if was.core != id {
		was = remembered{core: id}
	}
	history, at := was.history.Observe(r.Clock.Now(), revision, r.Timing.History)
	if at == 0 {
		return remembered{id, history}
	}
	err = client.Compact(ctx, id, at)
	r.Metrics.compacted(at, err)
	if err != nil {
		r.Log.Error(err, "Failed to compact the core, will try again")
		return was
	}
	r.Log.V(1).Info("Compacted the core", "revision", at, "newest", revision)
	return remembered{id, history}
}

// bindsTo remembers the core of a tenant whose record was found there.
func (r *Reconciler) bindsTo(name string, core operator.Core, plan operator.Plan) {
	foreign := slices.ContainsFunc(plan.Refusals, func(refused operator.Refusal) bool { return refused.Reason == operator.ReasonForeignCore })
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case core.Problem != "": // what was known still holds
	case plan.Owner.Tenant == "" || foreign:
		delete(r.cores, name)
	default:
		r.cores[name] = core.ClusterID
	}
}

// bound reports whether an EtcdStorage is bound to the core with this cluster ID.
func (r *Reconciler) bound(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(slices.Collect(maps.Values(r.cores)), id)
}

// current is the connection that was used last, nil if there is none.
func (c *Core) current() *core.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.client
}
