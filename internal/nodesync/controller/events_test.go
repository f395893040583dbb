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

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
)

// heard keeps what it is told.
type heard struct{ events []Event }

func (h *heard) Record(_ context.Context, event Event) { h.events = append(h.events, event) }

// reasons are those of all Events since the last call, with the Node.
func (h *heard) reasons() string {
	var out []string
	for _, event := range h.events {
		out = append(out, strings.TrimSpace(event.Reason+" "+event.Node))
	}
	h.events = nil
	return strings.Join(out, ", ")
}

// announcer is a Reconciler of which only the announcing is tried.
func announcer() (*Reconciler, *heard, *clocktesting.FakeClock) {
	told, clock := &heard{}, clocktesting.NewFakeClock(time.Date(2026, 1, 31, 18, 0, 0, 0, time.UTC))
	return &Reconciler{Events: told, Clock: clock}, told, clock
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

// Of objects about a host that is not a machine any more it is told once, in one Event for all that are new.
func TestLeftoversAreAnnouncedOnce(t *testing.T) {
	t.Parallel()
	r, told, _ := announcer()
	round := func(hosts ...string) string {
		var plan nodesync.Plan
		for _, host := range hosts {
			plan.Refusals = append(plan.Refusals, nodesync.Refusal{Of: nodesync.Subject{Host: host}, Gate: nodesync.GateOrphanedConfiguration})
		}
		r.announce(t.Context(), plan, nil)
		var notes []string
		for _, event := range told.events {
			note, _, _ := strings.Cut(event.Note, "; if")
			notes = append(notes, event.Reason+": "+note)
		}
		told.events = nil
		return strings.Join(notes, "\n")
	}
	const about = ", neither a Calico Node nor a Kubernetes Node: "
	for _, step := range []struct {
		hosts []string
		want  string
	}{
		{[]string{"b", "a"}, "LeftoversFound: Objects are about 2 hosts" + about + "a, b"},
		{[]string{"a", "b"}, ""},
		{[]string{"a", "b", "c"}, "LeftoversFound: Objects are about 1 host" + about + "c"},
		{nil, ""},
	} {
		if got := round(step.hosts...); got != step.want {
			t.Errorf("%q: got %q, want %q", step.hosts, got, step.want)
		}
	}
}

// A gate is told of when it begins to hold, and not again while it does, nor within the hour if it only flickers.
// The Event about leftovers of pods advises to set a flag only where it is not set.
func TestTheEventOfPodLeftoversFollowsTheFlag(t *testing.T) {
	t.Parallel()
	for _, set := range []bool{false, true} {
		r, told, _ := announcer()
		if set {
			r.Config.AlsoRemove = []nodesync.ResourceKind{nodesync.KindPodLeftovers}
		}
		refusal := nodesync.Refusal{Of: nodesync.Subject{Host: "a", Leftovers: true}, Gate: nodesync.GatePodLeftovers, Message: "its Kubernetes Node is not Ready"}
		r.announce(t.Context(), nodesync.Plan{Leftovers: 3, Refusals: []nodesync.Refusal{refusal}}, nil)
		if len(told.events) != 1 || strings.Contains(told.events[0].Note, "--also-remove") == set || !strings.HasSuffix(told.events[0].Note, "; a: "+refusal.Message) {
			t.Errorf("with the flag %t: %+v", set, told.events)
		}
	}
}

func TestGatesAreAnnouncedOnce(t *testing.T) {
	t.Parallel()
	r, told, clock := announcer()
	round := func(gates ...nodesync.Gate) string {
		plan := nodesync.Plan{}
		for _, gate := range gates {
			plan.Refusals = append(plan.Refusals, nodesync.Refusal{Gate: gate, Message: "because of " + string(gate)})
		}
		r.announce(t.Context(), plan, nil)
		clock.Step(time.Minute)
		return told.reasons()
	}
	expect := func(when, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: got Events %q, want %q", when, got, want)
		}
	}
	expect("nothing", round(), "")
	expect("what passes by itself", round(nodesync.GateGrace, nodesync.GatePace, nodesync.GateKeep), "")
	expect("two gates begin", round(nodesync.GateOverlap, nodesync.GateMass), "HeldByOverlap, HeldByMassGuard")
	for range 200 {
		expect("they go on", round(nodesync.GateOverlap, nodesync.GateMass), "")
	}
	expect("one ends", round(nodesync.GateOverlap), "")
	expect("it begins again, hours later", round(nodesync.GateOverlap, nodesync.GateMass), "HeldByMassGuard")
	flickers := ""
	for range 25 {
		flickers += round() + round(nodesync.GateOverlap)
	}
	if flickers != "HeldByOverlap" {
		t.Errorf("a gate that flickers for 50 minutes: got Events %q, want one", flickers)
	}
	held := ""
	for range 60 {
		held += round(nodesync.GateOverlap)
	}
	expect("one that was suppressed while it flickered and then stays", held, "HeldByOverlap")
	for gate, want := range map[nodesync.Gate]string{
		nodesync.GateKubernetesEmpty: ReasonHeldByKubernetes, nodesync.GateDatastoreNotReady: ReasonHeldByDatastore,
		nodesync.GateClusterBinding: ReasonHeldByClusterBinding,
	} {
		expect(string(gate), round(gate), want)
	}
	clock.Step(2 * sayAgain)
	expect("the first round of a process", round(nodesync.GateKubernetesNotSynced), "")
	expect("a watch that is still not filled", round(nodesync.GateKubernetesNotSynced), ReasonHeldByKubernetes)
	expect("and then", round(nodesync.GateKubernetesNotSynced), "")
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
		out = append(out, applied{Step: steps[i], Err: err})
	}
	return plan, out
}

func TestAMachineIsAnnouncedOnceItIsClean(t *testing.T) {
	t.Parallel()
	r, told, _ := announcer()
	plan, out := one("n1", nil, nil, nil, nil, nil)
	r.announce(t.Context(), plan, out)
	want := []Event{{
		Reason: ReasonMachineCleaned, Action: "CleanUp", Node: "n1.k8s",
		Note: "Cleaned up machine n1: 6 objects removed and 5 addresses released; because it is NotFound",
	}}
	if diff := cmp.Diff(want, told.events); diff != "" {
		t.Errorf("Events (-want +got):\n%s", diff)
	}
	told.events = nil
	r.announce(t.Context(), nodesync.Plan{}, nil)
	if got := told.reasons(); got != "" {
		t.Errorf("a round in which nothing happened: got Events %q", got)
	}
}

// Of a machine that fails it is told once, and again only after it has been cleaned up; what was removed on the way is counted in the end.
func TestFailuresAreAnnouncedOnce(t *testing.T) {
	t.Parallel()
	r, told, clock := announcer()
	for i := range 100 {
		plan, out := one("n1", nil, errBroken)
		r.announce(t.Context(), plan, out)
		clock.Step(5 * time.Minute)
		if i == 0 {
			if len(told.events) != 1 || !told.events[0].Warning || !strings.Contains(told.events[0].Note, "permission denied") {
				t.Errorf("got %+v, want a warning with the error", told.events)
			}
			told.events = nil
		}
	}
	if got := told.reasons(); got != "" {
		t.Errorf("while it goes on failing: got Events %q", got)
	}
	journal := fmt.Errorf("%w: no space left on device", errJournal)
	plan, out := one("n1", journal)
	r.announce(t.Context(), plan, out)
	if len(told.events) != 1 || !strings.Contains(told.events[0].Note, "cannot be journaled") {
		t.Errorf("got %+v, want a warning about the journal", told.events)
	}
	told.events = nil
	plan, out = one("n2", journal)
	plan.Memory.Absences = append(plan.Memory.Absences, nodesync.Absence{CalicoNode: "n1", KubernetesNode: "n1.k8s"})
	r.announce(t.Context(), plan, out)
	if got := told.reasons(); got != "" {
		t.Errorf("the journal fails for another machine as well: got Events %q", got)
	}
	plan, out = one("n1", nil, nil, errBroken)
	r.announce(t.Context(), plan, out)
	plan, out = one("n1", nil, nil, nil, nil, nil)
	r.announce(t.Context(), plan, out)
	if len(told.events) != 1 || !strings.Contains(told.events[0].Note, "9 objects removed and 5 addresses released") {
		t.Errorf("got %+v, want what was removed in both attempts", told.events)
	}
	told.events = nil
	plan, out = one("n1", errBroken)
	r.announce(t.Context(), plan, out)
	if got := told.reasons(); got != "StepFailed n1.k8s" {
		t.Errorf("it fails again: got Events %q", got)
	}
}

// What the next round decides again, or the end of the process, is not a failure.
func TestConflictsAreNotAnnounced(t *testing.T) {
	t.Parallel()
	r, told, _ := announcer()
	for _, err := range []error{errAlive, &calico.ConflictError{Key: "k"}} {
		plan, out := one("n1", nil, err)
		r.announce(t.Context(), plan, out)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	plan, out := one("n1", nil, context.Canceled)
	r.announce(ctx, plan, out)
	if got := told.reasons(); got != "" {
		t.Errorf("got Events %q, want none", got)
	}
}

func TestOtherAnnouncements(t *testing.T) {
	t.Parallel()
	r, told, _ := announcer()
	of := nodesync.Subject{Host: "n1", KubernetesNode: "n1"}
	handles := nodesync.RemoveHandles{Handles: make([]nodesync.Handle, 4)}
	steps := []nodesync.Step{nodesync.BindCluster{ClusterUID: "u-1"}, nodesync.Unfence{Of: of}, handles}
	plan, out := nodesync.Plan{Steps: steps}, []applied(nil)
	for _, step := range steps {
		plan.Decisions = append(plan.Decisions, nodesync.Decision{Of: step.Subject(), Because: "so"})
		out = append(out, applied{Step: step})
	}
	r.announce(t.Context(), plan, out)
	notes := ""
	for _, event := range told.events {
		notes += event.Note + "\n"
		if event.Warning {
			t.Errorf("%s is a warning", event.Reason)
		}
	}
	for _, want := range []string{"UID u-1", "Withdrew the fence from Calico Node n1", "4 objects removed"} {
		if !strings.Contains(notes, want) {
			t.Errorf("nothing says %q:\n%s", want, notes)
		}
	}
	if got := told.reasons(); got != "ClusterRecorded, FenceWithdrawn n1, LeftoversRemoved" {
		t.Errorf("got Events %q", got)
	}
}

// Notes are cut to what the API server takes, and say what went wrong however much a step names.
func TestNotesFit(t *testing.T) {
	t.Parallel()
	r, told, _ := announcer()
	plan, out := one("n1", nil, errBroken)
	long := nodesync.RemoveEndpoints{Of: plan.Steps[1].Subject()}
	for range 500 {
		long.Endpoints = append(long.Endpoints, nodesync.EndpointRef{Namespace: "namespace", Name: "a-workload-endpoint"})
	}
	out[1].Step = long
	plan.Refusals = []nodesync.Refusal{{Gate: nodesync.GateMass, Message: strings.Repeat("é", 2000)}}
	r.announce(t.Context(), plan, out)
	if len(told.events) != 2 || !strings.Contains(told.events[1].Note, "permission denied") {
		t.Fatalf("got %+v", told.events)
	}
	for _, event := range told.events {
		if len(event.Note) > 1024 {
			t.Errorf("the note of %s has %d bytes", event.Reason, len(event.Note))
		}
	}
}

// A dry run writes nothing, and an Event is a write.
func TestADryRunAnnouncesNothing(t *testing.T) {
	t.Parallel()
	r, told, _ := announcer()
	r.DryRun = true
	plan, out := one("n1", nil, errBroken)
	plan.Refusals = []nodesync.Refusal{{Gate: nodesync.GateOverlap}}
	for range 3 {
		r.announce(t.Context(), plan, out)
	}
	if got := told.reasons(); got != "" {
		t.Errorf("got Events %q, want none", got)
	}
	r.Events, r.DryRun = nil, false
	r.announce(t.Context(), plan, out) // nobody listens
}
