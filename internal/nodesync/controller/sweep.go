// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
)

// sweep adds the hosts that neither a Node nor an affinity leads to, and, when it is time to look through everything again, looks.
func (r *Reconciler) sweep(ctx context.Context, w *nodesync.World, revision int64) error {
	if due := r.strays == nil || w.Now.Sub(r.sweptAt) >= r.Config.SweepPeriod; due && r.Config.SweepPeriod > 0 && w.Calico.Ready {
		swept, err := r.Datastore.Sweep(ctx, revision)
		if err != nil {
			return fmt.Errorf("sweeping Calico's datastore: %w", err)
		}
		r.strays, r.mentioned, r.sweptAt = setOf(swept.Hosts), setOf(swept.ResourceHosts), w.Now
		w.Calico.Swept, w.Calico.EndpointsWritten = true, swept.EndpointsWritten
		w.Calico.Handles = append(w.Calico.Handles, swept.OrphanedHandles...)
		// Where nothing names a pod, as with another CNI plugin's addresses, there is nothing to compare the pods with, of which there may be 300,000.
		r.podsDue, w.Calico.PodsSwept = swept.NamesPods && r.Leftovers, !swept.NamesPods && r.Leftovers
	}
	r.addStrays(w)
	if !r.podsDue || !w.Calico.Ready {
		return ctx.Err()
	}
	// A failure holds nothing else up: a list of all pods is more than an API server in trouble gives, or one that grants less.
	err := r.sweepPods(ctx, w, revision)
	if err != nil {
		w.Calico.PodsNotSwept = err.Error()
	}
	if err != nil && !r.podsFailed && ctx.Err() == nil {
		r.Log.Error(err, "Could not look for leftovers of pods, will try again in each round")
	}
	r.podsDue, r.podsFailed = err != nil, err != nil
	return ctx.Err()
}

func setOf(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}

// addStrays adds the hosts that the last sweep found and that have no Node, be it one that cannot be read.
func (r *Reconciler) addStrays(w *nodesync.World) {
	known := make(map[string]bool, len(w.Calico.Nodes)+len(w.Calico.Unreadable))
	for _, n := range w.Calico.Nodes {
		known[n.Name] = true
	}
	for _, key := range w.Calico.Unreadable {
		known[path.Base(key)] = true
	}
	for host := range r.strays {
		if !known[host] {
			known[host] = true
			w.Calico.Nodes = append(w.Calico.Nodes, nodesync.CalicoNode{Name: host, Implied: true})
		}
	}
	for host := range r.mentioned {
		if !known[host] {
			w.Calico.Nodes = append(w.Calico.Nodes, onlyMentioned(host))
		}
	}
}

// onlyMentioned is a host of which the datastore holds nothing but resources that are about it.
func onlyMentioned(host string) nodesync.CalicoNode {
	return nodesync.CalicoNode{
		Name: host, Implied: true, OnlyWitnessed: true,
		OrchRefs: []nodesync.OrchRef{{Orchestrator: nodesync.OrchestratorKubernetes, NodeName: host}},
	}
}

// forgetEmpty drops hosts that no sweep would find now, so that they are not taken for gone machines until the next: another leader has cleaned
// them up, or a write did whose answer was lost. Resources alone are not a sign of a machine.
func (r *Reconciler) forgetEmpty(hosts []calico.Host) {
	for _, h := range hosts {
		if len(h.Endpoints)+len(h.Blocks)+len(h.Affinities)+len(h.Unreadable) == 0 {
			delete(r.strays, h.Name)
			if len(h.Resources) == 0 {
				delete(r.mentioned, h.Name)
			}
		}
	}
}

// forgetSwept drops what the last sweep found and what is gone since, or alive: the next sweep finds what is left. What is held back stays, and all
// of it while nothing could be judged: it would be out of sight until the next sweep.
func (r *Reconciler) forgetSwept(plan nodesync.Plan, tried []applied, absent map[string]bool) {
	cleaned := map[string]bool{}
	for _, a := range tried {
		host := a.Step.Subject().Host
		before, tried := cleaned[host]
		cleaned[host] = a.Err == nil && (before || !tried)
		if s, ok := a.Step.(nodesync.RemoveHandles); ok && a.Err == nil {
			r.memory.Handles = slices.DeleteFunc(slices.Clone(r.memory.Handles), func(h nodesync.OrphanedHandle) bool {
				return slices.Contains(s.Handles, h.Handle)
			})
		}
	}
	refused := map[string]bool{} // with an empty host, everything
	for _, refusal := range plan.Refusals {
		refused[refusal.Of.Host] = true
	}
	for host := range cleaned {
		if cleaned[host] && plan.Leaves(host) && r.strays != nil {
			// Its Node is removed, and the block may have no affinity that leads to it.
			cleaned[host], r.strays[host] = false, true
		}
	}
	over := func(host string, _ bool) bool {
		return cleaned[host] || !absent[host] && !refused[host] && !refused[""]
	}
	maps.DeleteFunc(r.strays, over)
	maps.DeleteFunc(r.mentioned, func(host string, known bool) bool { return over(host, known) && !refused[host] })
}
