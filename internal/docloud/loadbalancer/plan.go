// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
)

// Plan is what is done next for one Service: more is read, or one step is taken, or the pass ends. After what was read, and after a step, the plan
// is made again with what came of it.
type Plan struct {
	// Needs are what must be read before anything else can be said; the plan has neither Step nor End then.
	Needs Needs
	// Step is the next write, nil for none.
	Step Step
	// End says how the pass ends, nil if it does not yet.
	End *End
	// Memory is what is remembered from here on.
	Memory Memory
	// Notes are what holds about the Service; Complete says that they are all there is to say. Said are notes of what has just happened.
	Notes    []Note
	Complete bool
	Said     []Note
	// Repaired says how something that was changed elsewhere has just been put right, empty for no such thing.
	Repaired Outcome
}

// Needs say what must be read, in the order of their fields.
type Needs struct {
	// Again is set when a load balancer and a certificate do not fit together: what is known of the load balancer by writes is not to be believed.
	Again *Doubt
	// Trust asks whether the answers are about this cluster, Account with whose the token is at this moment; Live for the Service as the API server has
	// it.
	Trust, Account, Live bool
	// Urgent reports that the reads are as urgent as making and deleting.
	Urgent             bool
	List, Certificates *Demand
	// Allowance asks for what the namespace may take over, for which domains it may have certificates, and since when this
	// program runs in the cluster.
	Allowance bool
	// ByID is the ID of a load balancer to be asked for, empty for none.
	ByID     string
	Droplets bool
	// Endpoints asks where the Service's endpoints are.
	Endpoints bool
}

// Doubt is that a load balancer was seen with a certificate that the list of certificates lacks, by their IDs.
type Doubt struct{ LoadBalancer, Certificate string }

// Step is one write, and all that it needs. The set of steps is closed: only the types below implement it.
//
//sumtype:decl
type Step interface {
	// String is what the step does.
	String() string
	step()
}

// Steps that write to Kubernetes.
type (
	// Annotate writes annotations on the Service.
	Annotate struct{ Annotations map[string]string }
	// NoteAttempt writes the condition [ConditionAttempted] to the status.
	NoteAttempt struct{ Condition metav1.Condition }
	// DropAttempt removes it.
	DropAttempt struct{}
	// ShowStatus writes the addresses to the status.
	ShowStatus struct{ Status corev1.LoadBalancerStatus }
	// SetCondition writes the condition [ConditionOwned] to the status.
	SetCondition struct{ Condition metav1.Condition }
	// Record writes the condition [ConditionHeld] to the status, and removes [ConditionAttempted].
	Record struct{ Condition metav1.Condition }
)

// Steps that write to DigitalOcean. Of those a pass takes at most one, a certificate aside.
type (
	// OrderCertificate makes a certificate.
	OrderCertificate struct{ Certificate CertificateRequest }
	// Create makes a load balancer. Lost is the ID that the Service names, of one that does not exist any more.
	Create struct {
		Request    Request
		CreateOnly CreateOnly
		Lost       string
	}
	// Update makes a load balancer what it must be.
	Update struct{ Change }
	// AddTargets adds droplets.
	AddTargets struct {
		Change
		Droplets []int
	}
	// RemoveTargets removes droplets.
	RemoveTargets struct {
		Change
		Droplets []int
	}
	// Delete deletes a load balancer.
	Delete struct{ LoadBalancer Observed }
)

// Change is what a load balancer must be, and why it is changed.
type Change struct {
	LoadBalancer Observed
	Request      Request
	// Differences are why; Drift says that no change of the Service explains them.
	Differences []Difference
	Drift       bool
	// Again is when to look again after the step, since settings are held back; 0 for when there is a reason to.
	Again time.Duration
}

// added are the droplets that Request adds to the targets.
func (c Change) added() []int {
	return slices.DeleteFunc(slices.Clone(c.Request.DropletIDs), func(id int) bool { return slices.Contains(c.LoadBalancer.DropletIDs, id) })
}

// Changed implements Changing.
func (c Change) Changed() Change { return c }

// Changing is a step that changes a load balancer.
type Changing interface {
	Step
	Changed() Change
}

func (Annotate) step()         {}
func (NoteAttempt) step()      {}
func (DropAttempt) step()      {}
func (ShowStatus) step()       {}
func (SetCondition) step()     {}
func (Record) step()           {}
func (OrderCertificate) step() {}
func (Create) step()           {}
func (Change) step()           {}
func (Delete) step()           {}

func (Annotate) String() string         { return "annotate" }
func (NoteAttempt) String() string      { return "note attempt" }
func (DropAttempt) String() string      { return "drop attempt" }
func (ShowStatus) String() string       { return "show status" }
func (SetCondition) String() string     { return "set condition" }
func (Record) String() string           { return "record load balancer" }
func (OrderCertificate) String() string { return "order certificate" }
func (Create) String() string           { return "create" }
func (Update) String() string           { return "update" }
func (AddTargets) String() string       { return "add targets" }
func (RemoveTargets) String() string    { return "remove targets" }
func (Delete) String() string           { return "delete" }

// Outcome is what a pass came to; it is the label of a metric and MUST not be changed.
type Outcome string

// Outcomes of a pass.
const (
	OutcomeUnchanged Outcome = "unchanged"
	OutcomeCreated   Outcome = "created"
	OutcomeUpdated   Outcome = "updated"
	OutcomeTargets   Outcome = "targets"
	OutcomeDeleted   Outcome = "deleted"
	OutcomePending   Outcome = "pending"
	OutcomeRefused   Outcome = "refused"
	OutcomeFailed    Outcome = "failed"
)

// End says how a pass ends, and when the Service is looked at again.
type End struct {
	Outcome Outcome
	// LoadBalancer is the Service's, nil for none.
	LoadBalancer *Observed
	// Published is what the status shows; its zero value for nothing.
	Published Published
	// Refusal is why nothing could be done, nil if all is as it must be or on its way.
	Refusal *Refusal
	// Next is when to look again, 0 for when there is a reason to.
	Next time.Duration
}

// RefusalKind says what helps.
type RefusalKind int

// The kinds of refusals.
const (
	// Retry is a failure that may pass: it is tried again, each time later.
	Retry RefusalKind = iota
	// People have to change something, and then a new pass is made.
	People
	// Wait is for DigitalOcean to be done with something; End.Next says when to look.
	Wait
	// Told is that DigitalOcean asked to wait; End.Next says how long.
	Told
)

// Refusal is why a pass did not do what is to be done.
type Refusal struct { //nolint:errname // it is the end of a pass first
	Kind RefusalKind
	Err  error
}

// Error implements error.
func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.Err }

// ErrToldToWait means that DigitalOcean asked to wait, and the time is not over.
var ErrToldToWait = errors.New("DigitalOcean's rate limit requires a wait before the next call")

// errMoved means that the token was replaced, or refused by another call, during the pass.
var errMoved = errors.New("the token was replaced or refused meanwhile: whose the responses are is not certain")

// MakePlan says what is done next.
func MakePlan(w World) Plan {
	p := &planning{World: w, outcome: OutcomeUnchanged, plan: Plan{Memory: w.Memory.clone()}}
	p.recall()
	switch {
	case w.Trouble != nil:
		p.trouble(w.Trouble, "reading the cluster")
	case p.waits():
	case w.Intent == Keep:
		p.keep()
	default:
		p.leave()
	}
	if p.plan.End == nil {
		p.plan.Memory.Holds = w.Memory.Holds // what is taken over counts as held once that was recorded
	}
	return p.plan
}

// planning is a plan in the making.
type planning struct {
	World

	plan    Plan
	outcome Outcome
	// again is when to look again although nothing failed.
	again time.Duration
	// takenOver reports that the Service takes over a load balancer that it did not hold before.
	takenOver bool
	// unfit reports that the list of droplets shows targets to be unfit; held is how many targets are held back.
	unfit bool
	held  int
	// strange is the certificate that the load balancer has and the list of certificates lacks, empty for none.
	strange string
}

func (p *planning) warn(reason, message string) {
	p.plan.Notes = append(p.plan.Notes, warning(reason, message))
}

// need reports that something is to be read first.
func (p *planning) need(n Needs) { p.plan.Needs = n }

// step is the next step.
func (p *planning) step(s Step) { p.plan.Step = s }

// fail ends the pass.
func (p *planning) fail(kind RefusalKind, outcome Outcome, next time.Duration, err error) {
	p.plan.End = &End{Outcome: outcome, Refusal: &Refusal{Kind: kind, Err: err}, Next: next}
	p.plan.Memory.Busy = 0
}

// retry ends the pass by a failure that trying again may cure; refuse by one that only people can cure.
func (p *planning) retry(err error) {
	p.fail(Retry, OutcomeFailed, 0, err)
	p.report(err.Error(), false)
}

func (p *planning) refuse(err error) {
	p.fail(People, OutcomeRefused, 0, err)
	p.report(err.Error(), true) // notes say it
}

// trouble ends the pass by a call that failed. A limit on calls holds for all Services; other requests to wait for this one.
func (p *planning) trouble(t *Trouble, format string, args ...any) {
	err := fmt.Errorf(format+": %w", append(args, t.Err)...)
	// Identifiers of requests and ports differ each time, and are not news.
	what := fmt.Sprint(fmt.Sprintf(format, args...), t.Kind, t.Said)
	switch wait := t.Until.Sub(p.Now); {
	case wait > 0:
		if t.Kind != Postponed { // that was not made, and one that is more urgent might be
			p.plan.Memory.NotUntil = t.Until
		}
		p.fail(Told, outcomeOf(t), wait, err)
		p.report(what, t.limited() || t.Kind == Busy || t.Kind == Interrupted)
	case t.Kind == Busy:
		busy := p.Memory.Busy
		p.fail(Wait, OutcomePending, p.Pace.Pending<<min(busy, 3), err)
		p.plan.Memory.Busy = busy + 1
	case t.limited():
		p.fail(Told, OutcomePending, p.Pace.Pending, err)
		p.report(what, true)
	default:
		p.fail(Retry, OutcomeFailed, 0, err)
		p.report(what, t.Kind == Interrupted)
	}
}

// eventLife is how long events are kept less some: what still fails then is told again (kube-apiserver, --event-ttl).
const eventLife = 55 * time.Minute

// report tells a failure once until it is over or is another one. Who waits for the answer is told even of what is quiet otherwise, in the words
// of Kubernetes' service controller, whose event people look for; about what is to be deleted that tells by itself.
func (p *planning) report(what string, quiet bool) {
	if p.Intent != Keep || quiet && !p.Asked {
		return
	}
	m, text := &p.plan.Memory, p.plan.End.Refusal.Error()
	if m.Failure.What == what && p.Now.Sub(m.Failure.Told) < eventLife {
		return
	}
	m.Failure = Failure{What: what, Told: p.Now}
	if p.Asked {
		p.plan.Said = append(p.plan.Said, warning(ReasonSyncFailed, "Error syncing load balancer: failed to ensure load balancer: "+text))
		return
	}
	p.plan.Said = append(p.plan.Said, warning(ReasonFailed, text))
}

func outcomeOf(t *Trouble) Outcome {
	if t.Kind == Busy || t.limited() {
		return OutcomePending
	}
	return OutcomeFailed
}

// waits reports whether DigitalOcean may not be asked now; that is looked at once, at the begin of a pass.
func (p *planning) waits() bool {
	if p.List.Met != nil || p.last() != nil || p.Trust != nil {
		return false
	}
	until := p.Limited
	if p.Memory.NotUntil.After(until) {
		until = p.Memory.NotUntil
	}
	wait := until.Sub(p.Now)
	if wait > 0 {
		p.fail(Told, OutcomePending, wait, ErrToldToWait)
		p.report(ErrToldToWait.Error(), true)
	}
	return wait > 0
}

// recall learns from the Service of an attempt that another process made, and of which nobody knows what became of it.
func (p *planning) recall() {
	m := &p.plan.Memory
	own, _ := answer[NoteAttempt](p)
	for _, a := range attemptsOf(p.Service) {
		known := slices.Contains(m.Answered, a.Name) || slices.ContainsFunc(m.Attempted, func(b Attempt) bool { return a.Name == b.Name })
		if own == nil && !known {
			m.unsureOf(a, p.Now)
		}
	}
}

// Finalizer is what Kubernetes' service controller puts on a Service before its load balancer is made (k8s.io/cloud-provider, service/helpers).
const Finalizer = "service.kubernetes.io/load-balancer-cleanup"

// InHand reports whether Kubernetes' service controller has given a Service its finalizer, and neither it nor the Service's owner has let go.
func InHand(service *corev1.Service) bool { return wants(service) == nil && held(service) }

func held(service *corev1.Service) bool { return slices.Contains(service.Finalizers, Finalizer) }

// wants says why a Service does not want its load balancer kept, nil if it does.
func wants(service *corev1.Service) error {
	disowned, err := annotation.IsDisowned(service.Annotations)
	if asks := Asks(service); asks != nil || service.DeletionTimestamp != nil || err == nil && disowned {
		return fmt.Errorf("service %s no longer requests a load balancer", key(service))
	}
	return nil
}

// annotate is the step that writes annotations on the Service. It reports whether there is nothing to write.
func (p *planning) annotate(values map[string]string) bool {
	missing := maps.Clone(values)
	maps.DeleteFunc(missing, func(name, value string) bool {
		now, ok := p.Service.Annotations[name]
		return ok && now == value
	})
	last, _ := answer[Annotate](p)
	switch {
	case last != nil && last.Trouble != nil:
		p.trouble(last.Trouble, "writing annotations")
		return false
	case last != nil || len(missing) == 0:
		return true // once is enough: what somebody else has changed meanwhile stays
	}
	p.step(Annotate{missing})
	return false
}

// ConditionOwned is the condition of a Service that reports whether the load balancer that it asks for is its own. It is there once it was not,
// and MUST NOT be changed.
const ConditionOwned = "cloud.mooring.dev/LoadBalancerOwned"

// owns is the step that says on the Service whether the load balancer is its own. It reports whether there is nothing to write.
func (p *planning) owns(why string) bool {
	c := metav1.Condition{
		Type: ConditionOwned, Status: metav1.ConditionTrue, Reason: "Owned", Message: "the load balancer is this service's",
		ObservedGeneration: p.Service.Generation, LastTransitionTime: metav1.NewTime(p.Now),
	}
	if why != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, ReasonForeign, why
	}
	have := slices.IndexFunc(p.Service.Status.Conditions, func(x metav1.Condition) bool { return x.Type == ConditionOwned })
	said, _ := answer[SetCondition](p)
	switch {
	case said != nil, have < 0 && why == "":
		return true // a failure to say it is not a reason not to go on
	case have >= 0:
		now := p.Service.Status.Conditions[have]
		if now.Status == c.Status {
			c.LastTransitionTime = now.LastTransitionTime
		}
		if now.Status == c.Status && now.Message == c.Message {
			return true
		}
	}
	p.step(SetCondition{c})
	return false
}

// done ends the pass with a load balancer, and says what the Service's status is to show. A pass that nobody asked for writes it: the framework
// does so only when it has asked, and it does not ask about a load balancer that was being made when it did. Both write the same.
func (p *planning) done(lb Observed) {
	m, published := &p.plan.Memory, Publish(p.Service, lb)
	m.Busy = 0
	switch {
	case published.Ready:
		m.NewSince, m.Failure = time.Time{}, Failure{}
	case published.Failed:
		p.plan.End = &End{Outcome: p.outcome, LoadBalancer: &lb, Published: published, Refusal: &Refusal{Kind: Retry, Err: errors.New(published.Message)}}
		p.report(published.Message, false)
	default:
		m.Failure = Failure{}
		if m.NewSince.IsZero() {
			m.NewSince = p.Now
		}
		p.plan.Notes = append(p.plan.Notes, normal(ReasonPending, published.Message+"; its address is shown here as soon as it has one"))
	}
	if !p.owns("") {
		return
	}
	if shown, step := answer[ShowStatus](p); shown != nil {
		if shown.Trouble != nil {
			p.trouble(shown.Trouble, "writing the status")
			return
		}
		if p.last() == shown {
			p.plan.Said = append(p.plan.Said, normal(ReasonEnsured, fmt.Sprintf("Ensured load balancer: %s answers at %s", lb, addressesIn(step.Status))))
		}
	} else if !p.Asked && published.Ready && !sameStatus(p.Service.Status.LoadBalancer, published.Status) {
		p.step(ShowStatus{published.Status})
		return
	}
	next := p.again
	if !published.Ready && !published.Failed {
		every := m.pollEvery(p.Now, p.Pace.Poll) // at moments that are the same for all, so that they share one list
		next = p.Now.Truncate(every).Add(every).Sub(p.Now)
	}
	p.plan.End = &End{Outcome: p.outcome, LoadBalancer: &lb, Published: published, Next: next}
}
