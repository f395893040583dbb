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
	service := p.world.Service.DeepCopy()
	switch step := step.(type) {
	case loadbalancer.Annotate:
		service.Annotations = labels.Merge(service.Annotations, step.Annotations)
	case loadbalancer.ShowStatus:
		service.Status.LoadBalancer = step.Status
	case loadbalancer.DropAttempt:
		meta.RemoveStatusCondition(&service.Status.Conditions, loadbalancer.ConditionAttempted)
	case loadbalancer.NoteAttempt:
		meta.SetStatusCondition(&service.Status.Conditions, step.Condition)
	case loadbalancer.SetCondition:
		meta.SetStatusCondition(&service.Status.Conditions, step.Condition)
	case loadbalancer.Record:
		meta.SetStatusCondition(&service.Status.Conditions, step.Condition)
	default:
		refusal := &loadbalancer.Refusal{Kind: loadbalancer.Wait, Err: errRehearsed}
		p.end = loadbalancer.End{Outcome: loadbalancer.OutcomePending, Refusal: refusal, Next: p.c.timing.Resync}
		return false
	}
	p.world.Service = service
	p.world.Answers = append(p.world.Answers, loadbalancer.Answer{Step: step})
	return true
}

// because returns what a step is about, and why it is planned.
func (p *scene) because(step loadbalancer.Step) string {
	var name, why string
	switch step := step.(type) {
	case loadbalancer.OrderCertificate:
		name = step.Certificate.Name
	case loadbalancer.Create:
		name = step.Request.Name
	case loadbalancer.Changing:
		name, why = step.Changed().Request.Name, loadbalancer.Texts(step.Changed().Differences)
	case loadbalancer.Delete:
		name = step.LoadBalancer.Name
	default:
	}
	return strings.TrimSpace(cmp.Or(name, loadbalancer.NameOf(p.world.Service)) + " " + why)
}
