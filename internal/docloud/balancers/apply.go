// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
)

// apply makes one step of a plan, and notes what came of it for the next plan.
func (p *scene) apply(ctx context.Context, step loadbalancer.Step) (err error) {
	answer := loadbalancer.Answer{Step: step, LoadBalancer: step.LoadBalancer}
	switch step.Kind {
	case loadbalancer.StepAnnotate:
		err = p.annotate(ctx, step.Annotations)
	case loadbalancer.StepShowStatus:
		err = p.show(ctx, step.Status)
	case loadbalancer.StepNoteAttempt:
		err = p.patchConditions(ctx, map[string]any{"resourceVersion": p.world.Service.ResourceVersion}, step.Condition)
	case loadbalancer.StepDropAttempt:
		err = p.patchConditions(ctx, map[string]any{}, json.RawMessage(noAttempt))
	case loadbalancer.StepRecord:
		err = p.patchConditions(ctx, map[string]any{}, step.Condition, json.RawMessage(noAttempt))
	case loadbalancer.StepCondition:
		err = p.patchConditions(ctx, map[string]any{}, step.Condition)
	default:
		answer.LoadBalancer, err = p.change(ctx, step)
	}
	answer.Trouble = p.trouble(ctx, err)
	p.world.Answers = append(p.world.Answers, answer)
	return err
}

// noAttempt takes the note of an attempt away, as an item of a strategic merge patch.
const noAttempt = `{"type":"` + loadbalancer.ConditionAttempted + `","$patch":"delete"}`

// change makes one change at DigitalOcean, and notes how the load balancer is since then: lists lag behind.
func (p *scene) change(ctx context.Context, step loadbalancer.Step) (loadbalancer.Observed, error) {
	api, lb := p.c.o.API, step.LoadBalancer
	p.log(step)
	if step.Drift {
		p.c.o.Metrics.drift(step.Differences)
	}
	if step.Settings() {
		p.c.takeTurn(p.world.Service.Namespace)
	}
	var err error
	switch step.Kind {
	case loadbalancer.StepCertificate:
		_, err = api.CreateCertificate(ctx, step.Certificate)
		return lb, err
	case loadbalancer.StepCreate:
		lb, err = api.CreateLoadBalancer(ctx, step.Request, step.CreateOnly)
	case loadbalancer.StepUpdate:
		lb, err = api.UpdateLoadBalancer(ctx, lb.ID, step.Request)
	case loadbalancer.StepAddTargets:
		err = api.AddDroplets(ctx, lb.ID, step.Droplets)
		lb.DropletIDs = slices.Concat(lb.DropletIDs, step.Droplets)
	case loadbalancer.StepRemoveTargets:
		err = api.RemoveDroplets(ctx, lb.ID, step.Droplets)
		lb.DropletIDs = slices.DeleteFunc(slices.Clone(lb.DropletIDs), func(id int) bool { return slices.Contains(step.Droplets, id) })
	case loadbalancer.StepDelete:
		if err = api.DeleteLoadBalancer(ctx, lb.ID); err == nil {
			p.c.list.gone(lb.ID, p.epoch)
			return lb, nil
		}
	default:
	}
	switch {
	case err == nil:
		p.c.list.learn(lb, p.epoch)
	case step.LoadBalancer.ID != "":
		p.c.list.forget(step.LoadBalancer.ID)
	}
	return lb, err
}

// takeTurn counts a change of settings, and forgets namespaces that have none left to work off.
func (c *Controller) takeTurn(namespace string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.o.Clock.Now()
	turns := loadbalancer.Turns{Namespace: c.turns[namespace], All: c.turns[""]}.Sent(now, c.timing.Change)
	maps.DeleteFunc(c.turns, func(_ string, turn time.Time) bool { return turn.Before(now) })
	c.turns[namespace], c.turns[""] = turns.Namespace, turns.All
}

// log writes a line about a change.
func (p *scene) log(step loadbalancer.Step) {
	log := p.c.log.WithValues("service", keyOf(p.world.Service))
	switch step.Kind {
	case loadbalancer.StepCreate:
		log.Info("Making a load balancer", "name", step.Request.Name)
	case loadbalancer.StepCertificate:
		log.Info("Asking for a certificate", "name", step.Certificate.Name, "domains", step.Certificate.DNSNames)
	case loadbalancer.StepDelete:
		log.Info("Deleting a load balancer", "id", step.LoadBalancer.ID)
	default:
		log.Info("Changing a load balancer", "id", step.LoadBalancer.ID, "differences", loadbalancer.Texts(step.Differences))
	}
}
