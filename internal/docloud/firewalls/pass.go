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
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
)

// memory is what is remembered between rounds.
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
}

// errForeign means that the firewall of that name is somebody else's: people have to decide.
var errForeign = errors.New("the firewall is not this cluster's")

// scene is what a round knows, and what came of it.
type scene struct {
	services []*corev1.Service
	known    map[need]bool // what was read in this round
	// balancers are the IDs of the account's load balancers, if they were read.
	balancers []string

	result  firewall.Result
	decided bool
	outcome string
	notes   []reconcile.Note
}

// need is what is read before a write. A round decides up to three times, each time on better knowledge and only if there is something to write: on what is
// remembered, on the firewall as it is now, and, if something is to be closed or made, on the Services as they are now.
type need string

const (
	theFirewall  need = "firewall"
	theServices  need = "services"
	theBalancers need = "balancers"
)

// step makes the firewall, or makes it what it must be if there are differences.
type step struct {
	name        string
	differences []firewall.Difference
}

// String implements fmt.Stringer.
func (s step) String() string {
	if s.differences == nil {
		return fmt.Sprintf("making firewall %q", s.name)
	}
	return fmt.Sprintf("changing firewall %q", s.name)
}

// observe lists Services. What is remembered of another account is forgotten, and a resync reads the firewall first, whatever is remembered of it.
func (c *Controller) observe(_ context.Context, mark string) (*scene, error) {
	if epoch := c.api.Epoch(); epoch != c.memory.epoch {
		c.memory.last, c.memory.id, c.memory.epoch = nil, "", epoch
	}
	s := &scene{outcome: outcomeUnchanged, known: map[need]bool{}}
	if mark == markResync {
		c.memory.last = nil
	}
	var err error
	if s.services, err = c.services.List(labels.Everything()); err != nil {
		return s, fmt.Errorf("listing services: %w", err)
	}
	return s, nil
}

// plan decides on what is known. It needs more before a write.
func (c *Controller) plan(s *scene) (p reconcile.Plan[need, step, reconcile.None]) {
	last := c.memory.last
	switch {
	case last == nil && !s.known[theFirewall]:
		p.Needs = []need{theFirewall}
		return p
	case c.memory.refused && !s.known[theBalancers]:
		p.Needs = []need{theBalancers}
		return p
	}
	differences, err := c.decide(s)
	switch {
	case err != nil:
		p.Refusals = []error{err}
	case last != nil && len(differences) == 0:
	case !s.known[theFirewall]:
		p.Needs = []need{theFirewall}
	case (last == nil || firewall.Closes(differences)) && !s.known[theServices]:
		p.Needs = []need{theServices}
	default:
		p.Steps = []step{{c.config.Name, differences}}
	}
	return p
}

// satisfy reads what a plan needs.
func (c *Controller) satisfy(ctx context.Context, s *scene, n need) (_ reconcile.Learned, err error) {
	switch n {
	case theFirewall:
		err = c.read(ctx)
	case theServices:
		s.services, err = c.confirm(ctx)
	case theBalancers:
		if s.balancers, err = c.surroundings.LoadBalancerIDs(ctx); err != nil {
			err = fmt.Errorf("looking up the load balancers that services name: %w", err)
		}
	}
	if err != nil {
		return nil, err
	}
	return func() { s.known[n] = true }, nil
}

// write makes the one write of a round, if nothing speaks of another account since.
func (c *Controller) write(ctx context.Context, s *scene, st step) (err error) {
	switch {
	case c.api.Epoch() != c.memory.epoch:
		return cached.ErrMoved
	case c.memory.last == nil:
		err = c.create(ctx, s)
	default:
		err = c.update(ctx, s, st.differences)
	}
	if err != nil { // the next round reads the firewall again in any case
		c.memory.last, c.memory.refused = nil, c.memory.refused || errors.Is(err, doapi.ErrRefused)
	}
	return err
}

// read reads the firewall again: by its ID if that is known, else by its name in a whole list. What is not there is nil afterwards.
func (c *Controller) read(ctx context.Context) (err error) {
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
func (c *Controller) decide(s *scene) ([]firewall.Difference, error) {
	last := c.memory.last
	if last != nil {
		if ours, why := c.ours(*last); !ours {
			s.outcome = outcomeRefused
			s.warn(reasonForeign, why, why)
			return nil, fmt.Errorf("%w: %s", errForeign, why)
		}
	}
	in := firewall.Input{Config: c.config, Services: s.services, Observed: last}
	if last == nil && c.memory.rules != nil {
		in.Observed = &firewall.Observed{InboundRules: c.memory.rules}
	}
	if c.memory.refused {
		in.Balancers = append([]string{}, s.balancers...)
	}
	s.result, s.decided = firewall.Desired(in), true
	if last == nil {
		return nil, nil
	}
	differences := firewall.Diff(*last, s.result.Request)
	c.memory.notKept = slices.DeleteFunc(c.memory.notKept, func(d firewall.Difference) bool { return !slices.Contains(differences, d) })
	differences = firewall.Except(differences, c.memory.notKept)
	if len(differences) == 0 {
		return nil, c.agrees(s)
	}
	return differences, nil
}

// agrees remembers the request that the firewall agrees with. Load balancers are looked up no longer than one that is named does not exist: else the
// request that is refused for it would be sent again.
func (c *Controller) agrees(s *scene) error {
	m := &c.memory
	m.refused = m.refused && slices.ContainsFunc(s.result.Problems, firewall.Problem.NamesNoBalancer)
	inPlace, err := settingsOf(s.result.Request)
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
func (c *Controller) create(ctx context.Context, s *scene) error {
	gone := c.memory.id
	made, err := c.api.CreateFirewall(ctx, s.result.Request)
	if err != nil {
		return err
	}
	s.outcome = outcomeCreated
	c.memory.id = made.ID // it is ours, whatever it looks like
	c.learn(made)
	c.log.Info("Made the firewall", "name", made.Name, "id", made.ID, "rules", len(s.result.Request.InboundRules))
	if gone != "" {
		c.metrics.repaired.WithLabelValues(outcomeCreated).Inc()
		c.say(corev1.EventTypeWarning, reasonRecreated, fmt.Sprintf("%s was made, since firewall %s does not exist any more", made, gone))
	}
	return c.written(s, made)
}

// update makes the firewall what it must be.
func (c *Controller) update(ctx context.Context, s *scene, differences []firewall.Difference) error {
	settings, err := settingsOf(s.result.Request)
	if err != nil {
		return err
	}
	drift := bytes.Equal(settings, c.memory.inPlace)
	c.log.Info("Changing the firewall", "name", c.config.Name, "id", c.memory.id, "differences", texts(differences))
	updated, err := c.api.UpdateFirewall(ctx, c.memory.last.ID, s.result.Request)
	if err != nil {
		return err
	}
	s.outcome = outcomeUpdated
	c.learn(updated)
	if drift {
		c.metrics.repaired.WithLabelValues(outcomeUpdated).Inc()
		c.say(corev1.EventTypeNormal, reasonRepaired, fmt.Sprintf("%s was changed elsewhere and is repaired: %s", updated, texts(differences)))
	}
	return c.written(s, updated)
}

// written notes what DigitalOcean made of a request.
func (c *Controller) written(s *scene, answer firewall.Observed) error {
	c.memory.notKept = firewall.Diff(answer, s.result.Request)
	if len(c.memory.notKept) > 0 {
		c.log.Info("DigitalOcean did not keep all that was sent", "name", answer.Name, "id", answer.ID, "differences", texts(c.memory.notKept))
	}
	return c.agrees(s)
}
