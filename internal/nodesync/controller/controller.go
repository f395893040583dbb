// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
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
	// LeftoverStore and LeftoverCluster are for what pods that are gone have left on existing machines; with nil for either nothing of it is looked for.
	LeftoverStore   LeftoverStore
	LeftoverCluster LeftoverCluster
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
	Clock   clock.Clock
	Log     logr.Logger
	Metrics *Metrics
	// Wake starts a round early; it is sent to when a Node appears or goes.
	Wake <-chan struct{}

	// Kept between rounds, by the one goroutine that runs them.
	memory   nodesync.Memory
	saved    string // the memory as it was saved last
	savedAt  time.Time
	promised nodesync.Memory // what was saved, by whomever, when this round began
	keptMu   sync.Mutex
	kept     map[string]keptNote // what was journaled last, by host; guarded by keptMu while steps are applied
	loaded   bool                // what an earlier process saved has been read
	given    string              // the confirmation as it was read last
	busy     bool                // the last round had steps
	pace     time.Duration       // how long the next round must wait for the last one's steps
	refused  map[nodesync.Refusal]bool
	// unsent is the answer to a request that is done, and could not be given yet.
	unsent     Answer
	lastDryRun string
	// strays are hosts that the last sweep found, nil before the first, and sweptAt is when that was.
	strays map[string]bool
	// mentioned are hosts that the last sweep found in resources alone.
	mentioned map[string]bool
	sweptAt   time.Time
	announced announced
	// podsDue reports that leftovers of pods are to be looked for, and podsFailed that this failed last.
	podsDue, podsFailed bool
}

// NeedLeaderElection makes the manager start it in one replica at a time.
func (r *Reconciler) NeedLeaderElection() bool { return true }

// Start runs rounds until ctx ends. It returns nil: a round that fails is tried again.
func (r *Reconciler) Start(ctx context.Context) error {
	var beside sync.WaitGroup
	beside.Go(func() { r.keepJournal(ctx) })
	defer beside.Wait()
	retry := firstRetry
	for ctx.Err() == nil {
		next, err := r.Round(ctx)
		if err == nil {
			retry = firstRetry
			if r.pace > 0 {
				// The pace holds whatever happens meanwhile.
				r.sleep(ctx, r.pace, nil)
				next = max(next-r.pace, 0)
			}
			r.rest(ctx, next)
			continue
		}
		if ctx.Err() == nil {
			r.Log.Error(err, "Reconcile failed, will try again", "nextIn", retry.String())
		}
		// An event does not cut this wait short: the servers that failed have enough to do.
		r.sleep(ctx, jitter(retry), nil)
		retry = min(2*retry, lastRetry)
	}
	return nil
}

// rest waits until the next round is due: for the time, until it is woken, or until a person has confirmed what waits for that.
func (r *Reconciler) rest(ctx context.Context, d time.Duration) {
	waits := r.memory.Awaiting.Hash != "" || r.memory.AwaitingLeftovers.Hash != ""
	for (r.State != nil && waits || r.Requests != nil) && d > confirmationPeriod {
		if r.sleep(ctx, confirmationPeriod, r.Wake) || r.asked(ctx, waits) {
			return
		}
		d -= confirmationPeriod
	}
	r.sleep(ctx, d, r.Wake)
}

// asked reports whether a person has confirmed what waits, or asks for something. An error is for the round to report.
func (r *Reconciler) asked(ctx context.Context, waits bool) bool {
	if r.State != nil && waits {
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

// sleep waits for the time, or until it is woken and then for the settle delay. It reports whether something else than the time has ended it.
func (r *Reconciler) sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) (woken bool) {
	timer := r.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return true
	case <-timer.C():
		return false
	case <-wake:
		settle := r.Clock.NewTimer(settleDelay)
		defer settle.Stop()
		select {
		case <-ctx.Done():
		case <-settle.C():
		}
		return true
	}
}

// Round observes, plans, applies and reports once, and returns when the next round is due.
func (r *Reconciler) Round(ctx context.Context) (time.Duration, error) {
	next, err := r.round(ctx)
	if err != nil {
		r.Metrics.rounds.WithLabelValues("error").Inc()
		return 0, err
	}
	r.Metrics.rounds.WithLabelValues("ok").Inc()
	r.Metrics.lastSuccess.Set(float64(r.Clock.Now().Unix()))
	return next, nil
}

// Preview observes and plans once and writes nothing: what the next round would do.
func (r *Reconciler) Preview(ctx context.Context) (nodesync.Plan, error) {
	s, err := r.gather(ctx)
	if err != nil {
		return nodesync.Plan{}, err
	}
	return s.plan, nil
}

// effective is the configuration that a round keeps. What only shows shows all that is due, not what one round would clean.
func (r *Reconciler) effective() nodesync.Config {
	c := r.Config
	if r.DryRun {
		c.NodesPerRound = max(c.NodesPerRound, shownAtOnce)
	}
	return c
}

// gather is the World as it is now, with what is known from before and what its plan needs.
func (r *Reconciler) gather(ctx context.Context) (*scene, error) {
	confirmation, err := r.recall(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading what was saved: %w", err)
	}
	s := &scene{}
	if s.World, err = r.observe(ctx, nodesync.World{Now: r.Clock.Now(), Memory: r.memory, Confirmation: confirmation}); err != nil {
		return nil, err
	}
	for asked, learned := map[need]bool{}, true; learned; {
		learned, s.plan = false, nodesync.MakePlan(s.World, r.effective())
		for _, n := range r.needs(s.plan.Needs) {
			if asked[n] {
				continue
			}
			if err := r.satisfy(ctx, s, n); err != nil {
				return nil, err
			}
			asked[n], learned = true, true
		}
	}
	return s, nil
}

func (r *Reconciler) round(ctx context.Context) (time.Duration, error) {
	began := r.Clock.Now()
	s, err := r.gather(ctx)
	if err != nil {
		return 0, err
	}
	reading := r.Clock.Since(began)
	world, plan := s.World, s.plan
	r.Metrics.planned.Set(float64(len(plan.Steps)))
	r.Metrics.calicoNodes.Set(float64(len(world.Calico.Nodes)))
	r.Metrics.absentNodes.Set(float64(len(plan.Memory.Absences)))
	r.countUnserved(world)
	r.Metrics.podLeftovers.Set(float64(plan.Leftovers))
	r.busy = len(plan.Steps) > 0
	// Machines that go one after the other are gathered the longer, the more it costs to read what they left.
	if r.pace = plan.Pace; r.busy && !plan.More {
		r.pace = min(max(plan.Pace, readingShare*reading), max(plan.Pace, r.Config.Pace))
	}
	r.memory = plan.Memory
	var out outcome
	if !r.DryRun {
		if err := r.promise(ctx, world.Now); err != nil {
			return 0, err
		}
		out = r.apply(ctx, s)
	}
	for host, revision := range out.fences {
		r.memory = r.memory.WithFence(host, revision)
	}
	next := r.putBack(plan, out)
	next = min(next, r.leftoversTried(world, plan, out))
	r.remember(ctx)
	r.forget(plan, out)
	r.report(ctx, r.Log, plan, out)
	again, err := r.serve(ctx)
	if err != nil {
		return 0, fmt.Errorf("serving a request: %w", err)
	}
	if again > 0 {
		next = min(next, again)
	}
	return next, nil
}

// countUnserved notes how many Kubernetes Nodes have no Calico Node.
func (r *Reconciler) countUnserved(w nodesync.World) {
	if w.Calico.Binding.Implied || !w.Kubernetes.Synced {
		return
	}
	names := make([]string, 0, len(w.Kubernetes.Nodes))
	for _, n := range w.Kubernetes.Nodes {
		names = append(names, n.Name)
	}
	r.Metrics.unserved.Set(float64(len(nodesync.WithoutCalicoNode(w.Calico.Nodes, names, r.Config))))
}

// forget drops what is kept about machines that are not absent any more.
func (r *Reconciler) forget(plan nodesync.Plan, out outcome) {
	nodes, hosts := map[string]bool{}, map[string]bool{}
	for _, a := range r.memory.Absences {
		hosts[a.CalicoNode] = true
		// What waits for users waits for ever, and the sighting of its machine must not.
		returned := a.Doubted && !a.Witnessed // its next departure is another one
		nodes[a.KubernetesNode] = nodes[a.KubernetesNode] || a.HeldBy != nodesync.GateUserConfiguration && !returned
	}
	r.Cluster.ForgetSightings(nodes)
	maps.DeleteFunc(r.kept, func(key string, note keptNote) bool {
		return !hosts[key] && (!strings.HasPrefix(key, leftoverNote) || r.Clock.Since(note.at) > sameEntryLife)
	})
	r.forgetSwept(plan, out, hosts)
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
	r.memory.LeftoverRemovals = joinLeftoverRemovals(r.memory.LeftoverRemovals, memory.LeftoverRemovals)
	return confirmation, nil
}

// joinRemovals adds what another process has removed, or an earlier one: the mass guard's window is the cluster's, not the process's.
func joinRemovals(own, others []nodesync.Removal) []nodesync.Removal {
	latest := make(map[string]time.Time, len(own)+len(others))
	for _, r := range slices.Concat(own, others) {
		if at, known := latest[r.CalicoNode]; !known || r.At.After(at) {
			latest[r.CalicoNode] = r.At
		}
	}
	joined := make([]nodesync.Removal, 0, len(latest))
	for _, host := range slices.Sorted(maps.Keys(latest)) {
		joined = append(joined, nodesync.Removal{CalicoNode: host, At: latest[host]})
	}
	return joined
}

// joinLeftoverRemovals does the same for leftovers: what was removed at one time is counted once.
func joinLeftoverRemovals(own, others []nodesync.LeftoverRemoval) []nodesync.LeftoverRemoval {
	for _, x := range others {
		if !slices.ContainsFunc(own, func(o nodesync.LeftoverRemoval) bool { return o.At.Equal(x.At) }) {
			own = append(slices.Clone(own), x)
		}
	}
	slices.SortFunc(own, func(a, b nodesync.LeftoverRemoval) int { return a.At.Compare(b.At) })
	return own
}

// promise saves which unwitnessed machines are to be removed before the first of them is, and of which blocks will stay
// that nothing else says whose they are. Otherwise a process that dies in between, or another that leads at the same
// time, would have the mass guard let as many pass again, or would not know the machine. Here a failure holds
// everything up.
func (r *Reconciler) promise(ctx context.Context, planned time.Time) error {
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
	leftovers := len(r.memory.LeftoverRemovals) > 0 && r.memory.LeftoverRemovals[len(r.memory.LeftoverRemovals)-1].At.Equal(planned)
	machines := slices.ContainsFunc(r.memory.Removals, unsaved) || slices.ContainsFunc(r.memory.Absences, unknown)
	if r.State == nil || !leftovers && !machines {
		return nil
	}
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

// putBack holds the machines whose steps failed, each for longer every time, so that one that always fails does not keep others from
// their turn. It returns when the next round is due.
func (r *Reconciler) putBack(plan nodesync.Plan, out outcome) time.Duration {
	next := plan.Next
	for _, a := range out.applied {
		if a.err == nil || a.step.Subject().Leftovers {
			continue
		}
		var wait time.Duration
		r.memory, wait = r.memory.Hold(a.step.Subject().Host, nodesync.GateStepFailed,
			fmt.Sprintf("%s did not work: %v", a.step, a.err), r.Clock.Now(), r.Config)
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
