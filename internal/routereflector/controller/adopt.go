// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	"github.com/mooring-dev/mooring/internal/routereflector"
)

// retireAtOnce is how many BGPPeers that a topology has adopted are deleted in one round. An old cluster has three for each node, and no session
// changes with any of them.
const retireAtOnce = 100

// steps carries out the first step, and where that deletes an adopted BGPPeer, those after it that do as well.
func (r *Reconciler) steps(ctx context.Context, s *scene, m *memory, steps []routereflector.Step) error {
	for i, step := range steps[:min(len(steps), retireAtOnce)] {
		if i > 0 && (steps[0].Kind != routereflector.RetirePeer || step.Kind != routereflector.RetirePeer) {
			return nil
		}
		if err := r.step(ctx, s, m, step); err != nil {
			return err
		}
	}
	return nil
}
