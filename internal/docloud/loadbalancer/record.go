// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConditionHeld is the condition of a Service whose message is the ID of its load balancer. It is in the status, which those who write Services
// may not write (the roles edit and admin of Kubernetes), and is there where nothing else in the status or the name of the load balancer proves
// whose it is. It MUST not be changed: a load balancer without a proof counts as taken over, and is not deleted with its Service.
const ConditionHeld = "cloud.mooring.dev/LoadBalancerHeld"

// record is the step that writes the ID of the Service's load balancer into the status, before the annotation names it, by which the note of the
// attempt goes, and before the load balancer is changed: a process that comes after a death must find a proof, whatever the Service is
// called by then. A Service whose status shows the load balancer's address, as upstream leaves it, needs none. It reports whether there is
// nothing to write.
func (p *planning) record(lb Observed) bool {
	if recorded := p.answer(StepRecord); recorded != nil {
		if recorded.Trouble != nil {
			p.trouble(recorded.Trouble, "writing whose load balancer %s is", lb.ID)
			return false
		}
		return true
	}
	def := DefaultName(p.Service)
	if lb.Name == def && NameOf(p.Service) == def || showsAddress(p.Service, lb) || isRecorded(p.Service, lb) {
		return true
	}
	p.step(Step{Kind: StepRecord, Condition: metav1.Condition{
		Type: ConditionHeld, Status: metav1.ConditionTrue, Reason: "Held", Message: lb.ID,
		ObservedGeneration: p.Service.Generation, LastTransitionTime: metav1.NewTime(p.heldSince(lb)),
	}})
	return false
}

// heldSince is the time of a new record: now, but later than every other record of the load balancer, since the latest one counts and clocks differ.
func (p *planning) heldSince(lb Observed) time.Time {
	at := p.Now.Truncate(time.Second) // as the API server keeps it
	for _, other := range p.Services {
		if next := recordedAt(other, lb).Add(time.Second); isRecorded(other, lb) && next.After(at) {
			at = next
		}
	}
	return at
}

// isRecorded reports whether a Service's status has the ID of a load balancer, and recordedAt since when, the zero time for never.
func isRecorded(service *corev1.Service, o Observed) bool { return !recordedAt(service, o).IsZero() }

func recordedAt(service *corev1.Service, o Observed) time.Time {
	for _, c := range service.Status.Conditions {
		if c.Type == ConditionHeld && c.Status == metav1.ConditionTrue && c.Message == o.ID {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// showsAddress reports whether a Service's status shows one of a load balancer's addresses.
func showsAddress(service *corev1.Service, o Observed) bool {
	return slices.ContainsFunc(service.Status.LoadBalancer.Ingress, func(in corev1.LoadBalancerIngress) bool {
		return in.IP != "" && (in.IP == o.IP || in.IP == o.IPv6)
	})
}
