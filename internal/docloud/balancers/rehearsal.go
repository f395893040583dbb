// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
)

// errRehearsed ends a round in mode report that would have changed something at DigitalOcean.
var errRehearsed = errors.New("this is a dry run: nothing was changed")

// rehearses reports whether nothing is written.
func (c *Controller) rehearses() bool { return c.o.Mode == outputs.Report }

// rehearsed returns a Service as it would be by now: in mode report the framework cannot write its finalizer.
func (c *Controller) rehearsed(service *corev1.Service) *corev1.Service {
	if !c.rehearses() || slices.Contains(service.Finalizers, loadbalancer.Finalizer) {
		return service
	}
	service = service.DeepCopy()
	service.Finalizers = append(service.Finalizers, loadbalancer.Finalizer)
	return service
}

// rehearse notes a step that is not made. The rest is planned as if it were, unless it is a change at DigitalOcean,
// which ends the round.
func (p *scene) rehearse(step loadbalancer.Step) (goesOn bool) {
	p.would = append(p.would, step)
	if step.AtDigitalOcean() {
		refusal := &loadbalancer.Refusal{Kind: loadbalancer.Wait, Err: errRehearsed}
		p.end = loadbalancer.End{Outcome: loadbalancer.OutcomePending, Refusal: refusal, Next: p.c.timing.Resync}
		return false
	}
	service := p.world.Service.DeepCopy()
	switch step.Kind {
	case loadbalancer.StepAnnotate:
		service.Annotations = labels.Merge(service.Annotations, step.Annotations)
	case loadbalancer.StepShowStatus:
		service.Status.LoadBalancer = step.Status
	case loadbalancer.StepDropAttempt:
		meta.RemoveStatusCondition(&service.Status.Conditions, loadbalancer.ConditionAttempted)
	default:
		meta.SetStatusCondition(&service.Status.Conditions, step.Condition)
	}
	p.world.Service = service
	p.world.Answers = append(p.world.Answers, loadbalancer.Answer{Step: step, LoadBalancer: step.LoadBalancer})
	return true
}

// because returns what a step is about, and why it is planned.
func (p *scene) because(step loadbalancer.Step) string {
	name := cmp.Or(step.Request.Name, step.LoadBalancer.Name, step.Certificate.Name, loadbalancer.NameOf(p.world.Service))
	return strings.TrimSpace(name + " " + loadbalancer.Texts(step.Differences))
}
