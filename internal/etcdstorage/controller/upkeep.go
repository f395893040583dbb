// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"maps"
	"slices"

	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
)

// upkeepOnce keeps space free in the core's members: it reads their status and applies the next step. Nothing but their status decides: an operator that dies before or after a step is
// followed by one that finds it applied or not.
func (r *Reconciler) upkeepOnce(ctx context.Context, done operator.Defragmented) operator.Defragmented {
	client := r.Core.current()
	if client == nil {
		return done
	}
	health := client.Health(ctx, r.Clock.Now())
	if slices.ContainsFunc(health.Members, func(m operator.CoreMember) bool { return !r.bound(m.ClusterID) }) {
		return done // it may be another cluster's core
	}
	next := health.Upkeep(done)
	if next.Nothing() {
		return done
	}
	id := health.Members[0].ClusterID
	if next.Defragment == "" {
		if err := client.Disarm(ctx, id, next.Disarm); err != nil {
			r.Log.Error(err, "Failed to disarm an alarm of the core, will try again")
			return done
		}
		r.Log.Info("Disarmed the alarm of the core, which has space again", "members", next.Disarm)
		return done
	}
	r.Log.Info("Defragmenting a member of the core", "url", next.Defragment)
	err := client.Defragment(ctx, id, next.Defragment)
	r.Metrics.defragmented(err)
	if err != nil {
		r.Log.Error(err, "Failed to defragment a member of the core")
	}
	done = maps.Clone(done)
	done[next.Defragment] = r.Clock.Now() // also if it failed: it may have taken the member away
	return done
}
