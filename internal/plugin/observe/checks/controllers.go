// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"context"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/doctor"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
)

// Examination is one look at a cluster by one or more doctors, which share what they read.
type Examination struct {
	cluster *observe.Cluster
	clock   clock.PassiveClock
	// Secrets says that certificates in Secrets are read.
	Secrets bool
	// listings are the workloads, controllers what else was read of who does which work, once they were read.
	listings    []doctor.Listing
	controllers *doctor.ControllerEvidence
}

// New returns one that has read nothing yet.
func New(c *observe.Cluster, now clock.PassiveClock) *Examination {
	return &Examination{cluster: c, clock: now}
}

// lookAtControllers judges who does which work.
func lookAtControllers(ctx context.Context, x *Examination) []finding.Finding {
	return doctor.Controllers(ControllerEvidence(ctx, x))
}

// ControllerEvidence reads who does which work.
func ControllerEvidence(ctx context.Context, x *Examination) doctor.ControllerEvidence {
	if x.controllers != nil {
		return *x.controllers
	}
	e := doctor.ControllerEvidence{Workloads: x.workloads(ctx)}
	err := observe.Each(ctx, "", x.cluster.Typed.CoordinationV1().Leases(metav1.NamespaceAll).List, func(l *coordinationv1.Lease) {
		e.Leases = append(e.Leases, observe.LeaseOf(l))
	})
	if err != nil {
		e.Leases, e.LeaseProblem = nil, observe.OneLine(err)
	}
	e.Now = x.clock.Now()
	x.controllers = &e
	return e
}

// workloads reads what runs in all namespaces.
func (x *Examination) workloads(ctx context.Context) []doctor.Listing {
	if x.listings == nil {
		apps := x.cluster.Typed.AppsV1()
		x.listings = []doctor.Listing{
			listing(ctx, "Deployments", apps.Deployments(metav1.NamespaceAll).List, deploymentOf),
			listing(ctx, "DaemonSets", apps.DaemonSets(metav1.NamespaceAll).List, daemonSetOf),
		}
	}
	return x.listings
}

// listing reads the workloads of a kind.
func listing[L observe.PageOf, T any](
	ctx context.Context, kind string, list func(context.Context, metav1.ListOptions) (L, error), of func(*T) doctor.Workload,
) doctor.Listing {
	l := doctor.Listing{Kind: kind}
	if err := observe.Each(ctx, "", list, func(object *T) { l.Workloads = append(l.Workloads, of(object)) }); err != nil {
		l.Workloads, l.Problem = nil, observe.OneLine(err)
	}
	return l
}

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
