// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package rights lists what each program may do in the Kubernetes API. It is the only place that does: hack/roles
// writes the roles in config/, those of the chart and the table in SECURITY.md from it. The doctors compare it with what
// a cluster grants, and the kernel refuses a write in a round that is not in it. The lists of all programs are together,
// apart from the programs, since kubectl-mooring needs all of them, and calico-node-sync must not link the cloud's code.
package rights

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Component is what one program may do.
type Component struct {
	// Name is that of its folder in config/ and in the chart, Values its key in the chart's values.
	Name, Values string
	// Namespace and Account are those of its service account.
	Namespace, Account string
	// Metrics reports that it authorizes who reads /metrics, for which there is a role to bind.
	Metrics bool
	Parts   []Part
}

// Part is what one file of config/ grants.
type Part struct {
	// File is below the program's folder in config/.
	File string
	// Option is the setting that needs it, named as in [Component.Roles]; empty for what is always needed.
	Option string
	// If is the chart's condition, a pipeline of Helm on the program's values; empty for none.
	If    string
	Roles []Role
}

// NotInChart is the condition of a part that the chart does not have.
const NotInChart = "false"

// Role is a ClusterRole or a Role, with its binding to the program's account.
type Role struct {
	Name, Why string
	// In is the namespace in which it holds: [Everywhere], [Own], or the name of another one.
	In    string
	Rules []Rule
}

const (
	// Everywhere is where a ClusterRole holds.
	Everywhere = ""
	// Own is the program's namespace.
	Own = "."
)

// Rule is one rule of a role. Lists have commas between their items.
type Rule struct {
	// Group is empty for the core group. No Names means all objects.
	Group, Resources, Names, Verbs string
	// Why becomes the comment in config/ and the cell in SECURITY.md.
	Why string
	// For is what does not work without it; empty where nothing does. Only node sync's doctor shows it.
	For string
	// Plumbing is not for rounds of controllers, which must not write it: leader election, metrics, Events.
	Plumbing bool
	// If is as in [Part].
	If string
}

// All returns all programs that have rights.
func All() []Component {
	return []Component{Cloud(), Volumes(), NodeSync(), Reflectors(), EtcdStorage()}
}

// Roles returns the roles for the given options; without any, what is always needed.
func (c Component) Roles(options ...string) (all []Role) {
	for _, part := range c.Parts {
		if part.Option == "" || slices.Contains(options, part.Option) {
			all = append(all, part.Roles...)
		}
	}
	return all
}

// Kind returns the kind of the role in Kubernetes.
func (r Role) Kind() string {
	if r.In == Everywhere {
		return "ClusterRole"
	}
	return "Role"
}

// Policy returns the rule as Kubernetes has it.
func (r Rule) Policy() rbacv1.PolicyRule {
	p := rbacv1.PolicyRule{APIGroups: List(r.Group), Resources: List(r.Resources), Verbs: List(r.Verbs)}
	if r.Names != "" {
		p.ResourceNames = List(r.Names)
	}
	return p
}

// Rounds returns the rules of roles that rounds of controllers need: all, or those that hold in the given namespaces,
// where [Own] and [Everywhere] are two.
func Rounds(roles []Role, in ...string) (all []rbacv1.PolicyRule) {
	for _, role := range roles {
		for _, rule := range role.Rules {
			if !rule.Plumbing && (in == nil || slices.Contains(in, role.In)) {
				all = append(all, rule.Policy())
			}
		}
	}
	return all
}

// List returns the items of a list of a rule.
func List(text string) []string { return strings.Split(text, ", ") }

// metrics are the rights to authorize who reads /metrics.
func metrics() []Rule {
	const use = "asking who reads /metrics"
	return []Rule{
		{
			Group: "authentication.k8s.io", Resources: "tokenreviews", Verbs: "create", For: use, Plumbing: true,
			Why: "Who reads /metrics.",
		},
		{
			Group: "authorization.k8s.io", Resources: "subjectaccessreviews", Verbs: "create", For: use, Plumbing: true,
			Why: "Whether they may read /metrics.",
		},
	}
}

// leaderElection are the rights to a Lease by its name, in a role of the program's namespace.
func leaderElection(lease string) []Rule {
	const group = "coordination.k8s.io"
	return []Rule{
		{
			Group: group, Resources: "leases", Verbs: "create", Plumbing: true,
			Why: "The Lease of leader election. RBAC cannot tie a create to a name, which it does not know then.",
		},
		{
			Group: group, Resources: "leases", Names: lease, Verbs: "get, update", Plumbing: true,
			Why: "The Lease of leader election.",
		},
	}
}
