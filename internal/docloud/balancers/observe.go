// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/mooring-dev/mooring/internal/docloud/budget"
	"github.com/mooring-dev/mooring/internal/docloud/cached"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
)

// scene is one round over one Service.
type scene struct {
	c     *Controller
	epoch uint64
	world loadbalancer.World
	// end is how the round ends, a failure until a plan says so; plans is how many were made.
	end   loadbalancer.End
	plans int
	// notes are what holds, by all plans of the round; complete says that they are all there is to say. said has just
	// happened.
	notes, said []loadbalancer.Note
	complete    bool
	// would are the steps of a round in which none is made.
	would []loadbalancer.Step
	// urgent reports that reads are as urgent as making and deleting.
	urgent bool
}

// begin gathers what is at hand.
func (c *Controller) begin(ctx context.Context, service *corev1.Service, intent loadbalancer.Intent, asked bool) *scene {
	t := c.timing
	unfinished := &loadbalancer.Refusal{Err: errors.New("no plan for the load balancer succeeds")}
	end := loadbalancer.End{Outcome: loadbalancer.OutcomeFailed, Refusal: unfinished}
	p := &scene{c: c, epoch: c.o.API.Epoch(), end: end, world: loadbalancer.World{
		Service: c.rehearsed(service), Cluster: c.o.Cluster, Intent: intent, Asked: asked, Memory: c.recall(service),
		Pace: loadbalancer.Pace{
			Pending: t.Pending, Change: t.Change, Poll: t.Poll, Resync: t.Resync, ListAge: t.ListAge, CertificateAge: t.CertificateAge,
			CertificateDoubt: t.CertificateDoubt, Unanswered: t.Unanswered,
		},
	}}
	c.mu.Lock()
	p.world.Limited, p.world.Turns = c.limited, loadbalancer.Turns{Namespace: c.turns[service.Namespace], All: c.turns[""]}
	c.mu.Unlock()
	var err error
	if p.world.Services, err = c.wanting(); err == nil {
		p.world.Nodes, err = c.sortedNodes()
	}
	p.world.Trouble = p.trouble(ctx, err)
	p.world.Identities = c.o.Identities(p.world.Nodes)
	return p
}

// longest is how many plans a round may take: the longest takes about a dozen.
const longest = 50

// plan lets package loadbalancer decide: more is read, or one step is made, or the round ends.
func (p *scene) plan() (out reconcile.Plan[loadbalancer.Needs, loadbalancer.Step, memory]) {
	if p == nil {
		return out
	}
	w := &p.world
	w.Now, w.Moved, w.Stamp = p.c.o.Clock.Now(), p.c.o.API.Epoch() != p.epoch, p.c.list.Stamp()
	plan := loadbalancer.MakePlan(*w)
	w.Memory, out.Memory = plan.Memory, &memory{keyOf(w.Service), w.Service.UID, plan.Memory}
	p.note(plan)
	switch p.plans++; {
	case plan.End != nil:
		p.end = *plan.End
	case p.plans > longest:
	case plan.Step != nil && p.c.rehearses():
		if p.rehearse(plan.Step) {
			return p.plan()
		}
	case plan.Step != nil:
		out.Steps, out.Again = []loadbalancer.Step{plan.Step}, true
		return out
	default:
		out.Needs = []loadbalancer.Needs{plan.Needs}
		return out
	}
	out.Steps = p.would
	if w.Intent != loadbalancer.Keep {
		return out // who asked comes back
	}
	out.Next = p.end.Next
	if r := p.end.Refusal; r != nil && (r.Kind == loadbalancer.Retry || r.Kind == loadbalancer.People) {
		out.Unread = []error{r}
	}
	return out
}

// note gathers what the plans of a round say.
func (p *scene) note(plan loadbalancer.Plan) {
	for _, n := range plan.Notes {
		if !slices.Contains(p.notes, n) {
			p.notes = append(p.notes, n)
		}
	}
	p.said, p.complete = append(p.said, plan.Said...), p.complete || plan.Complete
	if plan.Repaired != "" {
		p.c.o.Metrics.repair(plan.Repaired)
	}
}

// trust asks whether the account is still this cluster's; now reads that again.
func (p *scene) trust(ctx context.Context, now bool) *loadbalancer.Trust {
	ask := p.c.o.Fleet.Trusted
	if now {
		ask = p.c.o.Fleet.TrustedNow
	}
	return &loadbalancer.Trust{Doubt: ask(ctx)}
}

// read reads what a plan needs, in an order that matters: what is made is looked for after the Service was read, and a
// load balancer that still has a certificate is seen after the list that lacks it: DigitalOcean would have replaced it.
func (p *scene) read(ctx context.Context, needs loadbalancer.Needs) reconcile.Learned {
	w, learned := &p.world, func() {}
	p.urgent = p.urgent || needs.Urgent
	if p.urgent {
		ctx = doapi.Urgent(ctx, budget.Vital)
	}
	if needs.Again != nil {
		p.c.list.forget(needs.Again.LoadBalancer)
		w.Again = needs.Again
	}
	if needs.Trust {
		w.Trust = p.trust(ctx, needs.Account)
	}
	if needs.Live {
		live, err := p.c.read(ctx, w.Service)
		if w.Live, w.Trouble = err == nil, p.trouble(ctx, err); err != nil {
			return learned
		}
		w.Service = live
	}
	if d := needs.Certificates; d != nil {
		after, age := bounds(d, p.c.certificates.Stamp)
		r, err := p.c.certificates.Get(ctx, after, age)
		w.Certificates = readingOf(ctx, p, valueOf(r), *d, err)
	}
	if d := needs.List; d != nil {
		after, age := bounds(d, p.c.list.Stamp)
		items, err := p.c.list.all(ctx, after, age)
		w.List = readingOf(ctx, p, items, *d, err)
	}
	if needs.Allowance {
		p.allow(ctx)
	}
	if needs.ByID != "" {
		lb, err := p.c.o.API.LoadBalancer(ctx, needs.ByID)
		answer := loadbalancer.LookedUp{ID: needs.ByID}
		switch {
		case err == nil:
			answer.Found = &lb
		case !errors.Is(err, doapi.ErrNotFound):
			answer.Trouble = p.trouble(ctx, err)
		}
		w.ByID = append(w.ByID, answer)
	}
	if needs.Endpoints {
		nodes, err := p.c.endpoints.nodesOf(ctx, p.c.client, w.Service)
		w.Endpoints = &loadbalancer.Endpoints{Nodes: nodes, Problem: err}
	}
	if needs.Droplets {
		droplets, err := p.c.o.Fleet.Droplets(ctx)
		w.Droplets = readingOf(ctx, p, droplets, loadbalancer.Demand{}, err)
		w.Identities = p.c.o.Identities(w.Nodes)
	}
	return learned
}

// bounds are the stamp and the age that a demand comes to. A list of this pass begins now.
func bounds(d *loadbalancer.Demand, stamp func() uint64) (after uint64, age time.Duration) {
	if d.Since > 0 {
		return max(d.After, stamp()), time.Hour
	}
	return d.After, d.Age
}

func valueOf[T any](r *cached.Reading[[]T]) []T {
	if r == nil {
		return nil
	}
	return r.Value
}

func readingOf[T any](ctx context.Context, p *scene, items []T, d loadbalancer.Demand, err error) loadbalancer.Reading[T] {
	return loadbalancer.Reading[T]{Items: items, Met: &d, Trouble: p.trouble(ctx, err)}
}

// trouble puts an error in the plan's terms, nil for none. A limit on calls is noted for all Services.
func (p *scene) trouble(ctx context.Context, err error) *loadbalancer.Trouble {
	if err == nil {
		return nil
	}
	t := &loadbalancer.Trouble{Err: err, Until: doapi.NotBefore(err)}
	if answered, ok := errors.AsType[*doapi.Error](err); ok {
		t.Said = answered.Message
	}
	for _, k := range []struct {
		kind error
		is   loadbalancer.TroubleKind
	}{
		{doapi.ErrHeld, loadbalancer.Postponed}, {doapi.ErrRateLimited, loadbalancer.Limited}, {doapi.ErrBusy, loadbalancer.Busy},
		{doapi.ErrRefused, loadbalancer.Refused}, {doapi.ErrNotFound, loadbalancer.Missing}, {doapi.ErrAmbiguous, loadbalancer.Unanswered},
	} {
		if errors.Is(err, k.kind) {
			t.Kind = k.is
			break
		}
	}
	if t.Kind == loadbalancer.Failed && ctx.Err() != nil {
		t.Kind = loadbalancer.Interrupted
	}
	if t.Kind == loadbalancer.Limited {
		p.c.mu.Lock()
		defer p.c.mu.Unlock()
		if t.Until.After(p.c.limited) {
			p.c.limited = t.Until
		}
	}
	return t
}

// wanting returns the Services that want a load balancer of this controller.
func (c *Controller) wanting() ([]*corev1.Service, error) {
	all, err := c.services.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("reading Services: %w", err)
	}
	return slices.DeleteFunc(all, func(s *corev1.Service) bool { return loadbalancer.Asks(s) != nil }), nil
}

// sortedNodes returns all Nodes in the order of names, so that the same Nodes always make the same request.
func (c *Controller) sortedNodes() ([]*corev1.Node, error) {
	all, err := c.nodes.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("reading Nodes: %w", err)
	}
	slices.SortFunc(all, func(x, y *corev1.Node) int { return strings.Compare(x.Name, y.Name) })
	return all, nil
}

// LoadBalancers returns the load balancers of the account, from a list that is not older than age. They MUST NOT be changed: many share them.
func (c *Controller) LoadBalancers(ctx context.Context, age time.Duration) ([]loadbalancer.Observed, error) {
	return c.list.all(ctx, 0, age)
}

// LoadBalancerIDs returns the IDs of the account's load balancers; one that was made by this process is always among them.
func (c *Controller) LoadBalancerIDs(ctx context.Context) ([]string, error) {
	list, err := c.LoadBalancers(ctx, c.timing.Settle)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(list))
	for i, lb := range list {
		ids[i] = lb.ID
	}
	return ids, nil
}

// ClusterDroplets returns the droplets of the cluster's Nodes, as far as they are known.
func (c *Controller) ClusterDroplets() ([]int, error) {
	nodes, err := c.sortedNodes()
	if err != nil {
		return nil, err
	}
	return loadbalancer.DropletsOf(nodes), nil
}

// spread is how long to wait when DigitalOcean asked to wait.
func (c *Controller) spread(wait time.Duration) time.Duration {
	return max(reconcile.Spread(wait), c.timing.Pending)
}
