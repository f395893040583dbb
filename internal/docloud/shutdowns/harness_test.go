// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package shutdowns

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/controllers/nodelifecycle"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/machines"
	"github.com/mooring-dev/mooring/internal/docloud/outofservice"
	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

// TestMain lets many tests run at a time: they wait far more than they compute. -parallel on the command line wins.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	testkit.Main(m)
}

// world is a cluster of its own on the shared API server: its Nodes carry its label, and its controllers see no others.
type world struct {
	t        *testing.T
	cluster  *controlplane.Cluster
	cloud    *sim.Simulator
	droplets []sim.Droplet
	name     string
	enabled  bool
	config   outofservice.Config
	timing   Timing
	// between is put before the API server on the controller's way, nil for nothing.
	between func(http.RoundTripper) http.RoundTripper

	controller *Controller
	registry   *prometheus.Registry
	stop       func()
}

// newWorld makes droplets and their Nodes, all ready, and starts nothing.
func newWorld(t *testing.T, n int) *world {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-", " ", "-").Replace(t.Name()))
	w := &world{
		t: t, cluster: controlplane.Shared(t), name: name, enabled: true, config: outofservice.DefaultConfig(),
		cloud:  sim.New(unlimited()),
		timing: Timing{Every: 50 * time.Millisecond, LeaseEvery: 20 * time.Millisecond, AskBurst: 1000, AskEvery: time.Millisecond},
	}
	w.config.Grace, w.config.ProofGap = 500*time.Millisecond, 100*time.Millisecond
	for i := range n {
		d, err := w.cloud.Account("").CreateDroplet(sim.DropletSpec{Name: fmt.Sprintf("%s-%d", name, i)})
		w.must(err)
		w.droplets = append(w.droplets, d)
		w.join(d)
	}
	t.Cleanup(func() { w.halt() })
	t.Cleanup(func() {
		_ = w.cluster.Client.CoordinationV1().Leases(machines.RecordNamespace).Delete(context.Background(), w.name, metav1.DeleteOptions{})
	})
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) join(d sim.Droplet) {
	w.t.Helper()
	_, err := w.cluster.Client.CoreV1().Nodes().Create(w.t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: d.Name, Labels: map[string]string{"world": w.name}},
		Spec: corev1.NodeSpec{
			ProviderID: fmt.Sprintf("digitalocean://%d", d.ID), Taints: []corev1.Taint{{Key: "example.com/mine", Value: "x", Effect: corev1.TaintEffectNoSchedule}},
		},
	}, metav1.CreateOptions{})
	w.must(err)
	w.t.Cleanup(func() {
		_ = w.cluster.Client.CoreV1().Nodes().Delete(context.Background(), d.Name, metav1.DeleteOptions{})
	})
	w.setReady(d.Name, true)
	w.renew(d.Name)
	w.t.Cleanup(func() {
		_ = w.cluster.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Delete(context.Background(), d.Name, metav1.DeleteOptions{})
	})
}

// renew does what a kubelet does every ten seconds.
func (w *world) renew(name string) {
	w.t.Helper()
	leases := w.cluster.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NowMicro()
	lease, err := leases.Get(w.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(w.t.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name}, Spec: coordinationv1.LeaseSpec{RenewTime: &now},
		}, metav1.CreateOptions{})
		w.must(err)
		return
	}
	w.must(err)
	lease.Spec.RenewTime = &now
	_, err = leases.Update(w.t.Context(), lease, metav1.UpdateOptions{})
	w.must(err)
}

func (w *world) setReady(name string, ready bool) {
	w.t.Helper()
	status := "Unknown"
	if ready {
		status = "True"
	}
	_, err := w.cluster.Client.CoreV1().Nodes().PatchStatus(w.t.Context(), name, []byte(fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q}]}}`, status)))
	w.must(err)
}

// switchOff switches a machine off, and lets Kubernetes notice.
func (w *world) switchOff(i int) {
	w.t.Helper()
	w.must(w.cloud.Account("").SetDropletStatus(fmt.Sprint(w.droplets[i].ID), "off"))
	w.setReady(w.droplets[i].Name, false)
}

func (w *world) switchOn(i int) {
	w.t.Helper()
	w.must(w.cloud.Account("").SetDropletStatus(fmt.Sprint(w.droplets[i].ID), "active"))
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
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w.start(ctx, cancel)
}

func (w *world) start(ctx context.Context, cancel func()) {
	w.t.Helper()
	config := rest.CopyConfig(w.cluster.Config)
	if w.between != nil {
		config.Wrap(w.between)
	}
	kube, err := kubernetes.NewForConfig(config)
	w.must(err)
	client, err := doapi.New(doapi.Options{
		URL: "https://api.digitalocean.com", Token: doapi.StaticToken(sim.DefaultToken), Transport: w.cloud.Transport(), Clock: clock.RealClock{},
	})
	w.must(err)
	registry := prometheus.NewRegistry()
	pace := machines.DefaultConfig()
	pace.StatusAge, pace.DoubtAge, pace.PendingAge, pace.PageAge = 100*time.Millisecond, 50*time.Millisecond, 20*time.Millisecond, 10*time.Millisecond
	pace.AskBurst, pace.AskEvery, pace.RecordName = 1000, time.Millisecond, w.name+"-account"
	instances := machines.New(client, machines.NewSnapshot(client, clock.RealClock{}), pace, clock.RealClock{}, registry)
	factory := informers.NewSharedInformerFactoryWithOptions(w.cluster.Client, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = "world=" + w.name }))
	nodes := factory.Core().V1().Nodes()
	w.controller = New(Options{
		API: client, Surroundings: instances, Enabled: w.enabled, Config: w.config, Timing: w.timing, Metrics: NewMetrics(registry), Clock: clock.RealClock{},
		Log: logr.Discard(), RecordName: w.name,
	})
	instances.Departing(w.controller.Departing)
	instances.Initialize(w.cluster.Client, ctx.Done())
	instances.Follow(nodes)
	w.controller.Follow(factory)
	monitor, err := nodelifecycle.NewCloudNodeLifecycleController(nodes, w.cluster.Client, cloudOfNodes{machines: instances}, 200*time.Millisecond)
	w.must(err)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	w.controller.Start(kube, ctx.Done())
	var running sync.WaitGroup
	running.Go(func() { monitor.Run(ctx, controllersmetrics.NewControllerManagerMetrics(w.name)) })
	w.registry = registry
	w.stop = func() {
		cancel()
		running.Wait()
		factory.Shutdown()
	}
}

// halt ends what run started, if it runs.
func (w *world) halt() {
	if w.stop != nil {
		w.stop()
		w.stop = nil
	}
}

func (w *world) node(i int) *corev1.Node {
	w.t.Helper()
	node, err := w.cluster.Client.CoreV1().Nodes().Get(w.t.Context(), w.droplets[i].Name, metav1.GetOptions{})
	w.must(err)
	return node
}

// tainted are the machines whose Nodes have our taint.
func (w *world) tainted() []int {
	w.t.Helper()
	list, err := w.cluster.Client.CoreV1().Nodes().List(w.t.Context(), metav1.ListOptions{LabelSelector: "world=" + w.name})
	w.must(err)
	var out []int
	for i, d := range w.droplets {
		for _, node := range list.Items {
			if ours, _ := outofservice.Taints(node.Spec.Taints); ours && node.Name == d.Name {
				out = append(out, i)
			}
		}
	}
	return out
}

// until waits until just these machines have our taint.
func (w *world) until(want ...int) {
	w.t.Helper()
	testkit.Eventually(w.t, fmt.Sprintf("the machines %v to have the taint", want), func() string {
		if got := w.tainted(); !slices.Equal(got, want) {
			return fmt.Sprintf("%v have it, the record is %+v", got, w.record())
		}
		return ""
	})
}

func (w *world) lease() *coordinationv1.Lease {
	w.t.Helper()
	lease, err := w.cluster.Client.CoordinationV1().Leases(machines.RecordNamespace).Get(w.t.Context(), w.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.must(err)
	return lease
}

func (w *world) record() outofservice.Record {
	w.t.Helper()
	lease := w.lease()
	if lease == nil {
		return outofservice.Record{}
	}
	r, _, err := outofservice.Recorded(lease)
	w.must(err)
	return r
}

// stands waits until the record says where a machine stands.
func (w *world) stands(i int, want outofservice.Reason) {
	w.t.Helper()
	testkit.Eventually(w.t, fmt.Sprintf("machine %d to be %s", i, want), func() string {
		r := w.record()
		for _, v := range r.Machines {
			if v.Node == w.droplets[i].Name && v.Reason == want {
				return ""
			}
		}
		return fmt.Sprintf("%+v", r)
	})
}

// passes waits until the controller has looked so many times more at the droplets.
func (w *world) passes(n int) {
	w.t.Helper()
	count := func() int { return w.cloud.Stats().Count("GET /v2/droplets") }
	from := count()
	testkit.Eventually(w.t, "droplets to be listed", func() string {
		if got := count() - from; got < n {
			return fmt.Sprintf("%d of %d times", got, n)
		}
		return ""
	})
}

// unlimited are a simulator's options without limits of rate: the tests are faster than clusters.
func unlimited() sim.Options {
	options := sim.Options{Seed: 1}
	options.RateLimits.Hour, options.RateLimits.Minute = -1, -1
	return options
}
