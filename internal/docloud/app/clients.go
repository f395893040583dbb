// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"net/http"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/mooring-dev/mooring/internal/platform/eventsign"
)

// controllerClients make the clients of the controllers, ours and the framework's: within a round they write what the
// controller declares, and their Events are signed unless the signer is nil.
type controllerClients struct {
	cloudprovider.ControllerClientBuilder
	signer    *eventsign.Signer
	transport func(http.RoundTripper) http.RoundTripper
}

// Config implements cloudprovider.ControllerClientBuilder.
func (c controllerClients) Config(name string) (*rest.Config, error) {
	config, err := c.ControllerClientBuilder.Config(name)
	if err != nil {
		return nil, fmt.Errorf("the settings of the client of %s: %w", name, err)
	}
	config.Wrap(c.transport)
	return config, nil
}

// ConfigOrDie implements cloudprovider.ControllerClientBuilder.
func (c controllerClients) ConfigOrDie(name string) *rest.Config {
	config, err := c.Config(name)
	if err != nil {
		klog.Fatal(err)
	}
	return config
}

// Client implements cloudprovider.ControllerClientBuilder.
func (c controllerClients) Client(name string) (kubernetes.Interface, error) {
	config, err := c.Config(name)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making the client of %s: %w", name, err)
	}
	if c.signer == nil {
		return client, nil
	}
	return c.signer.Client(client), nil
}

// ClientOrDie implements cloudprovider.ControllerClientBuilder.
func (c controllerClients) ClientOrDie(name string) kubernetes.Interface {
	client, err := c.Client(name)
	if err != nil {
		klog.Fatal(err)
	}
	return client
}

// publishingLeases write the key that Events are signed with along with each Lease, so that it costs no write of its
// own.
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
