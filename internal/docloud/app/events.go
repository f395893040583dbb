// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/mooring-dev/mooring/internal/platform/eventsign"
)

// signingClients are the clients of the controllers, ours and the framework's, whose Events are signed.
type signingClients struct {
	cloudprovider.ControllerClientBuilder
	signer *eventsign.Signer
}

// Client implements cloudprovider.ControllerClientBuilder.
func (c signingClients) Client(name string) (kubernetes.Interface, error) {
	client, err := c.ControllerClientBuilder.Client(name)
	if err != nil {
		return nil, fmt.Errorf("making the client of %s: %w", name, err)
	}
	return c.signer.Client(client), nil
}

// ClientOrDie implements cloudprovider.ControllerClientBuilder.
func (c signingClients) ClientOrDie(name string) kubernetes.Interface {
	return c.signer.Client(c.ControllerClientBuilder.ClientOrDie(name))
}

// publishingLeases write the key that Events are signed with along with each Lease, so that it costs no write of its own.
type publishingLeases struct {
	coordination.CoordinationV1Interface
	signer *eventsign.Signer
}

// Leases implements coordination.LeasesGetter.
func (l publishingLeases) Leases(namespace string) coordination.LeaseInterface {
	return publishingLease{LeaseInterface: l.CoordinationV1Interface.Leases(namespace), signer: l.signer}
}

type publishingLease struct {
	coordination.LeaseInterface
	signer *eventsign.Signer
}

// Create implements coordination.LeaseInterface.
func (l publishingLease) Create(ctx context.Context, lease *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error) {
	lease.Annotations = l.signer.Publish(lease.Annotations)
	return l.LeaseInterface.Create(ctx, lease, o) //nolint:wrapcheck // it is the lock's own
}

// Update implements coordination.LeaseInterface.
func (l publishingLease) Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	lease.Annotations = l.signer.Publish(lease.Annotations)
	return l.LeaseInterface.Update(ctx, lease, o) //nolint:wrapcheck // it is the lock's own
}
