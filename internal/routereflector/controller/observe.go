// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

// Informers are the kinds that are watched where Calico keeps its data in the API server.
func Informers() []client.Object {
	return []client.Object{
		&v1alpha1.RouteReflectorTopology{}, &corev1.Node{}, &calicov3.BGPPeer{}, &calicov3.BGPConfiguration{},
		&calicov3.CalicoNodeStatus{}, &calicov3.ClusterInformation{}, &calicov3.BGPFilter{},
	}
}

// CacheOptions narrow what the informers keep to what a World is made of.
func CacheOptions() cache.Options {
	normalize := func(in any) (any, error) {
		if object, ok := in.(metav1.Object); ok {
			calico.NormalizeBGP(object)
		}
		return in, nil
	}
	return cache.Options{ByObject: map[client.Object]cache.ByObject{
		&corev1.Node{}:                 {Transform: trimNode},
		&calicov3.BGPPeer{}:            {Transform: normalize},
		&calicov3.BGPConfiguration{}:   {Transform: normalize},
		&calicov3.CalicoNodeStatus{}:   {Transform: trimStatus},
		&calicov3.ClusterInformation{}: {Transform: normalize},
		&calicov3.BGPFilter{}:          {Transform: nameOnly},
	}}
}

// trimNode keeps of a Node what [routereflector.NodeFrom] reads, which is a tenth of it.
func trimNode(in any) (any, error) {
	n, ok := in.(*corev1.Node)
	if !ok {
		return in, nil
	}
	out := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion, Labels: n.Labels,
		CreationTimestamp: n.CreationTimestamp, DeletionTimestamp: n.DeletionTimestamp,
	}}
	for _, key := range []string{
		routereflector.IPv4Annotation, routereflector.IPv6Annotation, routereflector.ASNumberAnnotation, routereflector.ClusterIDAnnotation,
		v1alpha1.KeepAnnotation,
	} {
		if value, has := n.Annotations[key]; has {
			metav1.SetMetaDataAnnotation(&out.ObjectMeta, key, value)
		}
	}
	if len(routereflector.NodeFrom(n, 0, 0).Labels) > len(n.Labels) { // else it is parsed in vain each time
		metav1.SetMetaDataAnnotation(&out.ObjectMeta, routereflector.LabelsAnnotation, n.Annotations[routereflector.LabelsAnnotation])
	}
	out.Spec.Taints, out.Spec.Unschedulable = n.Spec.Taints, n.Spec.Unschedulable
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			out.Status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime}}
		}
	}
	return out, nil
}

// nameOnly keeps nothing of a BGPFilter but that it is there.
func nameOnly(in any) (any, error) {
	f, ok := in.(*calicov3.BGPFilter)
	if !ok {
		return in, nil
	}
	return &calicov3.BGPFilter{ObjectMeta: metav1.ObjectMeta{Name: f.Name, UID: f.UID, ResourceVersion: f.ResourceVersion}}, nil
}

// trimStatus keeps the content of CalicoNodeStatuses only if they are Mooring's: others may hold every route of a node.
func trimStatus(in any) (any, error) {
	s, ok := in.(*calicov3.CalicoNodeStatus)
	if !ok {
		return in, nil
	}
	calico.NormalizeBGP(s)
	if s.Labels[v1alpha1.TopologyLabel] == "" {
		s.Annotations, s.Status = nil, calicov3.CalicoNodeStatusStatus{}
	}
	return s, nil
}

// scene is what was observed for one topology.
type scene struct {
	topology *v1alpha1.RouteReflectorTopology
	world    routereflector.World
	// view is what the world was made of, on Calico's side, nodes are the UIDs of the Nodes on the other.
	view  calico.BGPView
	nodes map[types.UID]bool
	// configuration is BGPConfiguration default, nil if there is none.
	configuration *calicov3.BGPConfiguration
	// statuses are the CalicoNodeStatuses of the topology.
	statuses []calicov3.CalicoNodeStatus
	// moment is the World's.
	moment routereflector.Moment
	// memory is the topology's.
	memory *memory
	// looked are the needs that were read live in this round, changed reports that a step was carried out in it.
	looked  map[need]bool
	changed bool
	// later is when a status is due that is not written yet.
	later time.Duration
	// unsynced reports that Calico's datastore has not been read yet.
	unsynced bool
	// podsRead is false while the topology needs to know which pods run where, and that has not been read.
	podsRead bool
	// rehearsal reports that nothing is written.
	rehearsal bool
	// unread are sentences about Calico's objects that could not be read.
	unread []string
}

// exiting reports that the topology is being deleted, and held that it has the finalizer.
func (s *scene) exiting() bool { return s.topology.DeletionTimestamp != nil }
func (s *scene) asksNobody() bool {
	return s.rehearsal || s.world.Topology.Spec.Rollout.Mode == v1alpha1.RolloutDryRun
}
func (s *scene) held() bool { return slices.Contains(s.topology.Finalizers, Finalizer) }

// observe reads everything from the informers; it makes no request. The scene has no topology if there is none of that name.
func (r *Reconciler) observe(ctx context.Context, name string) (*scene, error) {
	var topologies v1alpha1.RouteReflectorTopologyList
	if err := r.Reader.List(ctx, &topologies); err != nil {
		return nil, fmt.Errorf("reading RouteReflectorTopologies: %w", err)
	}
	s := &scene{rehearsal: r.Mode == outputs.Report, looked: map[need]bool{}}
	s.world = routereflector.World{Now: r.Clock.Now(), MeshStays: r.Timing.MeshStays}
	for i := range topologies.Items {
		if topologies.Items[i].Name == name {
			s.topology = &topologies.Items[i]
			s.world.Topology = *s.topology.DeepCopy()
			v1alpha1.SetDefaults(&s.world.Topology)
			continue
		}
		s.world.Others = append(s.world.Others, topologies.Items[i])
	}
	if s.topology == nil {
		return s, nil
	}
	if err := r.observeCalico(ctx, s); errors.Is(err, calico.ErrNotSynced) {
		r.log.V(1).Info("Waiting for Calico's datastore", "because", err.Error())
		s.unsynced = true
		return s, nil
	} else if err != nil {
		return nil, err
	}
	if err := r.observeNodes(ctx, s); err != nil {
		return nil, err
	}
	m := r.memories[name]
	if m == nil {
		m = &memory{done: s.world.Now}
		r.memories[name] = m
	}
	s.memory = m
	m.catchUp(s)
	m.enter(s)
	r.Kubelets.observe(ctx, &s.world)
	s.world.Suspects, s.world.Promoted = m.suspects(s, r.Timing.Resync), m.justPromoted(s)
	return s, nil
}

func (r *Reconciler) observeCalico(ctx context.Context, s *scene) error {
	view, err := r.Calico.View(ctx)
	if err != nil {
		return err
	}
	s.view = view
	s.configuration, s.unread = view.Into(&s.world)
	for _, status := range view.Statuses {
		if status.Labels[v1alpha1.TopologyLabel] == s.topology.Name {
			s.statuses = append(s.statuses, status)
		}
	}
	slices.SortFunc(s.statuses, func(a, b calicov3.CalicoNodeStatus) int { return cmp.Compare(a.Name, b.Name) })
	return nil
}

func (r *Reconciler) observeNodes(ctx context.Context, s *scene) error {
	var nodes corev1.NodeList
	if err := r.Reader.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("reading Nodes: %w", err)
	}
	s.nodes = make(map[types.UID]bool, len(nodes.Items))
	for i := range nodes.Items {
		s.nodes[nodes.Items[i].UID] = true
	}
	workloads := map[string]int{}
	if selection := s.world.Topology.Spec.Reflectors; r.Workloads != nil && (*selection.AvoidWorkloads || selection.Dedicated) {
		workloads, s.podsRead = r.Workloads.Counts()
	} else {
		s.podsRead = true
	}
	as := routereflector.ASNumberFrom(s.configuration)
	s.world.Nodes, s.world.Binding = r.Calico.NodesFrom(s.view, nodes.Items, workloads, as)
	return nil
}

// look reads live what a plan needs.
func (r *Reconciler) look(ctx context.Context, s *scene, n need) (reconcile.Learned, error) {
	if n == theRoutes {
		return r.lookForRoutes(ctx, s), nil
	}
	same, object := true, "RouteReflectorTopology "+s.topology.Name
	if n == theNodes {
		live := &metav1.PartialObjectMetadataList{}
		live.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
		if err := r.Live.List(ctx, live); err != nil {
			return nil, fmt.Errorf("reading again which Nodes there are: %w", err)
		}
		is := map[types.UID]bool{}
		for i := range live.Items {
			is[live.Items[i].UID] = true
		}
		same, object = maps.Equal(is, s.nodes), "Nodes"
	}
	if same {
		err := r.Calico.Unchanged(ctx, s.view, s.world.Nodes, object)
		if same = err == nil; !same && (n == theLabels || !errors.Is(err, calico.ErrConflict)) {
			return nil, asOutcome(err)
		}
	}
	return func() { s.looked[n], s.world.Confirmed = true, s.world.Confirmed || n == theNodes && same }, nil
}

// lookForRoutes asks whether BGP carries routes between nodes. What cannot be read, with a role of an earlier version or where
// Calico lacks a kind, refuses nothing: doctor says that it is unknown.
func (r *Reconciler) lookForRoutes(ctx context.Context, s *scene) reconcile.Learned {
	uncarried := ""
	settings, err := r.Calico.ClusterRoutes(ctx)
	if err != nil {
		r.log.Info("Whether BGP carries routes between nodes is unknown", "because", err.Error())
	} else {
		uncarried = settings.Judge().NotNeeded()
	}
	return func() { s.looked[theRoutes], s.world.Uncarried = true, uncarried }
}

// sighting reads a CalicoNodeStatus of ours. Its time is that of the object's creation or of calico-node's last write, whichever is later: the
// clock of the node may be slow, and the content is not older than the object.
func sighting(s *calicov3.CalicoNodeStatus, now time.Time) (routereflector.Sighting, bool) {
	out, filled := routereflector.SightingFrom(s)
	if created := s.CreationTimestamp.Time; out.At.Before(created) {
		out.At = created
	}
	if out.At.After(now) {
		out.At = now
	}
	return out, filled
}
