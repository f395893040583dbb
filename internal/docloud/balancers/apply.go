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
	answer := loadbalancer.Answer{Step: step}
	switch step := step.(type) {
	case loadbalancer.Annotate:
		err = p.annotate(ctx, step.Annotations)
	case loadbalancer.ShowStatus:
		err = p.show(ctx, step.Status)
	case loadbalancer.NoteAttempt:
		err = p.patchConditions(ctx, map[string]any{"resourceVersion": p.world.Service.ResourceVersion}, step.Condition)
	case loadbalancer.DropAttempt:
		err = p.patchConditions(ctx, map[string]any{}, json.RawMessage(noAttempt))
	case loadbalancer.Record:
		err = p.patchConditions(ctx, map[string]any{}, step.Condition, json.RawMessage(noAttempt))
	case loadbalancer.SetCondition:
		err = p.patchConditions(ctx, map[string]any{}, step.Condition)
	case loadbalancer.OrderCertificate, loadbalancer.Create, loadbalancer.Update, loadbalancer.AddTargets, loadbalancer.RemoveTargets,
		loadbalancer.Delete:
		answer.LoadBalancer, err = p.write(ctx, step)
	}
	answer.Trouble = p.trouble(ctx, err)
	p.world.Answers = append(p.world.Answers, answer)
	return err
}

// noAttempt takes the note of an attempt away, as an item of a strategic merge patch.
const noAttempt = `{"type":"` + loadbalancer.ConditionAttempted + `","$patch":"delete"}`

// write makes one write to DigitalOcean, and notes how the load balancer is since then: lists lag behind.
func (p *scene) write(ctx context.Context, step loadbalancer.Step) (lb loadbalancer.Observed, err error) {
	api, before, log := p.c.o.API, "", p.c.log.WithValues("service", keyOf(p.world.Service))
	switch step := step.(type) {
	case loadbalancer.OrderCertificate:
		log.Info("Asking for a certificate", "name", step.Certificate.Name, "domains", step.Certificate.DNSNames)
		_, err = api.CreateCertificate(ctx, step.Certificate)
		return lb, err
	case loadbalancer.Create:
		log.Info("Making a load balancer", "name", step.Request.Name)
		lb, err = api.CreateLoadBalancer(ctx, step.Request, step.CreateOnly)
	case loadbalancer.Changing:
		before = step.Changed().LoadBalancer.ID
		log.Info("Changing a load balancer", "id", before, "differences", loadbalancer.Texts(step.Changed().Differences))
		lb, err = p.change(ctx, step)
	case loadbalancer.Delete:
		before = step.LoadBalancer.ID
		log.Info("Deleting a load balancer", "id", before)
		if err = api.DeleteLoadBalancer(ctx, before); err == nil {
			p.c.list.gone(before, p.epoch)
			return lb, nil
		}
	default:
	}
	switch {
	case err == nil:
		p.c.list.learn(lb, p.epoch)
	case before != "":
		p.c.list.forget(before)
	}
	return lb, err
}

// change changes a load balancer.
func (p *scene) change(ctx context.Context, step loadbalancer.Changing) (loadbalancer.Observed, error) {
	api, change := p.c.o.API, step.Changed()
	lb := change.LoadBalancer
	if change.Drift {
		p.c.o.Metrics.drift(change.Differences)
	}
	if change.Settings() {
		p.c.takeTurn(p.world.Service.Namespace)
	}
	switch step := step.(type) {
	case loadbalancer.AddTargets:
		lb.DropletIDs = slices.Concat(lb.DropletIDs, step.Droplets)
		return lb, api.AddDroplets(ctx, lb.ID, step.Droplets)
	case loadbalancer.RemoveTargets:
		lb.DropletIDs = slices.DeleteFunc(slices.Clone(lb.DropletIDs), func(id int) bool { return slices.Contains(step.Droplets, id) })
		return lb, api.RemoveDroplets(ctx, lb.ID, step.Droplets)
	default:
		return api.UpdateLoadBalancer(ctx, lb.ID, change.Request)
	}
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
