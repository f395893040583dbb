// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/budget"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/providerid"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
)

// API is what the machines' half needs of DigitalOcean.
type API interface {
	Lister
	// Account returns whose the token is.
	Account(ctx context.Context) (instance.Account, error)
	// Droplet returns one droplet; errors.Is(err, doapi.ErrNotFound) holds only if the API itself says that there is none.
	Droplet(ctx context.Context, id int) (instance.Droplet, error)
	// DropletsNamed returns the droplets of a name, those with GPUs left out.
	DropletsNamed(ctx context.Context, name string) ([]instance.Droplet, error)
	// TokenAnswers returns what the answers to all calls say of the token; it makes none.
	TokenAnswers() instance.TokenAnswers
}

const (
	// recordAge is how long the record is believed without looking at it: an operator who deletes the Lease waits no longer than this.
	recordAge = 30 * time.Second
	// accountAge is how long it is believed whose the token is while the token stays the same.
	accountAge = time.Hour
	// identityPause is how long after a failure the account, or the record, is left alone.
	identityPause = 5 * time.Second
	// decisionAge is how long a decision stands while nothing of what it is made of changes. The monitor of Nodes asks for each Node that is
	// not ready, and a decision is about all of them.
	decisionAge = time.Second
	// outsideTimeout bounds what the guard asks of the API server and of DigitalOcean in one go.
	outsideTimeout = time.Minute
)

// guard decides what may be believed of the answers of DigitalOcean: it gathers the World of package instance, asks for what is missing within
// bounds, keeps the record, and hands out verdicts.
type guard struct {
	api      API
	snapshot *Snapshot
	clock    clock.Clock
	config   instance.Config
	nodes    func() ([]*corev1.Node, error)

	// mu guards all below. It is held while the account and the record are read and written, so that a decision and what it asks to be
	// written cannot be overtaken by another; it is not held while droplets are read.
	mu        latch
	ledger    *ledger
	recorded  accountRecord
	recordErr error // why recorded cannot be relied on
	readAt    time.Time

	current    instance.Account
	currentAt  time.Time
	currentErr error
	epoch      uint64 // of current and answers
	triedAt    time.Time

	answers  map[int]instance.Answer
	shown    map[int]instance.Droplet // droplets as lists and GETs by ID showed them last
	missed   map[int]missing          // complete lists in a row that lacked a droplet
	known    map[int]time.Time        // droplets that were Nodes of this cluster, and when they were one last, or in the list
	turns    *budget.Turns            // of GETs by ID, for all Nodes together
	failures int                      // of GETs by ID in a row; none is made before notSoon
	notSoon  time.Time
	last     instance.Plan
	lastAt   time.Time
	lastList *DropletList
}

// decide gives the verdict on all Nodes by what is known now, and makes it durable before anybody acts on it.
func (g *guard) decide(ctx context.Context) (instance.Plan, error) {
	ctx, cancel := context.WithTimeout(doapi.Urgent(ctx, budget.Join), outsideTimeout)
	defer cancel()
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	g.identify(ctx)
	list := g.snapshot.Latest()
	if g.lastList == list && !g.lastAt.IsZero() && now.Sub(g.lastAt) < decisionAge {
		return g.last, nil
	}
	world, err := g.world(now, list)
	if err != nil {
		return instance.Plan{}, err
	}
	d := instance.MakePlan(world, g.config)
	if d.Record || grew(world.Memory, d.Memory) {
		if err := g.keep(ctx, world, d); err != nil {
			g.recordErr = err
			world.Current = instance.Account{}
			d = instance.MakePlan(world, g.config)
		}
	}
	g.explain(&d)
	g.last, g.lastAt, g.lastList = d, now, list
	return d, nil
}

// world gathers what is known. Lock held.
func (g *guard) world(now time.Time, list *DropletList) (instance.World, error) {
	nodes, err := g.nodes()
	if err != nil {
		return instance.World{}, fmt.Errorf("reading Nodes: %w", err)
	}
	w := instance.World{
		Now: now, Recorded: g.recorded.Account, Current: g.current, Nodes: nodes, Answers: maps.Clone(g.answers), Memory: g.recorded.Memory,
		Shown: g.shown,
	}
	if g.recordErr != nil {
		w.Current = instance.Account{} // nothing can be compared with the record
	}
	if !list.At.IsZero() && list.Epoch == g.epoch {
		w.List = instance.List{At: list.Oldest(), Complete: true, Droplets: slices.Collect(maps.Keys(list.byID))}
	}
	g.learn(now, nodes, list)
	w.Known = slices.Collect(maps.Keys(g.known))
	w.Missed = make(map[int]int, len(g.missed))
	for id, m := range g.missed {
		w.Missed[id] = m.lists
	}
	return w, nil
}

// knownAge is how long a droplet is still counted as one of the cluster after its Node and it have gone. The pace is a share of what is
// known, and a share of what is left would become ever less while a large loss is worked off.
const knownAge = time.Hour

// learn notes which droplets are Nodes, and forgets those that have long been neither Nodes nor in the list. Lock held.
func (g *guard) learn(now time.Time, nodes []*corev1.Node, list *DropletList) {
	young := map[int]bool{} // what they lack proves nothing
	for _, node := range nodes {
		if id, err := providerid.Parse(node.Spec.ProviderID); err == nil {
			g.known[id], young[id] = now, !instance.Established(node, now)
		}
	}
	for id, last := range g.known {
		d, listed := list.byID[id]
		_, shown := g.shown[id]
		if listed {
			g.known[id], g.shown[id] = now, d
			delete(g.missed, id)
		} else if now.Sub(last) > knownAge {
			delete(g.known, id)
			delete(g.answers, id)
			delete(g.shown, id)
			delete(g.missed, id)
		} else if m := g.missed[id]; (shown || !young[id]) && !list.At.IsZero() && list.Epoch == g.epoch &&
			list.At.Sub(m.last) >= g.config.ProofEvery {
			g.missed[id] = missing{m.lists + 1, list.At}
		}
	}
}

// missing is how many lists in a row lacked a droplet, and when the newest of those that count began.
type missing struct {
	lists int
	last  time.Time
}

// grew reports whether a decision granted losses that were not granted before.
func grew(before, after instance.Memory) bool {
	return slices.ContainsFunc(after.Gone, func(l instance.Loss) bool {
		return !slices.ContainsFunc(before.Gone, func(b instance.Loss) bool { return b.Droplet == l.Droplet && b.At.Equal(l.At) })
	})
}

// keep writes what a decision asks to remember. Lock held.
func (g *guard) keep(ctx context.Context, w instance.World, d instance.Plan) error {
	next := accountRecord{Account: w.Recorded, Memory: d.Memory, Token: g.recorded.Token}
	if d.Record {
		next.Account = w.Current
	}
	if err := g.ledger.save(ctx, next); err != nil {
		g.readAt = time.Time{} // look again before the next attempt
		return err
	}
	g.recorded, g.readAt = next, g.clock.Now()
	return nil
}

// explain gives the true reason where the account was withheld from the decision. Lock held.
func (g *guard) explain(d *instance.Plan) {
	var why string
	switch {
	case g.recordErr != nil:
		why = g.recordErr.Error() + ": nothing is deleted"
	case g.currentErr != nil && d.Trust == instance.Unverified && g.current == instance.Account{}:
		why = "the account of the token could not be read: " + g.currentErr.Error() + ": nothing is deleted"
	case d.Trust == instance.AnotherAccount:
		why = fmt.Sprintf("%s, or delete the Lease %s/%s if this cluster has moved on purpose", d.Message, RecordNamespace, g.ledger.name)
	default:
		return
	}
	old := d.Message
	d.Message = why
	for i, v := range d.Verdicts {
		if v.Reason == instance.ReasonAccount && v.Message == old {
			d.Verdicts[i].Message = why
		}
	}
}

// identify reads the account and the record where they are not known or may have changed. Lock held.
func (g *guard) identify(ctx context.Context) {
	now := g.clock.Now()
	if epoch := g.api.Epoch(); epoch != g.epoch {
		if g.current != (instance.Account{}) {
			g.triedAt, g.currentErr = time.Time{}, nil // try at once; but a token that is refused begins an epoch with each call
		}
		g.epoch, g.current = epoch, instance.Account{}
		clear(g.answers)
		clear(g.missed)
		g.lastAt = time.Time{}
	}
	old := g.current == (instance.Account{}) || now.Sub(g.currentAt) >= accountAge
	if old && (g.currentErr == nil || now.Sub(g.triedAt) >= identityPause) {
		g.triedAt = now
		if account, err := g.account(ctx); err == nil || g.current == (instance.Account{}) {
			g.current, g.currentErr, g.currentAt = account, err, now
			g.lastAt = time.Time{}
		} else {
			g.currentErr = err // what was read with this token still holds
		}
	}
	pause := recordAge
	if g.recordErr != nil {
		pause = identityPause
	}
	if g.readAt.IsZero() || now.Sub(g.readAt) >= pause {
		g.readRecord(ctx, now)
	}
}

// askAccount reads the account at once. What was read with this token still holds if that fails.
func (g *guard) askAccount(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(doapi.Urgent(ctx, budget.Join), outsideTimeout)
	defer cancel()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.currentAt, g.triedAt = time.Time{}, time.Time{}
	g.identify(ctx)
	if g.currentAt.IsZero() {
		return g.currentErr
	}
	return nil
}

// account asks whose the token is. An answer of which it is not certain with which token it was asked for is an error.
func (g *guard) account(ctx context.Context) (instance.Account, error) {
	account, err := g.api.Account(ctx)
	if err != nil {
		return instance.Account{}, err
	}
	if g.api.Epoch() != g.epoch {
		return instance.Account{}, outputs.ErrMoved
	}
	return account, nil
}

// readRecord reads the record again. An error leaves what was read before in place, and recordErr says not to rely on it. Lock held.
func (g *guard) readRecord(ctx context.Context, now time.Time) {
	read, err := g.ledger.load(ctx)
	if (err == nil) != (g.recordErr == nil) || read.Account != g.recorded.Account {
		g.lastAt = time.Time{} // the decision that stands was made of something else
	}
	g.readAt, g.recordErr = now, err
	if err == nil {
		g.recorded = read
	}
}

// ask asks for droplets by ID as far as it is their turn, and reports whether there is any new answer.
func (g *guard) ask(ctx context.Context, ids []int) bool {
	any := false
	for _, id := range ids {
		if g.turn(id) {
			any = true
			g.askOne(ctx, id)
		}
	}
	return any
}

// turn reports whether it is a droplet's turn to be asked for.
func (g *guard) turn(id int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	now, most := g.clock.Now(), math.MaxInt
	switch {
	case now.Before(g.notSoon):
		most = 0
	case g.failures > 0:
		most = 1
	}
	return g.turns.TakeOf(now, id, most)
}

// longestFailure is the longest time after a GET by ID that failed without another.
const longestFailure = 75 * time.Second

func (g *guard) askOne(ctx context.Context, id int) {
	epoch, at := g.api.Epoch(), g.clock.Now()
	droplet, err := g.api.Droplet(doapi.Once(ctx), id)
	if g.api.Epoch() != epoch {
		return // of which account the answer was is not known
	}
	answer := instance.Answer{At: at, Outcome: instance.AnswerFound}
	switch {
	case errors.Is(err, doapi.ErrNotFound):
		answer.Outcome = instance.AnswerNotFound
	case err != nil:
		answer.Outcome, answer.Problem = instance.AnswerFailed, err.Error()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if epoch != g.epoch {
		return
	}
	if g.answers[id] = answer; answer.Outcome == instance.AnswerFailed {
		g.notSoon = at.Add(min(time.Second<<min(g.failures, 10), longestFailure))
		g.failures++
	} else {
		g.failures = 0
	}
	if err == nil {
		g.shown[id] = droplet
	}
	g.lastAt = time.Time{}
}

// show notes a droplet that was found for a Node, by a list, by ID or by name.
func (g *guard) show(d instance.Droplet) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shown[d.ID], g.known[d.ID] = d, g.clock.Now()
}

// foundByID returns what the last GET by ID found, if that is the newest word about the droplet.
func (g *guard) foundByID(id int) (instance.Droplet, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shown[id], g.answers[id].Outcome == instance.AnswerFound
}

// accountFits reports whether the token's account is the recorded one, or nothing is recorded and nothing speaks against it.
func (g *guard) accountFits() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.recordErr != nil || g.current == (instance.Account{}) {
		return false
	}
	if g.recorded.Account == (instance.Account{}) {
		return g.last.Trust == instance.Trusted
	}
	return g.recorded.Account.SameOwner(g.current)
}

// latch is a lock that is held while something outside is waited for. It is a channel, since a test in simulated time waits for ever for who waits
// for a sync.Mutex. It is made with room for one.
type latch chan struct{}

// Lock implements sync.Locker.
func (l latch) Lock() { l <- struct{}{} }

// Unlock implements sync.Locker.
func (l latch) Unlock() { <-l }
