// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
)

const (
	// requestAgain is when a request is tried again that is held back for a time.
	requestAgain = 15 * time.Second
	// requestRounds is how many rounds one attempt has at most: one cleans up, and one sees that nothing is left.
	requestRounds = 4
)

// serve does what a person has asked for by name, if anything, and returns when to go on with it, 0 for not at all. A request that is served
// twice, since the process died in between or two lead, does no harm: what has been done is found done.
func (r *Reconciler) serve(ctx context.Context) (time.Duration, error) {
	if r.Requests == nil {
		return 0, nil
	}
	text, answer, err := r.Requests.Pending(ctx)
	request, wrong := ParseRequest(text)
	begun, now := answer.ID == request.ID, r.Clock.Now()
	if err != nil || text == "" || begun && answer.Final() {
		return 0, err
	}
	var given Answer
	if refused := r.refuses(request, wrong, begun, now); refused != "" {
		given = Answer{ID: request.ID, State: AnswerFailed, Lines: []string{refused}, At: now}
	} else {
		if r.unsent.ID != request.ID {
			r.unsent, err = r.attempt(ctx, text, request, answer)
		}
		if given = r.unsent; given.State == AnswerRunning && !now.Before(request.Until) {
			given.State = given.atTheEnd()
		}
	}
	if err == nil {
		err = r.Requests.Answer(ctx, text, given)
	}
	if withdrawn := errors.Is(err, errWithdrawn); err != nil && !withdrawn {
		return 0, err
	} else if r.unsent = (Answer{}); withdrawn {
		r.Log.Info("A request was withdrawn", "request", request.ID)
		return 0, nil
	}
	if given.Final() {
		return 0, nil
	}
	// A person who waits is answered when the request ends.
	return max(time.Second, min(requestAgain, request.Until.Sub(now))), nil
}

// attempt does what is asked once, unless the request is withdrawn or, begun long ago, over. The answer is what the last one was.
func (r *Reconciler) attempt(ctx context.Context, text string, request Request, answer Answer) (Answer, error) {
	now := r.Clock.Now()
	if answer.ID != request.ID {
		answer = Answer{} // it is another request's
	}
	if answer.ID != "" && !now.Before(request.Until) {
		line := "the request was valid until " + request.Until.UTC().Format(time.RFC3339) + ": nothing more was done"
		return Answer{ID: request.ID, State: answer.atTheEnd(), Lines: append(slices.Clone(answer.Lines), line), At: now}, nil
	}
	if err := r.Requests.Answer(ctx, text, Answer{ID: request.ID, State: AnswerRunning, Lines: answer.Lines, At: now}); err != nil {
		return Answer{}, err
	}
	r.Log.Info("Executing a request", "request", request.ID, "verb", request.Verb, "names", request.Names, "dryRun", request.DryRun)
	done := r.do(ctx, request, answer)
	done.Lines = slices.Concat(removedLines(answer.Lines), done.Lines)
	return done, nil
}

// refuses returns why a request is not begun, or "".
func (r *Reconciler) refuses(request Request, wrong error, begun bool, now time.Time) string {
	switch {
	case wrong != nil:
		return wrong.Error()
	case r.DryRun && !request.DryRun:
		return "this calico-node-sync runs with --mode=report: nothing was done"
	case !begun && !now.Before(request.Until):
		return "the request came too late, it was valid until " + request.Until.UTC().Format(time.RFC3339) + ": nothing was done"
	case request.Until.Sub(now) > LongestRequestTime:
		return fmt.Sprintf("the request would be valid for more than %s: nothing was done", LongestRequestTime)
	}
	return ""
}

// do makes one attempt, the one after that which gave the last answer.
func (r *Reconciler) do(ctx context.Context, request Request, last Answer) Answer {
	answer := Answer{ID: request.ID, State: AnswerDone, At: r.Clock.Now()}
	var err error
	switch request.Verb {
	case VerbForget:
		err = r.forgetNamed(ctx, request, last, &answer)
	case VerbRestore:
		err = r.restoreNamed(ctx, request, &answer)
	}
	if err == nil {
		return answer
	}
	if answer.State = AnswerRunning; ctx.Err() != nil {
		return answer // the next process goes on with it
	}
	message := "A request could not be executed, will try again until it ends"
	if request.Verb != VerbForget || request.DryRun { // the others may be able to read what they need before the request ends
		answer.State, message = AnswerFailed, "A request failed"
	}
	answer.Lines = append(answer.Lines, errorMark+err.Error())
	r.Log.Error(err, message, "request", request.ID)
	return answer
}

// named is a controller for the named machines alone, which knows what this one knows.
func (r *Reconciler) named(request Request) *Reconciler {
	config := r.Config
	config.Named, config.IgnoreSigns = request.Names, request.IgnoreSigns
	config.AlsoRemove = slices.DeleteFunc(slices.Concat(r.Config.AlsoRemove, request.AlsoRemove), func(kind nodesync.ResourceKind) bool {
		return !slices.Contains(nodesync.ResourceKinds(), kind)
	})
	return &Reconciler{
		Datastore: r.Datastore, Cluster: r.Cluster, Config: config, Writes: r.Writes,
		Journal: r.Journal, Events: r.Events, DryRun: request.DryRun, Workers: r.Workers, Clock: r.Clock, Log: r.Log,
		Metrics: NewMetrics(prometheus.NewRegistry()), known: forRequest(r.known),
	}
}

// roundsFor are those of a controller for a request. The first sweeps again if a name is unknown, since the last
// sweep may have been too early to find it. What they promise is a part of what this controller remembers: whose
// blocks stay is known to its next round as well.
func (r *Reconciler) roundsFor(request Request) parts {
	sub, first := r.named(request), true
	o, decide := sub.options(), sub.reading().Plan
	o.Observe = func(ctx context.Context, key string) (*scene, error) {
		s, err := sub.gather(ctx, key)
		seeks := err == nil && first && !s.Calico.Swept
		if seeks && len(nodesync.MakePlan(s.World, sub.Config).Unknown(request.Names)) > 0 {
			sub.memory.Sweep = nodesync.Sweep{}
			s, err = sub.gather(ctx, key)
		}
		first = false
		return s, err
	}
	o.Plan = func(s *scene) roundPlan {
		p, m := decide(s), r.memory
		if m.Absences = s.plan.Memory.Absences; s.unread == nil {
			p.Memory = r.unpromised(m, s.Now)
		}
		return p
	}
	o.Save = r.promise
	return o
}

// forgetNamed removes what named machines have left: with the same plan, live reads, fences and journal as a round.
func (r *Reconciler) forgetNamed(ctx context.Context, request Request, last Answer, answer *Answer) error {
	rounds := reconcile.New(r.roundsFor(request))
	if request.DryRun {
		s, _, err := rounds.Preview(ctx, reconcile.Only)
		if err != nil {
			return err
		}
		answer.addUnknown(s.plan.Unknown(request.Names), last)
		if len(s.plan.Steps)+len(s.plan.Refusals) > 0 {
			answer.Lines = append(answer.Lines, s.plan.String())
		}
		return nil
	}
	for n := range requestRounds {
		done := rounds.Round(ctx, reconcile.Only)
		if done.Err != nil {
			return done.Err
		}
		plan := done.World.plan
		r.memory.Absences = plan.Memory.Absences
		if n == 0 {
			answer.addUnknown(plan.Unknown(request.Names), last)
		}
		if failed := answer.account(plan, done.Applied); len(plan.Steps) == 0 || failed {
			return nil
		}
	}
	answer.State = AnswerRunning // there may be more to do
	return nil
}

// addUnknown says of which names the datastore holds nothing: they are wrong, unless an earlier attempt of the request
// has removed what they meant.
func (a *Answer) addUnknown(names []string, last Answer) {
	// It found the machines if it says more than why it failed, or died before it said anything.
	said := slices.ContainsFunc(last.Lines, func(line string) bool { return !strings.HasPrefix(line, errorMark) })
	found := last.ID != "" && (len(last.Lines) == 0 || said)
	for _, name := range names {
		line := name + ": nothing in Calico's datastore is about it: NODE must be the name of a Calico Node"
		a.Lines = append(a.Lines, line)
		if !found || slices.Contains(last.Lines, line) {
			a.State = AnswerHeld
		}
	}
}

const (
	// removedMark begins a line of what was done, which stays when the request is tried again.
	removedMark = "done: "
	// errorMark begins the line of what made an attempt fail.
	errorMark = "error: "
)

// atTheEnd is the last state of a request that runs until it ends: failed if that is why its last attempt did not do it.
func (a Answer) atTheEnd() string {
	if slices.ContainsFunc(a.Lines, func(line string) bool { return strings.HasPrefix(line, errorMark) }) {
		return AnswerFailed
	}
	return AnswerHeld
}

func removedLines(lines []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !strings.HasPrefix(line, removedMark) })
}

// account adds what a round did and, if it is the last, what is left alone. It returns whether a step failed.
func (a *Answer) account(plan nodesync.Plan, tried []applied) (failed bool) {
	for _, x := range tried {
		if x.Err == nil {
			a.Lines = append(a.Lines, removedMark+x.Step.String())
			continue
		}
		failed = true
		a.State = AnswerRunning
		a.Lines = append(a.Lines, fmt.Sprintf("not done: %s: %v", x.Step, x.Err))
	}
	if len(plan.Steps) > 0 {
		return failed
	}
	for _, refusal := range plan.Refusals {
		host := cmp.Or(refusal.Of.Host, "everything")
		a.Lines = append(a.Lines, fmt.Sprintf("left alone: %s: %s (%s)", host, refusal.Message, refusal.Gate))
		switch {
		case passes(refusal.Gate) && a.State != AnswerHeld:
			a.State = AnswerRunning
		case !passes(refusal.Gate):
			a.State = AnswerHeld
		}
	}
	return failed
}

// passes reports whether a gate may open by itself within minutes.
func passes(gate nodesync.Gate) bool {
	return slices.Contains([]nodesync.Gate{nodesync.GateRunningPods, nodesync.GateStepFailed, nodesync.GateKubernetesNotSynced, nodesync.GatePace}, gate)
}

// restoreNamed puts back entries of the journal.
func (r *Reconciler) restoreNamed(ctx context.Context, request Request, answer *Answer) error {
	journal, ok := r.Journal.(*ConfigMapJournal)
	if !ok || r.RestoreStore == nil {
		return fmt.Errorf("this calico-node-sync keeps no journal in ConfigMaps: use `calico-node-sync restore FILE`")
	}
	entries, err := journal.ReadNamed(ctx, request.Names)
	if err != nil {
		return err
	}
	slices.SortStableFunc(entries, func(a, b Entry) int { return a.Time.Compare(b.Time) })
	if err := OneLifeEach(entries); err != nil {
		return err
	}
	snapshot, err := r.RestoreStore.Snapshot(ctx)
	if err != nil {
		return err
	}
	uid := ""
	if snapshot.OwnCluster {
		if uid, err = r.Cluster.UID(ctx); err != nil {
			return fmt.Errorf("reading namespace kube-system: %w", err)
		}
	}
	all, err := Restore(ctx, r.RestoreStore, uid, entries, request.DryRun, func(line string) error {
		answer.Lines = append(answer.Lines, line)
		return nil
	})
	if err == nil && !all {
		answer.State = AnswerHeld
	}
	return err
}
