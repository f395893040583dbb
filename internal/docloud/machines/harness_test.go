// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"
	cloudnode "k8s.io/cloud-provider/controllers/node"
	"k8s.io/cloud-provider/controllers/nodelifecycle"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cloud"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// world is the framework's two controllers of Nodes with the provider's part.
type world struct {
	*cloud.World

	config   Config
	token    string // path of the token's file
	machines *Instances
	program  kubernetes.Interface // the client of what runs
}

// quick are the product's settings with shorter times, so that a test on a real API server does not wait for minutes.
func quick(name string) Config {
	c := DefaultConfig()
	c.Decision.Window = 3 * time.Second
	c.StatusAge, c.DoubtAge, c.PendingAge, c.PageAge = time.Second, 500*time.Millisecond, 200*time.Millisecond, 100*time.Millisecond
	c.AskBurst, c.AskEvery = 1000, time.Millisecond
	c.RecordName, c.TokenEvery = name, 100*time.Millisecond
	return c
}

func newWorld(base *cloud.World) *world {
	w := &world{World: base, config: quick(base.Name), token: filepath.Join(base.T.TempDir(), "token")}
	w.useToken(sim.DefaultToken)
	return w
}

func simulated(t *testing.T, options sim.Options, body func(t *testing.T, w *world)) {
	t.Helper()
	cloud.Simulated(t, options, func(t *testing.T, base *cloud.World) { body(t, newWorld(base)) })
}

func both(t *testing.T, options sim.Options, body func(t *testing.T, w *world)) {
	t.Helper()
	cloud.Both(t, options, func(t *testing.T, base *cloud.World) { body(t, newWorld(base)) })
}

func (w *world) useToken(token string) {
	w.T.Helper()
	must.Do(w.T, os.WriteFile(w.token, []byte(token+"\n"), 0o600))
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
	w.T.Helper()
	token := must.Get(doapi.NewFileToken(w.token, clock.RealClock{})).Or(w.T)
	w.Through = func(next http.RoundTripper) http.RoundTripper { return deleting{w, next} }
	p := w.NewProgram(token)
	w.program = p.Client
	w.machines = New(p.DigitalOcean, newSnapshot(p.DigitalOcean, clock.RealClock{}, 100*time.Millisecond, time.Second), w.config, clock.RealClock{}, w.Registry)
	p.Run(w.machines.Start)
	nodes := p.Informers.Core().V1().Nodes()
	w.machines.Follow(p.Informers)
	provider := withoutBalancers{machines: w.machines}
	initializer, err := cloudnode.NewCloudNodeController(nodes, p.Client, provider, 500*time.Millisecond, 1, 1)
	must.Do(w.T, err)
	monitor, err := nodelifecycle.NewCloudNodeLifecycleController(nodes, p.Client, provider, 200*time.Millisecond, 1)
	must.Do(w.T, err)
	p.Start(initializer.RunWithContext, monitor.Run)
}

// deleting is [Instances.Deletions] of the machines that run then.
type deleting struct {
	w    *world
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (d deleting) RoundTrip(r *http.Request) (*http.Response, error) {
	return d.w.machines.Deletions(d.next).RoundTrip(r)
}

// join registers a Node with the external taint, as a kubelet of a new machine does, ready or not.
func (w *world) join(name string, ready bool, change ...func(*corev1.Node)) {
	w.T.Helper()
	tainted := func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: cloudproviderapi.TaintExternalCloudProvider, Value: "true", Effect: corev1.TaintEffectNoSchedule}}
	}
	w.Register(name, append([]func(*corev1.Node){tainted}, change...)...)
	w.SetReady(name, ready)
}

// fleet makes droplets and their Nodes, initialized and ready.
func (w *world) fleet(n int) []sim.Droplet {
	w.T.Helper()
	droplets := make([]sim.Droplet, n)
	for i := range droplets {
		droplets[i] = w.Droplet(sim.DropletSpec{Name: w.NodeName(i)})
		w.join(droplets[i].Name, true)
	}
	w.run()
	testkit.Eventually(w.T, "the Nodes to be initialized", func() string {
		for _, d := range droplets {
			if problem := w.initialized(d); problem != "" {
				return d.Name + ": " + problem
			}
		}
		return ""
	})
	testkit.Eventually(w.T, "the account to be recorded", func() string {
		if _, err := w.lease(); err != nil {
			return err.Error()
		}
		return ""
	})
	return droplets
}

func (w *world) node(name string) (*corev1.Node, error) {
	return w.Client.CoreV1().Nodes().Get(w.T.Context(), name, metav1.GetOptions{})
}

// nodes returns the names of the world's Nodes.
func (w *world) nodes() []string { return slices.Sorted(maps.Keys(w.Nodes())) }

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
	lease, err := w.Client.CoordinationV1().Leases(RecordNamespace).Get(w.T.Context(), w.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return lease.Annotations, nil
}

// grants follows the record from now on and returns what tells when each loss was granted, which is recorded before anybody acts on it. Every
// version of the record is seen, as a look now and then would not.
func (w *world) grants() func() map[int]time.Time {
	w.T.Helper()
	leases := w.Client.CoordinationV1().Leases(RecordNamespace)
	watcher := must.Get(leases.Watch(w.T.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + w.Name})).Or(w.T)
	w.T.Cleanup(watcher.Stop)
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
				w.T.Errorf("the record cannot be read: %v", err)
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

// asked waits until the monitor of Nodes has asked for the existence of Nodes that are not ready so many times since now, whatever it was told.
func (w *world) asked(rounds int) {
	w.T.Helper()
	for range rounds {
		mark := w.Sim.Mark()
		testkit.Eventually(w.T, "another look at the droplets", func() string {
			if w.Sim.Mark() == mark {
				return "nothing was asked for"
			}
			return ""
		})
	}
}

// trust is the state that the metric shows.
func (w *world) trust() string {
	families, err := w.Registry.Gather()
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
	w.T.Helper()
	testkit.Eventually(w.T, "the state "+string(state), func() string {
		if got := w.trust(); got != string(state) {
			return "it is " + got
		}
		return ""
	})
	w.asked(5)
	if got := w.nodes(); len(got) != want {
		w.T.Fatalf("%d Nodes are left of %d: %q", len(got), want, got)
	}
}
