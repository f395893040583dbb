// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

// plan makes the plan. Where a list of the API server would end a doubt it is made anew with that.
func (r *Reconciler) plan(ctx context.Context, s *scene) (routereflector.Plan, error) {
	plan := routereflector.Make(s.world)
	if !plan.Confirm {
		return plan, nil
	}
	live, err := r.liveNodes(ctx)
	if err != nil {
		return plan, fmt.Errorf("looking once more which Nodes there are: %w", err)
	}
	var is, was []string
	for i := range live.Items {
		is = append(is, string(live.Items[i].UID))
	}
	for i := range s.world.Nodes {
		was = append(was, s.world.Nodes[i].UID)
	}
	slices.Sort(is)
	slices.Sort(was)
	if s.world.Confirmed = slices.Equal(is, was); !s.world.Confirmed {
		return plan, nil
	}
	return routereflector.Make(s.world), nil
}

// release takes the finalizer away, if no Node is the topology's reflector any more by the API server's own word.
func (r *Reconciler) release(ctx context.Context, s *scene, m *memory) error {
	left, err := r.liveNodes(ctx, client.MatchingLabels{v1alpha1.ReflectorLabel: s.topology.Name})
	if err != nil {
		return fmt.Errorf("looking whether a Node is still a reflector: %w", err)
	}
	if len(left.Items) > 0 {
		return &calico.ConflictError{Key: "Node " + left.Items[0].Name, Detail: "it is a reflector of the topology, which the informers do not show"}
	}
	return r.hold(ctx, s, m, false)
}

// liveNodes asks the API server itself.
func (r *Reconciler) liveNodes(ctx context.Context, o ...client.ListOption) (*metav1.PartialObjectMetadataList, error) {
	live := &metav1.PartialObjectMetadataList{}
	live.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	return live, r.Live.List(ctx, live, o...)
}
