// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/mooring-dev/mooring/internal/doctor"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
)

const rightsLong = `Ask the API server whether the service account of each component has the rights that our manifests give it, and name the missing rule and
the command that adds it.

Deployments, DaemonSets and StatefulSets of all namespaces are read, and SubjectAccessReviews are created, which nothing stores. Rights that only some settings
need are asked for with those settings: Calico's datastore, its journal, the variables of an upstream project.`

// lookAtRights asks for every right of every component.
func lookAtRights(ctx context.Context, x *Examination) []finding.Finding {
	e := doctor.RightsEvidence{Workloads: x.withStatefulSets(ctx), Allowed: map[doctor.Question]bool{}}
	config := rest.CopyConfig(x.cluster.Config)
	config.QPS = -1 // some hundred small questions; the API server has its own bounds
	client, err := observe.Typed(config)
	if err != nil {
		e.Problem = observe.OneLine(err)
		return doctor.Rights(e)
	}
	for _, q := range doctor.Questions(e.Workloads) {
		review := &authorizationv1.SubjectAccessReview{Spec: reviewOf(q)}
		review, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			e.Problem = observe.OneLine(err) // the rest would fail alike
			break
		}
		e.Allowed[q] = review.Status.Allowed
	}
	return doctor.Rights(e)
}

// reviewOf asks about a service account as the API server knows it (k8s.io/apiserver/pkg/authentication/serviceaccount).
func reviewOf(q doctor.Question) authorizationv1.SubjectAccessReviewSpec {
	return authorizationv1.SubjectAccessReviewSpec{
		User:   fmt.Sprintf("system:serviceaccount:%s:%s", q.Namespace, q.Account),
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + q.Namespace, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: q.In, Group: q.Group, Resource: q.Resource, Subresource: q.Subresource, Name: q.Name, Verb: q.Verb,
		},
	}
}
