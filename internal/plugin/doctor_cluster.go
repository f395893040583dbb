// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"maps"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/doctor"
	"github.com/mooring-dev/mooring/internal/platform/finding"
)

// examination is one look at a cluster by one or more doctors, which share what they read.
type examination struct {
	env     *Env
	cluster *cluster
	clock   clock.PassiveClock
	// secrets reports that certificates in Secrets are read.
	secrets bool
	// listings are the workloads, controllers what else was read of who does which work, once they were read.
	listings    []doctor.Listing
	controllers *doctor.ControllerEvidence
}

// lookAtControllers judges who does which work.
func lookAtControllers(ctx context.Context, x *examination) []finding.Finding {
	return doctor.Controllers(evidenceOfControllers(ctx, x))
}

// evidenceOfControllers reads who does which work.
func evidenceOfControllers(ctx context.Context, x *examination) doctor.ControllerEvidence {
	if x.controllers != nil {
		return *x.controllers
	}
	e := doctor.ControllerEvidence{Workloads: x.workloads(ctx)}
	leases, err := pages(func(options metav1.ListOptions) ([]coordinationv1.Lease, string, error) {
		list, err := x.cluster.typed.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, options)
		if err != nil {
			return nil, "", err
		}
		return list.Items, list.Continue, nil
	})
	if err != nil {
		e.LeaseProblem = plain(err)
	}
	for i := range leases {
		e.Leases = append(e.Leases, leaseOf(&leases[i]))
	}
	e.Now = x.clock.Now()
	x.controllers = &e
	return e
}

// workloads reads what runs in all namespaces.
func (x *examination) workloads(ctx context.Context) []doctor.Listing {
	if x.listings != nil {
		return x.listings
	}
	apps := x.cluster.typed.AppsV1()
	deployments, err := pages(func(options metav1.ListOptions) ([]doctor.Workload, string, error) {
		list, err := apps.Deployments(metav1.NamespaceAll).List(ctx, options)
		if err != nil {
			return nil, "", err
		}
		var out []doctor.Workload
		for i := range list.Items {
			out = append(out, deploymentOf(&list.Items[i]))
		}
		return out, list.Continue, nil
	})
	x.listings = append(x.listings, listing("Deployments", deployments, err))
	daemonSets, err := pages(func(options metav1.ListOptions) ([]doctor.Workload, string, error) {
		list, err := apps.DaemonSets(metav1.NamespaceAll).List(ctx, options)
		if err != nil {
			return nil, "", err
		}
		var out []doctor.Workload
		for i := range list.Items {
			out = append(out, daemonSetOf(&list.Items[i]))
		}
		return out, list.Continue, nil
	})
	x.listings = append(x.listings, listing("DaemonSets", daemonSets, err))
	return x.listings
}

func listing(kind string, workloads []doctor.Workload, err error) doctor.Listing {
	l := doctor.Listing{Kind: kind, Workloads: workloads}
	if err != nil {
		l.Workloads, l.Problem = nil, plain(err)
	}
	return l
}

// pages reads a list page by page. A part of a list is none.
func pages[T any](page func(metav1.ListOptions) (items []T, next string, err error)) ([]T, error) {
	var out []T
	options := metav1.ListOptions{Limit: listPage}
	for {
		items, next, err := page(options)
		if err != nil {
			return nil, err
		}
		out = append(out, items...)
		if options.Continue = next; next == "" {
			return out, nil
		}
	}
}

// plain is an error in one line.
func plain(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

func deploymentOf(d *appsv1.Deployment) doctor.Workload {
	w := workloadOf("Deployment", &d.ObjectMeta, &d.Spec.Template)
	w.Wanted, w.Ready = 1, int(d.Status.ReadyReplicas) // unset means one
	if d.Spec.Replicas != nil {
		w.Wanted = int(*d.Spec.Replicas)
	}
	return w
}

func daemonSetOf(d *appsv1.DaemonSet) doctor.Workload {
	w := workloadOf("DaemonSet", &d.ObjectMeta, &d.Spec.Template)
	w.Wanted, w.Ready = int(d.Status.DesiredNumberScheduled), int(d.Status.NumberReady)
	return w
}

func workloadOf(kind string, meta *metav1.ObjectMeta, pod *corev1.PodTemplateSpec) doctor.Workload {
	w := doctor.Workload{
		Kind: kind, Namespace: meta.Namespace, Name: meta.Name, Labels: map[string]string{}, Env: map[string]doctor.Variable{}, Account: pod.Spec.ServiceAccountName,
	}
	maps.Copy(w.Labels, meta.Labels)
	maps.Copy(w.Labels, pod.Labels)
	for _, c := range pod.Spec.Containers {
		w.Images = append(w.Images, c.Image)
		w.Args = append(append(w.Args, c.Command...), c.Args...)
		for _, v := range c.Env {
			w.Env[v.Name] = doctor.Variable{Value: v.Value, Elsewhere: v.ValueFrom != nil}
		}
	}
	nodeOf(&w, &pod.Spec)
	return w
}

func leaseOf(l *coordinationv1.Lease) doctor.Lease {
	out := doctor.Lease{Namespace: l.Namespace, Name: l.Name}
	if l.Spec.HolderIdentity != nil {
		out.Holder = *l.Spec.HolderIdentity
	}
	if l.Spec.RenewTime != nil {
		out.Renewed = l.Spec.RenewTime.Time
	}
	return out
}

// list reads all objects of a kind. One that the API server does not serve has none.
func (x *examination) list(ctx context.Context, resource schema.GroupVersionResource) ([]unstructured.Unstructured, error) {
	all, err := pages(func(options metav1.ListOptions) ([]unstructured.Unstructured, string, error) {
		list, err := x.cluster.dynamic.Resource(resource).List(ctx, options)
		if err != nil {
			return nil, "", err
		}
		return list.Items, list.GetContinue(), nil
	})
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return all, err
}
