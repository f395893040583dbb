// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/providerid"
)

// recent is how new the list of load balancers must be for a look. One that is being made is looked at more often.
func (p *planning) recent() Demand {
	age := p.Pace.ListAge
	if !p.Memory.NewSince.IsZero() {
		age = min(age, p.Pace.Poll/2)
	}
	return Demand{Age: age, After: p.Memory.NotBefore}
}

// search finds the Service's load balancer in a list that is as new as is demanded. Without ok the plan is made.
func (p *planning) search(demand Demand) (identity Identity, s Search, ok bool) {
	if !p.List.meets(demand) {
		p.need(Needs{List: &demand})
		return identity, s, false
	}
	if p.List.Trouble != nil {
		p.trouble(p.List.Trouble, "listing load balancers")
		return identity, s, false
	}
	s = Search{
		Service: p.Service, Leaving: p.Intent != Keep, Others: p.Services, ClusterID: p.Cluster.ID, List: p.List.Items, Complete: true,
		Attempted: p.plan.Memory.Attempted, Droplets: DropletsOf(p.Nodes), Holds: p.Memory.Holds, TakeOver: p.TakeOver, ByID: map[string]Lookup{},
	}
	if !p.lookUp(s.ByID) {
		return identity, s, false
	}
	identity = Identify(s)
	if identity.AskByID != "" {
		p.need(Needs{ByID: identity.AskByID})
		return identity, s, false
	}
	stopped := identity.AskAllowance || identity.Ownership == Foreign && heldID(p.Service) == ""
	if stopped && p.TakeOver == nil {
		p.need(Needs{Trust: p.Trust == nil, Allowance: true})
		return identity, s, false
	}
	if s.FromBefore = stopped && fromBefore(p.Service, p.TakeOver.Since, p.Now); s.FromBefore {
		identity = Identify(s)
	}
	// The rules that the load balancer must have matter only for one that is in the way.
	if identity.Ownership == Foreign {
		result, problems, ok := p.desired(nil)
		if !ok {
			return identity, s, false // not enough was read to call it somebody else's
		}
		if len(problems) == 0 {
			s.Rules = result.Request.ForwardingRules
			identity = Identify(s)
		}
	}
	return identity, s, true
}

// lookUp gathers what GETs by ID said. Without true the plan is made: one failed, or proves nothing yet.
func (p *planning) lookUp(all map[string]Lookup) bool {
	for _, answer := range p.ByID {
		if answer.Trouble != nil {
			p.trouble(answer.Trouble, "reading load balancer %s", answer.ID)
			return false
		}
		held := recordedAt(p.Service, Observed{ID: answer.ID})
		if answer.Found == nil && p.Now.Sub(held) < p.Pace.Unanswered { // reads lag behind writes
			p.fail(Wait, OutcomePending, p.Pace.Pending,
				fmt.Errorf("load balancer %s was recorded just now, and DigitalOcean does not show it yet", answer.ID))
			return false
		}
		all[answer.ID] = answer.Lookup
	}
	return true
}

// adoption is for how long after the first start it counts what the upstream project has left without a proof.
const adoption = 15 * time.Minute

// fromBefore reports whether a Service is of the time before this program ran first in the cluster, which was just now. Times are in whole seconds.
func fromBefore(service *corev1.Service, origin, now time.Time) bool {
	return !origin.IsZero() && !service.CreationTimestamp.Add(time.Second).After(origin) && now.Sub(origin) < adoption
}

// DropletsOf returns the droplets of Nodes, as far as their provider IDs say.
func DropletsOf(nodes []*corev1.Node) []int {
	var ids []int
	for _, node := range nodes {
		if id, err := providerid.Parse(node.Spec.ProviderID); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// find returns which load balancer the Service keeps, nil for none. Without ok the plan is made: foreign and unclear ones end the pass.
func (p *planning) find(demand Demand) (lb *Observed, ok bool) {
	if made, _ := answer[Create](p); made != nil && made.Trouble == nil {
		p.found(&made.LoadBalancer)
		return &made.LoadBalancer, true
	}
	identity, _, ok := p.search(demand)
	if !ok {
		return nil, false
	}
	switch identity.Ownership {
	case Foreign:
		p.warn(ReasonForeign, identity.Message)
		if !p.owns(identity.Message) {
			return nil, false
		}
		p.refuse(errors.New(identity.Message))
		return nil, false
	case Unclear:
		p.retry(errors.New(identity.Message))
		return nil, false
	default:
	}
	if identity.Warning != "" {
		p.warn(ReasonForeign, identity.Warning)
	}
	if identity.Adopted {
		p.plan.Notes = append(p.plan.Notes, normal(ReasonAdopted, fmt.Sprintf("%s was made for the service before Mooring ran in this cluster, and is kept for it",
			identity.LoadBalancer)))
	}
	p.takenOver = identity.TakenOver
	p.found(identity.LoadBalancer)
	return identity.LoadBalancer, true
}

// found forgets doubts about a load balancer that is there. What was attempted counts until it is recorded: the view of
// the Service may be older than the note.
func (p *planning) found(lb *Observed) {
	m := &p.plan.Memory
	if lb == nil {
		m.Holds = ""
		return
	}
	m.Holds = lb.ID
	m.UnsureSince, m.TakenSince = time.Time{}, time.Time{}
}

// leave is for a Service that wants no load balancer any more. One that is somebody else's is left to them with a note. That there is none is said
// only if the answers are about this cluster, and no POST without a response is still under way.
func (p *planning) leave() {
	if deleted, _ := answer[Delete](p); deleted != nil {
		p.left()
		return
	}
	identity, s, ok := p.search(p.recent())
	if ok && identity.Ownership == Absent && p.List.Met.Since == 0 {
		p.need(Needs{Urgent: true, List: new(p.fresh())}) // another process may have made it since the list was read
		return
	}
	switch {
	case !ok:
	case identity.Ownership == Ours && p.Intent == Find:
		p.plan.End = &End{Outcome: p.outcome, LoadBalancer: identity.LoadBalancer}
	case identity.Ownership == Ours:
		p.remove(s, *identity.LoadBalancer)
	case identity.Ownership == Foreign:
		p.warn(ReasonForeign, identity.Message)
		p.plan.End = &End{Outcome: p.outcome}
	case identity.Ownership == Unclear:
		p.retry(errors.New(identity.Message))
	default:
		p.absent()
	}
}

// hidden is how long lists may go on hiding a load balancer of whose name DigitalOcean has said that it is taken.
const hidden = time.Hour

// absent reports that there is no load balancer, if that is certain.
func (p *planning) absent() {
	since, taken := p.plan.Memory.UnsureSince, p.plan.Memory.TakenSince
	switch {
	case p.Trust == nil:
		p.need(Needs{Trust: true})
	case p.Trust.Doubt != nil:
		p.warn(ReasonDoubt, p.Trust.Doubt.Error())
		p.retry(fmt.Errorf("the load balancer is not visible, but that is not proof that there is none: %w", p.Trust.Doubt))
	case !taken.IsZero() && p.Now.Sub(taken) < hidden:
		p.retry(errors.New("DigitalOcean says that the name of the load balancer is taken, and its lists do not show it yet; the service stays until they do, or for an hour"))
	case !since.IsZero() && p.Now.Sub(since) < p.Pace.Unanswered:
		p.retry(errors.New("a load balancer may have been made just now and may not be in the list yet"))
	case p.Moved:
		p.retry(errMoved)
	default:
		p.plan.End = &End{Outcome: p.outcome}
	}
}

// remove deletes the Service's load balancer, if it may.
func (p *planning) remove(s Search, lb Observed) {
	switch may, why := MayDelete(s, lb); {
	case may:
		p.step(Delete{lb})
	case HandedOver(p.Service, lb):
		p.warn(ReasonNotDeleted, why)
		p.plan.End = &End{Outcome: p.outcome}
	default:
		p.warn(ReasonNotDeleted, why)
		p.fail(Retry, OutcomeRefused, 0, errors.New(why))
	}
}

// left ends a pass that has deleted. That there is none, which counts as deleted, may be the word of another account by now.
func (p *planning) left() {
	answer, step := answer[Delete](p)
	switch {
	case answer.Trouble != nil:
		p.plan.Memory.NotBefore = p.Stamp
		p.trouble(answer.Trouble, "deleting %s", step.LoadBalancer)
	case p.Moved:
		p.retry(errMoved)
	default:
		p.plan.End = &End{Outcome: OutcomeDeleted}
	}
}
