// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
)

// announcing is a Reconciler of which only the announcing is tried, and what it has told.
type announcing struct {
	t     *testing.T
	r     *Reconciler
	clock *clocktesting.FakeClock
	told  []Event
}

func newAnnouncing(t *testing.T) *announcing {
	t.Helper()
	t.Parallel()
	a := &announcing{t: t, clock: clocktesting.NewFakeClock(time.Date(2026, 1, 31, 18, 0, 0, 0, time.UTC))}
	a.r = &Reconciler{Events: a, Clock: a.clock, Log: logr.Discard(), Metrics: NewMetrics(prometheus.NewRegistry())}
	return a
}

func (a *announcing) Record(_ context.Context, event Event) { a.told = append(a.told, event) }

// expect announces a round and lets a minute pass. Of each Event that is told it wants the reason and the Node, and after a
// colon what its note says.
func (a *announcing) expect(when string, plan nodesync.Plan, out []applied, want ...string) {
	a.t.Helper()
	a.told = nil
	a.r.report(a.t.Context(), plan, out)
	a.clock.Step(time.Minute)
	for i, w := range want {
		about, says, _ := strings.Cut(w, ": ")
		if i >= len(a.told) || strings.TrimSpace(a.told[i].Reason+" "+a.told[i].Node) != about || !strings.Contains(a.told[i].Note, says) {
			a.t.Errorf("%s: got Events %+v, want %q", when, a.told, want)
			return
		}
		warns := strings.HasPrefix(about, "HeldBy") || strings.HasSuffix(strings.Fields(about)[0], "Failed")
		if e := a.told[i]; e.Warning != warns || e.Action == "" || len(e.Note) > 1024 {
			a.t.Errorf("%s: got %+v", when, e)
		}
	}
	if len(a.told) > len(want) {
		a.t.Errorf("%s: got Events %+v, want %q", when, a.told, want)
	}
}

// held is a plan that holds something back by gates, about hosts if there are any.
func held(gate nodesync.Gate, hosts ...string) (plan nodesync.Plan) {
	if len(hosts) == 0 {
		plan.Refusals = []nodesync.Refusal{{Gate: gate, Message: "because of " + string(gate)}}
	}
	for _, host := range hosts {
		plan.Refusals = append(plan.Refusals, nodesync.Refusal{Of: nodesync.Subject{Host: host}, Gate: gate})
	}
	return plan
}

// Reasons are a contract with people who filter by them, and the component's page explains them.
func TestReasonsOfEvents(t *testing.T) {
	t.Parallel()
	want := []string{
		"MachineCleaned", "LeftoversRemoved", "FenceWithdrawn", "ClusterRecorded", "HeldByKubernetes", "HeldByDatastore", "HeldByClusterBinding",
		"HeldByOverlap", "HeldByMassGuard", "StepFailed", "JournalFailed", "LeftoversFound",
	}
	got := []string{
		ReasonMachineCleaned, ReasonLeftoversRemoved, ReasonFenceWithdrawn, ReasonClusterRecorded, ReasonHeldByKubernetes, ReasonHeldByDatastore,
		ReasonHeldByClusterBinding, ReasonHeldByOverlap, ReasonHeldByMassGuard, ReasonStepFailed, ReasonJournalFailed, ReasonLeftoversFound,
	}
	if !slices.Equal(got, want) {
		t.Errorf("reasons: got %q, want %q", got, want)
	}
	page := componentPage(t)
	for _, reason := range want {
		if !strings.Contains(page, "| `"+reason+"` |") {
			t.Errorf("the component's page does not explain the Event %s", reason)
		}
	}
}

// Every gate either has a reason or passes without an Event, and a new one needs that decision.
func TestEveryGateIsAnnouncedOrNot(t *testing.T) {
	t.Parallel()
	silent := []nodesync.Gate{
		nodesync.GateUnreadable, nodesync.GateNoIdentity, nodesync.GateOtherOrchestrator, nodesync.GateAmbiguousName, nodesync.GateKeep,
		nodesync.GateGrace, nodesync.GatePace, nodesync.GateNotConfirmed, nodesync.GateRunningPods, nodesync.GateStepFailed,
		nodesync.GateForeignEndpoint, nodesync.GateForeignAddress, nodesync.GateUserConfiguration, nodesync.GateOrphanedHandle, nodesync.GatePodLeftovers,
		nodesync.GateOrphanedConfiguration, nodesync.GateCooldown, nodesync.GateSigns,
	}
	for _, gate := range nodesync.Gates() {
		if (heldBy(gate) == "") != slices.Contains(silent, gate) {
			t.Errorf("gate %s: the reason is %q", gate, heldBy(gate))
		}
	}
}

// Of objects about a host that is not a machine any more it is told once, in one Event for all that are new. The Event about
// leftovers of pods advises to set a flag only where it is not set.
func TestLeftoversAreAnnouncedOnce(t *testing.T) {
	a := newAnnouncing(t)
	const about, gate = "neither a Calico Node nor a Kubernetes Node: ", nodesync.GateOrphanedConfiguration
	a.expect("two hosts", held(gate, "b", "a"), nil, "LeftoversFound: about 2 hosts, "+about+"a, b; if a machine")
	a.expect("the same", held(gate, "a", "b"), nil)
	a.expect("one more", held(gate, "a", "b", "c"), nil, "LeftoversFound: about 1 host, "+about+"c; if a machine")
	a.expect("none", nodesync.Plan{}, nil)
	for _, set := range []bool{false, true} {
		want := "LeftoversFound: --also-remove=PodLeftovers lets the controller remove them; a: because"
		if set {
			a.r.Config.AlsoRemove = []nodesync.ResourceKind{nodesync.KindPodLeftovers}
			want = "LeftoversFound: existing machines; the controller removes them when nothing speaks against it; a: because"
		}
		plan := nodesync.Plan{Leftovers: 3, Refusals: []nodesync.Refusal{{
			Of: nodesync.Subject{Host: "a", Leftovers: true}, Gate: nodesync.GatePodLeftovers, Message: "because",
		}}}
		a.expect("pods", plan, nil, want)
		a.expect("pods again", plan, nil)
		a.expect("no more", nodesync.Plan{}, nil)
	}
}

// A gate is told of when it begins to hold, and not again while it does, nor within the hour if it only flickers.
func TestGatesAreAnnouncedOnce(t *testing.T) {
	a := newAnnouncing(t)
	overlap, none := held(nodesync.GateOverlap), nodesync.Plan{}
	two := overlap
	two.Refusals = slices.Concat(overlap.Refusals, held(nodesync.GateMass).Refusals)
	a.expect("nothing", none, nil)
	for _, gate := range []nodesync.Gate{nodesync.GateGrace, nodesync.GatePace, nodesync.GateKeep} {
		a.expect("what passes by itself", held(gate), nil)
	}
	a.expect("two gates begin", two, nil, "HeldByOverlap: because of overlap", "HeldByMassGuard: lists the nodes and the current hash")
	for range 200 {
		a.expect("they go on", two, nil)
	}
	a.expect("one ends", overlap, nil)
	a.expect("it begins again, hours later", two, nil, "HeldByMassGuard")
	a.expect("it ends", none, nil)
	a.expect("the first flickers", overlap, nil, "HeldByOverlap")
	for range 24 {
		a.expect("it flickers on", none, nil)
		a.expect("it flickers on", overlap, nil)
	}
	for range 11 {
		a.expect("it stays, within the hour", overlap, nil)
	}
	a.expect("it stays, and is told of later", overlap, nil, "HeldByOverlap")
	for gate, want := range map[nodesync.Gate]string{
		nodesync.GateKubernetesEmpty: ReasonHeldByKubernetes, nodesync.GateDatastoreNotReady: ReasonHeldByDatastore + ": calicoctl datastore migrate unlock",
		nodesync.GateClusterBinding: ReasonHeldByClusterBinding,
	} {
		a.expect(string(gate), held(gate), nil, want)
	}
	a.clock.Step(2 * sayAgain)
	a.expect("the guard of leftovers", held(nodesync.GateLeftoverGuard), nil, "HeldByMassGuard: no leftovers of deleted pods")
	a.expect("the first round of a process", held(nodesync.GateKubernetesNotSynced), nil)
	a.expect("a watch that is still not filled", held(nodesync.GateKubernetesNotSynced), nil, "HeldByKubernetes: look at the API server")
	a.expect("and then", held(nodesync.GateKubernetesNotSynced), nil)
}

var errBroken = errors.New("etcdserver: permission denied")

// one is a plan for a machine, and what became of its steps: each error stands for one of them.
func one(host string, errs ...error) (nodesync.Plan, []applied) {
	of := nodesync.Subject{Host: host, KubernetesNode: host + ".k8s"}
	steps := []nodesync.Step{
		nodesync.Fence{Of: of},
		nodesync.RemoveEndpoints{Of: of, Endpoints: make([]nodesync.EndpointRef, 3)},
		nodesync.ReleaseAddresses{Of: of, Addresses: make([]nodesync.Reservation, 5)},
		nodesync.RemoveAffinity{Of: of, CIDR: netip.MustParsePrefix("10.0.0.0/26"), DeleteBlock: true},
		nodesync.RemoveNode{Of: of},
	}
	plan := nodesync.Plan{
		Steps: steps, Decisions: []nodesync.Decision{{Of: of, Because: "it is NotFound"}},
		Memory: nodesync.Memory{Absences: []nodesync.Absence{{CalicoNode: host, KubernetesNode: host + ".k8s"}}},
	}
	var out []applied
	for i, err := range errs {
		outcome := reconcile.OutcomeOf(err)
		if errors.Is(err, errAlive) || errors.Is(err, calico.ErrConflict) {
			outcome = reconcile.Conflict
		}
		out = append(out, applied{Step: steps[i], Outcome: outcome, Err: err})
	}
	return plan, out
}

// Of a machine it is told once that it is clean. Of one that fails it is told once, and again only after it has been cleaned up; what was removed
// on the way is counted in the end. What the next round decides again is not a failure.
func TestMachinesAreAnnouncedOnce(t *testing.T) {
	a := newAnnouncing(t)
	expect := func(when, host string, errs []error, want ...string) {
		t.Helper()
		plan, out := one(host, errs...)
		if host == "n2" { // n1 still fails
			plan.Memory.Absences = append(plan.Memory.Absences, nodesync.Absence{CalicoNode: "n1", KubernetesNode: "n1.k8s"})
		}
		a.expect(when, plan, out, want...)
	}
	journal := fmt.Errorf("%w: no space left on device", errJournal)
	expect("it is clean", "n0", make([]error, 5),
		"MachineCleaned n0.k8s: Cleaned up machine n0: 6 objects removed and 5 addresses released; because it is NotFound")
	a.expect("nothing happened", nodesync.Plan{}, nil)
	expect("it has come back", "n1", []error{nil, errAlive})
	expect("a conflict", "n1", []error{nil, &calico.ConflictError{Key: "k"}})
	expect("it fails", "n1", []error{nil, errBroken}, "StepFailed n1.k8s: permission denied")
	for range 100 {
		a.clock.Step(5 * time.Minute)
		expect("it goes on failing", "n1", []error{nil, errBroken})
	}
	expect("the journal fails", "n1", []error{journal}, "JournalFailed: cannot be journaled")
	expect("and for another machine", "n2", []error{journal})
	expect("it gets further", "n1", []error{nil, nil, errBroken})
	expect("it is clean in the end", "n1", make([]error, 5), "MachineCleaned n1.k8s: 9 objects removed and 5 addresses released")
	expect("it fails again", "n1", []error{errBroken}, "StepFailed n1.k8s")
}

// Steps that stand alone have Events of their own.
func TestOtherAnnouncements(t *testing.T) {
	a := newAnnouncing(t)
	of := nodesync.Subject{Host: "n1", KubernetesNode: "n1"}
	leftovers := nodesync.RemoveLeftovers{Of: nodesync.Subject{Host: "n2", KubernetesNode: "n2", Leftovers: true}, Leftovers: make([]nodesync.Leftover, 2)}
	leftovers.Leftovers[0].Endpoint.Name = "e"
	steps := []nodesync.Step{nodesync.BindCluster{ClusterUID: "u-1"}, nodesync.Unfence{Of: of}, nodesync.RemoveHandles{Handles: make([]nodesync.Handle, 4)}, leftovers}
	plan, out := nodesync.Plan{Steps: steps}, []applied(nil)
	for _, step := range steps {
		plan.Decisions = append(plan.Decisions, nodesync.Decision{Of: step.Subject(), Because: "so"})
		out = append(out, applied{Step: step, Outcome: reconcile.Done})
	}
	a.expect("all", plan, out, "ClusterRecorded: UID u-1", "FenceWithdrawn n1: Withdrew the fence from Calico Node n1", "LeftoversRemoved: 4 objects removed",
		"LeftoversRemoved n2: leftovers of deleted pods on n2: 1 objects removed and 1 addresses released")
}

// Notes are cut to what the API server takes, and say what went wrong however much a step names.
func TestNotesFit(t *testing.T) {
	a := newAnnouncing(t)
	plan, out := one("n1", nil, errBroken)
	long := nodesync.RemoveEndpoints{Of: plan.Steps[1].Subject()}
	for range 500 {
		long.Endpoints = append(long.Endpoints, nodesync.EndpointRef{Namespace: "namespace", Name: "a-workload-endpoint"})
	}
	out[1].Step = long
	plan.Refusals = []nodesync.Refusal{{Gate: nodesync.GateMass, Message: strings.Repeat("é", 2000)}}
	a.expect("long", plan, out, "HeldByMassGuard: éé", "StepFailed n1.k8s: permission denied")
}

// A dry run writes nothing, and an Event is a write.
func TestADryRunAnnouncesNothing(t *testing.T) {
	a := newAnnouncing(t)
	a.r.DryRun = true
	plan, out := one("n1", nil, errBroken)
	plan.Refusals = held(nodesync.GateOverlap).Refusals
	a.expect("a dry run", plan, out)
	a.r.Events, a.r.DryRun = nil, false
	a.expect("nobody listens", plan, out)
}
