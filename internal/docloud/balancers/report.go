// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
)

// report sends an event for what has happened, hands on what holds, and counts the round. What keeps the load balancer
// from being what the Service asks for is a condition of the Service as well.
func (c *Controller) report(ctx context.Context, r *reconcile.Round[*scene, loadbalancer.Needs, loadbalancer.Step, memory]) {
	p := r.World
	if p == nil {
		return
	}
	w, end := p.world, p.end
	for _, n := range p.said {
		c.loop.Events.Event(w.Service, n.Kind, n.Reason, n.Message)
	}
	for _, n := range p.notes {
		r.Plan.Notes = append(r.Plan.Notes, reconcile.Note{
			About: corev1.ObjectReference{
				APIVersion: "v1", Kind: "Service", Namespace: w.Service.Namespace, Name: w.Service.Name, UID: w.Service.UID,
			},
			Type: n.Kind, Reason: n.Reason, Cause: n.Message, Message: n.Message,
		})
	}
	p.settle(ctx)
	if w.Intent != loadbalancer.Find {
		c.o.Metrics.syncs.WithLabelValues(string(end.Outcome)).Inc()
	}
	if end.Refusal != nil && end.Refusal.Kind == loadbalancer.Told && w.Intent == loadbalancer.Keep {
		r.Plan.Next = c.spread(end.Next)
	}
	// A change of a Service does not put off those of Nodes.
	changed := end.Outcome == loadbalancer.OutcomeUpdated || end.Outcome == loadbalancer.OutcomeTargets
	r.Complete, r.Wrote = p.complete, changed && !w.Asked
}

// settle writes the condition of the Service about this, or takes it away, if it must have another one. What could not be
// written is written after the next reconcile: nothing depends on it.
func (p *scene) settle(ctx context.Context) {
	service := p.world.Service
	if p.c.rehearses() || p.world.Intent != loadbalancer.Keep || service.DeletionTimestamp != nil {
		return
	}
	want, changed := loadbalancer.Synced(service, p.end, slices.Concat(p.notes, p.said), p.c.o.Clock.Now())
	var change any = map[string]string{"type": loadbalancer.ConditionSynced, "$patch": "delete"}
	if want != nil {
		change = want
	}
	if changed {
		_ = p.patchConditions(ctx, map[string]any{}, change) // which has logged it
	}
}
