// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	servicehelpers "k8s.io/cloud-provider/service/helpers"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
)

// mayCreate says whether a load balancer may be made, and reads the Service anew: another pass, or another process, may have made one since, or
// the Service may be gone. On another account, or on one where nothing of the cluster is visible, nothing is made.
func (p *pass) mayCreate(ctx context.Context) error {
	if err := p.b.fleet.Trusted(ctx); err != nil {
		p.warn(reasonDoubt, err.Error())
		return fmt.Errorf("no load balancer is made: %w", err)
	}
	service, err := p.b.read(ctx, p.service)
	if err != nil {
		return err
	}
	disowned, err := annotation.IsDisowned(service.Annotations)
	if asks := loadbalancer.Asks(service); asks != nil || service.DeletionTimestamp != nil || err == nil && disowned {
		return fmt.Errorf("service %s does not want a load balancer any more", keyOf(service))
	}
	// Without its finalizer the Service could go and leave the load balancer behind. The framework adds it first.
	if !servicehelpers.HasLBFinalizer(service) {
		return fmt.Errorf("service %s does not have finalizer %s yet", keyOf(service), servicehelpers.LoadBalancerCleanupFinalizer)
	}
	p.service = service
	return nil
}

// create notes on the Service the name under which a load balancer is about to be made, makes it, and notes its ID. Without an answer it may have
// been made all the same, and where its name is taken an earlier attempt may have made it: then it is looked for once, and again in the next pass.
func (p *pass) create(ctx context.Context, result loadbalancer.Result) error {
	if p.b.api.Epoch() != p.epoch {
		return errListMoved
	}
	if err := p.settled(result.Request.Name); err != nil {
		return err
	}
	p.warnOfLeftover(ctx, result)
	if err := p.noteAttempt(ctx, result.Request.Name); err != nil {
		return err
	}
	again := p.service.Annotations[annotation.LoadBalancerID]
	lb, err := p.b.api.CreateLoadBalancer(ctx, result.Request, result.CreateOnly)
	switch {
	case err == nil:
		p.b.list.learn(lb, p.epoch)
	case errors.Is(err, doapi.ErrAmbiguous), errors.Is(err, doapi.ErrRefused), ctx.Err() != nil:
		if errors.Is(err, doapi.ErrRefused) {
			p.memory.sureOf(result.Request.Name)
		} else {
			p.memory.unsureOf(result.Request.Name, p.b.clock.Now())
		}
		p.memory.notBefore = p.b.list.stamp()
		if !doapi.NotBefore(err).IsZero() {
			return fmt.Errorf("making load balancer %q: %w", result.Request.Name, err)
		}
		identity, failed := p.identify(ctx, p.memory.notBefore)
		if failed == nil && identity.LoadBalancer == nil || failed != nil && identity.Ownership != loadbalancer.Foreign {
			return fmt.Errorf("making load balancer %q: %w", result.Request.Name, err)
		}
		if failed != nil {
			return failed
		}
		lb = *identity.LoadBalancer
	default:
		p.memory.sureOf(result.Request.Name)
		return fmt.Errorf("making load balancer %q: %w", result.Request.Name, err)
	}
	p.lb, p.outcome, p.memory.notKept = &lb, outcomeCreated, nil
	if again != "" && again != lb.ID {
		p.b.metrics.repair(outcomeCreated)
		p.warn(reasonRecreated, fmt.Sprintf("%s was made, since load balancer %s does not exist any more; its address is another one", lb, again))
	}
	return p.annotate(ctx, map[string]string{annotation.LoadBalancerID: lb.ID, annotation.Type: lb.Type})
}

// settled says whether a load balancer of that name may be made although a POST with another name got no answer not long ago: unlike the same
// name, which is taken then, it would be a second one.
func (p *pass) settled(name string) error {
	other := slices.IndexFunc(p.memory.attempted, func(tried string) bool { return tried != name })
	if other >= 0 && p.b.clock.Since(p.memory.unsureSince) < p.b.timing.Unanswered {
		return fmt.Errorf("a load balancer %q may have been made just now and may not be in the list yet, %q is not made until that is certain",
			p.memory.attempted[other], name)
	}
	return nil
}

// warnOfLeftover tells of a load balancer of this cluster's that no Service leads to and that looks as if it had been made for this one.
func (p *pass) warnOfLeftover(ctx context.Context, result loadbalancer.Result) {
	list, err := p.b.list.all(ctx, 0, p.b.timing.ListAge)
	if err != nil {
		return
	}
	others, err := p.b.wanting()
	if err != nil {
		return
	}
	s := loadbalancer.Search{Service: p.service, Others: others, ClusterID: p.b.cluster.ID, List: list, Rules: result.Request.ForwardingRules}
	if left := loadbalancer.Leftover(s); left != nil {
		p.warn(reasonLeftover, fmt.Sprintf("%s carries this cluster's tag, has the ports of this service, and is no service's: it may be left over from "+
			"before a change of annotation %s; delete it, or set annotation %s to its ID to use it", left, annotation.Name, annotation.LoadBalancerID))
	}
}

// update makes a load balancer what it must be. One that is new takes no change.
func (p *pass) update(ctx context.Context, lb loadbalancer.Observed, result loadbalancer.Result) error {
	p.lb = &lb
	if err := p.annotate(ctx, result.Annotate); err != nil {
		return err
	}
	switch lb.Status {
	case loadbalancer.StatusNew:
		p.outcome = outcomePending
		return nil
	case loadbalancer.StatusActive:
	default:
		p.outcome = outcomeFailed
		return nil
	}
	all := loadbalancer.Diff(lb, result.Request)
	p.memory.notKept = slices.DeleteFunc(p.memory.notKept, func(d loadbalancer.Difference) bool {
		return len(loadbalancer.Except([]loadbalancer.Difference{d}, all)) > 0
	})
	all = loadbalancer.Except(all, p.memory.notKept)
	curable := loadbalancer.Curable(all, loadbalancer.RemedyUpdate)
	settings, err := settingsOf(result.Request)
	if err != nil {
		return err
	}
	if len(curable) > 0 {
		if err := p.stillAsRead(ctx); err != nil {
			return err
		}
	}
	// Droplets come and go with Nodes, so that they tell of a hand elsewhere only if nobody asked for the pass.
	_, _, targets := loadbalancer.OnlyTargets(all)
	drift := (p.looked || !targets) && bytes.Equal(settings, p.memory.inPlace)
	p.memory.inPlace = settings
	if len(curable) == 0 {
		return nil
	}
	if drift {
		p.b.metrics.drift(curable)
	}
	p.b.log.Info("Changing a load balancer", "service", keyOf(p.service), "id", lb.ID, "differences", texts(curable))
	if err := p.write(ctx, &lb, result.Request, all); err != nil {
		if !drift {
			p.memory.inPlace = nil
		}
		return p.failed(lb, err)
	}
	p.memory.suspect = false
	if drift {
		p.b.metrics.repair(p.outcome)
		p.repaired(lb, curable)
	}
	return nil
}

// stillAsRead reads the Service live before its load balancer is changed. The informer may lag: what was decided for a Service that has been disowned,
// edited or deleted since must not be sent. Then it returns a waitError, after which the queue decides again.
func (p *pass) stillAsRead(ctx context.Context) error {
	live, err := p.b.read(ctx, p.service)
	if err != nil {
		return err
	}
	if inHand(live) && maps.Equal(live.Annotations, p.service.Annotations) && equality.Semantic.DeepEqual(live.Spec, p.service.Spec) {
		return nil
	}
	p.outcome = outcomePending
	return waitError{fmt.Sprintf("service %s has changed since it was read", keyOf(live)), p.b.timing.Pending}
}

// settingsOf is a request without its droplets, in a form that can be compared.
func settingsOf(r loadbalancer.Request) ([]byte, error) {
	r.DropletIDs = nil
	settings, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encoding the load balancer's settings: %w", err)
	}
	return settings, nil
}

// write makes the one call that cures the differences: where only targets are to be added, or only to be removed, the API has a call of its own.
func (p *pass) write(ctx context.Context, lb *loadbalancer.Observed, request loadbalancer.Request, all []loadbalancer.Difference) error {
	add, remove, targets := loadbalancer.OnlyTargets(all)
	switch {
	case targets && len(remove) == 0:
		p.outcome = outcomeTargets
		if err := p.b.api.AddDroplets(ctx, lb.ID, add); err != nil {
			return err
		}
		lb.DropletIDs = slices.Concat(lb.DropletIDs, add)
	case targets && len(add) == 0:
		p.outcome = outcomeTargets
		if err := p.b.api.RemoveDroplets(ctx, lb.ID, remove); err != nil {
			return err
		}
		lb.DropletIDs = slices.DeleteFunc(slices.Clone(lb.DropletIDs), func(id int) bool { return slices.Contains(remove, id) })
	default:
		p.outcome = outcomeUpdated
		updated, err := p.b.api.UpdateLoadBalancer(ctx, lb.ID, request)
		if err != nil {
			return err
		}
		*lb = updated
		p.memory.notKept = loadbalancer.Curable(loadbalancer.Diff(updated, request), loadbalancer.RemedyUpdate)
		if len(p.memory.notKept) > 0 {
			p.b.log.Info("DigitalOcean did not keep all that was sent", "service", keyOf(p.service), "id", lb.ID, "differences", texts(p.memory.notKept))
		}
	}
	p.b.list.learn(*lb, p.epoch)
	return nil
}

// failed remembers what a failed change means for the next pass.
func (p *pass) failed(lb loadbalancer.Observed, err error) error {
	p.outcome = outcomeFailed
	switch {
	case errors.Is(err, doapi.ErrBusy), errors.Is(err, doapi.ErrRateLimited):
		p.outcome = outcomePending
	case errors.Is(err, doapi.ErrRefused), errors.Is(err, doapi.ErrNotFound):
		// Either the load balancer or one of its droplets may be gone.
		p.memory.suspect = true
		p.b.list.forget(lb.ID)
		p.memory.notBefore = p.b.list.stamp()
	default:
		p.b.list.forget(lb.ID)
		p.memory.notBefore = p.b.list.stamp()
	}
	return fmt.Errorf("changing %s: %w", lb, err)
}

// remove deletes the load balancer of a Service that wants none any more.
func (p *pass) remove(ctx context.Context) error {
	lb, s, err := p.mine(ctx)
	if err != nil || lb == nil {
		return err
	}
	if may, why := loadbalancer.MayDelete(s, *lb); !may {
		p.outcome = outcomeRefused
		p.warn(reasonKept, why)
		return errors.New(why)
	}
	if err := p.b.api.DeleteLoadBalancer(ctx, lb.ID); err != nil {
		p.b.list.forget(lb.ID)
		p.memory.notBefore = p.b.list.stamp()
		return err
	}
	// That there is none, which counts as deleted, may be the word of another account by now.
	if p.b.api.Epoch() != p.epoch {
		return errListMoved
	}
	p.outcome = outcomeDeleted
	p.b.list.gone(lb.ID, p.epoch)
	return nil
}

func texts(all []loadbalancer.Difference) string {
	out := make([]string, len(all))
	for i, d := range all {
		out[i] = d.Message
	}
	return strings.Join(out, "; ")
}
