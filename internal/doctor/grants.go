// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Grants are the roles of a cluster and their bindings. They only grant: what they do not, the API server may allow by
// other means.
type Grants struct {
	ClusterRoles        []*rbacv1.ClusterRole
	Roles               []*rbacv1.Role
	ClusterRoleBindings []*rbacv1.ClusterRoleBinding
	RoleBindings        []*rbacv1.RoleBinding
}

// Allow reports whether a role that is bound to the service account allows what is asked.
func (g Grants) Allow(q Question) bool {
	for i := range g.ClusterRoleBindings {
		if b := g.ClusterRoleBindings[i]; slices.ContainsFunc(b.Subjects, q.from) && q.within(g.rules(b.RoleRef, "")) {
			return true
		}
	}
	return q.In != "" && slices.ContainsFunc(g.RoleBindings, func(b *rbacv1.RoleBinding) bool {
		return b.Namespace == q.In && slices.ContainsFunc(b.Subjects, q.from) && q.within(g.rules(b.RoleRef, b.Namespace))
	})
}

// rules are those of the role that a binding in a namespace refers to.
func (g Grants) rules(ref rbacv1.RoleRef, namespace string) []rbacv1.PolicyRule {
	if ref.Kind == "ClusterRole" {
		at := slices.IndexFunc(g.ClusterRoles, func(r *rbacv1.ClusterRole) bool { return r.Name == ref.Name })
		if at >= 0 {
			return g.ClusterRoles[at].Rules
		}
		return nil
	}
	at := slices.IndexFunc(g.Roles, func(r *rbacv1.Role) bool { return r.Name == ref.Name && r.Namespace == namespace })
	if at >= 0 {
		return g.Roles[at].Rules
	}
	return nil
}

// User and Groups are the service account as the API server knows it (k8s.io/apiserver/pkg/authentication/serviceaccount).
func (q Question) User() string { return "system:serviceaccount:" + q.Namespace + ":" + q.Account }

// Groups are those of the service account.
func (q Question) Groups() []string {
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + q.Namespace, "system:authenticated"}
}

// from reports whether a subject is the service account.
func (q Question) from(s rbacv1.Subject) bool {
	switch s.Kind {
	case rbacv1.ServiceAccountKind:
		return s.Namespace == q.Namespace && s.Name == q.Account
	case rbacv1.GroupKind:
		return slices.Contains(q.Groups(), s.Name)
	}
	return s.Kind == rbacv1.UserKind && s.Name == q.User()
}

// within reports whether one of the rules allows what is asked.
func (q Question) within(rules []rbacv1.PolicyRule) bool {
	resource, any := q.Resource, []string{"*"}
	if q.Subresource != "" {
		resource += "/" + q.Subresource
		any = append(any, "*/"+q.Subresource)
	}
	has := func(list []string, words ...string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return slices.Contains(list, word) })
	}
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
		named := len(r.ResourceNames) == 0 || q.Name != "" && slices.Contains(r.ResourceNames, q.Name)
		return named && has(r.Verbs, "*", q.Verb) && has(r.APIGroups, "*", q.Group) && has(r.Resources, append(any, resource)...)
	})
}
