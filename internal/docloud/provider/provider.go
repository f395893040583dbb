// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"time"

	"k8s.io/client-go/informers"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/balancers"
	"github.com/mooring-dev/mooring/internal/docloud/loop"
	"github.com/mooring-dev/mooring/internal/docloud/machines"
)

// Name is the provider's name, in --cloud-provider and before the colon of provider IDs. It MUST NOT change.
const Name = "digitalocean"

// Provider implements cloudprovider.Interface.
type Provider struct {
	gate      *loop.Gate
	machines  *machines.Instances
	balancers *balancers.Controller
	extras    []Extra
}

var (
	_ cloudprovider.Interface    = (*Provider)(nil)
	_ cloudprovider.InformerUser = (*Provider)(nil)
)

// New returns the provider of machines and load balancers. The extras start and follow with them. All that write pass the gate.
func New(gate *loop.Gate, machines *machines.Instances, balancers *balancers.Controller, extras ...Extra) *Provider {
	return &Provider{gate: gate, machines: machines, balancers: balancers, extras: extras}
}

// Initialize implements cloudprovider.Interface: it starts what works in the background until stop is closed.
func (p *Provider) Initialize(clients cloudprovider.ControllerClientBuilder, stop <-chan struct{}) {
	p.machines.Initialize(clients.ClientOrDie("cloud-controller-manager"), stop)
	p.balancers.Initialize(clients.ClientOrDie("cloud-controller-manager"), stop)
	for _, extra := range p.extras {
		extra.Start(clients.ClientOrDie("cloud-controller-manager"), stop)
	}
}

// Drain lets no new change of a load balancer begin and waits until those under way have ended, but no longer than most. It says whether they
// have: then another process may take over. It is for the end of the process, before the controllers stop, and may be called once.
func (p *Provider) Drain(most time.Duration) bool {
	return p.gate.Drain(clock.RealClock{}, most)
}

// SetInformers implements cloudprovider.InformerUser: Nodes and Services are read from the informers that the controllers share.
func (p *Provider) SetInformers(factory informers.SharedInformerFactory) {
	p.machines.Follow(factory.Core().V1().Nodes())
	p.balancers.Follow(factory.Core().V1().Nodes(), factory.Core().V1().Services())
	for _, extra := range p.extras {
		extra.Follow(factory)
	}
}

// LoadBalancer implements cloudprovider.Interface.
func (p *Provider) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return p.balancers, true }

// InstancesV2 implements cloudprovider.Interface.
func (p *Provider) InstancesV2() (cloudprovider.InstancesV2, bool) { return p.machines, true }

// Instances implements cloudprovider.Interface; InstancesV2 has taken its place.
func (p *Provider) Instances() (cloudprovider.Instances, bool) { return nil, false }

// Zones implements cloudprovider.Interface; InstancesV2 has taken its place.
func (p *Provider) Zones() (cloudprovider.Zones, bool) { return nil, false }

// Clusters implements cloudprovider.Interface; there are none to manage.
func (p *Provider) Clusters() (cloudprovider.Clusters, bool) { return nil, false }

// Routes implements cloudprovider.Interface; DigitalOcean's API has no routes of a VPC.
func (p *Provider) Routes() (cloudprovider.Routes, bool) { return nil, false }

// ProviderName implements cloudprovider.Interface.
func (p *Provider) ProviderName() string { return Name }

// HasClusterID implements cloudprovider.Interface. It is false, as with the predecessor: nothing depends on it.
func (p *Provider) HasClusterID() bool { return false }
