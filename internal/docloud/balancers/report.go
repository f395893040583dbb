// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	events "k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/api"

	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/docloud/loop"
)

// source is who sends the events.
const source = "digitalocean-cloud-controller-manager"

func startRecorder(ctx context.Context, client kubernetes.Interface) events.EventRecorder {
	broadcaster := events.NewBroadcaster(events.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	go func() {
		<-ctx.Done()
		broadcaster.Shutdown()
	}()
	return broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: source})
}

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

// answer puts the end of a pass in the framework's terms.
func (c *Controller) answer(service *corev1.Service, end loadbalancer.End) (*corev1.LoadBalancerStatus, error) {
	switch r := end.Refusal; {
	case r == nil && end.Published.Failed:
		return nil, errors.New(end.Published.Message)
	case r == nil && end.Published.Ready:
		if end.Next > 0 {
			c.loop.AddAfter(keyOf(service), end.Next)
		}
		return &end.Published.Status, nil
	case r == nil || r.Kind == loadbalancer.Wait:
		c.loop.AddAfter(keyOf(service), end.Next)
		return nil, cloudprovider.ImplementedElsewhere
	case r.Kind == loadbalancer.Told:
		return nil, api.NewRetryError(r.Error(), c.spread(end.Next))
	default:
		return nil, fmt.Errorf("load balancer of service %s: %w", keyOf(service), r.Err)
	}
}

// resultOf puts the end of a pass in the loop's terms.
func (c *Controller) resultOf(ctx context.Context, service *corev1.Service, end loadbalancer.End) loop.Result {
	r := loop.Result{Next: end.Next, Wrote: end.Outcome == loadbalancer.OutcomeUpdated || end.Outcome == loadbalancer.OutcomeTargets}
	switch {
	case end.Refusal == nil:
	case end.Refusal.Kind == loadbalancer.Told:
		r.Next = c.spread(end.Next)
	case end.Refusal.Kind == loadbalancer.Wait && end.Outcome == loadbalancer.OutcomePending:
		r.Next = end.Next
	case end.Refusal.Kind == loadbalancer.Retry:
		r.Failed = true
		if ctx.Err() == nil {
			c.log.Error(end.Refusal, "Looking at a load balancer failed; it is tried again", "service", keyOf(service))
		}
	default:
	}
	return r
}
