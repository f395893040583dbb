// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"context"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/doctor"
	nodesynccontroller "github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
)

// Examination is one look at a cluster by one or more doctors. With a context of [observe.Once] they share what they
// read.
type Examination struct {
	cluster *observe.Cluster
	clock   clock.PassiveClock
	// Secrets says that certificates in Secrets are read.
	Secrets bool
}

// New returns one that has read nothing yet.
func New(c *observe.Cluster, now clock.PassiveClock) *Examination {
	return &Examination{cluster: c, clock: now}
}

// ControllerEvidence reads who does which work.
func ControllerEvidence(ctx context.Context, x *Examination) doctor.ControllerEvidence {
	e := doctor.ControllerEvidence{Namespaces: x.cluster.Namespaces}
	e.Workloads, e.Elsewhere, e.Unread = x.workloads(ctx)
	x.leases(ctx, &e)
	e.Traces = x.traces(ctx, &e)
	return e
}

// leases reads the Leases of leader election; those of Nodes, of which there are as many as Nodes, are not among them.
func (x *Examination) leases(ctx context.Context, e *doctor.ControllerEvidence) {
	others := fields.OneTermNotEqualSelector("metadata.namespace", corev1.NamespaceNodeLease).String()
	leases, err := observe.All[coordinationv1.Lease](
		ctx, "", x.cluster.Typed.CoordinationV1().Leases(metav1.NamespaceAll).List, metav1.ListOptions{FieldSelector: others},
	)
	e.LeaseProblem = observe.OneLine(err)
	for _, l := range leases {
		e.Leases = append(e.Leases, observe.LeaseOf(l))
	}
	e.Now = x.cluster.ServerTime(x.clock.Now())
}

// Unkept is why what a component reports of its objects may be old, "" while one works.
func Unkept(ctx context.Context, c *observe.Cluster, now clock.PassiveClock, component string) string {
	e := ControllerEvidence(ctx, New(c, now))
	return finding.Unkept(doctor.Components(e), component, e.NotRead(), e.Now)
}

// traces are what shows that a component is meant to run, by the component's name: objects that it alone serves. What may
// not be read shows nothing; that the driver's object could not be read is noted.
func (x *Examination) traces(ctx context.Context, e *doctor.ControllerEvidence) map[string]string {
	out := map[string]string{}
	for kind, resource := range map[string]schema.GroupVersionResource{
		doctor.Reflectors: v1alpha1.GroupVersion.WithResource("routereflectortopologies"), doctor.Storage: observe.EtcdStorages(),
	} {
		if list, _, err := x.cluster.List(ctx, resource); err == nil && len(list) > 0 {
			out[kind] = list[0].GetKind() + " " + list[0].GetName()
		}
	}
	if namespace, err := x.cluster.StateNamespace(ctx); err == nil && namespace != "" {
		out[doctor.NodeSync] = "ConfigMap " + namespace + "/" + nodesynccontroller.StateName
	}
	if doctor.RunsDriver(e.Workloads) {
		return out // it shows by itself that it is meant to run
	}
	_, err := x.cluster.Typed.StorageV1().CSIDrivers().Get(ctx, doctor.VolumeDriver, metav1.GetOptions{})
	switch {
	case err == nil:
		out[doctor.Driver] = "CSIDriver " + doctor.VolumeDriver
	case !apierrors.IsNotFound(err):
		e.Unread = append(e.Unread, finding.Side{Name: "CSIDriver " + doctor.VolumeDriver, Problem: observe.OneLine(err)})
	}
	return out
}

// workloads reads what runs in Mooring's namespaces, and notes what runs elsewhere under a name of ours. Anybody who may
// edit a namespace can make such a workload there (ADR 16).
func (x *Examination) workloads(ctx context.Context) (ours, elsewhere []doctor.Workload, unread []finding.Side) {
	apps := x.cluster.Typed.AppsV1()
	deployments, first := listing(ctx, "Deployment", apps.Deployments(metav1.NamespaceAll).List, func(d *appsv1.Deployment) doctor.Workload {
		return doctor.WorkloadOf("Deployment", d, &d.Spec.Template, ptr.Deref(d.Spec.Replicas, 1), d.Status.ReadyReplicas)
	})
	daemonSets, second := listing(ctx, "DaemonSet", apps.DaemonSets(metav1.NamespaceAll).List, func(d *appsv1.DaemonSet) doctor.Workload {
		return doctor.WorkloadOf("DaemonSet", d, &d.Spec.Template, d.Status.DesiredNumberScheduled, d.Status.NumberReady)
	})
	// The volume driver's controller is one.
	statefulSets, third := listing(ctx, "StatefulSet", apps.StatefulSets(metav1.NamespaceAll).List, func(s *appsv1.StatefulSet) doctor.Workload {
		return doctor.WorkloadOf("StatefulSet", s, &s.Spec.Template, ptr.Deref(s.Spec.Replicas, 1), s.Status.ReadyReplicas)
	})
	ours, elsewhere = doctor.Trust(slices.Concat(deployments, daemonSets, statefulSets), x.cluster.Namespaces)
	return ours, elsewhere, slices.DeleteFunc([]finding.Side{first, second, third}, finding.Side.Read)
}

// listing reads the workloads of a kind.
func listing[L observe.PageOf, T any](
	ctx context.Context, kind string, list func(context.Context, metav1.ListOptions) (L, error), of func(*T) doctor.Workload,
) (out []doctor.Workload, _ finding.Side) {
	all, err := observe.All[T](ctx, "", list)
	for _, object := range all {
		out = append(out, of(object))
	}
	return out, finding.Side{Name: kind + "s", Problem: observe.OneLine(err)}
}
