// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/internal/doctor"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// calicoNodeName is the name of Calico's DaemonSet.
const calicoNodeName = "calico-node"

// nodeRef is the variable by which calico-node knows its Kubernetes Node (node/pkg/lifecycle/startup: configureNodeRef).
const nodeRef = "CALICO_K8S_NODE_REF"

// calicoNode reports whether calico-node keeps its data where we look, and whether it says which Kubernetes Node it runs on.
func calicoNode(e Evidence) []finding.Finding {
	return append(each(e, e.DaemonSets, "DaemonSets", calicoNodeName, oneCalicoNode, finding.Note.Say("there is no DaemonSet %s in %s", calicoNodeName, namespaces(e.DaemonSets)).
		Because("the datastore of calico-node, and whether it records its Kubernetes Node, were not checked")), unreferenced(e)...)
}

// each are the findings about the workloads of a name, or the one about none of them in namespaces that were read.
func each(
	e Evidence, listings []Listing, kind, name string, judge func(Evidence, doctor.Workload) finding.Finding, none finding.Finding,
) (out []finding.Finding) {
	for _, l := range listings {
		out = append(out, notMade(l.Answer, "list "+kind+" in namespace "+l.Namespace)...)
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

func oneCalicoNode(e Evidence, w doctor.Workload) finding.Finding {
	name := w.String()
	kind := kindOf(w)
	_, refers := w.Env[nodeRef]
	switch {
	case e.Settings.Kind != "" && kind != "" && kind != e.Settings.Kind:
		return finding.Problem.Say("%s keeps its data in the %s datastore, and the settings say %s", name, kind, e.Settings.Kind).
			Because("the datastore checked here is not the one that Calico uses: it may be old, and cleaning it has no use").
			Advise("give calico-node-sync the DATASTORE_TYPE and ETCD_ENDPOINTS of calico-node")
	case strangers(w.Env["ETCD_ENDPOINTS"].Value, e.Settings):
		return finding.Problem.Say("%s talks to etcd at %s, and the settings name none of these endpoints", name, w.Env["ETCD_ENDPOINTS"].Value).
			Because("it may be the etcd of another cluster").
			Advise("give calico-node-sync the ETCD_ENDPOINTS of calico-node")
	case kind == kindEtcd && !refers:
		return finding.Warning.Say("%s does not set %s", name, nodeRef).
			Because("its Calico Nodes carry no orchRef, so nothing shows that they were Kubernetes Nodes, and nothing of them is ever removed; " +
				"old manifests of kops are like this").
			Advise("add the variable (fieldRef spec.nodeName), which takes effect when calico-node restarts; for machines that are gone already, " +
				"--adopt-unreferenced judges Calico Nodes by their own name")
	}
	if kind == "" || kind == kindEtcd && w.Env["ETCD_ENDPOINTS"].Value == "" {
		return finding.OK.Say("%s takes the address of its datastore from another place, such as a ConfigMap, and was not compared with the settings", name).
			Because("the datastore checked here should be the one that Calico uses").
			Advise("nothing, if the settings were copied from there (ConfigMap calico-config)")
	}
	return finding.OK.Say("%s keeps its data where the settings say", name)
}

// kindOf is the datastore that a program of Calico's uses (libcalico-go, lib/apiconfig): etcd if endpoints are named, else Kubernetes. It is
// unknown, "", if the variable takes its value from elsewhere.
func kindOf(w doctor.Workload) string {
	kind, set := w.Env["DATASTORE_TYPE"]
	_, endpoints := w.Env["ETCD_ENDPOINTS"]
	switch {
	case set:
		return kind.Value
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
	return []finding.Finding{finding.Note.Say("%s no orchRef: %s", have(len(hosts), "Calico Node"), finding.Few(hosts)).
		Because("they are left alone in any case: route reflectors and bare-metal hosts look like this, and so do Kubernetes Nodes whose calico-node " +
			"lacks " + nodeRef).
		Advise("nothing, if they are not Kubernetes Nodes; else see --adopt-unreferenced")}
}

// have is "1 Calico Node has" or "2 Calico Nodes have".
func have(n int, noun string) string { return prose.Plural(n, noun) + prose.Choose(n, " has", " have") }

// kubeControllers says what Calico's own controller does alongside us.
func kubeControllers(e Evidence) []finding.Finding {
	judge := func(e Evidence, w doctor.Workload) finding.Finding {
		if e.Settings.Kind == kindKubernetes {
			w.Env = map[string]doctor.Variable{"DATASTORE_TYPE": {Value: kindKubernetes}}
		}
		return doctor.KubeControllers(w)
	}
	return each(e, e.Deployments, "Deployments", doctor.KubeControllersName, judge, finding.OK.Say("no %s runs in %s: no other controller removes Calico Nodes", doctor.KubeControllersName, namespaces(e.Deployments)))
}

// predecessor looks for the project that this one succeeds.
func predecessor(e Evidence) (out []finding.Finding) {
	for _, w := range workloads(e.Deployments) {
		out = append(out, doctor.Rivals(doctor.NodeSync, w, doctor.NodeSync)...)
	}
	return out
}

// installations looks for controllers that do not know of each other.
func installations(e Evidence) []finding.Finding {
	if !e.Leases.known() {
		return notMade(e.Leases, "list Leases")
	}
	var holders, in []string
	for _, l := range e.Leases.Value {
		if l.Holder != "" && !l.Stale(e.Now) {
			holders, in = append(holders, l.Holder), append(in, l.Namespace)
		}
	}
	switch len(in) {
	case 0:
		return []finding.Finding{finding.Note.Say("no calico-node-sync is running here (its Lease has no holder)").
			Because("a controller that runs without --leader-elect would not show here").
			Advise("nothing, if none should run; else look at its Pods")}
	case 1:
		return []finding.Finding{finding.OK.Say("one calico-node-sync is running: %s, in namespace %s", holders[0], in[0])}
	}
	return []finding.Finding{finding.Warning.Say("%d installations of calico-node-sync are running, in namespaces %s", len(in), finding.Few(in)).
		Because("their writes cannot harm each other, but each has its own mass guard and confirmations: together they may remove twice as many").
		Advise("remove all but one")}
}

// workloads are all that could be listed, in the order of their names.
func workloads(listings []Listing) []doctor.Workload {
	var out []doctor.Workload
	for _, l := range listings {
		if l.known() {
			out = append(out, l.Value...)
		}
	}
	slices.SortFunc(out, func(a, b doctor.Workload) int { return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name) })
	return out
}

func namespaces(listings []Listing) string {
	var out []string
	for _, l := range listings {
		out = append(out, l.Namespace)
	}
	return finding.Few(out)
}
