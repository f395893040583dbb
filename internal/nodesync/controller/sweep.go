// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"

	"github.com/mooring-dev/mooring/internal/nodesync"
)

// sweep looks through everything when it is time to. What it finds is remembered in the World's memory.
func (r *Reconciler) sweep(ctx context.Context, w *nodesync.World) error {
	memory, due := &w.Memory.Sweep, w.Memory.Sweep.Due(w.Now, r.Config) && w.Calico.Ready
	if due {
		swept, err := r.Datastore.Sweep(ctx, w.Calico.Revision)
		if err != nil {
			return fmt.Errorf("sweeping Calico's datastore: %w", err)
		}
		w.Calico.Swept, w.Calico.EndpointsWritten = true, swept.EndpointsWritten
		w.Calico.Handles = append(w.Calico.Handles, swept.OrphanedHandles...)
		// Where nothing names a pod, as with another CNI plugin's addresses, there is nothing to compare the pods with, of
		// which there may be 300,000.
		w.Calico.PodsSwept = !swept.NamesPods && r.Leftovers
		*memory = nodesync.Sweep{
			At: w.Now, Strays: slices.Sorted(slices.Values(swept.Hosts)),
			Mentioned: slices.Sorted(slices.Values(swept.ResourceHosts)), PodsDue: swept.NamesPods && r.Leftovers,
		}
	}
	if !memory.PodsDue || !w.Calico.Ready {
		return ctx.Err()
	}
	// A failure holds nothing else up: a list of all pods is more than an API server in trouble gives, or one that grants less.
	err := r.sweepPods(ctx, w)
	if memory.PodsDue = err != nil; err != nil {
		w.Calico.PodsNotSwept = err.Error()
	}
	if err != nil && due && ctx.Err() == nil {
		r.Log.Error(err, "Could not look for leftovers of pods, will try again in each round")
	}
	return ctx.Err()
}
