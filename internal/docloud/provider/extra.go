// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
)

// Extra is a controller of the program's own that works beside the framework's, on the leader only: of firewalls, of tags. Both methods are called
// once, in either order.
type Extra interface {
	// Follow reads from informers that somebody else starts.
	Follow(factory informers.SharedInformerFactory)
	// Start works in the background until stop is closed.
	Start(client kubernetes.Interface, stop <-chan struct{})
}

// Common is what controllers beside the framework's need of [Machines] and [Balancers]: lists that are shared, so that they cost no calls of
// their own, the account's trust, and the gate that all writes pass.
type Common struct {
	Machines  *Machines
	Balancers *Balancers
}

// Trusted is [Machines.Trusted].
func (c Common) Trusted(ctx context.Context) error { return c.Machines.Trusted(ctx) }

// Enter lets work in that writes to DigitalOcean, and returns what must be called at its end. When the process is about to end it waits until ctx
// ends and is its error (see [Provider.Drain]).
func (c Common) Enter(ctx context.Context) (leave func(), err error) {
	return c.Balancers.gate.enter(ctx)
}

// LoadBalancers returns the load balancers of the account, from a list that is not older than age. They MUST NOT be changed: many share them.
func (c Common) LoadBalancers(ctx context.Context, age time.Duration) ([]loadbalancer.Observed, error) {
	return c.Balancers.list.all(ctx, 0, age)
}

// LoadBalancerIDs returns the IDs of the account's load balancers; one that was made by this process is always among them.
func (c Common) LoadBalancerIDs(ctx context.Context) ([]string, error) {
	list, err := c.LoadBalancers(ctx, c.Balancers.timing.Settle)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(list))
	for i, lb := range list {
		ids[i] = lb.ID
	}
	return ids, nil
}

// ClusterDroplets returns the droplets of the cluster's Nodes, as far as they are known.
func (c Common) ClusterDroplets() ([]int, error) {
	nodes, err := c.Balancers.sortedNodes()
	if err != nil {
		return nil, err
	}
	return dropletsOf(nodes), nil
}
