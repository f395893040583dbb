// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"context"
	"errors"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/mooring-dev/mooring/internal/doctor"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
)

const rightsLong = `Ask the API server whether the service account of each component has the rights that our manifests give it, and name the missing rule and
the command that adds it.

Deployments, DaemonSets and StatefulSets of all namespaces and the roles of the cluster are read, and SubjectAccessReviews are created, which nothing
stores: one for each account, and one for each right that no role grants. Rights that only some settings need are asked for with those settings: Calico's
datastore, its journal, the variables of an upstream project.`

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
	grants, listed := x.grants(ctx)
	confirmed := map[string]bool{}
	for _, q := range doctor.Questions(e.Workloads) {
		// What roles grant is believed of an account of which the API server confirmed it once: it goes by the roles.
		granted := listed && grants.Allow(q)
		if granted && confirmed[q.User()] {
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
		confirmed[q.User()] = confirmed[q.User()] || granted && review.Status.Allowed
	}
	return doctor.Rights(e)
}

// grants are the roles of the cluster and their bindings, if all of them may be read.
func (x *Examination) grants(ctx context.Context) (g doctor.Grants, all bool) {
	rbac := x.cluster.Typed.RbacV1()
	var failed [4]error
	g.ClusterRoles, failed[0] = observe.All[rbacv1.ClusterRole](ctx, "", rbac.ClusterRoles().List)
	g.ClusterRoleBindings, failed[1] = observe.All[rbacv1.ClusterRoleBinding](ctx, "", rbac.ClusterRoleBindings().List)
	g.Roles, failed[2] = observe.All[rbacv1.Role](ctx, "", rbac.Roles(metav1.NamespaceAll).List)
	g.RoleBindings, failed[3] = observe.All[rbacv1.RoleBinding](ctx, "", rbac.RoleBindings(metav1.NamespaceAll).List)
	return g, errors.Join(failed[:]...) == nil
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
