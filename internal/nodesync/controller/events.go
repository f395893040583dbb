// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// Reasons of Events. They are a contract with people who filter and with what forwards Events: MUST NOT change.
const (
	// ReasonMachineCleaned, Normal: the leftovers of a machine that is gone were removed.
	ReasonMachineCleaned = "MachineCleaned"
	// ReasonLeftoversRemoved, Normal: objects that belong to no machine were removed, such as orphaned IPAM handles.
	ReasonLeftoversRemoved = "LeftoversRemoved"
	// ReasonLeftoversFound, Normal: objects are about hosts that are neither a Calico Node nor a Kubernetes Node, or deleted pods have left
	// addresses or endpoints on machines that are in use. A person decides whether they are removed.
	ReasonLeftoversFound = "LeftoversFound"
	// ReasonFenceWithdrawn, Normal: a machine came back while it was cleaned up.
	ReasonFenceWithdrawn = "FenceWithdrawn"
	// ReasonClusterRecorded, Normal: the datastore was recorded as this cluster's, in the first run.
	ReasonClusterRecorded = "ClusterRecorded"

	// ReasonHeldByKubernetes, Warning: Kubernetes' list of Nodes cannot be trusted; nothing is removed.
	ReasonHeldByKubernetes = "HeldByKubernetes"
	// ReasonHeldByDatastore, Warning: Calico's datastore must not be written to; nothing is removed.
	ReasonHeldByDatastore = "HeldByDatastore"
	// ReasonHeldByClusterBinding, Warning: the datastore is another cluster's; nothing is removed.
	ReasonHeldByClusterBinding = "HeldByClusterBinding"
	// ReasonHeldByOverlap, Warning: too few Calico Nodes have a Kubernetes Node; nothing is removed.
	ReasonHeldByOverlap = "HeldByOverlap"
	// ReasonHeldByMassGuard, Warning: more nodes are gone than may be removed without a confirmation; `kubectl mooring confirm` lists them.
	ReasonHeldByMassGuard = "HeldByMassGuard"
	// ReasonStepFailed, Warning: a write to Calico's datastore failed for another reason than a conflict.
	ReasonStepFailed = "StepFailed"
	// ReasonJournalFailed, Warning: what is to be removed could not be journaled, so nothing is removed.
	ReasonJournalFailed = "JournalFailed"
)

// Actions of Events: what the program was about.
const (
	actionCleanUp  = "CleanUp"
	actionWithdraw = "WithdrawFence"
	actionRecord   = "RecordCluster"
	actionJudge    = "Judge"
)

// sayAgain is how long a warning about the same thing is not repeated, however often it comes and goes.
const sayAgain = time.Hour

// longestNote is how long a note may be (events.k8s.io, validation NoteLengthLimit).
const longestNote = 1024

// Event is something that people should find where they look.
type Event struct {
	// Warning reports that a person is needed.
	Warning bool
	// Reason is one of the Reasons of this package; Action says what the program was about.
	Reason, Action string
	// Node is the Kubernetes Node that it is about, "" for none.
	Node string
	// Note is what happened and what to do, in at most 1024 bytes.
	Note string
}

// Events takes Events. It neither fails nor waits for long: nothing depends on an Event.
type Events interface {
	Record(ctx context.Context, event Event)
}

// announced is what has been said in Events, so that nothing is said twice. The zero value has said nothing.
type announced struct {
	// told are the topics that hold now, and whether it has been told of them.
	told map[topic]bool
	// removed is what has been removed of a machine so far.
	removed map[nodesync.Subject]cleared
	// said is when a warning was given last.
	said map[string]time.Time
}

// topic is told of once for as long as it holds: a gate, what a gate leaves of a subject, or that steps about a subject fail, and why (a Reason).
type topic struct {
	gate    nodesync.Gate
	of      nodesync.Subject
	failing string
}

// clone is a copy that goes its own way, but for the warnings: what it warns of is not warned of again here.
func (a announced) clone() announced {
	a.told, a.removed = maps.Clone(a.told), maps.Clone(a.removed)
	return a
}

// cleared counts what has been removed.
type cleared struct{ objects, addresses int }

// forgetAnnounced drops what is known of machines that are not absent any more, and of warnings that may be given again.
func (r *Reconciler) forgetAnnounced(plan nodesync.Plan) {
	if r.announced.said == nil {
		r.announced = announced{told: map[topic]bool{}, removed: map[nodesync.Subject]cleared{}, said: map[string]time.Time{}}
	}
	absent := map[string]bool{}
	for _, a := range plan.Memory.Absences {
		absent[a.CalicoNode] = true
	}
	back := func(of nodesync.Subject) bool { return of.KubernetesNode != "" && !absent[of.Host] }
	maps.DeleteFunc(r.announced.removed, func(of nodesync.Subject, _ cleared) bool { return back(of) })
	maps.DeleteFunc(r.announced.told, func(x topic, _ bool) bool { return x.failing != "" && back(x.of) })
	maps.DeleteFunc(r.announced.said, func(_ string, at time.Time) bool { return r.Clock.Since(at) >= sayAgain })
}

// heldBy returns the reason for a gate whose holding needs a person, "" for any other.
func heldBy(gate nodesync.Gate) string {
	switch gate {
	case nodesync.GateKubernetesNotSynced, nodesync.GateKubernetesEmpty:
		return ReasonHeldByKubernetes
	case nodesync.GateDatastoreNotReady:
		return ReasonHeldByDatastore
	case nodesync.GateClusterBinding:
		return ReasonHeldByClusterBinding
	case nodesync.GateOverlap:
		return ReasonHeldByOverlap
	case nodesync.GateMass, nodesync.GateLeftoverGuard:
		return ReasonHeldByMassGuard
	default:
		return ""
	}
}

// announceGates warns of each gate when it begins to hold, and not again while it does.
func (r *Reconciler) announceGates(ctx context.Context, refusals []nodesync.Refusal) {
	for _, gate := range nodesync.Gates() {
		i := slices.IndexFunc(refusals, func(refusal nodesync.Refusal) bool { return refusal.Gate == gate })
		of, reason := topic{gate: gate}, heldBy(gate)
		if reason == "" {
			continue
		}
		told, goesOn := r.announced.told[of]
		if delete(r.announced.told, of); i < 0 {
			continue
		}
		// The watch is often not filled yet in the first round of a process.
		if begins := gate != nodesync.GateKubernetesNotSynced || goesOn; begins && !told {
			told = r.warn(ctx, Event{Reason: reason, Action: actionJudge, Note: gateNote(refusals[i])})
		}
		r.announced.told[of] = told
	}
}

// announceLeftovers tells of objects about hosts that are not machines any more, once of each host.
func (r *Reconciler) announceLeftovers(ctx context.Context, refusals []nodesync.Refusal) {
	found, hosts := map[topic]bool{}, []string{}
	for _, refusal := range refusals {
		of := topic{gate: refusal.Gate, of: nodesync.Subject{Host: refusal.Of.Host}}
		if refusal.Gate != nodesync.GateOrphanedConfiguration || found[of] {
			continue
		}
		if found[of] = true; !r.announced.told[of] {
			hosts = append(hosts, of.of.Host)
		}
	}
	maps.DeleteFunc(r.announced.told, func(x topic, _ bool) bool { return x.gate == nodesync.GateOrphanedConfiguration })
	if maps.Copy(r.announced.told, found); len(hosts) == 0 {
		return
	}
	slices.Sort(hosts)
	r.record(ctx, Event{Reason: ReasonLeftoversFound, Action: actionJudge, Note: fmt.Sprintf(
		"Objects are about %s, neither a Calico Node nor a Kubernetes Node: %s; if a machine is gone, calico-node-sync apply NODE --also-remove=KIND removes its objects",
		prose.Plural(len(hosts), "host"), strings.Join(hosts, ", "))})
}

// announcePodLeftovers tells of what pods that are gone have left on existing machines, once until there is nothing of it.
func (r *Reconciler) announcePodLeftovers(ctx context.Context, plan nodesync.Plan) {
	of := topic{gate: nodesync.GatePodLeftovers}
	told := r.announced.told[of]
	if r.announced.told[of] = plan.Leftovers > 0; told || plan.Leftovers == 0 {
		return
	}
	then := "--also-remove=" + string(nodesync.KindPodLeftovers) + " lets the controller remove them"
	if slices.Contains(r.Config.AlsoRemove, nodesync.KindPodLeftovers) {
		then = "the controller removes them when nothing speaks against it"
	}
	note := fmt.Sprintf("Deleted pods have left %d addresses or endpoints on existing machines; %s", plan.Leftovers, then)
	if i := slices.IndexFunc(plan.Refusals, func(x nodesync.Refusal) bool { return x.Gate == nodesync.GatePodLeftovers }); i >= 0 {
		note += "; " + plan.Refusals[i].Of.Host + ": " + plan.Refusals[i].Message
	}
	r.record(ctx, Event{Reason: ReasonLeftoversFound, Action: actionJudge, Note: note})
}

// gateNote says what is held back, why, and what to do.
func gateNote(refusal nodesync.Refusal) string {
	message := refusal.Message
	switch refusal.Gate {
	case nodesync.GateLeftoverGuard:
		return "Removing no leftovers of deleted pods on existing machines: " + message + " (`kubectl mooring confirm` lists them)"
	case nodesync.GateMass:
		// The hash in the message is that of now: when one more goes, or comes back, it is another, and no Event says so again.
		return "Removing nothing of nodes whose deletion was not watched: " + message + " (`kubectl mooring confirm` lists the nodes and the current hash)"
	case nodesync.GateDatastoreNotReady:
		message += "; unlock it (calicoctl datastore migrate unlock) once the migration is over"
	case nodesync.GateKubernetesNotSynced:
		message += "; look at the API server"
	default:
	}
	return "Removing nothing at all: " + message
}

// warn records a warning, and says so, unless the same was given within the last hour.
func (r *Reconciler) warn(ctx context.Context, event Event) bool {
	key := event.Reason + " " + event.Node
	if _, lately := r.announced.said[key]; lately {
		return false
	}
	r.announced.said[key] = r.Clock.Now()
	event.Warning = true
	r.record(ctx, event)
	return true
}

// record gives an Event to people, unless this only shows: an Event is a write.
func (r *Reconciler) record(ctx context.Context, event Event) {
	if event.Note = clip(event.Note, longestNote); r.Events != nil && !r.DryRun {
		r.Events.Record(ctx, event)
	}
}

// announceCleaned tells of the machines of which all that was planned has been done.
func (r *Reconciler) announceCleaned(ctx context.Context, plan nodesync.Plan, done map[nodesync.Subject]int) {
	for _, decision := range plan.Decisions {
		planned := 0
		for _, step := range plan.Steps {
			if step.Subject() == decision.Of && !standsAlone(step) {
				planned++
			}
		}
		if planned > 0 && done[decision.Of] == planned {
			r.announceClean(ctx, decision, plan.Refusals)
		}
	}
}

// standsAlone reports that a step is told of by itself, and is not a part of a clean-up.
func standsAlone(step nodesync.Step) bool {
	switch step.(type) {
	case nodesync.BindCluster, nodesync.Unfence:
		return true
	default:
		return false
	}
}

// announceDone tells of steps that stand for themselves, and counts the others.
func (r *Reconciler) announceDone(ctx context.Context, step nodesync.Step) {
	of := step.Subject()
	switch s := step.(type) {
	case nodesync.BindCluster:
		r.record(ctx, Event{
			Reason: ReasonClusterRecorded, Action: actionRecord,
			Note: "Recorded on Calico's ClusterInformation that this datastore belongs to the cluster whose kube-system has UID " + s.ClusterUID,
		})
	case nodesync.Unfence:
		r.record(ctx, Event{
			Reason: ReasonFenceWithdrawn, Action: actionWithdraw, Node: of.KubernetesNode,
			Note: fmt.Sprintf("Withdrew the fence from Calico Node %s: Kubernetes Node %s exists again", of.Host, of.KubernetesNode),
		})
	default:
		r.announced.removed[of] = r.announced.removed[of].plus(step)
	}
}

// plus counts what a step has removed.
func (c cleared) plus(step nodesync.Step) cleared {
	switch s := step.(type) {
	case nodesync.Fence:
	case nodesync.RemoveEndpoints:
		c.objects += len(s.Endpoints)
	case nodesync.ReleaseAddresses:
		c.addresses += len(s.Addresses)
	case nodesync.RemoveHandles:
		c.objects += len(s.Handles)
	case nodesync.RemoveLeftovers:
		for _, l := range s.Leftovers {
			if l.Endpoint.Name != "" {
				c.objects++
			} else {
				c.addresses++
			}
		}
	case nodesync.RemoveAffinity:
		if c.objects++; s.DeleteBlock {
			c.objects++ // the block
		}
	default:
		c.objects++
	}
	return c
}

// announceClean tells that a machine is clean.
func (r *Reconciler) announceClean(ctx context.Context, decision nodesync.Decision, refusals []nodesync.Refusal) {
	of := decision.Of
	removed := r.announced.removed[of]
	delete(r.announced.removed, of)
	maps.DeleteFunc(r.announced.told, func(x topic, _ bool) bool { return x.failing != "" && x.of == of })
	left := 0
	for _, refusal := range refusals {
		if refusal.Of == of {
			left++
		}
	}
	reason, what := ReasonMachineCleaned, "machine "+of.Host
	if of.Leftovers {
		reason, what = ReasonLeftoversRemoved, "leftovers of deleted pods on "+of.Host
	} else if of.KubernetesNode == "" {
		reason, what = ReasonLeftoversRemoved, of.Host
	}
	note := fmt.Sprintf("Cleaned up %s: %d objects removed and %d addresses released", what, removed.objects, removed.addresses)
	if left > 0 {
		note += fmt.Sprintf(", %d left alone (see the log)", left)
	}
	r.record(ctx, Event{Reason: reason, Action: actionCleanUp, Node: of.KubernetesNode, Note: note + "; because " + decision.Because})
}

// announceFailure warns of a machine of which a step failed, once until it has been cleaned up.
func (r *Reconciler) announceFailure(ctx context.Context, a applied) {
	of, reason := a.Step.Subject(), ReasonStepFailed
	node := of.KubernetesNode
	note := fmt.Sprintf("Could not %s, will try again: %v", a.Step, a.Err)
	if len(note) > longestNote/2 {
		// A step may name hundreds of objects; what went wrong must not be cut off.
		note = fmt.Sprintf("A step of kind %s for machine %s failed, will try again: %v", nodesync.Kind(a.Step), of.Host, a.Err)
	}
	if errors.Is(a.Err, errJournal) {
		// The cause is hardly ever the machine, so one warning stands for all.
		reason, node = ReasonJournalFailed, ""
		note = fmt.Sprintf("Removing nothing of machine %s, because the objects to remove cannot be journaled: %v", of.Host, a.Err)
	}
	x := topic{of: of, failing: reason}
	if !r.announced.told[x] && r.warn(ctx, Event{Reason: reason, Action: actionCleanUp, Node: node, Note: note}) {
		r.announced.told[x] = true
	}
}

// eventType is the type of an Event in Kubernetes.
func (e Event) eventType() string {
	if e.Warning {
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}
