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

	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/firewall"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
)

// memory is what is remembered between rounds.
type memory struct {
	// last is the firewall as it was last read or written, nil if it is to be read before anything is decided.
	last *firewall.Observed
	// record says which firewall is the cluster's; epoch is when last and record were learned. It is recorded once there
	// is a Lease of the account, which there is when a droplet of the cluster was seen.
	record   firewall.Record
	recorded bool
	epoch    uint64
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

// step makes the firewall, or makes it what it must be if there are differences, or records that it is the cluster's.
type step struct {
	name        string
	differences []firewall.Difference
	record      bool
}

// String implements fmt.Stringer.
func (s step) String() string {
	if s.record {
		return fmt.Sprintf("recording firewall %q", s.name)
	}
	if s.differences == nil {
		return fmt.Sprintf("making firewall %q", s.name)
	}
	return fmt.Sprintf("changing firewall %q", s.name)
}

// observe lists Services. What is remembered of another account is forgotten, and a resync reads the firewall first, whatever is remembered of it.
func (c *Controller) observe(_ context.Context, mark string) (*scene, error) {
	if epoch := c.api.Epoch(); epoch != c.memory.epoch {
		c.memory.last, c.memory.record, c.memory.epoch = nil, firewall.Record{}, epoch
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
	case last != nil && !c.memory.record.Holds(*last) && c.mode != outputs.Report:
		p.Steps, p.Again = []step{{name: c.config.Name, record: true}}, true
	case last != nil && len(differences) == 0:
	case !s.known[theFirewall]:
		p.Needs = []need{theFirewall}
	case (last == nil || firewall.Closes(differences)) && !s.known[theServices]:
		p.Needs = []need{theServices}
	default:
		p.Steps = []step{{name: c.config.Name, differences: differences}}
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

// write makes the one write of a round.
func (c *Controller) write(ctx context.Context, s *scene, st step) (err error) {
	switch {
	case st.record:
		return c.note(ctx, firewall.Record{ID: c.memory.last.ID})
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
	if err := c.recall(ctx); err != nil {
		return err
	}
	if id := c.memory.record.ID; id != "" {
		seen, err := c.api.Firewall(ctx, id)
		switch {
		case err == nil:
			c.learn(seen)
			return nil
		case !errors.Is(err, doapi.ErrNotFound):
			return fmt.Errorf("reading firewall %q: %w", c.config.Name, err)
		}
		c.log.Info("The firewall does not exist any more under its ID", "name", c.config.Name, "id", id)
	}
	return c.find(ctx)
}

// errDoubt means that what is recorded may not be about the account that answers.
var errDoubt = errors.New("the firewall is left as it is")

// recall reads what is recorded of the firewall.
func (c *Controller) recall(ctx context.Context) error {
	notes, err := c.surroundings.Notes(ctx)
	if err != nil {
		if doubt := c.surroundings.Trusted(ctx); doubt != nil {
			return fmt.Errorf("%w: %w", errDoubt, doubt)
		}
	} else {
		c.memory.recorded = notes != nil
		c.memory.record, err = firewall.ParseRecord(notes)
	}
	if err != nil {
		return fmt.Errorf("reading which firewall is this cluster's: %w", err)
	}
	return nil
}

// note records which firewall is the cluster's.
func (c *Controller) note(ctx context.Context, r firewall.Record) error {
	text, err := r.Format()
	if err == nil && !c.memory.recorded { // it may have been made since
		notes, doubt := c.surroundings.Notes(ctx)
		c.memory.recorded, err = notes != nil, doubt
	}
	if err == nil && c.memory.recorded {
		err = c.surroundings.Note(ctx, firewall.RecordAnnotation, text)
	}
	if err != nil {
		return fmt.Errorf("recording firewall %q: %w", c.config.Name, err)
	}
	r.TakeOver = c.memory.record.TakeOver
	c.memory.record = r
	return nil
}

// find looks for the firewall where its ID is not known: the cluster's, and else the one that has its name.
func (c *Controller) find(ctx context.Context) error {
	list, err := c.api.Firewalls(ctx)
	if err != nil {
		return fmt.Errorf("looking for firewall %q: %w", c.config.Name, err)
	}
	var named *firewall.Observed
	for _, seen := range list {
		if seen.ID == c.memory.record.ID {
			continue // one that a GET by ID denies is in a list that is older
		}
		ours, _ := c.memory.record.Whose(seen, c.config)
		if ours || named == nil && seen.Name == c.config.Name {
			named = &seen
		}
		if ours {
			break
		}
	}
	if named != nil {
		c.learn(*named)
	}
	return nil
}

// learn remembers how the firewall is.
func (c *Controller) learn(seen firewall.Observed) {
	c.memory.last = &seen
	if ours, _ := c.memory.record.Whose(seen, c.config); ours {
		c.memory.rules = seen.InboundRules
	}
}

// decide says what the firewall must be, and in what it differs from that. Without a firewall there are no differences.
func (c *Controller) decide(s *scene) ([]firewall.Difference, error) {
	last := c.memory.last
	if last != nil {
		if ours, why := c.memory.record.Whose(*last, c.config); !ours {
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
	before := c.memory.record
	gone := before.ID
	if err := c.note(ctx, before.Attempting(c.config.Name, c.clock.Now())); err != nil {
		return err
	}
	made, err := c.api.CreateFirewall(ctx, s.result.Request)
	if err != nil {
		if errors.Is(err, doapi.ErrRefused) { // the answer is no: what gets the name from now on is another's
			err = errors.Join(err, c.note(ctx, before))
		}
		return err
	}
	s.outcome = outcomeCreated
	if err := c.note(ctx, firewall.Record{ID: made.ID}); err != nil {
		return err // the attempt is recorded, and leads to it
	}
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
	c.log.Info("Changing the firewall", "name", c.config.Name, "id", c.memory.record.ID, "differences", texts(differences))
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
