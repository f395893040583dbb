// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/doctor"
)

func TestGrants(t *testing.T) {
	t.Parallel()
	meta := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	account := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "a", Name: "c"}}
	role := func(kind, name string) rbacv1.RoleRef { return rbacv1.RoleRef{Kind: kind, Name: name} }
	rule := func(verb, group, resource string, names ...string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{{Verbs: []string{verb}, APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names}}
	}
	everything := grants{
		clusterRoles: []*rbacv1.ClusterRole{
			{ObjectMeta: meta("", "nodes"), Rules: rule("list", "", "nodes")},
			{ObjectMeta: meta("", "apps"), Rules: rule("*", "apps", "*")},
			{ObjectMeta: meta("", "status"), Rules: rule("patch", "*", "*/status")},
			{ObjectMeta: meta("", "all"), Rules: rule("get", "", "secrets")},
		},
		roles: []*rbacv1.Role{{ObjectMeta: meta("b", "lease"), Rules: rule("update", "x", "leases", "mine")}},
		clusterRoleBindings: []*rbacv1.ClusterRoleBinding{
			{Subjects: account, RoleRef: role("ClusterRole", "nodes")},
			{Subjects: []rbacv1.Subject{{Kind: "Group", Name: "system:serviceaccounts:a"}}, RoleRef: role("ClusterRole", "apps")},
			{Subjects: []rbacv1.Subject{{Kind: "User", Name: "system:serviceaccount:a:c"}}, RoleRef: role("ClusterRole", "status")},
			{Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "b", Name: "c"}}, RoleRef: role("ClusterRole", "all")},
			{Subjects: account, RoleRef: role("ClusterRole", "that is gone")},
		},
		roleBindings: []*rbacv1.RoleBinding{{ObjectMeta: meta("b", "lease"), Subjects: account, RoleRef: role("Role", "lease")}},
	}
	for name, test := range map[string]struct {
		q    doctor.Question
		want bool
	}{
		"a ClusterRole":                {doctor.Question{Resource: "nodes", Verb: "list"}, true},
		"in a namespace too":           {doctor.Question{Resource: "nodes", Verb: "list", In: "x"}, true},
		"one by name too":              {doctor.Question{Resource: "nodes", Verb: "list", Name: "n"}, true},
		"another verb":                 {doctor.Question{Resource: "nodes", Verb: "get"}, false},
		"another group":                {doctor.Question{Resource: "nodes", Group: "apps.x", Verb: "list"}, false},
		"a group of accounts":          {doctor.Question{Resource: "deployments", Group: "apps", Verb: "get"}, true},
		"a user, a subresource":        {doctor.Question{Resource: "services", Subresource: "status", Verb: "patch"}, true},
		"the resource without it":      {doctor.Question{Resource: "services", Verb: "patch"}, false},
		"another's":                    {doctor.Question{Resource: "secrets", Verb: "get"}, false},
		"a Role":                       {doctor.Question{Resource: "leases", Group: "x", Verb: "update", In: "b", Name: "mine"}, true},
		"a Role of another namespace":  {doctor.Question{Resource: "leases", Group: "x", Verb: "update", In: "a", Name: "mine"}, false},
		"a Role, in all namespaces":    {doctor.Question{Resource: "leases", Group: "x", Verb: "update", Name: "mine"}, false},
		"another name":                 {doctor.Question{Resource: "leases", Group: "x", Verb: "update", In: "b", Name: "other"}, false},
		"all, of a rule with one name": {doctor.Question{Resource: "leases", Group: "x", Verb: "update", In: "b"}, false},
	} {
		test.q.Namespace, test.q.Account = "a", "c"
		if got := everything.allow(test.q); got != test.want {
			t.Errorf("%s: %+v is allowed: %t", name, test.q, got)
		}
	}
}
