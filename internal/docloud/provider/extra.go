// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

	"github.com/mooring-dev/mooring/internal/docloud/balancers"
	"github.com/mooring-dev/mooring/internal/docloud/machines"
)

// Extra is a controller of the program's own that works alongside the framework's, on the leader only: of firewalls, of tags. Follow and Start are
// called once, in either order.
type Extra interface {
	// Follow reads from informers that somebody else starts.
	Follow(factory informers.SharedInformerFactory)
	// Start works in the background until ctx ends.
	Start(ctx context.Context, client kubernetes.Interface, events record.EventRecorder)
	// Wake tries now what waits after a failure: its cause may be over.
	Wake()
}

// Common is what controllers alongside the framework's need of the others: lists that are shared, so that they cost no calls of their own, and the
// account's trust.
type Common struct {
	*machines.Instances
	*balancers.Controller
}
