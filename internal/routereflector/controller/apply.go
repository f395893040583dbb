// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mooring-dev/mooring/internal/routereflector/planner"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

// Finalizer on a RouteReflectorTopology: holds the deletion until its reflectors are demoted and the mesh is on. MUST NOT change.
const Finalizer = "bgp.mooring.dev/routes"

// step is a finalizer, a question or a change.
type step fmt.Stringer

// finalizer is put on the topology, before the first write that has to be undone, or taken away.
type finalizer bool

// String implements step.
func (f finalizer) String() string { return fmt.Sprintf("setting the finalizer: %t", bool(f)) }

// String implements step.
func (q question) String() string { return "requesting status " + q.Name }

// change is a step of package routereflector, and all with which it is carried out.
type change struct {
	routereflector.Step

	with []routereflector.Step
}

// subject is what must not be done unless what comes before it was.
func subject(s step) string {
	q, _ := s.(question)
	return q.subject
}

// apply carries out one step. What is not as it was decided on is a conflict, and nothing was written.
func (r *Reconciler) apply(ctx context.Context, s *scene, next step) (err error) {
	if f, is := next.(finalizer); is {
		return asOutcome(r.hold(ctx, s, bool(f)))
	}
	err = r.Calico.Claim(ctx, s.view, s.world.Binding)
	if c, is := next.(change); is && err == nil {
		err = r.change(ctx, s, c)
	} else if q, is := next.(question); is && err == nil && !s.changed { // after the mesh is on the next round knows which still hold
		err = r.request(ctx, s, q)
	}
	return asOutcome(err)
}

// asOutcome is an error as the kernel knows it.
func asOutcome(err error) error {
	if errors.Is(err, calico.ErrConflict) {
		return reconcile.As(reconcile.Conflict, err)
	}
	return err
}

// request makes a status request, or deletes one. Somebody else who was faster is not an error.
func (r *Reconciler) request(ctx context.Context, s *scene, q question) (err error) {
	m, kind := s.memory, "CreateStatus"
	if q.uid == "" {
		err = r.Calico.CreateStatus(ctx, q.StatusRequest)
	} else {
		if kind = "DeleteStatus"; q.empty {
			m.said.Tries[q.Node]++
		}
		err = r.Calico.DeleteStatus(ctx, q.Name, string(q.uid))
	}
	r.Metrics.wrote(kind, err)
	if err != nil && !errors.Is(err, calico.ErrConflict) {
		return err
	}
	m.created[q.Name], m.dropped[q.uid] = q.uid == "", true
	return nil
}

// change carries out a step of package routereflector and reports it. What is labeled is recorded before, what has lost its label after it.
func (r *Reconciler) change(ctx context.Context, s *scene, c change) error {
	if !s.changed {
		if err := r.record(ctx, s, slices.DeleteFunc(slices.Clone(c.with), routereflector.Is[routereflector.Demote])); err != nil {
			return err
		}
	}
	err := r.write(ctx, s, c.Step)
	kind := routereflector.Kind(c.Step)
	r.Metrics.wrote(kind, err)
	if err != nil {
		return err
	}
	m, now := s.memory, r.Clock.Now()
	r.Metrics.stepped(kind, min(now.Sub(m.done), now.Sub(m.begun)))
	m.carriedOut(c.Step, now)
	r.log.Info("Done", "topology", s.topology.Name, "step", c.String())
	if reason := told(c.Step); reason != "" {
		r.event(s.topology, corev1.EventTypeNormal, reason, fmt.Sprintf("%s: %s", c.What().Object, c.What().Reason))
	}
	s.world, s.changed = planner.After(s.world, c.Step), true
	return r.record(ctx, s, []routereflector.Step{c.Step})
}

// write carries out one step with one write. What is not as the step was decided on is a [calico.ConflictError].
func (r *Reconciler) write(ctx context.Context, s *scene, step routereflector.Step) error {
	if err := r.confirm(ctx, s, step); err != nil {
		return err
	}
	switch step := step.(type) {
	case routereflector.EnsurePeer:
		if step.UID == "" {
			return r.Calico.CreatePeer(ctx, step.Peer)
		}
		return r.Calico.UpdatePeer(ctx, step.Peer, step.UID, step.ResourceVersion)
	case routereflector.RemovePeer:
		return r.Calico.DeletePeer(ctx, step.Name, step.UID, step.ResourceVersion)
	case routereflector.RetirePeer:
		return r.Calico.DeletePeer(ctx, step.Name, step.UID, step.ResourceVersion)
	case routereflector.MeshOn:
		return r.Calico.SetMesh(ctx, s.configuration, true)
	case routereflector.MeshOff:
		return r.Calico.SetMesh(ctx, s.configuration, false)
	case routereflector.Promote, routereflector.Adopt, routereflector.Demote,
		routereflector.Assign, routereflector.Join, routereflector.Leave, routereflector.Release:
	}
	return r.changeNode(ctx, step)
}

// changeNode changes the node that a step was decided on, if it is still as it was: its labels and Calico's cluster ID in one write.
func (r *Reconciler) changeNode(ctx context.Context, step routereflector.Step) error {
	c, id := step.Change()
	err := r.Calico.ChangeNode(ctx, calico.NodeChange{Node: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion, Labels: c.Labels, ClusterID: id})
	if err != nil {
		return fmt.Errorf("%s: %w", routereflector.Kind(step), err)
	}
	return nil
}

// disruptive reports that a step takes something away, starts something that must be alone, or turns the mesh on.
func disruptive(step routereflector.Step) bool {
	switch step.(type) {
	case routereflector.Promote, routereflector.Demote, routereflector.MeshOn, routereflector.MeshOff, routereflector.RetirePeer, routereflector.Leave:
		return true
	case routereflector.EnsurePeer, routereflector.RemovePeer, routereflector.Adopt, routereflector.Assign, routereflector.Join, routereflector.Release:
	}
	return false
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
	if !disruptive(step) {
		return nil
	}
	return r.Calico.Unchanged(ctx, s.view, s.world.Nodes, step.What().Object)
}

// hold puts the finalizer on the topology, or takes it away if nobody is a reflector that the informers do not show as one: the scene has none of the topology's.
func (r *Reconciler) hold(ctx context.Context, s *scene, held bool) error {
	if !held {
		if err := r.Calico.Unchanged(ctx, s.view, s.world.Nodes, "RouteReflectorTopology "+s.topology.Name); err != nil {
			return err
		}
	}
	object, unchanged := s.topology.DeepCopy(), client.MergeFromWithOptions(s.topology, client.MergeFromWithOptimisticLock{})
	if controllerutil.RemoveFinalizer(object, Finalizer); held {
		controllerutil.AddFinalizer(object, Finalizer)
	}
	return r.wrote(s, "Finalizer", "patching", object, r.Client.Patch(ctx, object, unchanged))
}

// record writes what some steps label into the topology's status, before they do; after a step that took a label away, that it did. Its
// resourceVersion is a precondition, as that of each report.
func (r *Reconciler) record(ctx context.Context, s *scene, steps []routereflector.Step) error {
	is := s.topology.Status.Record
	for _, step := range steps {
		is = routereflector.Recorded(is, step)
	}
	if equality.Semantic.DeepEqual(is, s.topology.Status.Record) {
		return nil
	}
	object := s.topology.DeepCopy()
	object.Status.Record = is
	return r.wrote(s, "Record", "recording reflectors in the status of", object, r.Client.Status().Update(ctx, object))
}

// wrote takes in the topology as it was just written, unless that failed: it is what later writes of this round are based on.
func (r *Reconciler) wrote(s *scene, kind, doing string, object *v1alpha1.RouteReflectorTopology, err error) error {
	r.Metrics.wrote(kind, err)
	if err != nil {
		return fmt.Errorf("%s RouteReflectorTopology %s: %w", doing, s.topology.Name, err)
	}
	s.memory.wrote(s.topology.ResourceVersion, object)
	s.topology = object
	return nil
}
