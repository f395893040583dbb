// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

// record writes what some steps label into the topology's status, before they do; after a step that took a label away, that it did. Its
// resourceVersion is a precondition, as that of each report.
func (r *Reconciler) record(ctx context.Context, s *scene, m *memory, steps []routereflector.Step) error {
	is := s.topology.Status.Record
	for _, step := range steps {
		is = routereflector.Recorded(is, step, s.world.Topology)
	}
	if equality.Semantic.DeepEqual(is, s.topology.Status.Record) {
		return nil
	}
	object := s.topology.DeepCopy()
	object.Status.Record = is
	err := r.Client.Status().Update(ctx, object)
	r.Metrics.wrote("Record", err)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return &calico.ConflictError{Key: "RouteReflectorTopology " + s.topology.Name, Detail: err.Error()}
	}
	if err != nil {
		return fmt.Errorf("recording reflectors in the status of RouteReflectorTopology %s: %w", s.topology.Name, err)
	}
	m.wrote(s.topology.ResourceVersion, object)
	s.topology = object
	return nil
}

// doubt looks live at the labels of reflectors before one is taken for somebody else's for the first time, or an entry of the record is given up: the
// informers of Nodes and of topologies do not show the same moment. If they are behind, it is a conflict, and the next round decides.
func (r *Reconciler) doubt(ctx context.Context, s *scene, m *memory, plan routereflector.Plan) error {
	seen, fresh := map[routereflector.Foreign]bool{}, len(plan.Stale) > 0
	for _, f := range plan.Foreign {
		seen[f] = true
		fresh = fresh || !m.foreign[f]
	}
	if fresh {
		if err := r.Calico.Unchanged(ctx, s.view, s.world.Nodes, "RouteReflectorTopology "+s.topology.Name); err != nil {
			return err
		}
	}
	m.foreign = seen
	return nil
}
