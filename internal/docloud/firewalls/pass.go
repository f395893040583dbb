// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package firewalls

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/mooring-dev/mooring/internal/docloud/cached"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/firewall"
)

// memory is what is remembered between passes.
type memory struct {
	// last is the firewall as it was last read or written, nil if it is to be read before anything is decided.
	last *firewall.Observed
	// id is that of the cluster's firewall, empty if it was not seen yet; epoch is when last and id were learned.
	id    string
	epoch uint64
	// rules are those that the firewall had when it was last seen, for one that was deleted since.
	rules []firewall.InboundRule
	// notKept are the differences that remained right after a PUT that was accepted.
	notKept []firewall.Difference
	// inPlace is the request that the firewall was last known to agree with: what differs while it is still the right one was changed elsewhere.
	inPlace []byte
	// refused reports that DigitalOcean did not take a request, so that the load balancers that Services name are looked up; it stays as long as one
	// of them does not exist.
	refused bool
	// told are the events that still hold.
	told map[note]bool
}

// errForeign means that the firewall of that name is somebody else's: people have to decide.
var errForeign = errors.New("the firewall is not this cluster's")

// pass makes the firewall what it must be, with one write at most. fresh says that it is to be read first, whatever is remembered of it.
func (c *Controller) pass(ctx context.Context, fresh bool) error {
	ctx, cancel := context.WithTimeout(ctx, c.timing.Pass)
	defer cancel()
	began := c.clock.Now()
	p := &one{c: c, outcome: outcomeUnchanged}
	err := p.run(ctx, fresh)
	p.tell(err)
	p.settle(ctx)
	c.metrics.pass(p.outcome, err, ctx.Err() != nil, c.clock.Since(began))
	if err != nil {
		c.log.Error(err, "The reconcile of the firewall failed, will try again", "name", c.config.Name)
	}
	return err
}

// one is one pass.
type one struct {
	c        *Controller
	result   firewall.Result
	decided  bool
	outcome  string
	tellings []telling
}

// run observes, decides and writes. It decides up to three times, each time on better knowledge and only if there is something to write: on what is
// remembered, on the firewall as it is now, and, if something is to be closed or made, on the Services as they are now.
func (p *one) run(ctx context.Context, fresh bool) error {
	c := p.c
	if epoch := c.api.Epoch(); epoch != c.memory.epoch {
		c.memory.last, c.memory.id, c.memory.epoch = nil, "", epoch
	}
	services, err := c.services.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing services: %w", err)
	}
	read := fresh || c.memory.last == nil
	differences, agrees, err := p.compare(ctx, services, read)
	if err == nil && !agrees && !read {
		differences, agrees, err = p.compare(ctx, services, true)
	}
	if err != nil || agrees {
		return err
	}
	if firewall.Closes(differences) || c.memory.last == nil {
		if services, err = c.confirm(ctx); err != nil {
			return err
		}
		if differences, agrees, err = p.compare(ctx, services, false); err != nil || agrees {
			return err
		}
	}
	return p.write(ctx, differences)
}

// compare decides, after the firewall was read again if that is asked for, and reports whether there is nothing to write.
func (p *one) compare(ctx context.Context, services []*corev1.Service, read bool) (differences []firewall.Difference, agrees bool, err error) {
	if read {
		if err := p.read(ctx); err != nil {
			return nil, false, err
		}
	}
	differences, err = p.decide(ctx, services)
	return differences, len(differences) == 0 && p.c.memory.last != nil, err
}

// write makes the one write of a pass, if the account is the cluster's.
func (p *one) write(ctx context.Context, differences []firewall.Difference) error {
	c := p.c
	if err := c.surroundings.Trusted(ctx); err != nil {
		p.warn(reasonDoubt, "", err.Error())
		return fmt.Errorf("the firewall is left as it is: %w", err)
	}
	if c.api.Epoch() != c.memory.epoch {
		return cached.ErrMoved
	}
	if c.memory.last == nil {
		return p.create(ctx)
	}
	return p.update(ctx, differences)
}

// read reads the firewall again: by its ID if that is known, else by its name in a whole list. What is not there is nil afterwards.
func (p *one) read(ctx context.Context) (err error) {
	c := p.c
	began := c.clock.Now()
	defer func() { c.metrics.read(err, ctx.Err() != nil, c.clock.Since(began)) }()
	c.memory.last = nil
	if c.memory.id != "" {
		seen, err := c.api.Firewall(ctx, c.memory.id)
		switch {
		case err == nil:
			c.learn(seen)
			return nil
		case !errors.Is(err, doapi.ErrNotFound):
			return fmt.Errorf("reading firewall %q: %w", c.config.Name, err)
		}
		c.log.Info("The firewall does not exist any more under its ID", "name", c.config.Name, "id", c.memory.id)
	}
	return c.find(ctx)
}

// find looks for the firewall by its name.
func (c *Controller) find(ctx context.Context) error {
	list, err := c.api.Firewalls(ctx)
	if err != nil {
		return fmt.Errorf("looking for firewall %q: %w", c.config.Name, err)
	}
	gone := c.memory.id
	for _, seen := range list {
		// One that a GET by ID denies is in a list that is older.
		if seen.Name == c.config.Name && (gone == "" || seen.ID != gone) {
			c.learn(seen)
			return nil
		}
	}
	return nil
}

// learn remembers how the firewall is.
func (c *Controller) learn(seen firewall.Observed) {
	c.memory.last = &seen
	if ours, _ := c.ours(seen); ours {
		c.memory.id, c.memory.rules = seen.ID, seen.InboundRules
	}
}

// ours reports whether a firewall is the cluster's. One that was is, no matter who has changed its tags since.
func (c *Controller) ours(seen firewall.Observed) (bool, string) {
	if seen.ID == c.memory.id {
		return true, ""
	}
	return firewall.Ours(seen, c.config)
}

// decide says what the firewall must be, and in what it differs from that. Without a firewall there are no differences.
func (p *one) decide(ctx context.Context, services []*corev1.Service) ([]firewall.Difference, error) {
	c := p.c
	last := c.memory.last
	if last != nil {
		if ours, why := c.ours(*last); !ours {
			p.outcome = outcomeRefused
			p.warn(reasonForeign, why, why)
			return nil, fmt.Errorf("%w: %s", errForeign, why)
		}
	}
	in := firewall.Input{Config: c.config, Services: services, Observed: last}
	if last == nil && c.memory.rules != nil {
		in.Observed = &firewall.Observed{InboundRules: c.memory.rules}
	}
	if c.memory.refused {
		ids, err := c.surroundings.LoadBalancerIDs(ctx)
		if err != nil {
			return nil, fmt.Errorf("looking up the load balancers that services name: %w", err)
		}
		in.Balancers = append([]string{}, ids...)
	}
	p.result, p.decided = firewall.Desired(in), true
	if last == nil {
		return nil, nil
	}
	differences := firewall.Diff(*last, p.result.Request)
	c.memory.notKept = slices.DeleteFunc(c.memory.notKept, func(d firewall.Difference) bool { return !slices.Contains(differences, d) })
	differences = firewall.Except(differences, c.memory.notKept)
	if len(differences) == 0 {
		return nil, p.agrees()
	}
	return differences, nil
}

// agrees remembers the request that the firewall agrees with. Load balancers are looked up no longer than one that is named does not exist: else the
// request that is refused for it would be sent again.
func (p *one) agrees() error {
	m := &p.c.memory
	m.refused = m.refused && slices.ContainsFunc(p.result.Problems, firewall.Problem.NamesNoBalancer)
	inPlace, err := settingsOf(p.result.Request)
	m.inPlace = inPlace
	return err
}

// settingsOf is a request without its droplets, in a form that can be compared.
func settingsOf(r firewall.Request) ([]byte, error) {
	r.DropletIDs = nil
	settings, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encoding the firewall's settings: %w", err)
	}
	return settings, nil
}

// confirm lists the Services again, from the API server and not from a cache. A list without any Service is not a cluster's: there is always that of
// the API server itself.
func (c *Controller) confirm(ctx context.Context) ([]*corev1.Service, error) {
	list, err := c.client.CoreV1().Services(c.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing services before something is closed: %w", err)
	}
	if len(list.Items) == 0 {
		return nil, errors.New("the API server says that there is no Service at all, not even its own: the firewall is left as it is")
	}
	services := make([]*corev1.Service, len(list.Items))
	for i := range list.Items {
		services[i] = &list.Items[i]
	}
	return services, nil
}

// create makes the firewall. Without an answer it may have been made all the same, and where its name is taken an earlier attempt may have made
// it: then it is looked for by name, and the next pass goes on from there.
func (p *one) create(ctx context.Context) error {
	c := p.c
	gone := c.memory.id
	made, err := c.api.CreateFirewall(ctx, p.result.Request)
	if err != nil {
		return p.failed(fmt.Errorf("making firewall %q: %w", c.config.Name, err))
	}
	p.outcome = outcomeCreated
	c.memory.id = made.ID // it is ours, whatever it looks like
	c.learn(made)
	c.log.Info("Made the firewall", "name", made.Name, "id", made.ID, "rules", len(p.result.Request.InboundRules))
	if gone != "" {
		c.metrics.repaired.WithLabelValues(outcomeCreated).Inc()
		p.say(corev1.EventTypeWarning, reasonRecreated, fmt.Sprintf("%s was made, since firewall %s does not exist any more", made, gone))
	}
	return p.written(made)
}

// update makes the firewall what it must be.
func (p *one) update(ctx context.Context, differences []firewall.Difference) error {
	c := p.c
	settings, err := settingsOf(p.result.Request)
	if err != nil {
		return err
	}
	drift := bytes.Equal(settings, c.memory.inPlace)
	c.log.Info("Changing the firewall", "name", c.config.Name, "id", c.memory.id, "differences", texts(differences))
	updated, err := c.api.UpdateFirewall(ctx, c.memory.last.ID, p.result.Request)
	if err != nil {
		return p.failed(fmt.Errorf("changing firewall %q: %w", c.config.Name, err))
	}
	p.outcome = outcomeUpdated
	c.learn(updated)
	if drift {
		c.metrics.repaired.WithLabelValues(outcomeUpdated).Inc()
		p.say(corev1.EventTypeNormal, reasonRepaired, fmt.Sprintf("%s was changed elsewhere and is repaired: %s", updated, texts(differences)))
	}
	return p.written(updated)
}

// written notes what DigitalOcean made of a request.
func (p *one) written(answer firewall.Observed) error {
	c := p.c
	c.memory.notKept = firewall.Diff(answer, p.result.Request)
	if len(c.memory.notKept) > 0 {
		c.log.Info("DigitalOcean did not keep all that was sent", "name", answer.Name, "id", answer.ID, "differences", texts(c.memory.notKept))
	}
	return p.agrees()
}

// failed notes what a failed write means for the next pass, which reads the firewall again in any case.
func (p *one) failed(err error) error {
	p.c.memory.last = nil
	if errors.Is(err, doapi.ErrRefused) {
		p.c.memory.refused = true
		p.outcome = outcomeRefused
		p.warn(reasonRefused, "", err.Error())
	}
	return err
}
