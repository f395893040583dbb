// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package firewalls_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/balancers"
	"github.com/mooring-dev/mooring/internal/docloud/firewall"
	"github.com/mooring-dev/mooring/internal/docloud/firewalls"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/docloud/machines"
	"github.com/mooring-dev/mooring/internal/docloud/provider"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cloud"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func TestMain(m *testing.M) { cloud.Main(m) }

const (
	// workers is the tag of the cluster's droplets.
	workers = "k8s:worker"

	postRoute = "POST /v2/firewalls"
	putRoute  = "PUT /v2/firewalls/{firewall_id}"
	// lease is what events about the firewall are on.
	lease = "digitalocean-cloud-controller-manager-account"
)

// world is the controller of the firewall in a cluster of one machine.
type world struct {
	*cloud.World

	config   firewall.Config
	timing   firewalls.Timing
	provider *provider.Provider // of the newest run
	port     string             // a node port
}

// newWorld makes a cluster of one machine. Times are short, but longer than an API server needs.
func newWorld(base *cloud.World) *world {
	w := &world{
		World: base, config: firewall.Config{Name: base.Name, Tags: []string{workers}},
		timing: firewalls.Timing{
			Gather: 50 * time.Millisecond, Resync: 400 * time.Millisecond, FirstRetry: 100 * time.Millisecond, LastRetry: time.Second,
		},
	}
	w.Register(w.Name, cloud.RunsOn(w.Droplet(digitalocean.DropletSpec{Name: w.Name, Tags: []string{workers}})))
	w.service("own", corev1.ServiceTypeClusterIP, nil, cloud.Port(443)) // there is always one, that of the API server
	return w
}

func simulated(t *testing.T, options digitalocean.Options, body func(t *testing.T, w *world)) {
	t.Helper()
	cloud.Simulated(t, options, func(t *testing.T, base *cloud.World) { body(t, newWorld(base)) })
}

func both(t *testing.T, options digitalocean.Options, body func(t *testing.T, w *world)) {
	t.Helper()
	cloud.Both(t, options, func(t *testing.T, base *cloud.World) { body(t, newWorld(base)) })
}

// run starts a controller, with the real machines and load balancers around it, but without the framework's controllers.
func (w *world) run() {
	w.T.Helper()
	p := w.NewProgram(nil)
	config := machines.DefaultConfig()
	config.RecordName = w.Name
	config.StatusAge, config.DoubtAge, config.PendingAge, config.PageAge = 300*time.Millisecond, 300*time.Millisecond, 300*time.Millisecond, 0
	instances := machines.New(p.DigitalOcean, machines.NewSnapshot(p.DigitalOcean, clock.RealClock{}), config, clock.RealClock{}, w.Registry)
	gate := &reconcile.Gate{}
	keeper := balancers.New(balancers.Options{
		API: p.DigitalOcean, Fleet: instances, Gate: gate, Metrics: balancers.NewMetrics(w.Registry), Clock: clock.RealClock{}, Log: logr.Discard(),
		Cluster: loadbalancer.Cluster{ID: w.Name, Region: "nyc1"}, Timing: balancers.Timing{Settle: 100 * time.Millisecond},
	})
	controller := firewalls.New(firewalls.Options{
		API: p.DigitalOcean, Surroundings: provider.Common{Instances: instances, Controller: keeper}, Gate: gate, Config: w.config,
		Metrics: firewalls.NewMetrics(w.Registry), Clock: clock.RealClock{}, Log: logr.Discard(), Timing: w.timing, Namespace: w.Name,
	})
	w.provider = provider.New(gate, instances, keeper, controller)
	w.provider.Initialize(p.Builder, p.Stop)
	w.provider.SetInformers(p.Informers)
	p.Start()
}

func (w *world) service(name string, kind corev1.ServiceType, annotations map[string]string, ports ...corev1.ServicePort) *corev1.Service {
	w.T.Helper()
	return w.CreateService(name, kind, annotations, ports)
}

// nodePort makes a Service of type NodePort and returns its node port.
func (w *world) nodePort(name string) string {
	w.T.Helper()
	return fmt.Sprint(w.service(name, corev1.ServiceTypeNodePort, nil, cloud.Port(80)).Spec.Ports[0].NodePort)
}

// balancer makes a load balancer at DigitalOcean and returns its ID.
func (w *world) balancer(name string) string {
	w.T.Helper()
	lb, err := w.Account.CreateLoadBalancer(digitalocean.LoadBalancer{
		Name: name, Type: "REGIONAL_NETWORK",
		ForwardingRules: []digitalocean.ForwardingRule{{EntryProtocol: "tcp", EntryPort: 80, TargetProtocol: "tcp", TargetPort: 80}},
	})
	must.Do(w.T, err)
	return lb.ID
}

// opened says what a firewall lets in, one line per rule, sorted.
func opened(f digitalocean.Firewall) []string {
	var out []string
	for _, r := range f.InboundRules {
		out = append(out, fmt.Sprintf("%s %s %s", r.Protocol, r.Ports, strings.Join(slices.Concat(r.Sources.Addresses, r.Sources.LoadBalancerUIDs), ",")))
	}
	slices.Sort(out)
	return out
}

// everybody is how rules for everybody are shown by opened.
const everybody = " 0.0.0.0/0,::/0"

// becomes waits until there is exactly one firewall, and it lets in exactly this, and covers the cluster's droplets.
func (w *world) becomes(want ...string) digitalocean.Firewall {
	w.T.Helper()
	slices.Sort(want)
	var found digitalocean.Firewall
	testkit.Eventually(w.T, "the firewall", func() string {
		all := w.Account.Firewalls()
		if len(all) != 1 {
			return fmt.Sprintf("%d firewalls; %s", len(all), w.Story())
		}
		found = all[0]
		if got := opened(found); !slices.Equal(got, want) || len(found.OutboundRules) != 3 || found.Name != w.config.Name || !slices.Equal(*found.Tags, w.config.Tags) {
			return fmt.Sprintf("it lets in %q, want %q, and is %+v; %s", got, want, found, w.Story())
		}
		return ""
	})
	return found
}

// resyncs waits until the firewall has been read again a few times.
func (w *world) resyncs() {
	w.T.Helper()
	w.Requested(3, "GET /v2/firewalls")
}
