// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
)

// keep makes the load balancer what the Service asks for: it is found, what it must be is decided, and it is made or changed.
func (p *planning) keep() {
	made, creation := answer[Create](p)
	if made != nil && made.Trouble != nil && !p.searchedSince(made, creation) {
		return
	}
	lb, ok := p.find(p.recent())
	if !ok {
		return
	}
	result, ok := p.decide(lb)
	if !ok {
		return
	}
	switch changed, step := answer[Changing](p); {
	case changed != nil:
		p.changed(changed, step, result)
	case p.awaits(lb, result.Certificate):
		p.certify(lb, result)
	case lb == nil:
		p.create(result)
	case made != nil:
		p.created(*lb, creation)
	case p.outdated(*lb, result):
		// Stamps are each list's own, so that one of load balancers is none for certificates.
		p.need(Needs{Again: &Doubt{lb.ID, p.strange}, List: new(p.fresh()), Certificates: &Demand{Since: len(p.Answers) + 1}})
	default:
		p.update(*lb, result)
	}
}

// mostLeftOut is how many Nodes without traffic a note names.
const mostLeftOut = 5

// decide says what the load balancer must be, and notes all that its owner should know. Without ok the plan is made.
func (p *planning) decide(observed *Observed) (Result, bool) {
	result, problems, ok := p.desired(observed)
	if !ok {
		return result, false
	}
	p.plan.Complete = true
	if p.Identities != nil && len(p.Identities.Unseen) > 0 {
		p.again = p.Pace.Pending // their droplets may be shown by then
	}
	for _, w := range result.Warnings {
		p.warn(w.Reason, w.Message)
	}
	if left := Unexpected(result.LeftOut, p.Nodes); len(left) > 0 {
		text := "gets no traffic from the load balancer: " + strings.Join(left[:min(len(left), mostLeftOut)], ", ")
		if more := len(left) - mostLeftOut; more > 0 {
			text += fmt.Sprintf(", and %d more", more)
		}
		p.warn(ReasonLeftOut, text)
	}
	wrong := slices.DeleteFunc(slices.Clone(problems), func(problem error) bool { // what only takes its time is not wrong
		wait, ok := errors.AsType[*CertificateWait](problem)
		return ok && !wait.Failed
	})
	for _, problem := range wrong {
		p.warn(reasonOfProblem(problem), problem.Error())
	}
	if len(wrong) > 0 {
		p.refuse(problems)
		return result, false
	}
	return result, true
}

// desired asks for what is needed in addition, and then what the load balancer must be. Without ok the plan is made.
func (p *planning) desired(observed *Observed) (result Result, problems Problems, ok bool) {
	in := Input{
		Service: p.Service, Nodes: p.Nodes, Cluster: p.Cluster, Observed: observed, Domains: p.Domains, Identities: p.Identities,
	}
	needs := NeedsOf(in)
	if needs.Domains && p.Domains == nil {
		p.need(Needs{Allowance: true})
		return result, nil, false
	}
	if needs.Droplets || p.plan.Memory.Suspect {
		switch {
		case p.Droplets.Met == nil:
			p.need(Needs{Droplets: true})
			return result, nil, false
		case p.Droplets.Trouble != nil:
			p.trouble(p.Droplets.Trouble, "what the load balancer's targets are is not known")
			return result, nil, false
		}
		in.Droplets = p.Droplets.Items
	}
	if needs.Endpoints {
		if p.Endpoints == nil {
			p.need(Needs{Endpoints: true})
			return result, nil, false
		}
		in.EndpointNodes = p.Endpoints.Nodes
		if p.Endpoints.Problem != nil {
			p.warn(ReasonNoEndpoints, "all nodes are targets: "+p.Endpoints.Problem.Error())
		}
	}
	if needs.Certificates {
		if in.Certificates, in.PartialCertificates, ok = p.certificates(observed); !ok {
			return result, nil, false
		}
	}
	result, err := Desired(in)
	if problems, wrong := errors.AsType[Problems](err); wrong {
		return result, problems, true
	}
	if err != nil {
		p.retry(err)
		return result, nil, false
	}
	p.fit(observed, &result)
	return result, nil, true
}

// loadBalancer is what is made, in words.
const loadBalancer = "load balancer"

// assured reports whether something may be made: the answers are about this cluster, and the Service, as it is now, wants it. Another pass, or
// another process, may have made it since, or the Service may be gone; so the lists are read after it. Without it the plan is made.
func (p *planning) assured(what string, list, certificates *Demand) bool {
	switch {
	case p.Trust == nil || !p.Live:
		lost := what == loadBalancer && p.had() != "" // it seems to be, and one more would have another address
		p.need(Needs{Trust: true, Account: lost, Live: true, Urgent: true, List: list, Certificates: certificates})
	case p.Trust.Doubt != nil:
		p.warn(ReasonDoubt, p.Trust.Doubt.Error())
		p.retry(fmt.Errorf("no %s is made: %w", what, p.Trust.Doubt))
	case wants(p.Service) != nil:
		p.retry(wants(p.Service))
	case !held(p.Service):
		// Without its finalizer the Service could go and leave the load balancer behind. The framework adds it first.
		p.retry(fmt.Errorf("service %s does not have finalizer %s yet", key(p.Service), Finalizer))
	case p.Moved:
		p.retry(errMoved)
	default:
		return true
	}
	return false
}

// create notes on the Service the name under which a load balancer is about to be made, and makes it. Nothing is made on the word of a list that may
// be old.
func (p *planning) create(result Result) {
	name := result.Request.Name
	if answer, step := answer[Create](p); answer != nil { // it was not found since
		if p.disproves(answer, step.Request.Name) {
			return
		}
		p.trouble(answer.Trouble, "making load balancer %q", step.Request.Name)
		return
	}
	if !p.assured(loadBalancer, new(p.fresh()), nil) {
		return
	}
	if p.List.Met.Since == 0 {
		p.need(Needs{Urgent: true, List: new(p.fresh())})
		return
	}
	name = p.nameOfAttempt(name)
	result.Request.Name = name
	p.warnOfLeftover(result)
	switch noted, _ := answer[NoteAttempt](p); {
	case noted != nil && noted.Trouble != nil:
		p.trouble(noted.Trouble, "noting that load balancer %q is about to be made", name)
	case !p.isNoted(name): // the Service may have got another name with the note
		p.step(NoteAttempt{metav1.Condition{
			Type: ConditionAttempted, Status: metav1.ConditionTrue, Reason: "Attempted", Message: name,
			ObservedGeneration: p.Service.Generation, LastTransitionTime: metav1.NewTime(p.Now),
		}})
	default:
		p.step(Create{Request: result.Request, CreateOnly: result.CreateOnly, Lost: p.had()})
	}
}

// had is the ID of the load balancer that the Service had when there is none, empty for none.
func (p *planning) had() string {
	return cmp.Or(p.Service.Annotations[annotation.LoadBalancerID], heldID(p.Service))
}

// nameOfAttempt is the name under which a load balancer is made: that of a POST without a response, if there was one. Names are unique, so that the
// second POST is refused if the first one made it, however long lists hide it; under another name it would be a second load balancer. It gets the
// name that is wanted by the change that follows. A name that a list shows is somebody else's, or it would have been found.
func (p *planning) nameOfAttempt(wanted string) string {
	for _, tried := range p.plan.Memory.Attempted {
		if !slices.ContainsFunc(p.List.Items, func(o Observed) bool { return o.Name == tried.Name }) {
			return tried.Name
		}
	}
	return wanted
}

// warnOfLeftover tells of a load balancer of this cluster's that no Service leads to and that looks as if it had been made for this one.
func (p *planning) warnOfLeftover(result Result) {
	s := Search{Service: p.Service, Others: p.Services, ClusterID: p.Cluster.ID, List: p.List.Items, Rules: result.Request.ForwardingRules}
	if left := Leftover(s); left != nil {
		p.warn(ReasonLeftOver, fmt.Sprintf("%s carries this cluster's tag, has the ports of this service, and is not a service's: it may be left over from "+
			"before a change of annotation %s; delete it, or set annotation %s to its ID to use it", left, annotation.Name, annotation.LoadBalancerID))
	}
}

// searchedSince remembers what a POST that failed means, and reports whether its load balancer is to be looked for again: without a response it may
// have been made all the same, and where its name is taken an earlier attempt may have made it. Otherwise the pass ends.
func (p *planning) searchedSince(answer *Answer, step Create) bool {
	t, m, name, since := answer.Trouble, &p.plan.Memory, step.Request.Name, p.since(answer)
	if p.List.Met != nil && p.List.Met.Since >= since {
		return true
	}
	switch {
	case t.unsure():
		m.unsureOf(Attempt{Name: name, At: p.Now}, p.Now)
		m.NotBefore = p.Stamp
	case t.Kind == Refused:
		m.sureOf(name)
		if strings.Contains(t.Said, "not unique") {
			m.TakenSince = p.Now
		} else {
			p.learn(step.Request.DropletIDs, false, t)
		}
		m.NotBefore = p.Stamp
	default:
		m.sureOf(name)
		if !p.disproves(answer, name) {
			p.trouble(t, "making load balancer %q", name)
		}
		return false
	}
	if !t.Until.IsZero() || t.Kind == Interrupted {
		p.trouble(t, "making load balancer %q", name)
		return false
	}
	p.need(Needs{Urgent: true, List: &Demand{After: p.Stamp, Since: since}})
	return false
}

// created notes on the Service the load balancer that was made for it. It may be found by a look after a POST that failed.
func (p *planning) created(lb Observed, step Create) {
	p.outcome, p.plan.Memory.NotKept = OutcomeCreated, nil
	if before := step.Lost; before != "" && before != lb.ID {
		if _, newest := p.last().Step.(Create); newest {
			p.plan.Repaired = OutcomeCreated
		}
		p.warn(ReasonRecreated, fmt.Sprintf("%s was made, since load balancer %s does not exist any more; its address is another one", lb, before))
	}
	if p.record(lb) && p.annotate(map[string]string{annotation.LoadBalancerID: lb.ID, annotation.Type: lb.Type}) {
		p.done(lb)
	}
}

// update makes a load balancer what it must be. One that is new takes no change.
func (p *planning) update(lb Observed, result Result) {
	if !p.record(lb) || !p.annotate(result.Annotate) {
		return
	}
	if lb.Status != StatusActive {
		p.outcome = OutcomeFailed
		if lb.Status == StatusNew {
			p.outcome = OutcomePending
		}
		p.done(lb)
		return
	}
	m, all := &p.plan.Memory, Diff(lb, result.Request)
	m.NotKept = slices.DeleteFunc(m.NotKept, func(d Difference) bool { return len(Except([]Difference{d}, all)) > 0 })
	all = Except(all, m.NotKept)
	curable := Curable(all, RemedyUpdate)
	settings, err := settingsOf(result.Request)
	switch {
	case err != nil:
		p.retry(err)
		return
	case len(curable) == 0:
		m.InPlace = settings
		if p.held > 0 {
			p.learn(nil, false, nil)
		}
		p.done(lb)
		return
	case !p.Live:
		// The informer may lag: what was decided for a Service that has been disowned, edited or deleted since must not be sent.
		p.need(Needs{Live: true})
		return
	case !InHand(p.Service):
		p.fail(Wait, OutcomePending, p.Pace.Pending, fmt.Errorf("service %s has changed since it was read", key(p.Service)))
		return
	}
	if curable = p.holdBack(curable); len(curable) == 0 {
		p.outcome = OutcomePending
		p.done(lb)
		return
	}
	p.step(p.changing(Change{LoadBalancer: lb, Request: result.Request, Differences: curable, Again: p.again}, settings))
	if p.again == 0 {
		m.InPlace = settings
	}
}

// changing is the one call that cures the differences: where only targets are to be added, or only to be removed, the API has a call of its own.
func (p *planning) changing(c Change, settings []byte) Step {
	add, remove, targets := OnlyTargets(c.Differences)
	targets = targets && (len(add) == 0 || len(remove) == 0)
	// Droplets come and go with Nodes, so that they tell of a hand elsewhere only if nobody asked for the pass.
	c.Drift = (!p.Asked || !targets) && bytes.Equal(settings, p.plan.Memory.InPlace)
	switch {
	case !targets:
		return Update{c}
	case len(add) > 0:
		return AddTargets{c, add}
	default:
		return RemoveTargets{c, remove}
	}
}

// settingsOf is a request without its droplets, in a form that can be compared.
func settingsOf(r Request) ([]byte, error) {
	r.DropletIDs = nil
	settings, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encoding the load balancer's settings: %w", err)
	}
	return settings, nil
}

// changed ends a pass that has changed the load balancer, or tried to.
func (p *planning) changed(answer *Answer, step Changing, result Result) {
	m, lb, t, change := &p.plan.Memory, answer.LoadBalancer, answer.Trouble, step.Changed()
	if t != nil {
		if !change.Drift {
			m.InPlace = nil
		}
		if t.Kind != Busy && !t.limited() {
			m.NotBefore = p.Stamp
		}
		p.trouble(t, "changing %s", change.LoadBalancer)
		switch {
		case t.Kind == Missing: // either the load balancer or one of its droplets may be gone
			m.Suspect = true
		case t.Kind == Refused && p.learn(change.added(), change.Settings(), t): // the next request is another one
			p.plan.End.Refusal.Kind, p.plan.End.Next = Wait, p.Pace.Pending
		}
		return
	}
	p.outcome, p.again = OutcomeTargets, change.Again
	p.learn(change.added(), false, nil)
	if _, all := step.(Update); all {
		p.outcome = OutcomeUpdated
		m.NotKept = Curable(Diff(lb, change.Request), RemedyUpdate)
	}
	if change.Drift && p.last() == answer {
		p.plan.Repaired = p.outcome
		if others := slices.DeleteFunc(slices.Clone(change.Differences), func(d Difference) bool { return d.Field == FieldDroplets }); len(others) > 0 {
			// New and lost Nodes are everyday life and not told.
			p.plan.Said = append(p.plan.Said, normal(ReasonRepaired, fmt.Sprintf("%s was changed elsewhere and is repaired: %s", lb, Texts(others))))
		}
	}
	p.awaits(&lb, result.Certificate)
	p.done(lb)
}
