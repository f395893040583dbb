// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/record"

	"github.com/mooring-dev/mooring/internal/platform/outputs"
)

// None is the type of needs or memory of a controller without.
type None struct{}

// Learned takes in what was read.
type Learned func()

// Options are a controller: W is what it observes, N what a plan may need besides, S its steps and M what is saved.
// Functions that are nil are left out, but for Observe, Plan and Apply.
type Options[W any, N comparable, S fmt.Stringer, M any] struct {
	LoopOptions

	Log logr.Logger
	// Failure is the log's message for a round that failed.
	Failure string
	// Time bounds one round.
	Time time.Duration
	// Keyless says that keys are only reasons for a round: what is noted in one holds for all.
	Keyless bool
	// Writes is all that the controller may write in a round.
	Writes []outputs.Write
	// Epoch numbers the tokens that are read with, nil where there is none. What is decided in a round is not written
	// in another epoch ([outputs.ErrMoved]).
	Epoch func() uint64
	// Mode is whether plans are applied. In mode report a round ends with its plan: nothing is saved, each step is
	// logged while it is planned, and notes are logged without an Event.
	Mode outputs.Mode

	// Observe reads what every plan depends on, and decides nothing.
	Observe func(ctx context.Context, key string) (W, error)
	// Plan decides. It is a function of its argument.
	Plan func(W) Plan[N, S, M]
	// Satisfy reads what a plan needs. What it returns takes in what came of it, which may be that it could not be
	// read; nil if nothing was learned.
	Satisfy func(ctx context.Context, w W, need N) (Learned, error)
	// NeedsAtOnce is how many needs are satisfied side by side, 1 if it is 0; MostNeeds how many in one round, all if
	// it is 0.
	NeedsAtOnce, MostNeeds int
	// Save remembers, so that the next process knows.
	Save func(ctx context.Context, memory M) error
	// Trusted is the last look before the first write: nil if what was read is still about this cluster, and else one
	// sentence.
	Trusted func(ctx context.Context) error
	// Always reports of a step that it may be made although what was to be remembered could not be saved, and without
	// trust.
	Always func(S) bool
	// Subject names what a step is about; nil if all are about the same.
	Subject func(S) string
	// First reports of a step that all others depend on: those of its subject are made alone and before all others, of
	// which none is made if one of them is not done. In a plan they come first.
	First func(S) bool
	// StepsAtOnce is how many subjects are worked on side by side, 1 if it is 0.
	StepsAtOnce int
	// Apply makes one step. The error's [OutcomeOf] says what happens next.
	Apply func(ctx context.Context, w W, step S) error
	// Because returns why a step is planned, for the log of mode report; nil if steps say so themselves.
	Because func(w W, step S) string
	// NotBefore returns until when an error asks to wait, the zero time if it does not.
	NotBefore func(error) time.Time
	// Report tells how a round went, and may add notes to its plan. It is not called when the program ends, unless
	// AtEnd says so.
	Report func(ctx context.Context, r *Round[W, N, S, M])
	AtEnd  bool
}

// Round is one round, for its report.
type Round[W any, N comparable, S fmt.Stringer, M any] struct {
	Key   string
	Began time.Time
	// World is what Observe returned. Where that was an error the plan is empty.
	World W
	Plan  Plan[N, S, M]
	// Applied are the steps that were tried.
	Applied []Applied[S]
	// Unsaved is why what the plan remembers was not saved, Doubt why there is no trust, and Err all that went wrong,
	// refusals included.
	Unsaved, Doubt, Err error
	// Complete says that the plan's notes are all that hold, and Wrote that marks have to wait after this round. A report
	// may say otherwise.
	Complete, Wrote bool

	again error // what is tried again
}

// Fail takes in what went wrong in the report: the round is made again. A conflict is no failure, nor is that what it is about is gone.
func (r *Round[W, N, S, M]) Fail(err error) {
	if o := OutcomeOf(err); o != Conflict && o != Gone {
		r.again, r.Err = errors.Join(r.again, err), errors.Join(r.Err, err)
	}
}

// Applied is a step and what came of it.
type Applied[S any] struct {
	Step    S
	Outcome Outcome
	Err     error
}

// Runner runs one controller.
type Runner[W any, N comparable, S fmt.Stringer, M any] struct {
	*Loop

	// Events takes notes. It is set before the runner is started.
	Events record.EventRecorder

	o     Options[W, N, S, M]
	mu    sync.Mutex               // guards all below
	said  map[string]map[Note]bool // by key, without messages
	would map[string][]string      // by key, the steps that were logged in mode report
	turns map[string]*turn         // by key
}

// turn is held by the round over a key that is under way. It is a channel, since a test in simulated time waits for ever
// for a goroutine that waits for a sync.Mutex.
type turn struct {
	held  chan struct{}
	users int // those that wait and the one that holds it
}

// New makes a Runner that does nothing until it is started.
func New[W any, N comparable, S fmt.Stringer, M any](o Options[W, N, S, M]) *Runner[W, N, S, M] {
	o.NeedsAtOnce, o.StepsAtOnce = max(o.NeedsAtOnce, 1), max(o.StepsAtOnce, 1)
	o.MostNeeds, o.Time = cmp.Or(o.MostNeeds, math.MaxInt), cmp.Or(o.Time, time.Minute)
	r := &Runner[W, N, S, M]{o: o, said: map[string]map[Note]bool{}, would: map[string][]string{}, turns: map[string]*turn{}}
	if o.Mode == outputs.Report {
		r.o.Writes = nil
	}
	o.Pass = r.Once
	r.Loop = NewLoop(o.LoopOptions)
	return r
}

// Once makes one round, and says when the next is due.
func (r *Runner[W, N, S, M]) Once(ctx context.Context, key string) Result {
	return r.result(ctx, r.run(ctx, key, r.o.Observe))
}

// Round makes one round, for a caller that decides itself when the next is due.
func (r *Runner[W, N, S, M]) Round(ctx context.Context, key string) Round[W, N, S, M] {
	return r.run(ctx, key, r.o.Observe)
}

// Preview is a round that ends with its plan: nothing is saved or written, and nothing reported.
func (r *Runner[W, N, S, M]) Preview(ctx context.Context, key string) (w W, plan Plan[N, S, M], err error) {
	bounded, cancel := context.WithTimeout(outputs.Within(ctx, r.o.Name, nil), r.o.Time)
	defer cancel()
	if w, err = r.o.Observe(bounded, key); err != nil {
		return w, plan, err
	}
	plan, errs := r.decide(bounded, w, map[N]bool{})
	return w, plan, errors.Join(errs...)
}

// Call makes a round for a caller that waits for it and says what is observed, and schedules the next one. It is an error
// only if no round may begin any more.
func (r *Runner[W, N, S, M]) Call(
	ctx context.Context, key string, observe func(ctx context.Context, key string) (W, error),
) (done Round[W, N, S, M], err error) {
	leave, err := r.Loop.o.Gate.Enter(ctx)
	if err != nil {
		return done, err
	}
	defer leave()
	done = r.run(ctx, key, observe)
	r.Requeue(ctx, key, r.result(ctx, done))
	return done, nil
}

// run makes one round as soon as no other over the key is under way.
func (r *Runner[W, N, S, M]) run(
	ctx context.Context, key string, observe func(ctx context.Context, key string) (W, error),
) (done Round[W, N, S, M]) {
	defer r.turn(key)()
	bounded, cancel := context.WithTimeout(outputs.Within(ctx, r.o.Name, r.o.Writes), r.o.Time)
	defer cancel()
	if r.o.Epoch != nil {
		bounded = outputs.Decided(bounded, r.o.Epoch())
	}
	done = r.round(bounded, key, observe)
	if ctx.Err() != nil && !r.o.AtEnd {
		return done
	}
	if r.o.Report != nil {
		r.o.Report(bounded, &done)
	}
	if r.o.Keyless {
		key = ""
	}
	r.say(key, done.Plan.Notes, done.Complete)
	return done
}

// turn waits until no other round over a key is under way, and returns what ends the turn.
func (r *Runner[W, N, S, M]) turn(key string) (end func()) {
	r.mu.Lock()
	t := r.turns[key]
	if t == nil {
		t = &turn{held: make(chan struct{}, 1)}
		r.turns[key] = t
	}
	t.users++
	r.mu.Unlock()
	t.held <- struct{}{}
	return func() {
		<-t.held
		r.mu.Lock()
		defer r.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(r.turns, key)
		}
	}
}

// round observes, plans, remembers and applies.
func (r *Runner[W, N, S, M]) round(
	ctx context.Context, key string, observe func(ctx context.Context, key string) (W, error),
) (done Round[W, N, S, M]) {
	done.Key, done.Began = key, r.o.Clock.Now()
	var errs, unread []error // unread are those of needs, which are not asked for again in this round
	w, err := observe(ctx, key)
	done.World = w
	if err != nil {
		errs = append(errs, err)
	}
	for again, asked := err == nil, map[N]bool{}; again; {
		var failed []error
		done.Plan, failed = r.decide(ctx, w, asked)
		unread = append(unread, failed...)
		errs = slices.Concat(unread, done.Plan.Unread)
		if r.o.Mode == outputs.Report {
			r.rehearse(key, w, done.Plan.Steps)
			break
		}
		steps, always := done.Plan.Steps, r.always(done.Plan.Steps)
		if done.Plan.Memory != nil {
			if done.Unsaved = r.o.Save(ctx, *done.Plan.Memory); done.Unsaved != nil {
				errs, steps = append(errs, done.Unsaved), always
			}
		}
		if r.o.Trusted != nil && len(steps) > len(always) {
			if done.Doubt = r.o.Trusted(ctx); done.Doubt != nil {
				errs, steps = append(errs, fmt.Errorf("nothing is changed for now: %w", done.Doubt)), always
			}
		}
		applied, undone := r.apply(ctx, w, steps)
		done.Applied = append(done.Applied, applied...)
		if again = done.Plan.Again && len(applied) > 0 && ctx.Err() == nil; !again {
			errs = append(errs, undone...)
		}
	}
	done.again = errors.Join(errs...)
	done.Err = errors.Join(append(errs, done.Plan.Refusals...)...)
	done.Complete = done.Err == nil
	done.Wrote = slices.ContainsFunc(done.Applied, func(a Applied[S]) bool { return a.Outcome == Done })
	return done
}

// rehearse logs the steps that the last plan over a key did not have.
func (r *Runner[W, N, S, M]) rehearse(key string, w W, steps []S) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var now []string
	for _, s := range steps {
		log, line := r.o.Log, s.String()
		if key != Only {
			log = log.WithValues("key", key)
		}
		if r.o.Because != nil {
			log = log.WithValues("because", r.o.Because(w, s))
		}
		if !slices.Contains(r.would[key], line) && !slices.Contains(now, line) {
			log.Info("Would apply step, but this is a dry run", "would", line)
		}
		now = append(now, line)
	}
	if r.would[key] = now; len(now) == 0 {
		delete(r.would, key)
	}
}

// decide plans, and again each time when something was read that a plan needs and that was not asked for yet. The errors
// are those of needs.
func (r *Runner[W, N, S, M]) decide(ctx context.Context, w W, asked map[N]bool) (plan Plan[N, S, M], errs []error) {
	for {
		plan = r.o.Plan(w)
		var due []N
		for _, n := range plan.Needs {
			if !asked[n] && len(asked) < r.o.MostNeeds {
				asked[n], due = true, append(due, n)
			}
		}
		learned, failed := r.satisfy(ctx, w, due)
		errs = append(errs, failed...)
		if !learned {
			return plan, errs
		}
	}
}

// satisfy reads needs, some side by side, and takes in what came of them in their order.
func (r *Runner[W, N, S, M]) satisfy(ctx context.Context, w W, needs []N) (learned bool, errs []error) {
	for len(needs) > 0 && ctx.Err() == nil {
		some := needs[:min(r.o.NeedsAtOnce, len(needs))]
		needs = needs[len(some):]
		learns, failed := make([]Learned, len(some)), make([]error, len(some))
		sideBySide(len(some), r.o.NeedsAtOnce, func(i int) { learns[i], failed[i] = r.o.Satisfy(ctx, w, some[i]) })
		for i, learn := range learns {
			if learn != nil {
				learn()
				learned = true
			}
			if failed[i] != nil {
				errs = append(errs, failed[i])
			}
		}
	}
	return learned, errs
}

// always are the steps that depend on nothing.
func (r *Runner[W, N, S, M]) always(steps []S) (out []S) {
	for _, s := range steps {
		if r.o.Always != nil && r.o.Always(s) {
			out = append(out, s)
		}
	}
	return out
}

// apply makes the steps of each subject until one is not done. It returns those that were tried, in the order of the
// plan, and what failed.
func (r *Runner[W, N, S, M]) apply(ctx context.Context, w W, steps []S) (tried []Applied[S], failed []error) {
	of, subjects := map[string][]int{}, []string(nil)
	for i, step := range steps {
		subject := ""
		if r.o.Subject != nil {
			subject = r.o.Subject(step)
		}
		if of[subject] == nil {
			subjects = append(subjects, subject)
		}
		of[subject] = append(of[subject], i)
	}
	all := make([]Applied[S], len(steps))
	in := func(subject string) (done bool) {
		for _, at := range of[subject] {
			err := ctx.Err()
			if err == nil {
				err = r.o.Apply(ctx, w, steps[at])
			}
			all[at] = Applied[S]{steps[at], OutcomeOf(err), err}
			if err != nil {
				return false
			}
		}
		return true
	}
	for r.o.First != nil && len(subjects) > 0 && r.o.First(steps[of[subjects[0]][0]]) {
		first := subjects[0]
		if subjects = subjects[1:]; !in(first) {
			subjects = nil
		}
	}
	sideBySide(len(subjects), r.o.StepsAtOnce, func(i int) { in(subjects[i]) })
	for _, a := range all {
		switch a.Outcome {
		case "":
			continue
		case Done, Held:
		case Conflict, Gone:
			r.o.Log.V(1).Info("What a step is about has changed, planning again", "step", a.Step.String(), "why", a.Err.Error())
		default:
			failed = append(failed, fmt.Errorf("%s: %w", a.Step, a.Err))
		}
		tried = append(tried, a)
	}
	return tried, failed
}

// sideBySide calls do with 0 to n-1, so many at once.
func sideBySide(n, atOnce int, do func(int)) {
	if atOnce == 1 {
		for i := range n {
			do(i)
		}
		return
	}
	var running sync.WaitGroup
	free := make(chan struct{}, atOnce)
	for i := range n {
		free <- struct{}{}
		running.Go(func() {
			defer func() { <-free }()
			do(i)
		})
	}
	running.Wait()
}

// say tells the notes that were not told yet for as long as they hold.
func (r *Runner[W, N, S, M]) say(key string, notes []Note, complete bool) {
	r.mu.Lock()
	before := r.said[key]
	r.mu.Unlock()
	now := map[Note]bool{}
	for _, n := range notes {
		same := n
		same.Message = ""
		if !now[same] && !before[same] {
			log := r.o.Log.WithValues("object", n.About.Kind+" "+n.About.Name, "reason", n.Reason, "message", n.Message)
			if r.o.Mode == outputs.Report {
				log.Info("Would record an Event, but this is a dry run")
			} else {
				log.Info("Recorded an Event")
				r.Events.Event(&n.About, n.Type, n.Reason, n.Message)
			}
		}
		now[same] = true
	}
	if !complete {
		for n := range before {
			now[n] = true
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.said[key] = now; len(now) == 0 {
		delete(r.said, key)
	}
}

// result says when the next round is due, unless the program ends.
func (r *Runner[W, N, S, M]) result(ctx context.Context, done Round[W, N, S, M]) Result {
	if ctx.Err() != nil {
		return Result{}
	}
	out := Result{Next: done.Plan.Next, Rest: done.Plan.Rest, Look: done.Plan.Look, Due: done.Plan.Due, Wrote: done.Wrote}
	if done.Err == nil {
		return out
	}
	log := r.o.Log
	if done.Key != Only {
		log = log.WithValues("key", done.Key)
	}
	if o := OutcomeOf(done.again); !r.o.Patient && (o == Conflict || o == Gone) {
		log.Info("Another process has written what this round was decided on, deciding again", "error", done.Err.Error())
		out.Next = r.o.FirstRetry
		return out
	}
	log.Error(done.Err, r.o.Failure)
	wait := time.Duration(0)
	if r.o.NotBefore != nil {
		wait = r.o.NotBefore(done.again).Sub(r.o.Clock.Now())
	}
	switch {
	case done.again == nil || r.o.FirstRetry == 0: // until the next resync
	case wait > 0:
		out.Next = Spread(wait)
	default:
		out.Next, out.Failed = 0, true
	}
	return out
}
