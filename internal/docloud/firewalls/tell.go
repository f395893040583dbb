// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package firewalls

import (
	"context"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/firewall"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
)

// Reasons of events. Alerts and scripts select by them: they MUST not be changed. FirewallConfigError and the warnings of package annotation are
// on Services, the others on the firewall's stand-in.
const (
	// reasonConfig, Warning on Services: a value that the firewall depends on cannot be parsed; its rules for the Service stay.
	reasonConfig = "FirewallConfigError"
	// reasonForeign, Warning: the firewall of that name covers other droplets only, and is left alone.
	reasonForeign = "FirewallForeign"
	// reasonRefused, Warning: DigitalOcean refuses the desired firewall.
	reasonRefused = "FirewallRefused"
	// reasonFailed, Warning: the firewall could not be read or written; it is retried.
	reasonFailed = "UpdateFirewallFailed"
	// reasonDoubt, Warning: the firewall is not changed while it is unknown which cluster the account belongs to.
	reasonDoubt = "DigitalOceanAccountInDoubt"
	// reasonRepaired, Normal: rules, tags or the name were changed elsewhere and are repaired.
	reasonRepaired = "FirewallRepaired"
	// reasonRecreated, Warning: the firewall was deleted elsewhere and is created again.
	reasonRecreated = "FirewallRecreated"
)

// standIn is the Lease of kube-system that events about the firewall are on, which is not an object of the cluster: the record of the account
// that it is in (package machines, RecordName).
const standIn = "digitalocean-cloud-controller-manager-account"

// theLease is what events about the firewall are on.
func theLease() corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: metav1.NamespaceSystem, Name: standIn}
}

// warn notes something about the firewall that people have to know while it holds. What is the same although its words differ has an empty cause.
func (s *scene) warn(reason, cause, message string) {
	s.notes = append(s.notes, reconcile.Note{About: theLease(), Type: corev1.EventTypeWarning, Reason: reason, Cause: cause, Message: message})
}

// about notes something about a Service.
func (s *scene) about(service *corev1.Service, reason, cause, message string) {
	s.notes = append(s.notes, reconcile.Note{
		About: corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: service.Namespace, Name: service.Name, UID: service.UID},
		Type:  corev1.EventTypeWarning, Reason: reason, Cause: cause, Message: message,
	})
}

// say tells something about the firewall that has just happened.
func (c *Controller) say(kind, reason, message string) {
	on := theLease()
	c.Events.Event(&on, kind, reason, message)
}

// report notes what people have to know, on Services in their conditions as well, and counts.
func (c *Controller) report(ctx context.Context, r *reconcile.Round[*scene, need, step, reconcile.None]) {
	s, err := r.World, r.Err
	switch {
	case r.Doubt != nil:
		s.warn(reasonDoubt, "", r.Doubt.Error())
	case errors.Is(err, errDoubt):
		s.warn(reasonDoubt, "", err.Error())
	case len(r.Applied) > 0 && errors.Is(err, doapi.ErrRefused):
		s.outcome = outcomeRefused
		s.warn(reasonRefused, "", err.Error())
	case err != nil && len(s.notes) == 0 && !errors.Is(err, doapi.ErrRateLimited) && !errors.Is(err, context.Canceled):
		s.warn(reasonFailed, "", err.Error())
	}
	if s.decided {
		c.metrics.leftOut.Set(float64(len(s.result.Problems)))
		c.metrics.rules.Set(float64(len(s.result.Request.InboundRules)))
		for _, problem := range s.result.Problems {
			s.about(problem.Service, reasonConfig, problem.Err.Error(), problem.Message())
		}
		for _, w := range s.result.Warnings {
			s.about(w.Service, w.Reason, w.Message, w.Message)
		}
		c.settle(ctx, s)
	}
	r.Plan.Notes = s.notes
	c.metrics.pass(s.outcome, err, ctx.Err() != nil, c.clock.Since(r.Began))
}

// texts are differences in words, not too many.
func texts(all []firewall.Difference) string {
	const shown = 20
	out := make([]string, 0, min(len(all), shown)+1)
	for i, d := range all {
		if i == shown {
			out = append(out, "and more")
			break
		}
		out = append(out, d.Message)
	}
	return strings.Join(out, "; ")
}
