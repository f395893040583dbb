// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package shutdowns

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/controllers/nodelifecycle"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/machines"
	"github.com/mooring-dev/mooring/internal/docloud/outofservice"
	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cloud"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func TestMain(m *testing.M) { cloud.Main(m) }

// world is the controller and the framework's monitor of Nodes, with some machines.
type world struct {
	*cloud.World

	droplets []sim.Droplet
	enabled  bool
	config   outofservice.Config
	timing   Timing
	pace     machines.Config
	monitor  time.Duration // how often the framework looks at Nodes that are not ready

	controller *Controller
}

// newWorld makes droplets and their Nodes, all ready, and starts nothing.
func newWorld(base *cloud.World, n int) *world {
	w := &world{
		World: base, enabled: true, config: outofservice.DefaultConfig(),
		timing: Timing{Every: 50 * time.Millisecond, LeaseEvery: 20 * time.Millisecond, AskBurst: 1000, AskEvery: time.Millisecond},
	}
	w.config.Grace, w.config.ProofGap = 500*time.Millisecond, 100*time.Millisecond
	w.pace, w.monitor = machines.DefaultConfig(), 200*time.Millisecond
	w.pace.StatusAge, w.pace.DoubtAge = 100*time.Millisecond, 50*time.Millisecond
	w.pace.PendingAge, w.pace.PageAge = 20*time.Millisecond, 10*time.Millisecond
	w.pace.AskBurst, w.pace.AskEvery = 1000, time.Millisecond
	for i := range n {
		w.join(w.NodeName(i))
	}
	w.T.Cleanup(func() {
		_ = w.Client.CoordinationV1().Leases(machines.RecordNamespace).Delete(context.Background(), w.Name, metav1.DeleteOptions{})
	})
	return w
}

func simulated(t *testing.T, n int, body func(t *testing.T, w *world)) {
	t.Helper()
	cloud.Simulated(t, sim.Options{Seed: 1}, func(t *testing.T, base *cloud.World) { body(t, newWorld(base, n)) })
}

func both(t *testing.T, n int, body func(t *testing.T, w *world)) {
	t.Helper()
	cloud.Both(t, sim.Options{Seed: 1}, func(t *testing.T, base *cloud.World) { body(t, newWorld(base, n)) })
}

// join makes a droplet and its Node, ready, with a taint of others.
func (w *world) join(name string) sim.Droplet {
	w.T.Helper()
	d := w.Droplet(sim.DropletSpec{Name: name})
	w.droplets = append(w.droplets, d)
	w.Register(name, cloud.RunsOn(d), func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "example.com/mine", Value: "x", Effect: corev1.TaintEffectNoSchedule}}
	})
	w.SetReady(name, true)
	w.renew(name)
	w.T.Cleanup(func() {
		_ = w.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	return d
}

// renew does what a kubelet does every ten seconds.
func (w *world) renew(name string) {
	w.T.Helper()
	leases := w.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NowMicro()
	lease, err := leases.Get(w.T.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(w.T.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name}, Spec: coordinationv1.LeaseSpec{RenewTime: &now},
		}, metav1.CreateOptions{})
		must.Do(w.T, err)
		return
	}
	must.Do(w.T, err)
	lease.Spec.RenewTime = &now
	must.Get(leases.Update(w.T.Context(), lease, metav1.UpdateOptions{})).Or(w.T)
}

// switchOff switches a machine off, and lets Kubernetes notice.
func (w *world) switchOff(i int) {
	w.T.Helper()
	w.SetDropletStatus(w.droplets[i].ID, "off")
	w.SetReady(w.droplets[i].Name, false)
}

func (w *world) switchOn(i int) {
	w.T.Helper()
	w.SetDropletStatus(w.droplets[i].ID, "active")
}

// cloudOfNodes is a provider of machines alone.
type cloudOfNodes struct {
	cloudprovider.Interface

	machines *machines.Instances
}

func (c cloudOfNodes) InstancesV2() (cloudprovider.InstancesV2, bool) { return c.machines, true }
func (cloudOfNodes) Instances() (cloudprovider.Instances, bool)       { return nil, false }
func (cloudOfNodes) ProviderName() string                             { return "digitalocean" }

// run starts the controller, and the framework's monitor of Nodes with it.
func (w *world) run() {
	w.T.Helper()
	p := w.NewProgram(nil)
	w.pace.RecordName = w.Name + "-account"
	snapshot := machines.NewSnapshot(p.DigitalOcean, clock.RealClock{})
	instances := machines.New(p.DigitalOcean, snapshot, w.pace, clock.RealClock{}, w.Registry)
	nodes := p.Informers.Core().V1().Nodes()
	w.controller = New(Options{
		API: p.DigitalOcean, Surroundings: instances, Enabled: w.enabled, Config: w.config, Timing: w.timing, Metrics: NewMetrics(w.Registry),
		Clock: clock.RealClock{}, Log: logr.Discard(), RecordName: w.Name,
	})
	instances.Departing(w.controller.Departing)
	p.Run(func(ctx context.Context, _ kubernetes.Interface, events record.EventRecorder) {
		instances.Start(ctx, w.Client, events)
	})
	instances.Follow(p.Informers)
	w.controller.Follow(p.Informers)
	monitor, err := nodelifecycle.NewCloudNodeLifecycleController(nodes, w.Client, cloudOfNodes{machines: instances}, w.monitor, 1)
	must.Do(w.T, err)
	p.Start(monitor.Run)
	p.Run(w.controller.Start)
}

func (w *world) node(i int) *corev1.Node {
	w.T.Helper()
	return w.Node(w.droplets[i].Name)
}

// tainted are the machines whose Nodes have our taint.
func (w *world) tainted() []int {
	w.T.Helper()
	nodes := w.Nodes()
	var out []int
	for i, d := range w.droplets {
		if node := nodes[d.Name]; node != nil {
			if ours, _ := outofservice.Taints(node.Spec.Taints); ours {
				out = append(out, i)
			}
		}
	}
	return out
}

// until waits until just these machines have our taint.
func (w *world) until(want ...int) {
	w.T.Helper()
	testkit.Eventually(w.T, fmt.Sprintf("the machines %v to have the taint", want), func() string {
		if got := w.tainted(); !slices.Equal(got, want) {
			return fmt.Sprintf("%v have it, the record is %+v", got, w.record())
		}
		return ""
	})
}

func (w *world) lease() *coordinationv1.Lease {
	w.T.Helper()
	lease, err := w.Client.CoordinationV1().Leases(machines.RecordNamespace).Get(w.T.Context(), w.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	must.Do(w.T, err)
	return lease
}

func (w *world) record() outofservice.Record {
	w.T.Helper()
	lease := w.lease()
	if lease == nil {
		return outofservice.Record{}
	}
	r, _, err := outofservice.Recorded(lease)
	must.Do(w.T, err)
	return r
}

// stands waits until the record says where a machine stands.
func (w *world) stands(i int, want outofservice.Reason) {
	w.T.Helper()
	testkit.Eventually(w.T, fmt.Sprintf("machine %d to be %s", i, want), func() string {
		r := w.record()
		for _, v := range r.Machines {
			if v.Node == w.droplets[i].Name && v.Reason == want {
				return ""
			}
		}
		return fmt.Sprintf("%+v", r)
	})
}

// reconciles waits until the controller has listed the droplets so many times more.
func (w *world) reconciles(n int) {
	w.T.Helper()
	count := func() int { return w.Sim.Stats().Count("GET /v2/droplets") }
	from := count()
	w.Until("droplets to be listed", func() bool { return count() >= from+n })
}
