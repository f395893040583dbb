// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/agreement"
	"github.com/mooring-dev/mooring/internal/docloud/outofservice"
	"github.com/mooring-dev/mooring/internal/explain"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/platform/finding"
)

// alive is a machine about which all agree.
func alive(name string) explain.NodeEvidence {
	return explain.NodeEvidence{
		Now: now, Name: name, NotAsked: []finding.Side{{Name: "DigitalOcean", NotAsked: "there is no token"}},
		Machine:    agreement.Row{Machine: name, Droplet: "not queried", Node: "Ready", CalicoNode: name, Reflector: "none", Verdict: finding.Agree, HasNode: true},
		Reflectors: explain.Reflectors{Absent: true},
	}
}

// gone is a machine whose Node is missing since that long, with the plan that follows.
func gone(t *testing.T, absent time.Duration, change func(w *nodesync.World, c *nodesync.Config)) explain.NodeEvidence {
	t.Helper()
	c := nodesync.DefaultConfig()
	calico := func(name string) nodesync.CalicoNode {
		return nodesync.CalicoNode{Name: name, Revision: 7, OrchRefs: []nodesync.OrchRef{{Orchestrator: "k8s", NodeName: name}}}
	}
	w := nodesync.World{
		Now: now,
		Kubernetes: nodesync.Kubernetes{
			ClusterUID: "u", Synced: true, Nodes: []nodesync.KubernetesNode{{Name: "a"}, {Name: "b"}},
			Lookups: []nodesync.Lookup{{Node: "old", Verdict: nodesync.VerdictGone}}, RunningPods: []nodesync.RunningPods{{Node: "old"}},
		},
		Calico: nodesync.Calico{
			Ready: true, Binding: nodesync.Binding{ClusterUID: "u"}, Nodes: []nodesync.CalicoNode{calico("a"), calico("b"), calico("old")},
			Hosts: []nodesync.Host{{Name: "old", Affinities: []nodesync.Affinity{{CIDR: netip.MustParsePrefix("10.1.0.0/26"), State: "confirmed", Revision: 3}}}},
		},
		Memory: nodesync.Memory{Absences: []nodesync.Absence{{CalicoNode: "old", KubernetesNode: "old", Since: now.Add(-absent), Revision: 7}}},
	}
	if change != nil {
		change(&w, &c)
	}
	since := now.Add(-absent)
	return explain.NodeEvidence{
		Now: now, Name: "old",
		Machine: agreement.Row{
			Machine: "old", Droplet: "none", Node: "none", CalicoNode: "old", Reflector: "none", Verdict: finding.Disagree,
			Findings: []finding.Verdict{{State: finding.Disagree, What: "there is a Calico Node and no Kubernetes Node", Since: &since, Next: "look"}},
		},
		NodeSync:   explain.NodeSync{Plan: nodesync.MakePlan(w, c), Grace: c.Grace, Memory: "that of the running controller"},
		Reflectors: explain.Reflectors{},
	}
}

func TestNodeThatIsWell(t *testing.T) {
	t.Parallel()
	e := explain.Node(alive("worker-1"))
	says(t, e, false,
		"droplet: not queried", "Node: Ready", "Calico: worker-1", "reflector: none", "not queried: DigitalOcean: there is no token",
		"verdict: all sides that were queried agree", "plan: nothing: its Kubernetes Node is there, so nothing of it is removed",
	)
	silent(t, e, "limits", "memory", "held back")
	if slices.ContainsFunc(e.Sections, func(s explain.Section) bool { return s.Title == "Route reflectors" }) {
		t.Error("a cluster without the kind of topologies has nothing to say of reflectors")
	}
	golden(t, "node-well", e)
}

// A machine that is down needs attention, whatever the sides agree on.
func TestNodeThatIsDown(t *testing.T) {
	t.Parallel()
	e := alive("worker-1")
	e.Machine.Node, e.Machine.Verdict = "NotReady", finding.Down
	since := now.Add(-3 * time.Minute)
	e.Machine.Findings = []finding.Verdict{{State: finding.Down, What: "the Node is NotReady", Since: &since, Next: "see its kubelet"}}
	says(t, explain.Node(e), true, "!down: the Node is NotReady (since 3m)", "next: see its kubelet")
	e.Machine.Verdict, e.Machine.Findings = finding.OneSide, nil
	says(t, explain.Node(e), true, "!verdict: only Kubernetes was queried, so that nothing was compared")
}

// What is planned for a machine that is gone, and each way in which it is held back, in the planner's words.
func TestNodeThatIsGone(t *testing.T) {
	t.Parallel()
	e := explain.Node(gone(t, time.Hour, nil))
	says(t, e, true,
		"!disagree: there is a Calico Node and no Kubernetes Node (since 60m)", "next: look",
		"!plan: Kubernetes Node old is gone: missing from the list, absent for 1h0m0s, a live read says NotFound, no pod runs there",
		"limits: those of a controller without flags, with a grace period of 5m", "memory: that of the running controller",
		"plan: there is no RouteReflectorTopology",
	)
	golden(t, "node-gone", e)
	for name, c := range map[string]struct {
		absent time.Duration
		change func(w *nodesync.World, c *nodesync.Config)
		want   string
	}{
		"grace": {time.Minute, nil, "!waits: absent since 2026-11-22T11:59:00Z; the grace period of 5m0s ends at 2026-11-22T12:04:00Z (grace)"},
		"keep": {time.Hour, func(w *nodesync.World, _ *nodesync.Config) { w.Calico.Nodes[2].Keep = true },
			"left alone: annotation nodes.mooring.dev/keep forbids it (keep)"},
		"a lock": {time.Hour, func(w *nodesync.World, _ *nodesync.Config) { w.Calico.Ready = false },
			"!held back: nothing at all is removed: Calico's ClusterInformation does not report datastoreReady: the datastore is locked, empty or being migrated; after a DatastoreMigration it stays locked, as Calico keeps its data in native projectcalico.org/v3 resources then, which are not supported (datastore-not-ready)"},
		"a live read": {time.Hour, func(w *nodesync.World, _ *nodesync.Config) { w.Kubernetes.Lookups[0].Verdict = nodesync.VerdictAlive },
			"!held back: a live read finds Kubernetes Node \"old\" (not-confirmed-gone)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			says(t, explain.Node(gone(t, c.absent, c.change)), true, c.want)
		})
	}
	// What a running calico-node-sync is about to remove settles by itself, as agreement has it; what a person has to decide does not.
	settling := gone(t, time.Minute, nil)
	settling.Machine.Verdict, settling.Machine.Findings[0].State = finding.Settling, finding.Settling
	says(t, explain.Node(settling), false, "settling: there is a Calico Node and no Kubernetes Node (since 60s)", "waits: absent since 2026-11-22T11:59:00Z; the grace period of 5m0s ends at 2026-11-22T12:04:00Z (grace)")
	settling = gone(t, time.Hour, nil)
	settling.Machine.Verdict, settling.Machine.Findings[0].State = finding.Settling, finding.Settling
	says(t, explain.Node(settling), false, "plan: Kubernetes Node old is gone: missing from the list, absent for 1h0m0s, a live read says NotFound, no pod runs there")
	forgotten := gone(t, time.Minute, nil)
	forgotten.NodeSync.Memory = ""
	says(t, explain.Node(forgotten), true, "memory: no state of a running controller was found (none, or an old one), so that an absence starts now")
}

// Why the taint out-of-service is or is not set.
func TestNodeOutOfService(t *testing.T) {
	t.Parallel()
	of := func(o explain.OutOfService) explain.Explanation {
		e := alive("worker-1")
		e.OutOfService = o
		return explain.Node(e)
	}
	silent(t, of(explain.OutOfService{}), "taint")
	record := func(at time.Time, reasons ...outofservice.Reason) *outofservice.Record {
		r := &outofservice.Record{Enabled: true, SavedAt: at}
		for _, reason := range reasons {
			r.Machines = append(r.Machines, outofservice.Verdict{Node: "worker-1", Droplet: 7, Reason: reason, Message: "droplet 7 is off"})
		}
		return r
	}
	at := now.Add(-time.Minute)
	says(t, of(explain.OutOfService{NotReady: true}), false, "taint: node.kubernetes.io/out-of-service is not set",
		"why: digitalocean-cloud-controller-manager has no record of machines that are off: it does not run, or runs without --out-of-service-taint")
	says(t, of(explain.OutOfService{Record: record(at, outofservice.ReasonOutOfService), Ours: true, NotReady: true}), true,
		"!taint: node.kubernetes.io/out-of-service is set by digitalocean-cloud-controller-manager: Pods of the machine are deleted, and its volumes detached", "why: droplet 7 is off (out-of-service)", "recorded: 60s ago")
	says(t, of(explain.OutOfService{Record: record(at, outofservice.ReasonMassGuard), NotReady: true}), true,
		"!why: droplet 7 is off (mass-guard)")
	says(t, of(explain.OutOfService{Record: record(at), NotReady: true}), false, "why: DigitalOcean reports its droplet as active, so that the machine may run, or the Node has just become NotReady")
	says(t, of(explain.OutOfService{Record: record(now.Add(-time.Hour)), NotReady: true}), true, "!recorded: 60m ago", "!stale: the component has not written since: it does not run, or no longer has the flag --out-of-service-taint")
	says(t, of(explain.OutOfService{Record: record(now.Add(-time.Hour))}), false, "why: the Node is ready")
	says(t, of(explain.OutOfService{Side: finding.Side{Problem: "forbidden"}, NotReady: true}), true, "!why: not known: forbidden")
	says(t, of(explain.OutOfService{Foreign: true, Record: record(at)}), true, "!taint: node.kubernetes.io/out-of-service was set by another party, which has to remove it")
}

// Others' steps and refusals are not this machine's; its other names are.
func TestNodeByItsNames(t *testing.T) {
	t.Parallel()
	e := alive("worker-1")
	e.NodeSync.Plan = nodesync.Plan{
		Steps:     []nodesync.Step{nodesync.Fence{Of: nodesync.Subject{Host: "other", KubernetesNode: "other"}}},
		Decisions: []nodesync.Decision{{Of: nodesync.Subject{Host: "other", KubernetesNode: "other"}, Because: "it is gone"}},
		Refusals: []nodesync.Refusal{
			{Of: nodesync.Subject{Host: "worker-1.example"}, Gate: nodesync.GateAmbiguousName, Message: "two names"},
			{Of: nodesync.Subject{Host: "called-otherwise", KubernetesNode: "worker-1"}, Gate: nodesync.GateKeep, Message: "kept"},
			{Of: nodesync.Subject{Host: "worker-10"}, Gate: nodesync.GateGrace, Message: "not this one"},
			{Of: nodesync.Subject{Host: "/calico/resources/v3/nodes/worker-1"}, Gate: nodesync.GateUnreadable, Message: "cannot be parsed"},
		},
	}
	got := explain.Node(e)
	says(t, got, true, "!held back: cannot be parsed (unreadable)", "left alone: kept (keep)")
	silent(t, got, "step")
	e.CalicoNames = []string{"worker-1.example"}
	got = explain.Node(e)
	says(t, got, true, "!held back: two names (ambiguous-name)")
	for _, line := range flat(got) {
		if line == "!held back: not this one (grace)" || line == "!plan: it is gone" {
			t.Errorf("another machine's: %s", line)
		}
	}
}

// What was not read is said; what failed needs attention, what nobody asked does not.
func TestNodeOfWhichLittleIsKnown(t *testing.T) {
	t.Parallel()
	e := alive("x")
	e.NodeSync.Side = finding.Side{NotAsked: "its kinds are not served"}
	says(t, explain.Node(e), false, "plan: not queried: its kinds are not served")
	e.NodeSync.Side = finding.Side{Problem: "no response in time"}
	e.EventsRead = finding.Side{Problem: "listing Events: forbidden"}
	says(t, explain.Node(e), true, "!plan: not known: no response in time", "!Events: not known: listing Events: forbidden")
	e = alive("x")
	e.Machine = agreement.Row{Machine: "x", Verdict: finding.Unknown, Findings: []finding.Verdict{{State: finding.Unknown, What: "the cloud could not be read: 401"}}}
	says(t, explain.Node(e), true, "!unknown: the cloud could not be read: 401", "plan: nothing: it has no leftovers")
}

// The last Events come first; a warning is news for ten minutes, and not once the same source has told of something good.
func TestEvents(t *testing.T) {
	t.Parallel()
	at := func(ago time.Duration, warning bool, source, text string) finding.Event {
		return finding.Event{At: now.Add(-ago), Warning: warning, Reason: "R", Text: text, Source: source, Count: 3}
	}
	e := alive("x")
	e.Events = []finding.Event{at(time.Hour, true, "s", "old"), at(90*time.Second, false, "t", "well\x1b[31m\nand two lines")}
	got := explain.Node(e)
	says(t, got, false, "60m ago: Warning R: old (3 times) (s)", "90s ago: R: well\\x1b[31m and two lines (3 times) (t)")
	if lines := got.Sections[len(got.Sections)-1].Lines; lines[0].Topic != "90s ago" {
		t.Errorf("the first is %+v", lines[0])
	}
	e.Events = append(e.Events, at(3*time.Minute, true, "s", "new"))
	says(t, explain.Node(e), true, "!3m ago: Warning R: new (3 times) (s)")
	e.Events = append(e.Events, at(time.Minute, false, "s", "well again"))
	says(t, explain.Node(e), false, "3m ago: Warning R: new (3 times) (s)")
	e.Events = nil
	for range 13 {
		e.Events = append(e.Events, finding.Event{At: now.Add(-time.Hour), Reason: "R", Text: "x"})
	}
	says(t, explain.Node(e), false, "older: 3 more", "60m ago: R: x (without a source)")
}
