// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package shutdowns

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/platform/reconcile"
)

// Departing returns nil when a Node whose machine is gone for certain may be deleted, and otherwise one sentence why it is kept for a while. Once its Node
// is deleted, Kubernetes detaches a machine's volumes only after six minutes; with the taint on the Node it does so at once. So the Node is kept while it has
// volumes, for as long as Timing.Departure says at most. node is as the API server has it now.
func (c *Controller) Departing(node *corev1.Node) error {
	if !c.Enabled || len(node.Status.VolumesAttached) == 0 {
		return nil
	}
	now := c.Clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	since, known := c.leaving[node.UID]
	if !known {
		c.forget(now)
		c.leaving[node.UID] = now
		since = now
		c.Add(reconcile.Only)
	}
	if now.Sub(since) >= c.timing.Departure {
		return nil
	}
	return fmt.Errorf("node %s: its droplet is gone, and the Node is kept until its volumes are detached, for %s at most", node.Name, c.timing.Departure)
}

// forget drops Nodes that have left long ago. Lock held.
func (c *Controller) forget(now time.Time) {
	for uid, since := range c.leaving {
		if now.Sub(since) > time.Hour {
			delete(c.leaving, uid)
		}
	}
}
