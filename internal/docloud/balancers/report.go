// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
)

// note gathers what the plans of a pass say. What has just happened is told at once.
func (p *pass) note(plan loadbalancer.Plan) {
	for _, n := range plan.Notes {
		if !slices.Contains(p.notes, n) {
			p.notes = append(p.notes, n)
		}
	}
	p.complete = p.complete || plan.Complete
	for _, n := range plan.Said {
		p.send(n)
	}
	if plan.Repaired != "" {
		p.c.o.Metrics.repair(plan.Repaired)
	}
}

func (p *pass) send(n loadbalancer.Note) {
	p.c.recorder.Event(p.world.Service, n.Kind, n.Reason, n.Message)
}

// tell sends an event for each note that did not hold before this pass, and counts the pass.
func (p *pass) tell(end loadbalancer.End) {
	for _, n := range p.world.Memory.Tell(p.notes, p.complete) {
		p.send(n)
	}
	if p.world.Intent != loadbalancer.Find {
		p.c.o.Metrics.syncs.WithLabelValues(string(end.Outcome)).Inc()
	}
}

// errorOf is why a pass did not do what was to be done, nil if it did.
func errorOf(end loadbalancer.End) error {
	if end.Refusal == nil {
		return nil
	}
	return end.Refusal.Err
}

// answer puts the end of a pass in the framework's terms. What is not there yet, or failed, is the loop's from here on: the framework would send the
// same warning with each of its attempts.
func (c *Controller) answer(ctx context.Context, service *corev1.Service, end loadbalancer.End) (*corev1.LoadBalancerStatus, error) {
	r := c.resultOf(ctx, service, end)
	r.Wrote = false // a change of a Service does not put off those of Nodes
	c.loop.Requeue(ctx, keyOf(service), r)
	if end.Refusal == nil && end.Published.Ready {
		return &end.Published.Status, nil
	}
	return nil, cloudprovider.ImplementedElsewhere
}

// resultOf puts the end of a pass in the loop's terms.
func (c *Controller) resultOf(ctx context.Context, service *corev1.Service, end loadbalancer.End) reconcile.Result {
	r := reconcile.Result{Next: end.Next, Wrote: end.Outcome == loadbalancer.OutcomeUpdated || end.Outcome == loadbalancer.OutcomeTargets}
	switch {
	case end.Refusal == nil:
	case end.Refusal.Kind == loadbalancer.Told:
		r.Next = c.spread(end.Next)
	case end.Refusal.Kind == loadbalancer.Retry, end.Refusal.Kind == loadbalancer.People:
		r.Failed = true
		if ctx.Err() == nil {
			c.log.Error(end.Refusal, "The reconcile of a load balancer failed, will try again", "service", keyOf(service))
		}
	default:
	}
	return r
}
