// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	judges "github.com/mooring-dev/mooring/internal/doctor"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/nodesync/doctor"
)

// workloads lists what runs where Calico's manifests and its operator put their programs.
func (x *examination) workloads(ctx context.Context) (deployments, daemonSets []doctor.Listing) {
	for _, namespace := range []string{metav1.NamespaceSystem, "calico-system"} {
		apps := x.api.AppsV1()
		deployments = listed(ctx, deployments, namespace, apps.Deployments(namespace).List, func(l *appsv1.DeploymentList) []judges.Workload {
			return each(l.Items, func(d *appsv1.Deployment) judges.Workload {
				return judges.WorkloadOf("Deployment", d, &d.Spec.Template, ptr.Deref(d.Spec.Replicas, 1), d.Status.ReadyReplicas)
			})
		})
		daemonSets = listed(ctx, daemonSets, namespace, apps.DaemonSets(namespace).List, func(l *appsv1.DaemonSetList) []judges.Workload {
			return each(l.Items, func(d *appsv1.DaemonSet) judges.Workload {
				return judges.WorkloadOf("DaemonSet", d, &d.Spec.Template, d.Status.DesiredNumberScheduled, d.Status.NumberReady)
			})
		})
	}
	return deployments, daemonSets
}

// listed adds what a namespace holds, unless the question was cut short.
func listed[L any](
	ctx context.Context, to []doctor.Listing, namespace string, list func(context.Context, metav1.ListOptions) (L, error), workloads func(L) []judges.Workload,
) []doctor.Listing {
	answer := ask(ctx, func(ctx context.Context) ([]judges.Workload, error) {
		all, err := list(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		return workloads(all), nil
	})
	if !answer.Asked {
		return to
	}
	return append(to, doctor.Listing{Namespace: namespace, Answer: answer})
}

func each[T, R any](items []T, translate func(*T) R) []R {
	out := make([]R, 0, len(items))
	for i := range items {
		out = append(out, translate(&items[i]))
	}
	return out
}

// leases lists the controller's Leases of all namespaces; of its own alone, if there is no right to more.
func (x *examination) leases(ctx context.Context, namespace string) doctor.Answer[[]judges.Lease] {
	everywhere := ask(ctx, func(ctx context.Context) ([]judges.Lease, error) {
		selector := fields.OneTermEqualSelector("metadata.name", controller.LeaseName).String()
		list, err := x.api.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: selector})
		if err != nil {
			return nil, err
		}
		return each(list.Items, judges.LeaseOf), nil
	})
	if !everywhere.Forbidden || namespace == "" {
		return everywhere
	}
	return ask(ctx, func(ctx context.Context) ([]judges.Lease, error) {
		// The shipped Role may get this one by its name, and list none.
		one, err := x.api.CoordinationV1().Leases(namespace).Get(ctx, controller.LeaseName, metav1.GetOptions{})
		if err != nil {
			return nil, client.IgnoreNotFound(err)
		}
		return []judges.Lease{judges.LeaseOf(one)}, nil
	})
}

// rights asks for each right that the controller uses, and whose they are. Nothing is stored by asking.
func (x *examination) rights(
	ctx context.Context, inKubernetes bool, namespace string,
) (whose string, answers []doctor.RightAnswer) {
	api := x.api
	if x.As != "" {
		config := rest.CopyConfig(x.cluster)
		config.Impersonate = rest.ImpersonationConfig{UserName: x.As}
		impersonating, err := kubernetes.NewForConfig(config)
		if err != nil {
			return x.As, []doctor.RightAnswer{{Failure: plain(err)}}
		}
		api, whose = impersonating, x.As
	} else if self, err := api.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}); err == nil {
		whose = self.Status.UserInfo.Username
	}
	for _, r := range nodesync.Rights(inKubernetes) {
		if r.Own && namespace == "" {
			continue
		}
		attributes := authorizationv1.ResourceAttributes{Group: r.Group, Resource: r.Resource, Name: r.Name, Verb: r.Verb, Namespace: r.In}
		if r.Own {
			attributes.Namespace = namespace
		}
		answer := ask(ctx, func(ctx context.Context) (bool, error) {
			review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes}}
			review, err := api.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			return err == nil && review.Status.Allowed, err
		})
		if !answer.Asked { // cut short
			break
		}
		answers = append(answers, doctor.RightAnswer{Right: r, Allowed: answer.Value, Failure: answer.Failure})
		if answer.Failure != "" {
			break // the rest would fail alike
		}
	}
	return whose, answers
}
