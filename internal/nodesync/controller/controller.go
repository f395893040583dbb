// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
	"github.com/mooring-dev/mooring/internal/rights"
)

const (
	// settleDelay gathers events that come together, such as the Nodes of a node pool, into one round.
	settleDelay = time.Second
	// firstRetry and lastRetry bound the wait after a round that failed; it doubles in between.
	firstRetry = time.Second
	lastRetry  = time.Minute
	// confirmationPeriod is how often a confirmation is looked for while something waits for one: a read of one object, where a round reads everything.
	confirmationPeriod = 10 * time.Second
	// readingShare is how many times as long as its reading took a round that removed something is followed by none, up to Config.Pace.
	readingShare = 4
	// longestRound bounds a round; each of its reads and writes has a bound of its own.
	longestRound = time.Hour
	// shownAtOnce is how many machines a dry run reads and shows.
	shownAtOnce = 500
)

// Reconciler runs rounds. Set all exported fields before Start.
type Reconciler struct {
	Datastore Datastore
	Cluster   Cluster
	// State outlives the process; without one (nil), grace periods begin again after a restart and nothing can be confirmed.
	State  State
	Config nodesync.Config
	// Writes are what it may write: all of [Writes].
	Writes []outputs.Write
	// Leftovers says that what pods that are gone have left on existing machines is looked for.
	Leftovers bool
	// Requests are what people ask for by name, and RestoreStore is for putting back what they name; nil for neither.
	Requests     Requests
	RestoreStore RestoreStore
	// Journal keeps what is removed; nil keeps nothing.
	Journal Journal
	// Events tells people; nil tells nobody.
	Events Events
	// DryRun plans and reports and writes nothing at all.
	DryRun bool
	// Workers is how many machines are read and cleaned up side by side; 0 means machinesAtOnce.
	Workers int
	Clock   clock.WithTicker
	Log     logr.Logger
	Metrics *Metrics
	// Wake starts a round early; it is sent to when a Node appears or goes.
	Wake <-chan struct{}

	keptMu sync.Mutex // guards known.kept while steps are applied
	known
}

// known is all that is kept between rounds, by the one goroutine that runs them.
type known struct {
	memory   nodesync.Memory
	saved    string // the memory as it was saved last
	savedAt  time.Time
	promised nodesync.Memory     // what was saved, by whomever, when this round began
	kept     map[string]keptNote // what was journaled last, by host
	loaded   bool                // what an earlier process saved has been read
	given    string              // the confirmation as it was read last
	refused  map[nodesync.Refusal]bool
	// unsent is the answer to a request that is done, and could not be given yet.
	unsent    Answer
	announced announced
}

// forRequest is what a controller for a request knows: the same, but for leftovers of pods, which are for the
// controller's own rounds, on machines that are not to be forgotten. What it learns is its own, but for the warnings:
// what it warns of is not warned of again.
func forRequest(k known) known {
	k.memory.Leftovers, k.memory.Sweep.PodsDue, k.loaded, k.unsent, k.refused = nil, false, true, Answer{}, nil
	k.kept, k.announced = maps.Clone(k.kept), k.announced.clone()
	return k
}

// NeedLeaderElection makes the manager start it in one replica at a time.
func (r *Reconciler) NeedLeaderElection() bool { return true }

// Start runs rounds until ctx ends. It returns nil: a round that fails is tried again.
func (r *Reconciler) Start(ctx context.Context) error {
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { r.keepJournal(ctx) })
	rounds := reconcile.New(r.serving())
	beside.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-r.Wake:
				rounds.Mark()
			}
		}
	})
	rounds.Add(reconcile.Only)
	rounds.Run(ctx)
	return nil
}

// asked reports whether a person has confirmed what waits, or asks for something. An error is for the round to report.
func (r *Reconciler) asked(ctx context.Context, _ string) bool {
	if r.State != nil && r.memory.Waits() {
		if _, confirmation, err := r.State.Read(ctx); err == nil && confirmation != r.given {
			return true
		}
	}
	if r.Requests == nil {
		return false
	}
	text, answer, err := r.Requests.Pending(ctx)
	request, _ := ParseRequest(text)
	return err == nil && text != "" && answer.ID != request.ID
}

// A round of this controller, its plan, and what it consists of.
type (
	round     = reconcile.Round[*scene, need, nodesync.Step, nodesync.Memory]
	roundPlan = reconcile.Plan[need, nodesync.Step, nodesync.Memory]
	parts     = reconcile.Options[*scene, need, nodesync.Step, nodesync.Memory]
)

// reading is the part of a round that ends with its plan.
func (r *Reconciler) reading() parts {
	config := r.Config
	if r.DryRun { // what only shows shows all that is due, not what one round would clean
		config.NodesPerRound = max(config.NodesPerRound, shownAtOnce)
	}
	return parts{
		LoopOptions: reconcile.LoopOptions{Name: "calico-node-sync", Clock: r.Clock},
		Log:         r.Log, Failure: "Reconcile failed, will try again", Time: longestRound,
		Observe: r.gather, Satisfy: r.satisfy,
		Plan: func(s *scene) (p roundPlan) {
			if s.unread == nil {
				s.plan = nodesync.MakePlan(s.World, config)
				p.Needs, p.Steps, p.Memory = r.needs(s.plan.Needs), s.plan.Steps, r.unpromised(s.plan.Memory, s.Now)
			}
			return p
		},
	}
}

// options are a round.
func (r *Reconciler) options() parts {
	o := r.reading()
	if r.DryRun {
		o.Mode, o.Because = outputs.Report, func(s *scene, step nodesync.Step) string { return because(s.plan)[step.Subject()] }
	}
	o.Writes, o.Save, o.Apply, o.AtEnd = r.Writes, r.promise, r.applyStep, true
	o.Report = func(ctx context.Context, done *round) {
		r.learn(ctx, done)
		r.Metrics.countRound(done.Err, r.Clock.Now())
	}
	// If the datastore could not be bound to this cluster, it may be another's by now.
	o.First = func(s nodesync.Step) bool { return s.Subject().Host == "" }
	o.Subject = func(s nodesync.Step) string { return s.Subject().Host }
	o.StepsAtOnce = cmp.Or(r.Workers, machinesAtOnce)
	return o
}

// serving are rounds after which a request is served, if there is one, and when they are made.
func (r *Reconciler) serving() parts {
	o := r.options()
	o.Quiet, o.Most, o.Look = settleDelay, settleDelay, r.asked
	// The servers that failed have enough to do: an event does not cut that wait short.
	o.FirstRetry, o.LastRetry, o.Patient, o.LastWord = firstRetry, lastRetry, true, true
	o.Report = func(ctx context.Context, done *round) {
		if r.learn(ctx, done) {
			again, err := r.serve(ctx)
			if err != nil {
				done.Fail(reconcile.As(reconcile.Failed, fmt.Errorf("serving a request: %w", err))) // a conflict, too
			}
			done.Plan.Next = min(done.Plan.Next, cmp.Or(again, done.Plan.Next))
		}
		r.Metrics.countRound(done.Err, r.Clock.Now())
	}
	return o
}

// Round observes, plans, applies and reports once, and returns when the next round is due. It serves no request.
func (r *Reconciler) Round(ctx context.Context) (time.Duration, error) {
	done := reconcile.New(r.options()).Round(ctx, reconcile.Only)
	return done.Plan.Next, done.Err
}

// Preview observes and plans once and writes nothing: what the next round would do.
func (r *Reconciler) Preview(ctx context.Context) (nodesync.Plan, error) {
	s, _, err := reconcile.New(r.reading()).Preview(ctx, reconcile.Only)
	r.memory.Sweep = s.Memory.Sweep // which was not looked through in vain
	if err != nil {
		return nodesync.Plan{}, err
	}
	return s.plan, nil
}

// learn remembers what came of a round, tells of it, and says when the next one is due. It returns false for a round
// without a plan that could be begun.
func (r *Reconciler) learn(ctx context.Context, done *round) bool {
	s, plan := done.World, done.World.plan
	if s.unread != nil {
		r.memory.Sweep = s.Memory.Sweep // as in Preview
		return false
	}
	if r.Metrics.count(s, r.Config); done.Unsaved != nil {
		return false
	}
	// What the end has cut short is not a failure of the machine: the next process finds out what became of the write.
	tried := slices.DeleteFunc(slices.Clone(done.Applied), func(a applied) bool { return a.Err != nil && ctx.Err() != nil })
	r.memory = plan.Memory
	for host, m := range s.machines {
		if m.fenced != 0 {
			r.memory = r.memory.WithFence(host, m.fenced)
		}
	}
	done.Plan.Next = min(r.backOff(plan, tried), r.leftoversTried(s.World, plan, tried))
	// Machines that go one after the other are gathered the longer, the more it costs to read what they left.
	if done.Plan.Rest = plan.Pace; len(plan.Steps) > 0 && !plan.More {
		done.Plan.Rest = min(max(plan.Pace, readingShare*s.reading), max(plan.Pace, r.Config.Pace))
	}
	if r.State != nil && r.memory.Waits() || r.Requests != nil {
		done.Plan.Look = confirmationPeriod
	}
	r.remember(ctx)
	r.forget(plan, tried)
	r.report(ctx, plan, tried)
	return true
}

// Writes are what rounds write. In Kubernetes that is, by the rights for it, the state with the answers to requests, the
// journal, and Calico's datastore if it is there. In Calico's etcd it is the record of the cluster, and what is removed
// of machines and put back.
func Writes() []outputs.Write {
	updated := func(plural string, fields ...string) outputs.Write {
		w := outputs.Write{
			System: outputs.Kubernetes, Kind: plural + "." + rights.CalicoGroup, Verbs: []string{"update"}, Bound: true,
		}
		for _, field := range fields {
			w.Fields = append(w.Fields, outputs.Field("spec", field))
		}
		return w
	}
	out := outputs.Narrowed(reconcile.Granted(rights.Rounds(rights.NodeSync().Roles("kubernetes", "restore"))),
		updated("ipamblocks", "allocations", "unallocated", "attributes", "sequenceNumber", "sequenceNumberForAllocation"),
		updated("ipamhandles", "block", "deleted"), updated("blockaffinities", "state", "deleted"))
	out = append(out, outputs.Write{System: outputs.CalicoEtcd, Kind: "clusterinformations", Verbs: []string{"put"}})
	for _, kind := range append([]string{"nodes", "workloadendpoints"}, nodesync.RestorableResources()...) {
		out = append(out, outputs.Write{System: outputs.CalicoEtcd, Kind: kind, Verbs: []string{"put", "delete"}})
	}
	return out
}

// forget drops what is kept about machines that are not absent any more.
func (r *Reconciler) forget(plan nodesync.Plan, tried []applied) {
	nodes, hosts := map[string]bool{}, map[string]bool{}
	for _, a := range r.memory.Absences {
		hosts[a.CalicoNode] = true
		// What waits for users waits for ever, and the sighting of its machine must not.
		returned := a.Doubted && !a.Witnessed // its next departure is another one
		nodes[a.KubernetesNode] = nodes[a.KubernetesNode] || a.HeldBy != nodesync.GateUserConfiguration && !returned
	}
	if len(r.Config.Named) == 0 { // others need those of all machines
		r.Cluster.ForgetSightings(nodes)
	}
	maps.DeleteFunc(r.kept, func(key string, note keptNote) bool {
		return !hosts[key] && (!strings.HasPrefix(key, leftoverNote) || r.Clock.Since(note.at) > sameEntryLife)
	})
	made := make([]nodesync.Tried, len(tried))
	for i, a := range tried {
		made[i] = nodesync.Tried{Step: a.Step, Made: a.Err == nil}
	}
	r.memory = r.memory.Applied(plan, made)
}

// recall reads what is kept outside the process: the memory at first, the confirmation each time.
func (r *Reconciler) recall(ctx context.Context) (confirmation string, err error) {
	if r.State == nil {
		return "", nil
	}
	memory, confirmation, err := r.State.Read(ctx)
	if err != nil {
		return "", err
	}
	if !r.loaded {
		r.memory, r.loaded = memory, true
		r.saved = r.memoryText() // so that what is no longer true there is written over, even by a memory that is empty
		r.memory = memory.Recalled(r.Clock.Now(), r.Config)
	}
	r.given, r.promised = confirmation, memory
	r.memory = r.memory.WithOwners(memory.Absences, r.Clock.Now())
	r.memory.Removals = joinRemovals(r.memory.Removals, memory.Removals)
	own := slices.Concat(r.memory.LeftoverRemovals, memory.LeftoverRemovals)
	slices.SortStableFunc(own, func(a, b nodesync.LeftoverRemoval) int { return a.At.Compare(b.At) })
	// What was removed at one time is counted once.
	r.memory.LeftoverRemovals = slices.CompactFunc(own, func(a, b nodesync.LeftoverRemoval) bool { return a.At.Equal(b.At) })
	return confirmation, nil
}

// joinRemovals adds what another process has removed, or an earlier one: the mass guard's window is the cluster's, not the process's.
func joinRemovals(own, others []nodesync.Removal) []nodesync.Removal {
	latest := make(map[string]time.Time, len(own)+len(others))
	for _, r := range slices.Concat(own, others) {
		if r.At.After(latest[r.CalicoNode]) {
			latest[r.CalicoNode] = r.At
		}
	}
	joined := make([]nodesync.Removal, 0, len(latest))
	for _, host := range slices.Sorted(maps.Keys(latest)) {
		joined = append(joined, nodesync.Removal{CalicoNode: host, At: latest[host]})
	}
	return joined
}

// unpromised is a memory if it has to be saved before the first step, and else nil: which unwitnessed machines are to
// be removed, and of which blocks will stay that nothing else says whose they are. Otherwise a process that dies in
// between, or another that leads at the same time, would have the mass guard let as many pass again, or would not
// know the machine.
func (r *Reconciler) unpromised(m nodesync.Memory, planned time.Time) *nodesync.Memory {
	unsaved := func(x nodesync.Removal) bool {
		return !slices.ContainsFunc(r.promised.Removals, func(saved nodesync.Removal) bool {
			return saved.CalicoNode == x.CalicoNode && !saved.At.Before(x.At)
		})
	}
	unknown := func(x nodesync.Absence) bool {
		return x.BlocksStay && !slices.ContainsFunc(r.promised.Absences, func(saved nodesync.Absence) bool {
			return saved.CalicoNode == x.CalicoNode && saved.BlocksStay
		})
	}
	leftovers := len(m.LeftoverRemovals) > 0 && m.LeftoverRemovals[len(m.LeftoverRemovals)-1].At.Equal(planned)
	machines := slices.ContainsFunc(m.Removals, unsaved) || slices.ContainsFunc(m.Absences, unknown)
	if r.State == nil || !leftovers && !machines {
		return nil
	}
	return &m
}

// promise saves what is to be known before the first step. A failure holds everything up.
func (r *Reconciler) promise(ctx context.Context, m nodesync.Memory) error {
	r.memory = m
	if err := r.save(ctx); err != nil {
		return fmt.Errorf("saving which machines are to be removed, before they are: %w", err)
	}
	return nil
}

// remember saves the memory when it has changed. A failure holds nothing up: what is lost is time, after a restart.
func (r *Reconciler) remember(ctx context.Context) {
	m := r.memory
	empty := len(m.Absences)+len(m.Removals)+len(m.LeftoverRemovals)+len(m.PodLeftovers) == 0 && m.AwaitingLeftovers.Hash == ""
	text := r.memoryText()
	changed := text != r.saved && (r.saved != "" || !empty)
	if stale := !empty && r.Clock.Since(r.savedAt) >= r.Config.Resync; r.State == nil || r.DryRun || !changed && !stale {
		return
	}
	// What was done must be remembered even when the end has come; the write is bounded in time.
	if err := r.save(context.WithoutCancel(ctx)); err != nil {
		r.Log.Error(err, "Failed to save since when Nodes are absent; grace periods would start again after a restart")
	}
}

func (r *Reconciler) save(ctx context.Context) error {
	text, memory := r.memoryText(), r.memory
	memory.SavedAt = r.Clock.Now()
	if err := r.State.Save(ctx, memory); err != nil {
		return err
	}
	r.saved, r.savedAt = text, memory.SavedAt
	return nil
}

// memoryText is the memory as it would be saved, but for the time, by which two are told apart. That it can be encoded, Save finds out.
func (r *Reconciler) memoryText() string {
	memory := r.memory
	memory.SavedAt = time.Time{}
	text, _ := json.Marshal(memory)
	return string(text)
}

// backOff holds the machines whose steps failed, each for longer every time, so that one that always fails does not
// keep others from their turn. It returns when the next round is due.
func (r *Reconciler) backOff(plan nodesync.Plan, tried []applied) time.Duration {
	next := plan.Next
	for _, a := range tried {
		if a.Err == nil || a.Step.Subject().Leftovers {
			continue
		}
		var wait time.Duration
		r.memory, wait = r.memory.Hold(a.Step.Subject().Host, nodesync.GateStepFailed,
			fmt.Sprintf("%s did not work: %v", a.Step, a.Err), r.Clock.Now(), r.Config)
		next = min(next, wait)
	}
	if r.DryRun && len(plan.Steps) > 0 {
		next = r.Config.Resync // nothing changes by our doing; a Node that comes or goes starts a round all the same
	}
	if next >= r.Config.Resync {
		return jitter(next)
	}
	return next
}

// jitter spreads d by up to a tenth, so that many controllers do not move in step.
func jitter(d time.Duration) time.Duration {
	return d + time.Duration(rand.Int64N(int64(d)/10+1))
}
