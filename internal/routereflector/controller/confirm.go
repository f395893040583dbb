// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

// plan makes the plan. Where a list of the API server would end a doubt it is made again with that.
func (r *Reconciler) plan(ctx context.Context, s *scene) (routereflector.Plan, error) {
	plan := routereflector.Make(s.world)
	if !plan.Confirm {
		return plan, nil
	}
	var err error
	if s.world.Confirmed, err = r.confirmNodes(ctx, s); err != nil || !s.world.Confirmed {
		return plan, err
	}
	return routereflector.Make(s.world), nil
}

// confirmNodes asks the API server, and Calico's datastore if that is another, whether the Nodes still are those of the scene.
func (r *Reconciler) confirmNodes(ctx context.Context, s *scene) (bool, error) {
	live := &metav1.PartialObjectMetadataList{}
	live.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	if err := r.Live.List(ctx, live); err != nil {
		return false, fmt.Errorf("reading again which Nodes there are: %w", err)
	}
	is := map[types.UID]bool{}
	for i := range live.Items {
		is[live.Items[i].UID] = true
	}
	if !maps.Equal(is, s.nodes) {
		return false, nil
	}
	err := r.Calico.Unchanged(ctx, s.view, s.world.Nodes, "Nodes")
	if errors.Is(err, calico.ErrConflict) {
		return false, nil
	}
	return err == nil, err
}

// release takes the finalizer away, if nobody is a reflector that the informers do not show as one: the scene has none of the topology's.
func (r *Reconciler) release(ctx context.Context, s *scene, m *memory) error {
	if err := r.Calico.Unchanged(ctx, s.view, s.world.Nodes, "RouteReflectorTopology "+s.topology.Name); err != nil {
		return err
	}
	return r.hold(ctx, s, m, false)
}
