// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// names looks for Calico Nodes that cannot be told apart, or from existing machines.
func names(e Evidence) []finding.Finding {
	if !e.CalicoNodes.known() || e.Settings.Kind != kindEtcd {
		return nil
	}
	var out []finding.Finding
	owners, renamed := map[string][]string{}, []string{}
	for _, n := range e.CalicoNodes.Value {
		name := nodesync.ReferredNode(n.OrchRefs)
		if name == "" || n.Implied {
			continue
		}
		owners[name] = append(owners[name], n.Name)
		if name != n.Name && !slices.Contains(e.Config.Spellings(name), n.Name) {
			renamed = append(renamed, n.Name+" ("+name+")")
		}
	}
	for node, hosts := range owners {
		if len(hosts) > 1 {
			out = append(out, finding.Warning.Say("Calico Nodes %s all refer to Kubernetes Node %s", finding.Few(hosts), node).
				Because("while that Node exists none of them is removed automatically, and at most one is correct: the others are leftovers of a machine under another name, and "+
					"BGP peers that never respond").
				Advise("find the name of calico-node on that machine (NODENAME); `kubectl mooring node forget NODE` (or `calico-node-sync apply NODE`) removes a second one, if another has the name "+
					"of the Kubernetes Node"))
		}
	}
	if len(renamed) > 0 {
		out = append(out, finding.Note.Say("%s another name than %s Kubernetes Node: %s", have(len(renamed), "Calico Node"), prose.Choose(len(renamed), "its", "their"), finding.Few(renamed)).
			Because("that is fine for these machines; but leftovers of hosts without a Calico Node are then not removed, because each may be any machine under another name").
			Advise("if the names differ only by a domain, name it with --domain"))
	}
	if refusals := refusedBy(e, nodesync.GateAmbiguousName); len(refusals) > 0 {
		out = append(out, finding.Warning.Say("%s left alone for an ambiguous name: %s", prose.Are(len(refusals), "host"), messages(refusals)).
			Because("Kubernetes has no Node with that name, which proves nothing while a Node with a similar name exists").
			Advise("restart calico-node there, which corrects the orchRef; name domains with --domain; the old name of a machine that has joined "+
				"under another one is removed by `kubectl mooring node forget NODE` (or `calico-node-sync apply NODE`)"))
	}
	if len(out) == 0 {
		out = append(out, finding.OK.Say("each Calico Node of Kubernetes refers to a Kubernetes Node of its own"))
	}
	return out
}

// drift says how the two sides differ, and what is held back.
func drift(e Evidence) []finding.Finding {
	out := notMade(e.Plan, "plan what a controller would do now")
	if e.Plan.known() {
		out = append(due(e), heldBack(e)...)
	}
	out = append(out, notMade(e.KubernetesNodes, "list Kubernetes Nodes")...)
	out = append(out, notMade(e.CalicoNodes, "read Calico's Nodes")...)
	if e.CalicoNodes.known() && e.KubernetesNodes.known() && e.Settings.Kind == kindEtcd {
		out = append(out, missing(e)...)
		out = append(out, fenced(e)...)
	}
	locked := len(refusedBy(e, nodesync.GateDatastoreNotReady))+len(refusedBy(e, nodesync.GateClusterBinding)) > 0 // another check tells
	if e.Plan.known() && len(out) == 0 && !locked {
		what := "Calico's datastore holds nothing of machines that are gone"
		if e.Config.SweepPeriod == 0 {
			what = "no Calico Node and no affinity is that of a machine that is gone; what neither leads to was not looked for, since sweeps are off here"
		}
		out = append(out, finding.OK.Say("%s", what))
	}
	return append(out, notSought(e)...)
}

// due is what a controller would remove now.
func due(e Evidence) []finding.Finding {
	var hosts []string
	var out []finding.Finding
	for _, s := range e.Plan.Value.Steps {
		switch s.(type) {
		case nodesync.BindCluster, nodesync.Unfence, nodesync.RemoveHandles:
		default:
			hosts = append(hosts, s.Subject().Host)
		}
	}
	if len(hosts) > 0 {
		slices.Sort(hosts)
		hosts = slices.Compact(hosts)
		out = append(out, finding.Note.Say("%s gone and can be cleaned up now: %s", prose.Are(len(hosts), "machine"), finding.Few(hosts)).
			Because("their leftovers are BGP peers that never respond, and addresses and blocks that cannot be used").
			Advise("a running controller does it; `kubectl mooring plan nodes` shows it, and `kubectl mooring node forget NODE` (or `calico-node-sync apply`) does it"))
	}
	return out
}

// advice is what a gate means for people. A gate without one is not told here: another check has it.
type advice struct {
	severity     finding.Severity
	subject, why string
	do           string
}

// gatesForPeople are the gates that are told of, and what to do about each.
func gatesForPeople() map[nodesync.Gate]advice {
	wrong := advice{finding.Problem, "everything", "a wrong cluster, a wrong datastore or wrong names look like this; nothing is removed",
		"check --kubeconfig, ETCD_ENDPOINTS and --domain"}
	failed := advice{finding.Warning, "machine", "it is retried automatically", "if it persists, check what the message names"}
	return map[nodesync.Gate]advice{
		nodesync.GateOrphanedConfiguration: {finding.Note, "host", "it may be a machine whose Calico Node was removed by hand, or one that never was a Kubernetes Node, such as bare metal",
			"if it is gone, `kubectl mooring node forget NODE --also-remove=KIND` (or `calico-node-sync apply`) removes its objects; nothing, if it exists"},
		nodesync.GateOverlap: {finding.Problem, "everything", "a wrong cluster, a wrong datastore or wrong names look like this; nothing is removed",
			"check --kubeconfig, ETCD_ENDPOINTS and --domain; if most machines are really gone, confirm them as the message says (`kubectl mooring confirm` lists what a controller holds back), or lower --min-overlap-percent"},
		nodesync.GateKubernetesEmpty:     wrong,
		nodesync.GateKubernetesNotSynced: wrong,
		nodesync.GateUnreadable:          {finding.Warning, "value", "a value that cannot be parsed may hold anything, so its host is left alone", "repair the value, or remove it with etcdctl"},
		nodesync.GateMass: {finding.Warning, "machine", "more machines are gone than the mass guard allows without a confirmation",
			"if all are really gone, confirm them as the message says (`kubectl mooring confirm` lists what a controller holds back)"},
		nodesync.GateSigns: {finding.Warning, "machine", "it writes to Calico's datastore, or a machine does that is not of this cluster: it may be another cluster's, or go by another NODENAME",
			"annotate the Calico Nodes of another cluster with " + nodesync.KeepAnnotation + "; if it is gone, `kubectl mooring node forget NODE --ignore-signs-of-life`"},
		nodesync.GateGrace:           {finding.Note, "machine", "it is removed later", ""},
		nodesync.GatePace:            {finding.Note, "machine", "it is removed later", ""},
		nodesync.GateRunningPods:     {finding.Warning, "machine", "a machine with running pods may still exist", "wait for pod garbage collection; without kube-controller-manager, delete the pods"},
		nodesync.GateNotConfirmed:    failed,
		nodesync.GateStepFailed:      failed,
		nodesync.GateForeignEndpoint: {finding.Warning, "machine", "a workload endpoint of another orchestrator is not ours to remove", "remove it with that orchestrator's tools"},
		nodesync.GateForeignAddress: {finding.Note, "block", "an address of another owner (a pod elsewhere, a load balancer, " +
			"a virtual machine) keeps the block and its affinity; they are removed when it is released", ""},
		nodesync.GateCooldown: {finding.Note, "block", "released addresses of it must not be assigned again yet (IPAMConfig, ipCooldownSeconds); " +
			"it is removed when their cooldown is over", ""},
		nodesync.GateKeep:              {finding.Note, "machine", "it is annotated to be kept", "remove the annotation " + nodesync.KeepAnnotation + " when it is no longer needed"},
		nodesync.GateUserConfiguration: {finding.Note, "object", "it was written by a user, so it stays when its host is removed", "remove it by hand, or name its kind in --also-remove"},
		nodesync.GateOtherOrchestrator: {finding.Note, "Calico Node", "it is another orchestrator's", ""},
		nodesync.GatePodLeftovers: {finding.Note, "machine", "deleted pods hold addresses there, which cannot be assigned until they are released",
			"name PodLeftovers in the controller's --also-remove; it reads each pod from the API server before it releases anything"},
		nodesync.GateLeftoverGuard: {finding.Warning, "group of leftovers", "more pods seem gone than the guard allows without a confirmation",
			"if they are really gone, confirm it as the message says (`kubectl mooring confirm` lists them)"},
		nodesync.GateOrphanedHandle: {finding.Note, "group of IPAM handles", "an address was released and its handle was left; it does no harm", "nothing; or name IPAMHandle in --also-remove"},
	}
}

// adviceOn returns what a gate means for people; false for one that checks of the datastore and of names tell of.
func adviceOn(gate nodesync.Gate) (advice, bool) {
	elsewhere := []nodesync.Gate{
		nodesync.GateDatastoreNotReady, nodesync.GateClusterBinding, nodesync.GateNoIdentity, nodesync.GateAmbiguousName,
	}
	if slices.Contains(elsewhere, gate) {
		return advice{}, false
	}
	if a, known := gatesForPeople()[gate]; known {
		return a, true
	}
	return advice{finding.Warning, "machine", "it is not cleaned up", "see the gates in docs/components/calico-node-sync.md"}, true
}

// heldBack tells of each gate that holds something back, and since when.
func heldBack(e Evidence) []finding.Finding {
	var out []finding.Finding
	for _, gate := range nodesync.Gates() {
		refusals := refusedBy(e, gate)
		a, told := adviceOn(gate)
		if len(refusals) == 0 || !told {
			continue
		}
		what := fmt.Sprintf("%s held back by %s: %s", prose.Are(len(refusals), a.subject), gate, messages(refusals))
		if a.subject == "everything" {
			what = fmt.Sprintf("everything is held back by %s: %s", gate, messages(refusals))
		}
		if since, host := absentSince(e, refusals); !since.IsZero() {
			what += fmt.Sprintf("; the longest absent is %s, since %s as far as is remembered", host, since.UTC().Format(time.RFC3339))
		}
		removing := map[nodesync.Gate]nodesync.ResourceKind{
			nodesync.GatePodLeftovers: nodesync.KindPodLeftovers, nodesync.GateOrphanedHandle: nodesync.KindIPAMHandle,
		}
		if slices.Contains(e.Plan.Value.Memory.AlsoRemove, removing[gate]) {
			a.do = "nothing: the controller is configured to remove it, and does so when nothing speaks against it"
		}
		out = append(out, a.severity.Say("%s", what).Because(a.why).Advise(a.do))
	}
	return out
}

// unsought reports that a refusal is about leftovers of pods that were not looked for, which is told by itself.
func unsought(r nodesync.Refusal) bool {
	return strings.HasPrefix(r.Message, nodesync.LeftoversNotSought)
}

// notSought tells that leftovers of pods were not looked for.
func notSought(e Evidence) (out []finding.Finding) {
	for _, r := range e.Plan.Value.Refusals {
		if e.Plan.known() && unsought(r) {
			out = append(out, finding.Note.Say("%s", r.Message).Advise("run it with an account that may list all pods"))
		}
	}
	return out
}

func refusedBy(e Evidence, gate nodesync.Gate) []nodesync.Refusal {
	if !e.Plan.known() {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(e.Plan.Value.Refusals), func(r nodesync.Refusal) bool { return r.Gate != gate || unsought(r) })
}

// messages are the first of many refusals. The mass guard says the same about each.
func messages(refusals []nodesync.Refusal) string {
	const most = 3
	same := !slices.ContainsFunc(refusals, func(r nodesync.Refusal) bool { return r.Message != refusals[0].Message })
	if same {
		var hosts []string
		for _, r := range refusals {
			hosts = append(hosts, r.Of.Host)
		}
		if refusals[0].Of.Host == "" {
			return refusals[0].Message
		}
		return finding.Few(hosts) + ": " + refusals[0].Message
	}
	var out []string
	for _, r := range refusals[:min(most, len(refusals))] {
		out = append(out, cmp.Or(r.Of.Host, "everything")+": "+r.Message)
	}
	if more := len(refusals) - most; more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(out, "; ")
}

// absentSince is when the first of the refused machines went missing, if that is remembered from before.
func absentSince(e Evidence, refusals []nodesync.Refusal) (time.Time, string) {
	var first nodesync.Absence
	for _, a := range e.Plan.Value.Memory.Absences {
		refused := slices.ContainsFunc(refusals, func(r nodesync.Refusal) bool { return r.Of.Host != "" && r.Of.Host == a.CalicoNode })
		if refused && a.Since.Before(e.Now) && (first.Since.IsZero() || a.Since.Before(first.Since)) {
			first = a
		}
	}
	return first.Since, first.CalicoNode
}

// missing are Kubernetes Nodes on which no calico-node has ever started.
func missing(e Evidence) []finding.Finding {
	if e.Among {
		return nil
	}
	lacking := nodesync.WithoutCalicoNode(e.CalicoNodes.Value, e.KubernetesNodes.Value, e.Config)
	if len(lacking) == 0 {
		return nil
	}
	return []finding.Finding{finding.Warning.Say("%s no Calico Node: %s", have(len(lacking), "Kubernetes Node"), finding.Few(lacking)).
		Because("calico-node has not started there with this datastore, so pods there have no network; or the Calico Node was removed by hand, and only " +
			"a restart of calico-node creates it again").
		Advise("check the calico-node Pod there, and restart it if it runs; nothing, if the machine is not Calico's (Windows, virtual kubelet)")}
}

// fenced are Calico Nodes of existing machines and that still carry our mark.
func fenced(e Evidence) []finding.Finding {
	alive := map[string]bool{}
	for _, name := range e.KubernetesNodes.Value {
		alive[name] = true
	}
	var hosts []string
	for _, n := range e.CalicoNodes.Value {
		if n.FencedFor != "" && alive[nodesync.ReferredNode(n.OrchRefs)] {
			hosts = append(hosts, n.Name)
		}
	}
	if len(hosts) == 0 {
		return nil
	}
	return []finding.Finding{finding.Note.Say("%s back and still fenced: %s", prose.Are(len(hosts), "machine"), finding.Few(hosts)).
		Because("the machine came back during its clean-up; nothing more of it is removed, but it lacks what was already removed").
		Advise("a running controller withdraws the fence, and so does `calico-node-sync apply`; then restart calico-node there")}
}
