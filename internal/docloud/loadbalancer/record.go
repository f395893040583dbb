// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConditionAttempted is the condition of a Service whose message is the name in a request to make a load balancer for
// it, and whose time is that of the request, the first of those under that name without a response. It is written
// before the request is sent, and taken away with the record of what was made, or when the response was no. A load
// balancer of that name that was made since is the Service's, even if nobody lived to see the response, or the Service
// has another name now. It MUST not be changed: a Service may have it while another version takes over.
const ConditionAttempted = "cloud.mooring.dev/LoadBalancerAttempted"

// clocksDiffer is by how much the clock of the machine that noted a request may be ahead of DigitalOcean's.
const clocksDiffer = 5 * time.Minute

// Attempt is a request to make a load balancer: its name, and when it was sent first.
type Attempt struct {
	Name string
	At   time.Time
}

// attemptsOf are the requests that a Service's status records: one or none.
func attemptsOf(service *corev1.Service) []Attempt {
	if c := condition(service, ConditionAttempted); c != nil {
		return []Attempt{{Name: c.Message, At: c.LastTransitionTime.Time}}
	}
	return nil
}

// Reasons of the record: a load balancer that was taken over is not deleted with its Service. They MUST not be changed.
const (
	RecordMade      = "Held"
	RecordTakenOver = "TakenOver"
)

// ConditionHeld is the condition of a Service whose message is the ID of its load balancer. It is in the status, which
// those who write Services may not write (the roles edit and admin of Kubernetes), and is there where nothing else in
// the status or the name of the load balancer proves whose it is. It MUST not be changed: a load balancer without a
// proof counts as taken over, and is not deleted with its Service.
const ConditionHeld = "cloud.mooring.dev/LoadBalancerHeld"

// record is the step that writes the ID of the Service's load balancer into the status, before the annotation names it
// and before the load balancer is changed: a process that comes after a death must find a proof, whatever the Service
// is called by then and whatever its annotations say. With it the note of the attempt goes. It reports whether there is
// nothing to write.
func (p *planning) record(lb Observed) bool {
	if recorded, _ := answer[Record](p); recorded != nil {
		if recorded.Trouble != nil {
			p.trouble(recorded.Trouble, "writing whose load balancer %s is", lb.ID)
			return false
		}
		p.plan.Memory.recorded()
		return true
	}
	c := metav1.Condition{
		Type: ConditionHeld, Status: metav1.ConditionTrue, Reason: RecordMade, Message: lb.ID,
		ObservedGeneration: p.Service.Generation, LastTransitionTime: metav1.NewTime(p.heldSince(lb)),
	}
	if p.takenOver || HandedOver(p.Service, lb) {
		c.Reason = RecordTakenOver
	}
	if now := condition(p.Service, ConditionHeld); now != nil && now.Message == lb.ID {
		if now.Reason == c.Reason && len(attemptsOf(p.Service)) == 0 {
			p.plan.Memory.recorded()
			return true
		}
		c.LastTransitionTime = now.LastTransitionTime
	}
	p.step(Record{c})
	return false
}

// heldSince is the time of a new record: now, but later than every other record of the load balancer, since the latest
// one counts and clocks differ.
func (p *planning) heldSince(lb Observed) time.Time {
	at := p.Now.Truncate(time.Second) // as the API server keeps it
	for _, other := range p.Services {
		if next := recordedAt(other, lb).Add(time.Second); heldID(other) == lb.ID && next.After(at) {
			at = next
		}
	}
	return at
}

// heldID is the ID of the load balancer that a Service's status records, empty for none; recordedAt is since when it is
// that of this one, the zero time for never.
func heldID(service *corev1.Service) string {
	if c := condition(service, ConditionHeld); c != nil {
		return c.Message
	}
	return ""
}

func recordedAt(service *corev1.Service, o Observed) time.Time {
	if c := condition(service, ConditionHeld); c != nil && c.Message == o.ID {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// disproves is the step that takes the note of an attempt away since its response was no, and no earlier request under
// the name may have been served: what gets the name from now on is another's. It reports whether there is something to
// write.
func (p *planning) disproves(refused *Answer, name string) bool {
	dropped, _ := answer[DropAttempt](p)
	earlier := slices.ContainsFunc(p.plan.Memory.Attempted, func(a Attempt) bool { return a.Name == name })
	if earlier || refused.Trouble.unsure() || !p.isNoted(name) || dropped != nil {
		return false
	}
	p.step(DropAttempt{})
	return true
}

// isNoted reports whether the status has a note of an attempt under a name.
func (p *planning) isNoted(name string) bool {
	return slices.ContainsFunc(attemptsOf(p.Service), func(a Attempt) bool { return a.Name == name })
}

// condition is the condition of a Service that has a type and holds, nil for none.
func condition(service *corev1.Service, kind string) *metav1.Condition {
	for i, c := range service.Status.Conditions {
		if c.Type == kind && c.Status == metav1.ConditionTrue {
			return &service.Status.Conditions[i]
		}
	}
	return nil
}

// showsAddress reports whether a Service's status shows one of a load balancer's addresses.
func showsAddress(service *corev1.Service, o Observed) bool {
	return slices.ContainsFunc(service.Status.LoadBalancer.Ingress, func(in corev1.LoadBalancerIngress) bool {
		return in.IP != "" && (in.IP == o.IP || in.IP == o.IPv6)
	})
}
