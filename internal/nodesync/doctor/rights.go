// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// Right is one right that calico-node-sync uses.
type Right struct {
	Group, Resource string
	// Name is of the one object it is about, "" for all.
	Name string
	Verb string
	// Own reports that it is about objects in the controller's own namespace.
	Own bool
	// In is the namespace of a role in another one, "" for any other right.
	In string
	// For says what it is for, and is empty for what a controller cannot do without.
	For string
	// Optional says that the roles that are shipped leave it out.
	Optional bool
}

// String is the right as kubectl auth can-i takes it, more or less.
func (r Right) String() string {
	resource := r.Resource
	if r.Group != "" {
		resource += "." + r.Group
	}
	if r.Name != "" {
		resource += "/" + r.Name
	}
	if r.In != "" {
		resource += " in namespace " + r.In
	}
	return r.Verb + " " + resource
}

// RightAnswer is whether one Right is there.
type RightAnswer struct {
	Right   Right
	Allowed bool
	// Failure is why that could not be found out.
	Failure string
}

// Rights lists what config/calico-node-sync gives its service account, by the kind of datastore; a test compares the two.
func Rights(kind string) []Right {
	const metrics, leftovers = "asking who reads /metrics", "removing leftovers of deleted pods on existing machines"
	out := []Right{
		{Resource: "nodes", Verb: "get"}, {Resource: "nodes", Verb: "list"}, {Resource: "nodes", Verb: "watch"},
		{Resource: "pods", Verb: "list"},
		{Resource: "pods", Verb: "get", For: leftovers}, {Group: "coordination.k8s.io", Resource: "leases", Verb: "get", In: "kube-node-lease", For: leftovers},
		{Resource: "namespaces", Name: "kube-system", Verb: "get"},
		{Group: "authentication.k8s.io", Resource: "tokenreviews", Verb: "create", For: metrics},
		{Group: "authorization.k8s.io", Resource: "subjectaccessreviews", Verb: "create", For: metrics},
	}
	const lease, state = "calico-node-sync.nodes.mooring.dev", "calico-node-sync-state"
	out = append(out, Right{Group: "coordination.k8s.io", Resource: "leases", Verb: "create", Own: true})
	for _, verb := range []string{"get", "update"} {
		out = append(out, Right{Group: "coordination.k8s.io", Resource: "leases", Name: lease, Verb: verb, Own: true})
	}
	const remember = "saving over restarts since when Nodes are absent"
	for _, verb := range []string{"get", "update"} {
		out = append(out, Right{Resource: "configmaps", Name: state, Verb: verb, Own: true, For: remember})
	}
	// The journal as the manifests have it: what cannot be kept is not removed.
	out = append(out, Right{Resource: "configmaps", Verb: "create", Own: true})
	for _, verb := range []string{"list", "delete"} {
		out = append(out, Right{Resource: "configmaps", Verb: verb, Own: true, For: "keeping the journal in ConfigMaps"})
	}
	const events = "Events"
	for _, group := range []string{"", "events.k8s.io"} {
		for _, verb := range []string{"create", "patch"} {
			out = append(out, Right{Group: group, Resource: "events", Verb: verb, Own: true, For: events})
		}
	}
	out = append(out, Right{Group: "apps", Resource: "deployments", Name: "calico-node-sync", Verb: "get", Own: true, For: events})
	if kind != kindKubernetes {
		return out
	}
	return append(out, crdRights()...)
}

// crdRights are the rights on Calico's own objects in the kubernetes datastore.
func crdRights() []Right {
	const group = "crd.projectcalico.org"
	out := []Right{
		{Group: group, Resource: "clusterinformations", Name: "default", Verb: "get"},
		{Group: group, Resource: "ipamconfigs", Name: "default", Verb: "get"},
	}
	for _, resource := range []string{"blockaffinities", "ipamblocks", "ipamhandles"} {
		for _, verb := range []string{"get", "list", "update", "delete"} {
			out = append(out, Right{Group: group, Resource: resource, Verb: verb})
		}
	}
	for _, verb := range []string{"get", "list", "delete"} {
		out = append(out, Right{Group: group, Resource: "hostendpoints", Verb: verb})
	}
	for _, resource := range []string{"bgppeers", "caliconodestatuses", "bgpconfigurations", "felixconfigurations"} {
		out = append(out, Right{Group: group, Resource: resource, Verb: "get"}, Right{Group: group, Resource: resource, Verb: "list"},
			Right{Group: group, Resource: resource, Verb: "delete", For: "--also-remove"})
	}
	return out
}

// RestoreRights lists what putting back from the journal needs beside [Rights]; a test compares it with config/calico-node-sync/samples/restore-rights.yaml.
func RestoreRights(kind string) []Right {
	if kind != kindKubernetes {
		return nil
	}
	const group = "crd.projectcalico.org"
	var out []Right
	for _, resource := range []string{
		"hostendpoints", "bgppeers", "caliconodestatuses", "bgpconfigurations", "felixconfigurations", "ipamhandles", "ipamblocks", "blockaffinities",
	} {
		out = append(out, Right{Group: group, Resource: resource, Verb: "create", Optional: true})
	}
	return append(out, Right{Group: group, Resource: "ippools", Verb: "list", Optional: true})
}

// serviceAccounts begins the name that the API server gives to the account of a program.
const serviceAccounts = "system:serviceaccount:"

// rights says what is missing.
func rights(e Evidence) []finding.Finding {
	if len(e.Rights) == 0 {
		return nil
	}
	who := cmp.Or(e.RightsOf, "the user who runs doctor")
	var missing, lesser, uses, unknown, optional []string
	for _, a := range e.Rights {
		switch {
		case a.Failure != "":
			unknown = append(unknown, a.Right.String()+" ("+a.Failure+")")
		case a.Allowed:
		case a.Right.Optional:
			optional = append(optional, a.Right.String())
		case a.Right.For != "":
			lesser, uses = append(lesser, a.Right.String()), append(uses, a.Right.For)
		default:
			missing = append(missing, a.Right.String())
		}
	}
	severity, do := finding.Problem, "apply config/calico-node-sync again, or compare the ClusterRole, the Role and their bindings with it"
	if !strings.HasPrefix(e.RightsOf, serviceAccounts) {
		// A person who looks around need not be able to do the controller's work.
		severity, do = finding.Warning, "nothing, if only the controller should write: check its account with --as="+serviceAccounts+"NAMESPACE:calico-node-sync; else give these rights"
	}
	var out []finding.Finding
	if len(missing) > 0 {
		out = append(out, finding.Finding{Severity: severity, What: fmt.Sprintf("%s may not %s", who, strings.Join(missing, ", ")),
			Why: "without it nothing is removed", Do: do})
	}
	if len(lesser) > 0 {
		out = append(out, finding.Finding{Severity: finding.Warning, What: fmt.Sprintf("%s may not %s", who, strings.Join(lesser, ", ")),
			Why: "this is for " + finding.Few(uses), Do: do})
	}
	if len(unknown) > 0 {
		out = append(out, finding.Finding{Severity: finding.Warning, Unread: true, What: fmt.Sprintf("it is unknown whether %s may %s", who, strings.Join(unknown, ", ")),
			Why: "rights may be missing that were not checked", Do: "run doctor again, or ask with `kubectl auth can-i`"})
	}
	if len(out) == 0 {
		out = append(out, finding.Finding{Severity: finding.OK, What: fmt.Sprintf("%s has all %s that calico-node-sync uses", who, prose.Plural(len(e.Rights)-len(optional), "right"))})
	}
	if len(optional) > 0 {
		out = append(out, finding.Finding{Severity: finding.Note, What: fmt.Sprintf("%s may not %s", who, strings.Join(optional, ", ")),
			Why: "`kubectl mooring restore` needs it, and nothing else does; the roles that are shipped leave it out",
			Do:  "nothing; to put something back, apply config/calico-node-sync/samples/restore-rights.yaml or set calicoNodeSync.restoreRights of the chart"})
	}
	if e.Namespace == "" {
		out = append(out, finding.Finding{
			Severity: finding.Note, What: "rights on the Lease and on ConfigMaps were not checked: the controller's namespace is not known",
			Do: "name it with --leader-election-namespace",
		})
	}
	return out
}
