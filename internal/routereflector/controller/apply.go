// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

// Finalizer on a RouteReflectorTopology keeps it until its reflectors are dismissed and the mesh is back. MUST NOT change.
const Finalizer = "bgp.mooring.dev/routes"

// apply carries out one step with one write. What is not as the step was decided on is a [calico.ConflictError], and nothing was written.
func (r *Reconciler) apply(ctx context.Context, s *scene, step routereflector.Step) error {
	if err := r.confirm(ctx, s, step); err != nil {
		return err
	}
	switch step.Kind {
	case routereflector.EnsurePeer:
		if step.UID == "" {
			return r.Calico.CreatePeer(ctx, step.Peer)
		}
		return r.Calico.UpdatePeer(ctx, step.Peer, step.UID, step.ResourceVersion)
	case routereflector.RemovePeer, routereflector.RetirePeer:
		return r.Calico.DeletePeer(ctx, step.Peer.Name, step.UID, step.ResourceVersion)
	case routereflector.MeshOn, routereflector.MeshOff:
		return r.Calico.SetMesh(ctx, s.configuration, step.Kind == routereflector.MeshOn)
	case routereflector.Promote, routereflector.Adopt:
		label, id := s.topology.Name, s.world.Topology.Spec.ClusterID
		return r.setRole(ctx, step, &label, &id)
	case routereflector.Demote:
		return r.setRole(ctx, step, nil, nil)
	}
	return fmt.Errorf("%s: there is no such kind of step", step.Kind)
}

// setRole makes a node a reflector or an ordinary one, in one patch of our label and Calico's annotation: between two patches the node would have
// sessions of one kind by the label and of another by the ID, and lose both (measured: up to 30 s). Anything that has changed on the Node since
// the step was decided holds the patch back.
func (r *Reconciler) setRole(ctx context.Context, step routereflector.Step, label, id *string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": step.UID, "resourceVersion": step.ResourceVersion,
		"labels":      map[string]*string{v1alpha1.ReflectorLabel: label},
		"annotations": map[string]*string{routereflector.ClusterIDAnnotation: id},
	}})
	if err != nil {
		return err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: step.Node}}
	err = r.Client.Patch(ctx, node, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return &calico.ConflictError{Key: "Node " + step.Node, Detail: err.Error()}
	}
	if err != nil {
		return fmt.Errorf("%s Node %s: %w", step.Kind, step.Node, err)
	}
	return nil
}

// disruptive says that a step takes something away, or starts something that must be alone.
func disruptive(k routereflector.Kind) bool {
	return k == routereflector.Promote || k == routereflector.Demote || k == routereflector.MeshOff || k == routereflector.RetirePeer
}

// confirm looks once more, live, before a write: whether Calico's datastore may be written to, and before a disruptive step whether the
// reflectors are those that the plan was made with. Informers may be behind, and somebody else may believe to be the leader.
func (r *Reconciler) confirm(ctx context.Context, s *scene, step routereflector.Step) error {
	ready, err := r.Calico.DatastoreReady(ctx)
	if err != nil {
		return err
	}
	if !ready {
		return &calico.ConflictError{Key: "ClusterInformation default", Detail: "datastoreReady is false by now"}
	}
	if !disruptive(step.Kind) {
		return nil
	}
	live := &metav1.PartialObjectMetadataList{}
	live.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	if err := r.Live.List(ctx, live, client.HasLabels{v1alpha1.ReflectorLabel}); err != nil {
		return fmt.Errorf("looking once more which Nodes are reflectors: %w", err)
	}
	var is, was []string
	for _, n := range live.Items {
		is = append(is, n.Name+" "+string(n.UID)+" "+n.Labels[v1alpha1.ReflectorLabel])
	}
	for _, n := range s.world.Nodes {
		if label, marked := n.Labels[v1alpha1.ReflectorLabel]; marked {
			was = append(was, n.Name+" "+n.UID+" "+label)
		}
	}
	slices.Sort(is)
	slices.Sort(was)
	if !slices.Equal(is, was) {
		return &calico.ConflictError{Key: step.Object, Detail: "the reflectors are others than when the step was decided"}
	}
	return nil
}

// hold puts the finalizer on the topology, before the first write that has to be undone, or takes it away.
func (r *Reconciler) hold(ctx context.Context, s *scene, m *memory, held bool) error {
	finalizers := slices.DeleteFunc(slices.Clone(s.topology.Finalizers), func(f string) bool { return f == Finalizer })
	if held {
		finalizers = append(finalizers, Finalizer)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": s.topology.UID, "resourceVersion": s.topology.ResourceVersion, "finalizers": finalizers,
	}})
	if err != nil {
		return err
	}
	object := &v1alpha1.RouteReflectorTopology{ObjectMeta: metav1.ObjectMeta{Name: s.topology.Name}}
	err = r.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))
	r.Metrics.wrote("Finalizer", err)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return &calico.ConflictError{Key: "RouteReflectorTopology " + s.topology.Name, Detail: err.Error()}
	}
	if err == nil {
		m.wrote(s.topology.ResourceVersion, object)
	}
	return err
}
