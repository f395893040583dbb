// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

// Finalizer on a RouteReflectorTopology: holds the deletion until its reflectors are demoted and the mesh is on. MUST NOT change.
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
		label := s.topology.Name
		return r.setRole(ctx, step, &label, cmp.Or(step.ClusterID, s.world.Topology.Spec.ClusterID))
	case routereflector.Demote:
		return r.setRole(ctx, step, nil, "")
	case routereflector.Assign, routereflector.Join, routereflector.Leave, routereflector.Release:
		return r.changeNode(ctx, step, step.NodeLabels, nil)
	}
	return fmt.Errorf("%s: there is no such kind of step", step.Kind)
}

// setRole makes a node a reflector or an ordinary one, with our labels and Calico's cluster ID in one write.
func (r *Reconciler) setRole(ctx context.Context, step routereflector.Step, label *string, id string) error {
	labels := map[string]*string{v1alpha1.ReflectorLabel: label}
	maps.Copy(labels, step.NodeLabels)
	return r.changeNode(ctx, step, labels, &id)
}

// changeNode changes the node that a step was decided on, if it is still as it was. The cluster ID stays where id is nil.
func (r *Reconciler) changeNode(ctx context.Context, step routereflector.Step, labels map[string]*string, id *string) error {
	err := r.Calico.ChangeNode(ctx, calico.NodeChange{
		Node: step.Node, UID: step.UID, ResourceVersion: step.ResourceVersion, Labels: labels, ClusterID: id,
	})
	if err != nil {
		return fmt.Errorf("%s: %w", step.Kind, err)
	}
	return nil
}

// disruptive reports that a step takes something away, or starts something that must be alone.
func disruptive(k routereflector.Kind) bool {
	return k == routereflector.Promote || k == routereflector.Demote || k == routereflector.MeshOff || k == routereflector.RetirePeer ||
		k == routereflector.Leave
}

// confirm looks again, live, before a write: whether Calico's datastore may be written to, and before a disruptive step whether the
// reflectors are those that the plan was made with. Informers may be behind, and somebody else may believe to be the leader.
func (r *Reconciler) confirm(ctx context.Context, s *scene, step routereflector.Step) error {
	ready, err := r.Calico.DatastoreReady(ctx)
	if err != nil {
		return err
	}
	if !ready {
		return &calico.ConflictError{Key: "ClusterInformation default", Detail: "datastoreReady is now false"}
	}
	if !disruptive(step.Kind) && step.Kind != routereflector.MeshOn {
		return nil
	}
	return r.Calico.Unchanged(ctx, s.view, s.world.Nodes, step.Object)
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
