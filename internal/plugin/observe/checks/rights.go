// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"context"
	"errors"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/component-helpers/auth/rbac/validation"

	"github.com/mooring-dev/mooring/internal/doctor"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
)

const rightsLong = `Ask the API server whether the service account of each component has the rights that our manifests give it, and name the missing rule and
the command that adds it.

Deployments, DaemonSets and StatefulSets of all namespaces and the roles of the cluster are read, and SubjectAccessReviews are created, which nothing
stores: one for each right that no role grants, and one more if no component renews its Lease. Rights that only some settings need are asked for with those
settings: Calico's datastore, its journal, the variables of an upstream project.`

// lookAtRights asks for every right of every component.
func lookAtRights(ctx context.Context, x *Examination) []finding.Finding {
	e := doctor.RightsEvidence{Allowed: map[doctor.Question]bool{}}
	e.Workloads, _, e.Unread = x.workloads(ctx)
	config := rest.CopyConfig(x.cluster.Config)
	config.QPS = -1 // some hundred small questions; the API server has its own bounds
	client, err := observe.Typed(config)
	if err != nil {
		e.Problem = observe.OneLine(err)
		return doctor.Rights(e)
	}
	roles, listed := x.grants(ctx)
	running := doctor.ControllerEvidence{Namespaces: x.cluster.Namespaces}
	x.leases(ctx, &running)
	// What roles grant is believed of an API server that goes by roles: a component renews its Lease, as they allow it, or one
	// right is confirmed.
	byRoles := len(running.Elected()) > 0
	for _, q := range doctor.Questions(e.Workloads) {
		granted := listed && roles.allow(q)
		if granted && byRoles {
			e.Allowed[q] = true
			continue
		}
		review := &authorizationv1.SubjectAccessReview{Spec: reviewOf(q)}
		review, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			e.Problem = observe.OneLine(err) // the rest would fail alike
			break
		}
		e.Allowed[q] = review.Status.Allowed
		byRoles = byRoles || granted && review.Status.Allowed
	}
	return doctor.Rights(e)
}

// grants are the roles of a cluster and their bindings. They only grant: what they do not, the API server may allow by
// other means.
type grants struct {
	clusterRoles        []*rbacv1.ClusterRole
	roles               []*rbacv1.Role
	clusterRoleBindings []*rbacv1.ClusterRoleBinding
	roleBindings        []*rbacv1.RoleBinding
}

// grants are those of the cluster, if all of them may be read.
func (x *Examination) grants(ctx context.Context) (g grants, all bool) {
	rbac := x.cluster.Typed.RbacV1()
	var failed [4]error
	g.clusterRoles, failed[0] = observe.All[rbacv1.ClusterRole](ctx, "", rbac.ClusterRoles().List)
	g.clusterRoleBindings, failed[1] = observe.All[rbacv1.ClusterRoleBinding](ctx, "", rbac.ClusterRoleBindings().List)
	g.roles, failed[2] = observe.All[rbacv1.Role](ctx, "", rbac.Roles(metav1.NamespaceAll).List)
	g.roleBindings, failed[3] = observe.All[rbacv1.RoleBinding](ctx, "", rbac.RoleBindings(metav1.NamespaceAll).List)
	return g, errors.Join(failed[:]...) == nil
}

// allow reports whether a role that is bound to the service account allows what is asked.
func (g grants) allow(q doctor.Question) bool {
	var owned []rbacv1.PolicyRule
	bound := func(subjects []rbacv1.Subject, ref rbacv1.RoleRef, namespace string) {
		if slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool { return isAccount(q, s) }) {
			owned = append(owned, g.rules(ref, namespace)...)
		}
	}
	for _, b := range g.clusterRoleBindings {
		bound(b.Subjects, b.RoleRef, "")
	}
	for _, b := range g.roleBindings {
		if q.In != "" && b.Namespace == q.In {
			bound(b.Subjects, b.RoleRef, b.Namespace)
		}
	}
	asked := rbacv1.PolicyRule{Verbs: []string{q.Verb}, APIGroups: []string{q.Group}, Resources: []string{q.Resource}}
	if q.Subresource != "" {
		asked.Resources[0] += "/" + q.Subresource
	}
	if q.Name != "" {
		asked.ResourceNames = []string{q.Name}
	}
	covered, _ := validation.Covers(owned, []rbacv1.PolicyRule{asked})
	return covered
}

// rules are those of the role that a binding in a namespace refers to.
func (g grants) rules(ref rbacv1.RoleRef, namespace string) []rbacv1.PolicyRule {
	for _, r := range g.clusterRoles {
		if ref.Kind == "ClusterRole" && r.Name == ref.Name {
			return r.Rules
		}
	}
	for _, r := range g.roles {
		if ref.Kind == "Role" && r.Name == ref.Name && r.Namespace == namespace {
			return r.Rules
		}
	}
	return nil
}

// isAccount reports whether a subject is the service account of a question, or a group that it is in.
func isAccount(q doctor.Question, s rbacv1.Subject) bool {
	switch s.Kind {
	case rbacv1.ServiceAccountKind:
		return s.Namespace == q.Namespace && s.Name == q.Account
	case rbacv1.GroupKind:
		return slices.Contains(q.Groups(), s.Name)
	}
	return s.Kind == rbacv1.UserKind && s.Name == q.User()
}

// reviewOf asks about a service account.
func reviewOf(q doctor.Question) authorizationv1.SubjectAccessReviewSpec {
	return authorizationv1.SubjectAccessReviewSpec{
		User: q.User(), Groups: q.Groups(),
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: q.In, Group: q.Group, Resource: q.Resource, Subresource: q.Subresource, Name: q.Name, Verb: q.Verb,
		},
	}
}
