// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

const (
	// usualPatience is an errand's: pod garbage collection takes about a minute after a Node is gone, a restart of etcd or of the API server less.
	usualPatience = 2 * time.Minute
	// lookAgain bounds the time between two looks while a grace period runs: a machine that is back for a minute is seen.
	lookAgain = time.Minute
	// lookSoon is the time until the look that follows the end of the grace periods.
	lookSoon = 50 * time.Millisecond
	// longestAnswer is how old a plan may be when somebody agrees to it.
	longestAnswer = 10 * time.Minute
)

// errand is the work of one apply: it looks until nothing more is worth waiting for, asks, and then runs the controller's rounds until
// what was shown is done or will not change.
type errand struct {
	config  nodesync.Config
	store   controller.Datastore
	cluster controller.Cluster
	journal controller.Journal
	account *account
	notes   *notebook
	clock   clock.WithTicker
	// patience is how long it waits for what may change by itself, and goes on trying what does not work.
	patience time.Duration

	// shown are the machines of the plan that was agreed to; nothing of others is written. It is false for a machine that lives and from which the
	// plan only withdraws the fence: if that one goes missing now, nobody has agreed to its removal.
	shown map[string]bool
	// last is the latest plan, of which the refusals are told at the end; first is the one that was agreed to.
	first, last nodesync.Plan
}

// agreement says yes to a plan by returning nil.
type agreement func(ctx context.Context, account *account, plan nodesync.Plan) error

func (e *errand) run(ctx context.Context, agree agreement) error {
	if err := e.await(ctx); err != nil {
		return err
	}
	if err := unknown(e.last, e.config.Named); err != nil {
		return err
	}
	if len(e.last.Steps) == 0 {
		return nil
	}
	e.first = e.last
	asked := e.clock.Now()
	if err := agree(ctx, e.account, e.first); err != nil {
		return err
	}
	if waited := e.clock.Since(asked); waited > longestAnswer {
		return fmt.Errorf("the response came %s after the plan was made, and the plan is too old now: nothing was written, run apply again", waited.Round(time.Second))
	}
	e.shown = machinesOf(e.first)
	return e.work(ctx)
}

// machinesOf are the machines of a plan, those whose turn comes later included: true if it cleans them, false if it only withdraws the fence.
func machinesOf(plan nodesync.Plan) map[string]bool {
	out := map[string]bool{}
	for _, s := range plan.Steps {
		_, withdraws := s.(nodesync.Unfence)
		out[s.Subject().Host] = out[s.Subject().Host] || !withdraws
	}
	for _, r := range plan.Refusals {
		if r.Gate == nodesync.GatePace {
			out[r.Of.Host] = true
		}
	}
	return out
}

func waitingTheirTurn(plan nodesync.Plan) int {
	n := 0
	for _, r := range plan.Refusals {
		if r.Gate == nodesync.GatePace {
			n++
		}
	}
	return n
}

// reconciler is the controller's, without a watch.
func (e *errand) reconciler() *controller.Reconciler {
	config := e.config
	config.OneShot = true // a confirmation comes with this command, and not from what a controller keeps
	r := controller.NewOneShot(config, e.store, e.cluster, e.notes, e.clock)
	r.Leftovers, r.Writes = false, controller.Writes() // leftovers need two sweeps, and so a controller
	return r
}

// await looks, without writing, until no machine is left that it is worth waiting for.
func (e *errand) await(ctx context.Context) error {
	began := e.clock.Now()
	if err := e.look(ctx); err != nil {
		return err
	}
	w := waits{graceEnds: e.graceEnds(e.last), looked: began}
	seen := e.clock.Now()
	for {
		wait := w.next(e, e.clock.Now())
		if wait <= 0 {
			return nil
		}
		if err := e.sleep(ctx, min(wait, e.last.Next, lookAgain)); err != nil {
			return err
		}
		began := e.clock.Now()
		err := e.look(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			seen, w.looked = e.clock.Now(), began
		case e.clock.Since(seen) >= e.patience:
			return err
		default:
			e.account.warn("failed to observe, will try again: " + err.Error())
		}
	}
}

// look plans without writing, and remembers what the plan asks to remember.
func (e *errand) look(ctx context.Context) error {
	plan, err := e.reconciler().Preview(ctx)
	if err != nil {
		return err
	}
	e.last = plan
	e.notes.learn(plan.Memory)
	return nil
}

// waits is what an apply waits for before it asks: first the grace periods, then what may change by itself. How long is settled when the
// waiting begins, so that a cluster in which machines vanish all the time does not keep it waiting for ever.
type waits struct {
	graceEnds    time.Time
	graceTold    bool
	patienceEnds time.Time
	// looked is when the last look began that succeeded.
	looked time.Time
}

// next is how much longer to wait, as things are now; the first time it says for what.
func (w *waits) next(e *errand, now time.Time) time.Duration {
	if wait := w.graceEnds.Sub(now); wait > 0 {
		if !w.graceTold {
			w.graceTold = true
			held := refusedBy(e.last, nodesync.GateGrace)
			what := "the grace period of " + prose.Plural(len(held), "machine") + ", which --grace-period=0s skips: " + few(held)
			if len(held) == 0 {
				what = "a second check of orphaned IPAM handles"
			}
			e.account.waiting(w.graceEnds, now, held, what)
		}
		return wait
	}
	if w.looked.Before(w.graceEnds) {
		return lookSoon // the grace periods have ended since: what they held back must be seen before it is asked about
	}
	held := refusedBy(e.last, nodesync.GateRunningPods, nodesync.GateNotConfirmed)
	if len(held) == 0 {
		return 0
	}
	if w.patienceEnds.IsZero() {
		w.patienceEnds = now.Add(e.patience)
		e.account.waiting(w.patienceEnds, now, held, fmt.Sprintf("%s at most, since something speaks against removing it now: %s",
			prose.Plural(len(held), "machine"), e.firstRefusal(held[0])))
	}
	return w.patienceEnds.Sub(now)
}

// firstRefusal is why a machine is held back, after its name.
func (e *errand) firstRefusal(host string) string {
	for _, r := range e.last.Refusals {
		if r.Of.Host == host {
			return host + ": " + r.Message
		}
	}
	return host
}

// graceEnds is when the last of the grace periods ends that run now.
func (e *errand) graceEnds(plan nodesync.Plan) time.Time {
	waits := refusedBy(plan, nodesync.GateGrace)
	var end time.Time
	for _, a := range plan.Memory.Absences {
		if ready := a.Since.Add(e.config.Grace); slices.Contains(waits, a.CalicoNode) && ready.After(end) {
			end = ready
		}
	}
	if slices.Contains(e.config.AlsoRemove, nodesync.KindIPAMHandle) {
		for _, h := range plan.Memory.Handles {
			// Two looks, a second apart at least, must find a handle without an address.
			if ready := h.Since.Add(max(e.config.Grace, time.Second)); ready.After(end) {
				end = ready
			}
		}
	}
	return end
}

// refusedBy are the machines that one of the gates holds back, but for those that live: they are held back for good.
func refusedBy(plan nodesync.Plan, gates ...nodesync.Gate) []string {
	var out []string
	for _, r := range plan.Refusals {
		if slices.Contains(gates, r.Gate) && !r.Lives && r.Of.Host != "" && !slices.Contains(out, r.Of.Host) {
			out = append(out, r.Of.Host)
		}
	}
	return out
}

// work runs rounds with the controller's pace until what was shown is done, or nothing has been done for as long as patience lasts.
func (e *errand) work(ctx context.Context) error {
	r := e.reconciler()
	r.DryRun, r.Log = false, e.account.log()
	r.Datastore = attendedDatastore{Datastore: e.store, shown: e.shown}
	r.Cluster = attendedCluster{Cluster: e.cluster}
	if e.journal != nil {
		r.Journal = attendedJournal{Journal: e.journal, shown: e.shown}
	}
	until := e.clock.Now().Add(e.patience)
	for {
		done := e.account.applied
		next, more, err := e.round(ctx, r)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if e.account.applied > done {
			until = e.clock.Now().Add(e.patience)
		}
		late := !e.clock.Now().Before(until)
		switch {
		case err != nil && late:
			return err
		case err != nil:
			e.account.warn("reconcile failed, will try again: " + err.Error())
		case !more || late:
			return nil
		}
		if err := e.sleep(ctx, min(max(next, e.config.Pace), until.Sub(e.clock.Now()))); err != nil {
			return err
		}
	}
}

// round is one round, and a check of what is left to do. It returns when the next is due.
func (e *errand) round(ctx context.Context, r *controller.Reconciler) (next time.Duration, more bool, err error) {
	if next, err = r.Round(ctx); err != nil {
		return 0, true, err
	}
	plan, err := r.Preview(ctx)
	if err != nil {
		return 0, true, err
	}
	e.last = plan
	return next, e.more(plan), nil
}

// more reports that something of what was shown is still to be done, or may be before long.
func (e *errand) more(plan nodesync.Plan) bool {
	return slices.ContainsFunc(plan.Steps, e.agreed) ||
		slices.ContainsFunc(refusedBy(plan, nodesync.GatePace, nodesync.GateStepFailed, nodesync.GateRunningPods, nodesync.GateNotConfirmed),
			func(host string) bool { return e.shown[host] })
}

// agreed reports that a step is of what was shown.
func (e *errand) agreed(s nodesync.Step) bool {
	cleans, shown := e.shown[s.Subject().Host]
	_, withdraws := s.(nodesync.Unfence)
	return cleans || shown && withdraws
}

// leftAlone is what is left in the end: what the last plan refuses, what it would still do, and users' objects of machines that are done,
// which no later plan knows of.
func (e *errand) leftAlone() []nodesync.Refusal {
	left := slices.Clone(e.last.Refusals)
	for _, r := range e.first.Refusals {
		if r.Gate == nodesync.GateUserConfiguration && !slices.Contains(left, r) {
			left = append(left, r)
		}
	}
	if e.shown == nil {
		return left // the plan itself is what was not done
	}
	undone := map[nodesync.Subject]int{}
	for _, s := range e.last.Steps {
		if !e.account.did[s.String()] {
			undone[s.Subject()]++
		}
	}
	for of, n := range undone {
		left = append(left, nodesync.Refusal{Of: of, Gate: nodesync.GatePace, Message: prose.Plural(n, "step") + " of the plan are not done yet: run apply again"})
	}
	slices.SortFunc(left, func(a, b nodesync.Refusal) int {
		return cmp.Or(cmp.Compare(a.Of.Host, b.Of.Host), cmp.Compare(a.Message, b.Message))
	})
	return left
}

// failed counts the machines that were shown and of which a step does not work.
func (e *errand) failed() int {
	n := 0
	for _, host := range refusedBy(e.last, nodesync.GateStepFailed) {
		if e.shown[host] {
			n++
		}
	}
	return n
}

// sleep waits, or returns the error of ctx.
func (e *errand) sleep(ctx context.Context, d time.Duration) error {
	timer := e.clock.NewTimer(max(d, 0))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C():
		return nil
	}
}
