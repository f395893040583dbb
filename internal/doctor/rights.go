// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/internal/platform/finding"
	ours "github.com/mooring-dev/mooring/internal/rights"
)

// manifest is one file of ours that gives rights to a component.
type manifest struct {
	file string
	// namespace and account are those of the service account in the file.
	namespace, account string
	rules              []rule
}

// rule is one rule of a role about one resource.
type rule struct {
	// role is its kind and name; own says that it holds in the component's namespace alone.
	role string
	own  bool
	// in is the namespace of a role that is in another one than the component; empty for any other role.
	in              string
	group, resource string
	// names are those of single objects; none means all.
	names, verbs []string
}

// Question is whether a service account may do one thing.
type Question struct {
	// Namespace and Account are the service account's.
	Namespace, Account string
	// In is the namespace of the objects; empty for all namespaces, or for what is in none.
	In                                 string
	Group, Resource, Subresource, Name string
	Verb                               string
}

// User is the service account as the API server knows it (k8s.io/apiserver/pkg/authentication/serviceaccount).
func (q Question) User() string { return "system:serviceaccount:" + q.Namespace + ":" + q.Account }

// Groups are those of the service account.
func (q Question) Groups() []string {
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + q.Namespace, "system:authenticated"}
}

// RightsEvidence is what was read of rights.
type RightsEvidence struct {
	Workloads []Workload
	// Unread are the lists of workloads that could not be read.
	Unread []finding.Side
	// Allowed are the answers to [Questions].
	Allowed map[Question]bool
	// Problem is why there are no answers, or not all of them.
	Problem string
}

// installed is one component with the rights that it is to have.
type installed struct {
	component component
	workload  Workload
	manifest  manifest
	// doubt is why fewer than all rights are known, or none; empty if they are.
	doubt string
}

// account is the workload's service account; every namespace has one with the name default.
func (w Workload) account() string { return cmp.Or(w.Account, "default") }

// Questions are what to ask the API server: whether each component that is installed has the rights that its manifest gives it. They are sorted.
func Questions(workloads []Workload) []Question {
	var out []Question
	for _, i := range installations(workloads) {
		for _, r := range i.manifest.rules {
			for _, name := range r.objects() {
				for _, verb := range r.verbs {
					out = append(out, i.question(r, name, verb))
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b Question) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return slices.Compact(out)
}

// objects are the names that a rule is about; one empty name for all.
func (r rule) objects() []string {
	if len(r.names) == 0 {
		return []string{""}
	}
	return r.names
}

func (i installed) question(r rule, name, verb string) Question {
	q := Question{Namespace: i.workload.Namespace, Account: i.workload.account(), Group: r.group, Name: name, Verb: verb}
	q.Resource, q.Subresource, _ = strings.Cut(r.resource, "/")
	if r.own {
		q.In = cmp.Or(r.in, i.workload.Namespace)
	}
	return q
}

// installations are the components that are there, each with its rights.
func installations(workloads []Workload) []installed {
	var out []installed
	workloads = sorted(workloads)
	for _, c := range components() {
		for _, w := range running(c.of(workloads)) {
			if i := (installed{component: c, workload: w}); i.find() {
				out = append(out, i)
			}
		}
	}
	return out
}

// find finds the rights that a component is to have: those of its datastore, and of the flags that need some. It reports whether the
// component has any.
func (i *installed) find() bool {
	file, options := i.file()
	if file == "" || i.workload.Kind == "DaemonSet" {
		return false // the admission server, the proxies and the driver's node plugin ask Kubernetes for nothing
	}
	if path, set := i.workload.flag("kubeconfig"); set && path != "" {
		i.doubt = "it has --kubeconfig, so that its rights are those of that user"
		return true
	}
	i.manifest = shippedAs(i.component.name, file, options)
	i.manifest.rules = slices.DeleteFunc(i.manifest.rules, i.unused)
	for n := range i.manifest.rules {
		if r := &i.manifest.rules[n]; r.resource == "deployments" && slices.Equal(r.names, []string{i.component.name}) {
			r.names = []string{i.workload.Name} // its own, about which its Events are
		}
	}
	return true
}

// file is the one of ours that has the component's rights, and the options of package rights that the workload needs; ""
// for a component that has none.
func (i *installed) file() (file string, options []string) {
	switch i.component.name {
	case Cloud:
		file = "releases/digitalocean-cloud-controller-manager/latest.yml"
		if i.workload.has("out-of-service-taint") {
			file, options = "dist/digitalocean-cloud-controller-manager-out-of-service.yaml", []string{"out-of-service"}
		}
		if i.workload.has("volume-startup-taint") {
			options = append(options, "startup-taint")
		}
	case Storage:
		file = "dist/etcd-storage-operator.yaml"
	case NodeSync, Reflectors:
		var overlay string
		overlay, options = i.datastore()
		file = "dist/" + i.component.name + "-" + overlay + ".yaml"
	case Driver:
		file = "releases/digitalocean-csi-driver/latest.yml"
	}
	return file, options
}

// datastore is the overlay for Calico's datastore that the component is told to use, and its options: none if the
// datastore is not known, so that only what both need is asked for.
func (i *installed) datastore() (overlay string, options []string) {
	kind := i.workload.Env["DATASTORE_TYPE"]
	if value, set := i.workload.flag("datastore-type"); set {
		kind = Variable{Value: value}
	}
	switch _, endpoints := i.workload.Env["ETCD_ENDPOINTS"]; {
	case kind.Value == "kubernetes" || kind.Value == "incluster":
		for name := range i.workload.Env {
			if i.component.name == Reflectors && strings.HasPrefix(name, "ROUTE_REFLECTOR_") {
				return "environment", []string{"kubernetes", "environment"}
			}
		}
		return "kubernetes", []string{"kubernetes"}
	case kind.Value == "" && (kind.Elsewhere || !endpoints):
		i.doubt = "its variables do not name Calico's datastore, so that rights for Calico's objects in Kubernetes were not checked"
		return "etcdv3", nil
	}
	return "etcdv3", []string{"etcdv3"}
}

// unused reports that the workload's flags make a rule unnecessary; the chart leaves such rules out.
func (i *installed) unused(r rule) bool {
	if r.role == "ClusterRole csi-do-snapshotter-role" {
		return !i.workload.runs("csi-snapshotter")
	}
	journal, set := i.workload.flag("journal")
	return i.component.name == NodeSync && set && journal != "configmaps" && r.resource == "configmaps" && slices.Contains(r.verbs, "delete")
}

// shippedAs is one of our files, which has the component's rights with the options.
func shippedAs(component, file string, options []string) manifest {
	all := ours.All()
	c := all[slices.IndexFunc(all, func(c ours.Component) bool { return c.Name == component })]
	m := manifest{file: file, namespace: c.Namespace, account: c.Account}
	for _, role := range c.Roles(options...) {
		name, in := role.Kind()+" "+role.Name, strings.TrimSuffix(role.In, ours.Own)
		for _, r := range role.Rules {
			policy := r.Policy()
			for _, group := range policy.APIGroups {
				for _, resource := range policy.Resources {
					m.rules = append(m.rules, rule{
						name, role.In != ours.Everywhere, in, group, resource, policy.ResourceNames, policy.Verbs,
					})
				}
			}
		}
	}
	return m
}

// Rights judges whether each component that is installed may do what its manifest allows it. The name of the check stands in
// JSON and MUST NOT change.
func Rights(e RightsEvidence) []finding.Finding {
	return finding.Make([]finding.Check[RightsEvidence]{{Name: "rights", Find: rights}}, e)
}

func rights(e RightsEvidence) []finding.Finding {
	out := finding.NotRead(e.Unread)
	if e.Problem != "" {
		out = append(out, finding.NotLookedAt("rights", e.Problem))
	}
	for _, i := range installations(e.Workloads) {
		if i.doubt != "" {
			out = append(out, finding.Note.Say("not read: rights of %s: %s", i.workload, i.doubt).At(i.workload.String()).
				Because("missing rights there are not found"))
		}
		missing, unknown := i.missing(e.Allowed)
		out = append(out, missing...)
		if len(missing) == 0 && unknown == 0 && len(i.manifest.rules) > 0 {
			out = append(out, finding.OK.Say("%s has every right of %s", i.whose(), i.manifest.file).At(i.workload.String()))
		}
	}
	return out
}

// whose is the service account, for people.
func (i installed) whose() string {
	return "ServiceAccount " + i.workload.Namespace + "/" + i.workload.account()
}

// missing is a finding for each resource of each rule of which a verb is missing, and how many answers there are not.
func (i installed) missing(allowed map[Question]bool) (out []finding.Finding, unknown int) {
	for _, r := range i.manifest.rules {
		for _, name := range r.objects() {
			var verbs []string
			for _, verb := range r.verbs {
				if yes, known := allowed[i.question(r, name, verb)]; !known {
					unknown++
				} else if !yes {
					verbs = append(verbs, verb)
				}
			}
			if len(verbs) > 0 {
				out = append(out, i.lacks(r, name, verbs))
			}
		}
	}
	return out, unknown
}

// lacks is the finding about one rule.
func (i installed) lacks(r rule, name string, verbs []string) finding.Finding {
	what := r.resource
	if r.group != "" {
		what += "." + r.group
	}
	if name != "" {
		what += " " + name
	}
	if r.own {
		what += " in namespace " + cmp.Or(r.in, i.workload.Namespace)
	}
	f := finding.Problem.Say("%s may not %s %s, which %s allows it", i.whose(), strings.Join(verbs, ", "), what, r.role).At(r.role).
		Because(fmt.Sprintf("%s needs it: every right in %s is used", i.workload, i.manifest.file)).
		Advise(i.cure(r, name))
	switch r.group {
	case "cert-manager.io":
		f.Severity, f.Why = finding.Note, "only EtcdStorages with spec.issuerRef need it"
	case "authentication.k8s.io", "authorization.k8s.io":
		f.Severity, f.Why = finding.Warning, "without it /metrics cannot be read; everything else works"
	}
	return f
}

// cure is the command that brings the right of a rule to an object, "" for all. It changes roles and their bindings alone,
// not the Deployment in the same file.
func (i installed) cure(r rule, name string) string {
	const reconcile = "kubectl auth reconcile -f "
	complaint := ""
	if slices.Contains([]string{Storage, Reflectors, Driver}, i.component.name) {
		// Their files have kinds of which kubectl says that they are not registered, when it has done the others.
		complaint = "; an error about a kind that is not registered " + harmless
	}
	release := i.workload.Labels["app.kubernetes.io/instance"]
	switch {
	case release != "" && i.workload.Labels["app.kubernetes.io/managed-by"] == "Helm":
		return fmt.Sprintf("helm -n %s upgrade %s with your values adds it again", i.workload.Namespace, release)
	case i.workload.account() != i.manifest.account:
		return fmt.Sprintf("bind the roles of %s to %s in place of %s/%s", i.manifest.file, i.whose(), i.manifest.namespace, i.manifest.account)
	case i.workload.Namespace != i.manifest.namespace:
		return fmt.Sprintf("sed 's/namespace: %s$/namespace: %s/' %s | %s-", i.manifest.namespace, i.workload.Namespace, i.manifest.file, reconcile) + complaint
	case r.resource == "deployments" && name == i.workload.Name && name != i.component.name:
		return fmt.Sprintf("add %s to the resourceNames of deployments: kubectl -n %s edit %s",
			name, i.workload.Namespace, strings.Replace(r.role, "Role ", "role ", 1))
	}
	return reconcile + i.manifest.file + complaint
}

// harmless is said of what a command complains of that does what it should. The test that runs next steps looks for it.
const harmless = "does no harm"
