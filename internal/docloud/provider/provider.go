// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/balancers"
	"github.com/mooring-dev/mooring/internal/docloud/budget"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/machines"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
)

// Name is the provider's name, in --cloud-provider and before the colon of provider IDs. It MUST NOT change.
const Name = "digitalocean"

// Provider implements cloudprovider.Interface.
type Provider struct {
	gate      *reconcile.Gate
	machines  *machines.Instances
	balancers *balancers.Controller
	all       []Extra // these two and others
	probe     Probe
}

// Probe asks whether DigitalOcean serves again; *doapi.Client is it.
type Probe interface {
	// Failing reports whether the last call was not served; it makes none.
	Failing() bool
	// Account makes the cheapest call there is.
	Account(ctx context.Context) (instance.Account, error)
}

const (
	// probeEvery is how often it is looked whether DigitalOcean serves again, while it does not. After two minutes the
	// time between two probes grows with the trouble, of which it is a probePart, up to longestProbe.
	probeEvery   = 5 * time.Second
	probePart    = 24
	longestProbe = 20 * time.Second
)

// longestRest is how long after it served again it is left alone at most, if it does not serve again: where one kind of
// call fails for ever, all others are served. After twice that time without trouble the next is taken as a new one.
const longestRest = 5 * time.Minute

// Probing makes the provider try again at once what has failed as soon as DigitalOcean serves again, be it that its trouble is over or that
// the token was replaced: what waits after a failure waits for up to five minutes. It is called before Initialize.
func (p *Provider) Probing(probe Probe) *Provider {
	p.probe = probe
	return p
}

// heal probes while DigitalOcean does not serve, until ctx ends, and wakes what waits when it serves again, also if the
// call of another shows that first.
func (p *Provider) heal(ctx context.Context) {
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	var served time.Time        // again, last
	var began, probed time.Time // the trouble, and the last probe
	for failed, rest := false, time.Duration(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := clock.RealClock{}.Now()
		if now.Sub(served) < rest {
			continue
		}
		if p.probe.Failing() {
			if !failed {
				failed, began = true, now
			}
			if now.Sub(probed) < min(now.Sub(began)/probePart, longestProbe) {
				continue
			}
			probed = now
			if _, err := p.probe.Account(doapi.Once(doapi.Urgent(ctx, budget.Join))); err != nil {
				continue
			}
		}
		if !failed {
			continue
		}
		if rest = min(max(2*rest, probeEvery), longestRest); now.Sub(served) > 2*longestRest {
			rest = probeEvery
		}
		failed, served = false, now
		p.wake()
	}
}

// wake makes all try again what waits after a failure.
func (p *Provider) wake() {
	for _, each := range p.all {
		each.Wake()
	}
}

var (
	_ cloudprovider.Interface    = (*Provider)(nil)
	_ cloudprovider.InformerUser = (*Provider)(nil)
)

// New returns the provider of machines and load balancers. The extras start and follow with them. All that write pass the gate.
func New(gate *reconcile.Gate, machines *machines.Instances, balancers *balancers.Controller, extras ...Extra) *Provider {
	all := append([]Extra{machines, balancers}, extras...)
	return &Provider{gate: gate, machines: machines, balancers: balancers, all: all}
}

// Initialize implements cloudprovider.Interface: it starts what works in the background until stop is closed.
func (p *Provider) Initialize(clients cloudprovider.ControllerClientBuilder, stop <-chan struct{}) {
	ctx := wait.ContextForChannel(stop)
	if p.probe != nil {
		go p.heal(ctx)
	}
	for _, each := range p.all {
		client := clients.ClientOrDie("cloud-controller-manager")
		each.Start(ctx, client, recorder(ctx, client))
	}
}

// Source is the component that events name. Alerts and scripts select by it: it MUST NOT be changed.
const Source = "digitalocean-cloud-controller-manager"

// recorder sends events until ctx ends, alike ones as one that counts.
func recorder(ctx context.Context, client kubernetes.Interface) record.EventRecorder {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	context.AfterFunc(ctx, broadcaster.Shutdown)
	return broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: Source})
}

// Drain lets no new change of a load balancer begin and waits until those under way have ended, but no longer than most. It reports whether they
// have: then another process may take over. It is for the end of the process, before the controllers stop, and may be called once.
func (p *Provider) Drain(most time.Duration) bool {
	return p.gate.Drain(clock.RealClock{}, most)
}

// SetInformers implements cloudprovider.InformerUser: Nodes and Services are read from the informers that the controllers share.
func (p *Provider) SetInformers(factory informers.SharedInformerFactory) {
	for _, each := range p.all {
		each.Follow(factory)
	}
}

// LoadBalancer implements cloudprovider.Interface.
func (p *Provider) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return p.balancers, true }

// InstancesV2 implements cloudprovider.Interface.
func (p *Provider) InstancesV2() (cloudprovider.InstancesV2, bool) { return p.machines, true }

// Deletions returns what the framework's clients send through, as [machines.Instances.Deletions] does.
func (p *Provider) Deletions(next http.RoundTripper) http.RoundTripper {
	return p.machines.Deletions(next)
}

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

// HasClusterID implements cloudprovider.Interface. It is false, as with the upstream project: nothing depends on it.
func (p *Provider) HasClusterID() bool { return false }
