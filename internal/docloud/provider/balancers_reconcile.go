// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/budget"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/docloud/providerid"
)

// memory is what is remembered of a Service between passes. It is about one Service by UID, and guarded by that Service's lock.
type memory struct {
	uid string
	// notBefore is how new the list must be for the next pass: something happened of which no answer arrived.
	notBefore stamp
	// unsureSince is when a POST got no answer and the load balancer was not found since, zero for no such thing.
	unsureSince time.Time
	// attempted are the names that this POST and others before it carried. answered are those of POSTs that got an answer, which was no: what the
	// Service says of them, in a view that may be old, is no reason to doubt.
	attempted, answered []string
	// notKept are the differences that remained right after a PUT that was accepted: DigitalOcean does not keep what was sent.
	notKept []loadbalancer.Difference
	// suspect says that DigitalOcean refused the droplets: those that are not in the account any more are not sent again.
	suspect bool
	// inPlace is the request that the load balancer was last known to agree with, but for its droplets: what differs from it while it is still
	// the right one was changed elsewhere. Nil for none.
	inPlace []byte
	// certifying is since when a certificate of Let's Encrypt is waited for, the zero time for no such thing; ordered and orderedAt are the name and the
	// time of the last POST of one that was answered with it, or not at all.
	certifying, orderedAt time.Time
	ordered               string
	// told are the events that still hold; failing says that the last look failed.
	told    map[note]bool
	failing bool
	// notUntil is when DigitalOcean may be asked again on behalf of the Service, because it asked to wait; the zero time for at once.
	notUntil time.Time
	// newSince is since when the load balancer is being made, the zero time for one that is not; busy is how often in a row it took no change.
	newSince time.Time
	busy     int
}

// unsureOf remembers that a load balancer of that name may have been made.
func (m *memory) unsureOf(name string, now time.Time) {
	m.unsureSince = now
	m.answered = without(m.answered, name)
	m.attempted = append(without(m.attempted, name), name)
}

// sureOf remembers that no load balancer of that name was made by the last POST.
func (m *memory) sureOf(name string) {
	m.answered = append(without(m.answered, name), name)
}

func without(names []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(s string) bool { return s == name })
}

// laterError is a failure after which DigitalOcean asked to wait: nothing may be sent before that time is over.
type laterError struct {
	error
	wait time.Duration
}

func (e laterError) Unwrap() error { return e.error }

// errToldToWait means that DigitalOcean asked to wait, and the time is not over.
var errToldToWait = fmt.Errorf("DigitalOcean asked to wait before the next call: %w", doapi.ErrRateLimited)

// mayAsk says whether DigitalOcean may be asked now. A limit on calls holds for all Services, whatever else it asked to wait for for this one.
func (p *pass) mayAsk() error {
	p.b.mu.Lock()
	until := p.b.limited
	p.b.mu.Unlock()
	if p.memory.notUntil.After(until) {
		until = p.memory.notUntil
	}
	if wait := until.Sub(p.b.clock.Now()); wait > 0 {
		p.outcome = outcomePending
		return laterError{errToldToWait, spread(wait)}
	}
	return nil
}

// heed notes what an error of DigitalOcean's asks to wait for.
func (p *pass) heed(err error) error {
	until := doapi.NotBefore(err)
	wait := until.Sub(p.b.clock.Now())
	if wait <= 0 {
		return err
	}
	if errors.Is(err, doapi.ErrHeld) {
		return laterError{err, spread(wait)} // it was not made, and one that is more urgent might be
	}
	p.memory.notUntil = until
	if errors.Is(err, doapi.ErrRateLimited) {
		p.b.mu.Lock()
		if until.After(p.b.limited) {
			p.b.limited = until
		}
		p.b.mu.Unlock()
	}
	return laterError{err, spread(wait)}
}

// spread adds up to a fifth, and a second at least, by chance, so that not all come back at once.
func spread(wait time.Duration) time.Duration {
	return wait + rand.N(max(wait/5, time.Second)) //nolint:forbidigo,gosec // nothing depends on the number, it keeps callers out of step
}

// heldError is a failure that trying again does not cure: people have to change something, and then a new pass is made.
type heldError struct{ error }

func (e heldError) Unwrap() error { return e.error }

// Outcomes of a pass; they are the label of a metric and MUST not be changed.
const (
	outcomeUnchanged = "unchanged"
	outcomeCreated   = "created"
	outcomeUpdated   = "updated"
	outcomeTargets   = "targets"
	outcomeDeleted   = "deleted"
	outcomePending   = "pending"
	outcomeRefused   = "refused"
	outcomeFailed    = "failed"
)

// pass is one pass over one Service. It makes at most one write to DigitalOcean.
type pass struct {
	b       *Balancers
	service *corev1.Service
	memory  *memory
	// looked says that nobody asked for the pass.
	looked bool
	epoch  uint64

	lb      *loadbalancer.Observed
	outcome string
	// again is when the Service is to be looked at again although nothing failed, 0 for when there is reason to.
	again time.Duration
	// certificatesAfter is how new the list of certificates must be.
	certificatesAfter stamp
	// strange says that the load balancer has a certificate that the list of certificates lacks.
	strange bool
	// notes become events; complete says that they are all there is to say.
	notes    []note
	complete bool
}

// begin starts a pass and waits until no other is made over the Service.
func (b *Balancers) begin(service *corev1.Service) (*pass, func()) {
	key := keyOf(service)
	unlock := b.passes.lock(key)
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.memories[key]
	if m == nil || m.uid != string(service.UID) {
		m = &memory{uid: string(service.UID), told: map[note]bool{}}
		b.memories[key] = m
	}
	return &pass{b: b, service: service, memory: m, epoch: b.api.Epoch(), outcome: outcomeUnchanged}, unlock
}

// reconcile makes one pass, and says what the Service's status is to show.
func (b *Balancers) reconcile(ctx context.Context, service *corev1.Service, looked bool) (loadbalancer.Published, error) {
	leave, err := b.gate.enter(ctx)
	if err != nil {
		return loadbalancer.Published{}, err
	}
	defer leave()
	p, unlock := b.begin(service)
	defer unlock()
	p.looked = looked
	if err = p.mayAsk(); err == nil {
		err = p.heed(p.run(ctx))
	}
	published := loadbalancer.Published{}
	if !errors.Is(err, doapi.ErrBusy) {
		p.memory.busy = 0
	}
	if err == nil {
		published, err = p.publish(ctx)
	}
	if p.again > 0 {
		b.queue.AddAfter(keyOf(service), p.again)
	}
	p.tell()
	b.metrics.sync(p.outcome, err)
	if err != nil {
		return loadbalancer.Published{}, fmt.Errorf("load balancer of service %s: %w", keyOf(service), err)
	}
	return published, nil
}

// age is how old the list of load balancers may be for this pass. One that is being made is looked at more often.
func (p *pass) age() time.Duration {
	if p.memory.newSince.IsZero() {
		return p.b.timing.ListAge
	}
	return min(p.b.timing.ListAge, p.b.timing.Poll/2)
}

// run observes, decides and writes. What is about to be made is looked for a second time, with a new list and the Service as it is now: nothing
// is made on the word of a list that may be old, or for a Service that may be gone. What has a certificate that is not listed is looked at a second
// time with both lists new.
func (p *pass) run(ctx context.Context) error {
	after, sure, again := p.memory.notBefore, false, false
	for {
		identity, err := p.identify(ctx, after)
		if err != nil {
			return err
		}
		result, err := p.decide(ctx, identity.LoadBalancer)
		switch {
		case err != nil:
			return err
		case p.awaits(identity.LoadBalancer, result.Certificate):
			return p.certify(ctx, identity.LoadBalancer, result)
		case identity.LoadBalancer != nil && !again && p.outdated(*identity.LoadBalancer, result):
			p.b.list.forget(identity.LoadBalancer.ID)
			after, p.certificatesAfter, again = p.b.list.stamp(), p.b.certificates.stamp(), true
			continue
		case identity.LoadBalancer != nil:
			return p.update(ctx, *identity.LoadBalancer, result)
		case sure:
			return p.create(ctx, result)
		}
		after, ctx, sure = p.b.list.stamp(), doapi.Urgent(ctx, budget.Vital), true
		if err := p.mayCreate(ctx); err != nil {
			return err
		}
	}
}

// outdated says that a load balancer would be changed that was seen with a certificate which the list of certificates lacks. DigitalOcean renews
// certificates: either may be older than a renewal that the other shows, so that to send what they say together would be to fight DigitalOcean.
func (p *pass) outdated(lb loadbalancer.Observed, result loadbalancer.Result) bool {
	return p.strange && len(loadbalancer.Curable(loadbalancer.Diff(lb, result.Request), loadbalancer.RemedyUpdate)) > 0
}

// identify says which load balancer is the Service's, from a list that was begun after the stamp. Foreign and unclear ones are errors.
func (p *pass) identify(ctx context.Context, after stamp) (loadbalancer.Identity, error) {
	identity, _, err := p.search(ctx, after)
	if err != nil {
		return identity, err
	}
	switch identity.Ownership {
	case loadbalancer.Foreign:
		p.warn(reasonForeign, identity.Message)
		return identity, heldError{errors.New(identity.Message)}
	case loadbalancer.Unclear:
		return identity, errors.New(identity.Message)
	default:
	}
	if identity.Warning != "" {
		p.warn(reasonForeign, identity.Warning)
	}
	if identity.LoadBalancer != nil {
		p.memory.unsureSince, p.memory.attempted, p.memory.answered = time.Time{}, nil, nil
	}
	return identity, nil
}

func (p *pass) search(ctx context.Context, after stamp) (loadbalancer.Identity, loadbalancer.Search, error) {
	p.recall()
	s := loadbalancer.Search{Service: p.service, ClusterID: p.b.cluster.ID, Complete: true, Attempted: p.memory.attempted}
	var err error
	if s.List, err = p.b.list.all(ctx, after, p.age()); err != nil {
		return loadbalancer.Identity{}, s, fmt.Errorf("listing load balancers: %w", err)
	}
	if s.Others, err = p.b.wanting(); err != nil {
		return loadbalancer.Identity{}, s, err
	}
	nodes, err := p.b.sortedNodes()
	if err != nil {
		return loadbalancer.Identity{}, s, err
	}
	s.Droplets = dropletsOf(nodes)
	identity := loadbalancer.Identify(s)
	if identity.AskByID {
		if s.ByID, err = p.lookup(ctx, p.service.Annotations[annotation.LoadBalancerID]); err != nil {
			return identity, s, err
		}
		identity = loadbalancer.Identify(s)
	}
	// The rules that the load balancer must have matter only for one that is in the way.
	if identity.Ownership == loadbalancer.Foreign {
		result, err := p.desired(ctx, nil)
		switch _, wrong := errors.AsType[loadbalancer.Problems](err); {
		case err == nil:
			s.Rules = result.Request.ForwardingRules
			identity = loadbalancer.Identify(s)
		case !wrong:
			return identity, s, err // not enough was read to call it somebody else's
		}
	}
	return identity, s, nil
}

func (p *pass) lookup(ctx context.Context, id string) (*loadbalancer.Lookup, error) {
	lb, err := p.b.api.LoadBalancer(ctx, id)
	switch {
	case errors.Is(err, doapi.ErrNotFound):
		return &loadbalancer.Lookup{}, nil
	case err != nil:
		return nil, fmt.Errorf("reading load balancer %s: %w", id, err)
	}
	return &loadbalancer.Lookup{Found: &lb}, nil
}

// decide says what the load balancer must be, and notes all that its owner should know.
func (p *pass) decide(ctx context.Context, observed *loadbalancer.Observed) (loadbalancer.Result, error) {
	result, err := p.desired(ctx, observed)
	problems, wrong := errors.AsType[loadbalancer.Problems](err)
	if err != nil && !wrong {
		return result, err
	}
	p.complete = true
	for _, w := range result.Warnings {
		p.warn(w.Reason, w.Message)
	}
	p.mention(result.LeftOut)
	problems = slices.DeleteFunc(slices.Clone(problems), func(problem error) bool { // what only takes its time is not wrong
		wait, ok := errors.AsType[*loadbalancer.CertificateWait](problem)
		return ok && !wait.Failed
	})
	if wrong && len(problems) == 0 {
		return result, nil
	}
	for _, problem := range problems {
		p.warn(reasonOf(problem), problem.Error())
	}
	if wrong {
		return result, heldError{err}
	}
	return result, nil
}

// reasonOf is the reason of the event of a problem.
func reasonOf(problem error) string {
	if errors.Is(problem, loadbalancer.ErrNoNodes) {
		return reasonNoNodes
	}
	if _, ok := errors.AsType[*loadbalancer.CertificateWait](problem); ok {
		return reasonCertFailed
	}
	return reasonConfig
}

// desired reads what is needed besides and asks the pure package.
func (p *pass) desired(ctx context.Context, observed *loadbalancer.Observed) (loadbalancer.Result, error) {
	nodes, err := p.b.sortedNodes()
	if err != nil {
		return loadbalancer.Result{}, err
	}
	in := loadbalancer.Input{Service: p.service, Nodes: nodes, Cluster: p.b.cluster, Observed: observed}
	needs := loadbalancer.NeedsOf(in)
	if needs.Droplets {
		if in.Droplets, err = p.b.fleet.Droplets(ctx); err != nil {
			return loadbalancer.Result{}, err
		}
	}
	if needs.Certificates {
		certificates, err := p.certificates(ctx, observed)
		switch {
		case err == nil:
			in.Certificates = certificates
		case observed == nil || p.service.Annotations[annotation.CertificateID] == "":
			return loadbalancer.Result{}, fmt.Errorf("listing certificates: %w", err)
		default:
			in.PartialCertificates = true
		}
	}
	result, err := loadbalancer.Desired(in)
	if err == nil && p.memory.suspect {
		err = p.withoutGone(ctx, &result.Request)
	}
	return result, err
}

// withoutGone takes droplets that are not in the account any more out of a request that was refused. Their Nodes may stay for a while when
// many are lost at a time, and must not keep all others from being served. If none would be left the request stays as it is.
func (p *pass) withoutGone(ctx context.Context, r *loadbalancer.Request) error {
	droplets, err := p.b.fleet.Droplets(ctx)
	if err != nil {
		return err
	}
	there := make(map[int]bool, len(droplets))
	for _, d := range droplets {
		there[d.ID] = true
	}
	left := slices.DeleteFunc(slices.Clone(r.DropletIDs), func(id int) bool { return !there[id] })
	if len(left) > 0 {
		r.DropletIDs = left
	}
	return nil
}

// find returns the load balancer that is the Service's, nil if there is none. It is for Services that are about to be deleted.
func (p *pass) find(ctx context.Context) (*loadbalancer.Observed, error) {
	lb, _, err := p.mine(ctx)
	return lb, err
}

// mine is find with what MayDelete asks for. A load balancer that is somebody else's is left to them with a note. That there is none is said only
// if the answers are about this cluster, and no POST without an answer is still under way.
func (p *pass) mine(ctx context.Context) (*loadbalancer.Observed, loadbalancer.Search, error) {
	identity, s, err := p.search(ctx, p.memory.notBefore)
	if err == nil && identity.Ownership == loadbalancer.Absent {
		// Another process may have made it since the list was read.
		identity, s, err = p.search(ctx, p.b.list.stamp())
	}
	if err != nil {
		return nil, s, err
	}
	switch identity.Ownership {
	case loadbalancer.Ours:
		return identity.LoadBalancer, s, nil
	case loadbalancer.Foreign:
		p.warn(reasonForeign, identity.Message)
		return nil, s, nil
	case loadbalancer.Unclear:
		return nil, s, errors.New(identity.Message)
	case loadbalancer.Absent:
	}
	if err := p.b.fleet.Trusted(ctx); err != nil {
		p.warn(reasonDoubt, err.Error())
		return nil, s, fmt.Errorf("the load balancer is not visible, but that is no proof that there is none: %w", err)
	}
	if since := p.memory.unsureSince; !since.IsZero() && p.b.clock.Since(since) < p.b.timing.Unanswered {
		return nil, s, errors.New("a load balancer may have been made just now and may not be in the list yet")
	}
	if p.b.api.Epoch() != p.epoch {
		return nil, s, errListMoved
	}
	return nil, s, nil
}

// wanting returns the Services that want a load balancer of this controller.
func (b *Balancers) wanting() ([]*corev1.Service, error) {
	all, err := b.services.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("reading Services: %w", err)
	}
	return slices.DeleteFunc(all, func(s *corev1.Service) bool { return loadbalancer.Asks(s) != nil }), nil
}

// sortedNodes returns all Nodes in the order of names, so that the same Nodes always make the same request.
func (b *Balancers) sortedNodes() ([]*corev1.Node, error) {
	all, err := b.nodes.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("reading Nodes: %w", err)
	}
	slices.SortFunc(all, func(x, y *corev1.Node) int { return cmp.Or(strings.Compare(x.Name, y.Name)) })
	return all, nil
}

func dropletsOf(nodes []*corev1.Node) []int {
	var ids []int
	for _, node := range nodes {
		if id, err := providerid.Parse(node.Spec.ProviderID); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}
