// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package balancertest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/informers"
	servicecontroller "k8s.io/cloud-provider/controllers/service"
	"k8s.io/component-base/featuregate"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/balancers"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/docloud/machines"
	"github.com/mooring-dev/mooring/internal/docloud/provider"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/journal"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cloud"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func TestMain(m *testing.M) { cloud.Main(m) }

const (
	createRoute = "POST /v2/load_balancers"
	updateRoute = "PUT /v2/load_balancers"
)

// world is the framework's controller of Services with the provider's part, in a cluster of two machines.
type world struct {
	*cloud.World

	cluster  loadbalancer.Cluster
	timing   balancers.Timing
	takeOver bool     // --allow-load-balancer-take-over
	domains  []string // --allow-certificate-domains
	// view is empty while the informer of Services may see changes. A test fills it to have the informer lag.
	view       chan struct{}
	requireTag bool // --require-cluster-tag
}

// newWorld makes a cluster of two machines. Times are short, but longer than an API server needs.
func newWorld(base *cloud.World) *world {
	w := &world{
		World: base, domains: []string{"*"}, cluster: loadbalancer.Cluster{ID: base.Name, Region: "nyc1", DefaultType: annotation.TypeRegional}, view: make(chan struct{}, 1),
		timing: balancers.Timing{
			Quiet: 200 * time.Millisecond, Most: 2 * time.Second, Resync: 500 * time.Millisecond, Pending: 300 * time.Millisecond,
			Change: 300 * time.Millisecond,
			Poll:   300 * time.Millisecond, ListAge: 200 * time.Millisecond, CertificateAge: 200 * time.Millisecond, CertificateDoubt: 200 * time.Millisecond,
			Settle: 300 * time.Millisecond, Unanswered: 8 * time.Second, FirstRetry: 200 * time.Millisecond, LastRetry: 2 * time.Second,
		},
	}
	w.node("a")
	w.node("b")
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

// with returns options that a function has set.
func with(set func(*digitalocean.Options)) digitalocean.Options {
	var o digitalocean.Options
	set(&o)
	return o
}

// run starts the controllers.
func (w *world) run() {
	w.T.Helper()
	p := w.NewProgram(nil, informers.WithTransform(func(o any) (any, error) {
		if _, ok := o.(*corev1.Service); ok {
			w.view <- struct{}{}
			<-w.view
		}
		return o, nil
	}))
	config := machines.DefaultConfig()
	config.RecordName, config.Tag, config.RequireTag = w.Name, "k8s:"+w.Name, w.requireTag
	config.StatusAge, config.DoubtAge, config.PendingAge, config.PageAge = 300*time.Millisecond, 300*time.Millisecond, 300*time.Millisecond, 0
	instances := machines.New(p.DigitalOcean, machines.NewSnapshot(p.DigitalOcean, clock.RealClock{}), config, clock.RealClock{}, w.Registry)
	gate := &reconcile.Gate{}
	keeper := balancers.New(balancers.Options{
		API: p.DigitalOcean, Fleet: instances, Gate: gate, TakeOverAny: w.takeOver, Domains: w.domains, Identities: instances.Identities, Cluster: w.cluster, Metrics: balancers.NewMetrics(w.Registry),
		Clock: clock.RealClock{}, Log: logr.Discard(), Timing: w.timing,
	})
	provided := provider.New(gate, instances, keeper)
	provided.Initialize(p.Builder, p.Stop)
	provided.SetInformers(p.Informers)
	services, nodes := p.Informers.Core().V1().Services(), provider.QuietNodes(p.Informers.Core().V1().Nodes())
	controller, err := servicecontroller.New(provided, p.Client, services, nodes, "kubernetes", featuregate.NewFeatureGate())
	must.Do(w.T, err)
	p.Start(func(ctx context.Context, metrics *controllersmetrics.ControllerManagerMetrics) {
		controller.Run(ctx, 3, metrics)
	})
}

// node makes a droplet and its Node, with addresses.
func (w *world) node(name string) int {
	w.T.Helper()
	d := w.Droplet(digitalocean.DropletSpec{Name: w.NodeName(name)})
	w.Register(d.Name, cloud.RunsOn(d), cloud.HasAddresses(d))
	return d.ID
}

// bareNode makes a droplet and its Node, which has no addresses yet.
func (w *world) bareNode(name string) int {
	w.T.Helper()
	d := w.Droplet(digitalocean.DropletSpec{Name: w.NodeName(name)})
	w.Register(d.Name, cloud.RunsOn(d))
	return d.ID
}

// address gives a Node the addresses of its droplet.
func (w *world) address(name string) {
	w.T.Helper()
	d := must.Get(w.Account.Droplet(w.NodeName(name))).Or(w.T)
	w.PatchNode(d.Name, string(w.JSON(map[string]any{"status": map[string]any{"addresses": cloud.Addresses(d)}})), "status")
}

// create makes a Service of type LoadBalancer with port 80; pairs are annotations, whose names get the prefix unless they have a slash.
func (w *world) create(name string, pairs ...string) *corev1.Service {
	w.T.Helper()
	return w.createIn(w.Name, name, pairs...)
}

func (w *world) createIn(namespace, name string, pairs ...string) *corev1.Service {
	w.T.Helper()
	ports := []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(8080)}}
	return w.CreateService(name, corev1.ServiceTypeLoadBalancer, annotations(pairs), ports, func(s *corev1.Service) {
		s.Namespace, s.Spec.Selector = namespace, map[string]string{"app": name}
	})
}

func annotations(pairs []string) map[string]string {
	out := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		name := pairs[i]
		if !strings.Contains(name, "/") {
			name = annotation.Prefix + name
		}
		out[name] = pairs[i+1]
	}
	return out
}

// annotate sets annotations of a Service.
func (w *world) annotate(name string, pairs ...string) {
	w.T.Helper()
	w.PatchService(name, map[string]any{"metadata": map[string]any{"annotations": annotations(pairs)}})
}

// published is the first address in a Service's status, empty for none.
func published(s *corev1.Service) string {
	for _, i := range s.Status.LoadBalancer.Ingress {
		return i.IP + i.Hostname
	}
	return ""
}

// balancer waits until a Service's status shows the address of the load balancer that its annotation names, and returns that.
func (w *world) balancer(name string) digitalocean.LoadBalancer {
	w.T.Helper()
	var lb digitalocean.LoadBalancer
	testkit.Eventually(w.T, "service "+name+" to have a load balancer", func() string {
		s := w.Service(name)
		id := s.Annotations[annotation.LoadBalancerID]
		var err error
		if lb, err = w.Account.LoadBalancer(id); err != nil {
			return fmt.Sprintf("annotation: %v; %s", err, w.Story())
		}
		if published(s) != lb.IP || lb.IP == "" {
			return fmt.Sprintf("status is %q, the load balancer has %q; %s", published(s), lb.IP, w.Story())
		}
		return ""
	})
	return lb
}

// eventually waits until a load balancer is as it must be.
func (w *world) eventually(what, id string, holds func(digitalocean.LoadBalancer) bool) {
	w.T.Helper()
	testkit.Eventually(w.T, what, func() string {
		lb, err := w.Account.LoadBalancer(id)
		if err != nil {
			return err.Error()
		}
		if holds(lb) {
			return ""
		}
		return fmt.Sprintf("it is %+v; %s", lb, w.Story())
	})
}

// events are the events that have a reason, or all.
func (w *world) events(reason string) []corev1.Event {
	return slices.DeleteFunc(w.Events(), func(e corev1.Event) bool { return reason != "" && e.Reason != reason })
}

// resyncs waits until load balancers have been listed again a few times.
func (w *world) resyncs() {
	w.T.Helper()
	const route = "GET /v2/load_balancers"
	lists := func() (n int) {
		for _, e := range w.Sim.Requests(journal.Filter{Route: route}) {
			if e.Route == route {
				n++
			}
		}
		return n
	}
	before := lists()
	w.Until("some resyncs", func() bool { return lists() >= before+4 })
}
