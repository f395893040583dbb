// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// Names of what may run alongside.
const (
	calicoNodeName      = "calico-node"
	kubeControllersName = "calico-kube-controllers"
	predecessorName     = "kube-calico-controller"
	ourName             = "calico-node-sync"
)

// nodeRef is the variable by which calico-node knows its Kubernetes Node (node/pkg/lifecycle/startup: configureNodeRef).
const nodeRef = "CALICO_K8S_NODE_REF"

// calicoNode reports whether calico-node keeps its data where we look, and whether it says which Kubernetes Node it runs on.
func calicoNode(e Evidence) []finding.Finding {
	return append(each(e, e.DaemonSets, "DaemonSets", calicoNodeName, oneCalicoNode, finding.Finding{
		Severity: finding.Note, What: fmt.Sprintf("there is no DaemonSet %s in %s", calicoNodeName, namespaces(e.DaemonSets)),
		Why: "the datastore of calico-node, and whether it records its Kubernetes Node, were not checked",
	}), unreferenced(e)...)
}

// each are the findings about the workloads of a name, or the one about none of them in namespaces that were read.
func each(
	e Evidence, listings []Listing, kind, name string, judge func(Evidence, Workload) finding.Finding, none finding.Finding,
) (out []finding.Finding) {
	for _, l := range listings {
		if l.Asked && l.Failure != "" {
			out = append(out, notMade(l.Answer, "list "+kind+" in namespace "+l.Namespace))
		}
	}
	for _, w := range workloads(listings) {
		if w.Name == name {
			out = append(out, judge(e, w))
		}
	}
	if len(out) == 0 && len(listings) > 0 {
		out = append(out, none)
	}
	return out
}

func oneCalicoNode(e Evidence, w Workload) finding.Finding {
	name := "DaemonSet " + w.Namespace + "/" + w.Name
	kind := kindOf(w)
	_, refers := w.Env[nodeRef]
	switch {
	case e.Settings.Kind != "" && kind != "" && kind != e.Settings.Kind:
		return finding.Finding{
			Severity: finding.Problem, What: fmt.Sprintf("%s keeps its data in the %s datastore, and the settings say %s", name, kind, e.Settings.Kind),
			Why: "the datastore checked here is not the one that Calico uses: it may be old, and cleaning it has no use",
			Do:  "give calico-node-sync the DATASTORE_TYPE and ETCD_ENDPOINTS of calico-node",
		}
	case strangers(w.Env["ETCD_ENDPOINTS"], e.Settings):
		return finding.Finding{
			Severity: finding.Problem, What: fmt.Sprintf("%s talks to etcd at %s, and the settings name none of these endpoints", name, w.Env["ETCD_ENDPOINTS"]),
			Why: "it may be the etcd of another cluster", Do: "give calico-node-sync the ETCD_ENDPOINTS of calico-node",
		}
	case kind == kindEtcd && !refers:
		return finding.Finding{
			Severity: finding.Warning, What: fmt.Sprintf("%s does not set %s", name, nodeRef),
			Why: "its Calico Nodes carry no orchRef, so nothing shows that they were Kubernetes Nodes, and nothing of them is ever removed; " +
				"old manifests of kops are like this",
			Do: "add the variable (fieldRef spec.nodeName), which takes effect when calico-node restarts; for machines that are gone already, " +
				"--adopt-unreferenced judges Calico Nodes by their own name",
		}
	}
	if kind == "" || kind == kindEtcd && w.Env["ETCD_ENDPOINTS"] == "" {
		return finding.Finding{
			Severity: finding.OK, What: name + " takes the address of its datastore from another place, such as a ConfigMap, and was not compared with the settings",
			Why: "the datastore checked here should be the one that Calico uses", Do: "nothing, if the settings were copied from there (ConfigMap calico-config)",
		}
	}
	return finding.Finding{Severity: finding.OK, What: name + " keeps its data where the settings say"}
}

// kindOf is the datastore that a program of Calico's uses (libcalico-go, lib/apiconfig): etcd if endpoints are named, else Kubernetes. It is
// unknown, "", if the variable takes its value from elsewhere.
func kindOf(w Workload) string {
	kind, set := w.Env["DATASTORE_TYPE"]
	_, endpoints := w.Env["ETCD_ENDPOINTS"]
	switch {
	case set:
		return kind
	case endpoints:
		return kindEtcd
	default:
		return kindKubernetes
	}
}

// strangers reports that a list of endpoints shares none with the settings.
func strangers(endpoints string, s Settings) bool {
	if endpoints == "" || s.Kind != kindEtcd || len(s.Endpoints) == 0 {
		return false
	}
	plain := func(endpoint string) string { return strings.TrimSuffix(strings.TrimSpace(endpoint), "/") }
	return !slices.ContainsFunc(strings.Split(endpoints, ","), func(theirs string) bool {
		return slices.ContainsFunc(s.Endpoints, func(ours string) bool { return plain(ours) == plain(theirs) })
	})
}

// unreferenced counts Calico Nodes of nobody.
func unreferenced(e Evidence) []finding.Finding {
	if !e.CalicoNodes.known() || e.Settings.Kind != kindEtcd || e.Config.AdoptUnreferenced {
		return nil
	}
	var hosts []string
	for _, n := range e.CalicoNodes.Value {
		if !n.Implied && len(n.OrchRefs) == 0 {
			hosts = append(hosts, n.Name)
		}
	}
	if len(hosts) == 0 {
		return nil
	}
	return []finding.Finding{{
		Severity: finding.Note, What: fmt.Sprintf("%s no orchRef: %s", have(len(hosts), "Calico Node"), finding.Few(hosts)),
		Why: "they are left alone in any case: route reflectors and bare-metal hosts look like this, and so do Kubernetes Nodes whose calico-node " +
			"lacks " + nodeRef,
		Do: "nothing, if they are not Kubernetes Nodes; else see --adopt-unreferenced",
	}}
}

// have is "1 Calico Node has" or "2 Calico Nodes have".
func have(n int, noun string) string { return prose.Plural(n, noun) + prose.Choose(n, " has", " have") }

// kubeControllers says what Calico's own controller does alongside us.
func kubeControllers(e Evidence) []finding.Finding {
	return each(e, e.Deployments, "Deployments", kubeControllersName, oneKubeControllers, finding.Finding{
		Severity: finding.OK, What: fmt.Sprintf("no %s runs in %s: no other controller removes Calico Nodes", kubeControllersName, namespaces(e.Deployments)),
	})
}

func oneKubeControllers(e Evidence, w Workload) finding.Finding {
	name := "Deployment " + w.Namespace + "/" + w.Name
	kind, set := w.Env["DATASTORE_TYPE"]
	if !set {
		kind = kindEtcd // kube-controllers/pkg/config: its own default, unlike that of other programs of Calico
	}
	controllers := w.Env["ENABLED_CONTROLLERS"] // unset means what KubeControllersConfiguration says, which has all by default
	switch {
	case w.Replicas == 0:
		return finding.Finding{Severity: finding.OK, What: name + " is scaled to 0: no other controller removes Calico Nodes"}
	case kind == kindKubernetes || e.Settings.Kind == kindKubernetes:
		return finding.Finding{Severity: finding.OK, What: name + " runs with the kubernetes datastore, where it removes no Nodes; its garbage collection of addresses and ours agree"}
	case controllers != "" && !slices.Contains(strings.Split(controllers, ","), "node"):
		return finding.Finding{
			Severity: finding.OK, What: name + " runs without its node controller: no other controller removes Calico Nodes",
			Why: "without it there is no garbage collection of leaked addresses of living machines, no copying of labels and no automatic host endpoint either",
		}
	}
	return finding.Finding{
		Severity: finding.Warning, What: name + " runs its node controller with the etcdv3 datastore, and removes Calico Nodes itself",
		Why: "it does so at once when a Kubernetes Node is deleted, and at every start, without grace period, mass guard, dry run or journal. The guards of " +
			"calico-node-sync cannot hold back what it does; calico-node-sync then only removes what it leaves",
		Do: "accept both; or leave node out of ENABLED_CONTROLLERS there, which also stops its garbage collection of addresses, its labels and its automatic " +
			"host endpoints: there is no switch for its deletions alone",
	}
}

// predecessor looks for the project that this one succeeds.
func predecessor(e Evidence) []finding.Finding {
	var out []finding.Finding
	for _, w := range workloads(e.Deployments) {
		runs := func(program string) bool {
			return slices.ContainsFunc(w.Images, func(image string) bool { return strings.Contains(image, program) })
		}
		// The Deployment may keep its name when calico-node-sync moves into it (docs/migration/calico-node-sync.md).
		is := runs(predecessorName) || w.Name == predecessorName && !runs(ourName)
		if !is || w.Replicas == 0 {
			continue
		}
		out = append(out, finding.Finding{
			Severity: finding.Warning, What: fmt.Sprintf("Deployment %s/%s, the old %s, still runs", w.Namespace, w.Name, predecessorName),
			Why: "it only supports etcd v2, which no Calico since version 3 uses; in such an etcd it deletes everything that a single list of Nodes does not show",
			Do:  "delete the Deployment: calico-node-sync does its work",
		})
	}
	return out
}

// installations looks for controllers that do not know of each other.
func installations(e Evidence) []finding.Finding {
	a := e.Leases
	switch {
	case !a.Asked:
		return nil
	case a.Failure != "":
		return []finding.Finding{notMade(a, "list Leases")}
	}
	var holders, in []string
	for _, l := range a.Value {
		if l.alive(e.Now) {
			holders, in = append(holders, l.Holder), append(in, l.Namespace)
		}
	}
	switch len(in) {
	case 0:
		return []finding.Finding{{
			Severity: finding.Note, What: "no calico-node-sync is running here (its Lease has no holder)",
			Why: "a controller that runs without --leader-elect would not show here", Do: "nothing, if none should run; else look at its Pods",
		}}
	case 1:
		return []finding.Finding{{Severity: finding.OK, What: fmt.Sprintf("one calico-node-sync is running: %s, in namespace %s", holders[0], in[0])}}
	}
	return []finding.Finding{{
		Severity: finding.Warning, What: fmt.Sprintf("%d installations of calico-node-sync are running, in namespaces %s", len(in), finding.Few(in)),
		Why: "their writes cannot harm each other, but each has its own mass guard and confirmations: together they may remove twice as many",
		Do:  "remove all but one",
	}}
}

// workloads are all that could be listed, in the order of their names.
func workloads(listings []Listing) []Workload {
	var out []Workload
	for _, l := range listings {
		if l.known() {
			out = append(out, l.Value...)
		}
	}
	slices.SortFunc(out, func(a, b Workload) int { return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name) })
	return out
}

func namespaces(listings []Listing) string {
	var out []string
	for _, l := range listings {
		out = append(out, l.Namespace)
	}
	return finding.Few(out)
}
