// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"
	cloudnode "k8s.io/cloud-provider/controllers/node"
	"k8s.io/cloud-provider/controllers/nodelifecycle"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

// world is a cluster of its own on the shared API server: its Nodes carry its label, and its controllers see no others.
type world struct {
	t       *testing.T
	cluster *controlplane.Cluster
	cloud   *sim.Simulator
	config  Config
	name    string
	token   string // path of the token's file

	mu       sync.Mutex // guards all below
	machines *Instances
	registry *prometheus.Registry
	stop     func()
}

// quick are the product's settings with shorter times, so that a test does not wait for minutes.
func quick(name string) Config {
	c := DefaultConfig()
	c.Decision.Window = 3 * time.Second
	c.StatusAge, c.DoubtAge, c.PendingAge, c.PageAge = time.Second, 500*time.Millisecond, 200*time.Millisecond, 100*time.Millisecond
	c.AskBurst, c.AskEvery = 1000, time.Millisecond
	c.RecordName, c.TokenEvery = name, 100*time.Millisecond
	return c
}

func newWorld(t *testing.T, options sim.Options) *world {
	t.Helper()
	if options.RateLimits.Hour == 0 {
		options.RateLimits.Hour, options.RateLimits.Minute = -1, -1
	}
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	w := &world{t: t, cluster: controlplane.Shared(t), cloud: sim.New(options), name: name, config: quick(name), token: filepath.Join(t.TempDir(), "token")}
	w.useToken(sim.DefaultToken)
	t.Cleanup(func() { w.halt() })
	return w
}

func (w *world) useToken(token string) {
	w.t.Helper()
	if err := os.WriteFile(w.token, []byte(token+"\n"), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// withoutBalancers is a provider of machines alone.
type withoutBalancers struct {
	cloudprovider.Interface

	machines *Instances
}

func (w withoutBalancers) InstancesV2() (cloudprovider.InstancesV2, bool) { return w.machines, true }
func (withoutBalancers) Instances() (cloudprovider.Instances, bool)       { return nil, false }
func (withoutBalancers) ProviderName() string                             { return "digitalocean" }

// run starts what the product's process has of Nodes: the framework's two controllers and the provider.
func (w *world) run() {
	w.t.Helper()
	token, err := doapi.NewFileToken(w.token, clock.RealClock{})
	if err != nil {
		w.t.Fatal(err)
	}
	client, err := doapi.New(doapi.Options{URL: "https://api.digitalocean.com", Token: token, Transport: w.cloud.Transport(), Clock: clock.RealClock{}})
	if err != nil {
		w.t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	snapshot := newSnapshot(client, clock.RealClock{}, 100*time.Millisecond, time.Second)
	machines := New(client, snapshot, w.config, clock.RealClock{}, registry)
	factory := informers.NewSharedInformerFactoryWithOptions(w.cluster.Client, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = "world=" + w.name }))
	ctx, cancel := context.WithCancel(context.Background())
	machines.Initialize(w.cluster.Client, ctx.Done())
	nodes := factory.Core().V1().Nodes()
	machines.Follow(nodes)
	cloud := withoutBalancers{machines: machines}
	initializer, err := cloudnode.NewCloudNodeController(nodes, w.cluster.Client, cloud, 500*time.Millisecond, 1, 1)
	if err != nil {
		w.t.Fatal(err)
	}
	monitor, err := nodelifecycle.NewCloudNodeLifecycleController(nodes, w.cluster.Client, cloud, 200*time.Millisecond)
	if err != nil {
		w.t.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	metrics := controllersmetrics.NewControllerManagerMetrics(w.name)
	var running sync.WaitGroup
	running.Go(func() { initializer.RunWithContext(ctx, metrics) })
	running.Go(func() { monitor.Run(ctx, metrics) })
	w.mu.Lock()
	defer w.mu.Unlock()
	w.machines, w.registry = machines, registry
	w.stop = func() {
		cancel()
		running.Wait()
		factory.Shutdown()
	}
}

// halt ends what run started, if it runs.
func (w *world) halt() {
	w.mu.Lock()
	stop := w.stop
	w.stop = nil
	w.mu.Unlock()
	if stop != nil {
		stop()
	}
}

func (w *world) droplet(spec sim.DropletSpec) sim.Droplet {
	w.t.Helper()
	d, err := w.cloud.Account("").CreateDroplet(spec)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

func (w *world) deleteDroplet(id int) {
	w.t.Helper()
	if err := w.cloud.Account("").DeleteDroplet(fmt.Sprint(id)); err != nil {
		w.t.Fatal(err)
	}
}

// nodeName is unique on the shared API server; droplets of a world are named likewise.
func (w *world) nodeName(i int) string { return fmt.Sprintf("%s-%d", w.name, i) }

// join registers a Node with the external taint, as a kubelet of a new machine does, ready or not.
func (w *world) join(name string, ready bool, change ...func(*corev1.Node)) {
	w.t.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"world": w.name}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: cloudproviderapi.TaintExternalCloudProvider, Value: "true", Effect: corev1.TaintEffectNoSchedule}}},
	}
	for _, c := range change {
		c(node)
	}
	created, err := w.cluster.Client.CoreV1().Nodes().Create(w.t.Context(), node, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = w.cluster.Client.CoreV1().Nodes().Delete(context.Background(), created.Name, metav1.DeleteOptions{})
	})
	w.setReady(name, ready)
}

// fleet makes droplets and their Nodes, initialized and ready.
func (w *world) fleet(n int) []sim.Droplet {
	w.t.Helper()
	droplets := make([]sim.Droplet, n)
	for i := range droplets {
		droplets[i] = w.droplet(sim.DropletSpec{Name: w.nodeName(i)})
		w.join(droplets[i].Name, true)
	}
	w.run()
	testkit.Eventually(w.t, "the Nodes to be initialized", func() string {
		for _, d := range droplets {
			if problem := w.initialized(d); problem != "" {
				return d.Name + ": " + problem
			}
		}
		return ""
	})
	testkit.Eventually(w.t, "the account to be recorded", func() string {
		if _, err := w.lease(); err != nil {
			return err.Error()
		}
		return ""
	})
	return droplets
}

func (w *world) setReady(name string, ready bool) {
	w.t.Helper()
	status := "Unknown"
	if ready {
		status = "True"
	}
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q}]}}`, status)
	if _, err := w.cluster.Client.CoreV1().Nodes().PatchStatus(w.t.Context(), name, []byte(patch)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) node(name string) (*corev1.Node, error) {
	return w.cluster.Client.CoreV1().Nodes().Get(w.t.Context(), name, metav1.GetOptions{})
}

// nodes returns the names of the world's Nodes.
func (w *world) nodes() []string {
	w.t.Helper()
	list, err := w.cluster.Client.CoreV1().Nodes().List(w.t.Context(), metav1.ListOptions{LabelSelector: "world=" + w.name})
	if err != nil {
		w.t.Fatal(err)
	}
	names := make([]string, len(list.Items))
	for i, n := range list.Items {
		names[i] = n.Name
	}
	return names
}

// initialized says what the Node of a droplet still lacks.
func (w *world) initialized(d sim.Droplet) string {
	n, err := w.node(d.Name)
	if err != nil {
		return err.Error()
	}
	if want := fmt.Sprintf("digitalocean://%d", d.ID); n.Spec.ProviderID != want {
		return fmt.Sprintf("its provider ID is %q, want %q", n.Spec.ProviderID, want)
	}
	if slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == cloudproviderapi.TaintExternalCloudProvider }) {
		return "it has the taint"
	}
	for label, want := range map[string]string{
		corev1.LabelInstanceTypeStable: d.SizeSlug, corev1.LabelInstanceType: d.SizeSlug,
		corev1.LabelTopologyRegion: d.Region.Slug, corev1.LabelFailureDomainBetaRegion: d.Region.Slug,
	} {
		if got := n.Labels[label]; got != want {
			return fmt.Sprintf("label %s is %q, want %q", label, got, want)
		}
	}
	if len(n.Status.Addresses) == 0 {
		return "it has no addresses"
	}
	return ""
}

// gone reports whether a Node is still there.
func (w *world) gone(name string) string {
	if _, err := w.node(name); !apierrors.IsNotFound(err) {
		return fmt.Sprintf("%s is still there (%v)", name, err)
	}
	return ""
}

func (w *world) lease() (map[string]string, error) {
	lease, err := w.cluster.Client.CoordinationV1().Leases(RecordNamespace).Get(w.t.Context(), w.name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return lease.Annotations, nil
}

// grants follows the record from now on and returns what tells when each loss was granted, which is recorded before anybody acts on it. Every
// version of the record is seen, as a look now and then would not.
func (w *world) grants() func() map[int]time.Time {
	w.t.Helper()
	leases := w.cluster.Client.CoordinationV1().Leases(RecordNamespace)
	watcher, err := leases.Watch(w.t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + w.name})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(watcher.Stop)
	var mu sync.Mutex
	granted := map[int]time.Time{}
	go func() {
		for event := range watcher.ResultChan() {
			lease, ok := event.Object.(*coordinationv1.Lease)
			if !ok {
				continue
			}
			record, err := parseRecord(lease.Annotations)
			if err != nil {
				w.t.Errorf("the record cannot be read: %v", err)
				return
			}
			mu.Lock()
			for _, loss := range record.Memory.Gone {
				granted[loss.Droplet] = loss.At
			}
			mu.Unlock()
		}
	}()
	return func() map[int]time.Time {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(granted)
	}
}

// event reports whether there is an event with a reason and these words about a Node.
func (w *world) event(node, reason string, words ...string) string {
	list, err := w.cluster.Client.CoreV1().Events("default").List(w.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + node})
	if err != nil {
		return err.Error()
	}
	var seen []string
	for _, e := range list.Items {
		if e.Reason == reason && e.Type == corev1.EventTypeWarning && !slices.ContainsFunc(words, func(s string) bool { return !strings.Contains(e.Message, s) }) {
			return ""
		}
		seen = append(seen, e.Reason+": "+e.Message)
	}
	return fmt.Sprintf("%s has no event %s with %q, but %q", node, reason, words, seen)
}

// asked waits until the monitor of Nodes has asked for the existence of Nodes that are not ready so many times since now, whatever it was told.
func (w *world) asked(rounds int) {
	w.t.Helper()
	for range rounds {
		mark := w.cloud.Mark()
		testkit.Eventually(w.t, "another look at the droplets", func() string {
			if w.cloud.Mark() == mark {
				return "nothing was asked for"
			}
			return ""
		})
	}
}

// trust is the state that the metric shows.
func (w *world) trust() string {
	families, err := w.registry.Gather()
	if err != nil {
		return err.Error()
	}
	for _, f := range families {
		if f.GetName() != "mooring_digitalocean_trust" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetGauge().GetValue() == 1 {
				return m.GetLabel()[0].GetValue()
			}
		}
	}
	return ""
}

// keepsAll waits until the state of trust is this one, and then for some more looks, after which every Node must still be there.
func (w *world) keepsAll(state instance.Trust, want int) {
	w.t.Helper()
	testkit.Eventually(w.t, "the state "+string(state), func() string {
		if got := w.trust(); got != string(state) {
			return "it is " + got
		}
		return ""
	})
	w.asked(5)
	if got := w.nodes(); len(got) != want {
		w.t.Fatalf("%d Nodes are left of %d: %q", len(got), want, got)
	}
}
